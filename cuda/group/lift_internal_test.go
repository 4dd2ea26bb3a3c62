package group

import (
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/cuda/kernel"
)

// ways returns what can become of a call with a plan.
func ways(p *plan.Plan) map[string]taker {
	all := map[string]taker{"stream": taped, "graph": tapedGraph}
	if p.Alias&plan.Lend != 0 {
		all["borrowed"], all["lends"] = tapedIn(borrowed), tapedIn(lends)
	}
	if p.Spec.Coll.LengthsKnown() && fits(p) {
		all["table"] = tapedTable
		if p.Name == "one_shot_window" || p.Name == "window" && p.Spec.Coll == dtype.AllGather {
			all["packets"] = tapedPackets
		}
	}
	return all
}

// A wait, a copy or a signal that is missing is found.
func TestEnqueuedIsProvenWrong(t *testing.T) {
	for _, name := range []string{"two_shot_window", "one_shot_window"} {
		a, err := algo.Find(dtype.AllReduce, name)
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 3})
		require.NoError(t, err)
		for _, take := range ways(p) {
			provenWrong(t, enqueued(t, p, take))
		}
	}
}

// Every wait for packets is needed in a row of operations, too, since it is all that says that a
// set may be used again.
func TestPacketsInARowAreProvenWrong(t *testing.T) {
	a, err := algo.Find(dtype.AllReduce, "one_shot_window")
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 3})
	require.NoError(t, err)
	op := enqueued(t, p, tapedPackets)
	op.Slots = 1 // with one set, nothing says so
	require.Error(t, verify.Sequence([]verify.Operation{op, op, op, op}, verify.Options{}))
}

// No flag is 0, none comes again soon, and before one does, all packets have got another.
func TestPacketFlags(t *testing.T) {
	for _, nth := range []uint64{0, 1, 1<<32 - 3, 1<<32 - 2, 1<<32 - 1, 1 << 32, 1<<33 - 2} {
		require.NotZero(t, packetFlag(nth))
		require.NotEqual(t, packetFlag(nth), packetFlag(nth+1))
		require.NotEqual(t, packetFlag(nth), packetFlag(nth+2))
	}
	a, err := algo.Find(dtype.AllReduce, "one_shot_window")
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 2})
	require.NoError(t, err)
	s := taped(t, p, 0)
	n := newInterpreter(s.w)
	low, err := program.Lower(p, &n.Room)
	require.NoError(t, err)
	n.learn(p, low)
	o := &Op{call: s.call, first: 3, low: low}
	const room = share.PacketRoom
	for put, want := range map[uint64]int{0: room, 1: room, 2: 0, wholeSets - 1: 0, wholeSets: room,
		5*wholeSets + 1: room, 5*wholeSets + 2: 0} {
		_, err := n.suits(o)
		require.NoError(t, err)
		n.put = put
		n.packetTable(o)
		require.EqualValues(t, want, n.steps.table.Steps[0].Src[2], "call %d", put)
	}
}

// provenUndrained proves that a rank that lends must drain.
func provenUndrained(t *testing.T, op verify.Operation) {
	lame, reads := op, false
	for rank := range op.Plan.Spec.Ranks {
		reads = reads || op.Ends(rank).Drain && len(op.Plan.Program(rank).Win) > 0
	}
	require.True(t, reads)
	lame.Ends = func(rank int) verify.Ends {
		e := op.Ends(rank)
		e.Drain = false
		return e
	}
	require.Error(t, verify.Sequence([]verify.Operation{lame, lame, lame, lame}, verify.Options{}))
}

func provenWrong(t *testing.T, whole verify.Operation) {
	for i := range whole.Plan.Program(1).Lanes[0] {
		lame := *whole.Plan
		lame.Program = func(rank int) plan.Program {
			prog := whole.Plan.Program(rank)
			if rank == 1 {
				lane := prog.Lanes[0]
				prog.Lanes = [][]plan.Step{append(append([]plan.Step(nil), lane[:i]...), lane[i+1:]...)}
			}
			return prog
		}
		_, err := verify.Plan(&lame, verify.Options{})
		require.Error(t, err, "without step %d: %v", i, whole.Plan.Program(1).Lanes[0][i])
	}
}

const (
	liftSlot = share.RunSlot
	liftElem = 4
)

// mode says what ranks lend.
type mode int

const (
	plain    mode = iota
	borrowed      // where ranks have arenas, and none lends anything
	lends         // where all ranks lend all they can
)

// taker makes the tape of a rank.
type taker func(t *testing.T, p *plan.Plan, rank int) *tape

// enqueued returns what all ranks enqueue for a plan.
func enqueued(t *testing.T, p *plan.Plan, take taker) verify.Operation {
	n := p.Spec.Ranks
	all := make([]*tape, n)
	for rank := range all {
		all[rank] = take(t, p, rank)
	}
	ends := make([]verify.Ends, n)
	for rank, tape := range all {
		if tape.graphs != nil {
			continue // each flag is waited for once
		}
		known := make([]uint64, n)
		for _, e := range tape.events {
			if e.wait && e.word == page.Signal && known[e.peer] < e.value {
				known[e.peer] = all[e.peer].meet(rank, e.value)
				e.needed = true
			}
		}
	}
	p = all[0].plan
	made := *p
	if made.Flags = 1; all[0].mode != lends {
		made.Alias = made.Alias&^plan.Lend | plan.InPlace
	}
	programs := make([]plan.Program, n)
	for rank, tape := range all {
		programs[rank] = p.Program(rank)
		var lane []plan.Step
		lane, ends[rank] = tape.steps()
		programs[rank].Lanes = append([][]plan.Step{lane}, tape.messages()...)
		programs[rank].Tmp = append(programs[rank].Tmp, tape.scratch...)
		if tape.win != nil {
			programs[rank].Win, made.Win, made.Needs = tape.win, n, plan.Puts
		}
	}
	made.Program = func(rank int) plan.Program { return programs[rank] }
	return verify.Operation{Plan: &made, Slots: plan.WindowSlots,
		Ends: func(rank int) verify.Ends { return ends[rank] }}
}

// tape is a stream that notes what it is given.
type tape struct {
	cuda.Stream
	t       *testing.T
	w       *windows
	graphs  *graphs       // or nil
	e       *emit.Emitter // of either
	plan    *plan.Plan
	split   int
	events  []*event
	scratch []plan.Extent
	win     []plan.Extent // where peers put packets; nil if they do not
	call    exec.Call
	ropes   []*rope // by lane but the first, of messages
	counts  []int   // by event: the steps so far
	mode    mode
	placed  map[int]bool // chunks of the window whose place was told
}

// event is a step, or a word.
type event struct {
	step   *plan.Step
	wait   bool
	word   int
	peer   int
	value  uint64
	to     []int // the peers that wait for a signal
	needed bool  // a wait that no earlier one implies
	after  *knot // a wait for another stream
}

// taped enqueues the part of a rank. The operation is not the first one, so it has to wait for its
// slot.
func taped(t *testing.T, p *plan.Plan, rank int) *tape { return tapedLending(t, p, rank, plain) }

func tapedIn(m mode) taker {
	return func(t *testing.T, p *plan.Plan, rank int) *tape { return tapedLending(t, p, rank, m) }
}

func tapedLending(t *testing.T, p *plan.Plan, rank int, m mode) *tape {
	s := newTape(t, p, rank, m)
	w := s.w
	low, err := program.Lower(p, &w.Room)
	require.NoError(t, err)
	require.True(t, low.Words)
	require.Equal(t, m >= borrowed, low.Exposes)
	o := &Op{call: s.call, first: 3}
	require.NoError(t, w.Compile(&o.call, low, 0))
	w.LendPiece()
	require.NoError(t, w.enqueuePiece(o, 0, 0))
	if m == lends {
		w.drain(page.At(4, 0, 0))
	}
	require.NoError(t, w.Flush())
	if m >= borrowed {
		for _, e := range s.events {
			require.True(t, e.step == nil || e.step.Dst.Buf != plan.Win || s.placed[e.step.Dst.At], "%v", e.step)
		}
	}
	return s
}

func newTape(t *testing.T, p *plan.Plan, rank int, m mode) *tape {
	n := p.Spec.Ranks
	g := &Group{rank: rank, size: n}
	w := &windows{shared: &shared{g: g, layout: page.Layout{Ranks: n}, pages: make([]page.Page, n)},
		seenAt: make([]uint64, n),
		Emitter: emit.Emitter{Program: new(program.Program), Places: make([]cuda.Ptr, n),
			Scratch:   windowBase(rank) + plan.WindowSlots*liftSlot,
			Functions: map[*kernel.Function]cuda.Function{}, Processors: 10, Gathers: true}}
	w.Room = program.Room{Rank: rank, Ranks: n, Channels: 1, Slot: liftSlot, Enqueued: true,
		Windows: make([]program.Window, n)}
	for r := range n {
		w.Places[r], w.pages[r].Device = windowBase(r), pageBase(r)
		if r != rank {
			w.peers = append(w.peers, r)
		}
	}
	if m >= borrowed {
		w.Room.Exposes = true
		w.Lending = emit.Lending{Arena: emit.Lent{Base: blockBase(0, 0), Bytes: liftArenaBytes}, Lends: m == lends}
		for r := range n {
			w.Arenas = append(w.Arenas, emit.Lent{Base: arenaBase(r), Bytes: liftArenaBytes})
			w.Records = append(w.Records, pageBase(r)+cuda.Ptr(w.layout.Place(0, 0)))
		}
		for chunk := range w.Told[1] { // so that each place has to be told anew
			w.Told[1][chunk] = true
		}
	}
	count := 7*p.Split + 1
	call := &exec.Call{Coll: p.Spec.Coll, Type: dtype.F32, Op: dtype.Avg, Root: p.Spec.Root}
	for i := range call.Coll.InBlocks(n, rank, call.Root) {
		call.In = append(call.In, exec.Block{Ptr: liftPointer(blockBase(0, i)), Count: count})
	}
	for i := range call.Coll.OutBlocks(n, rank, call.Root) {
		call.Out = append(call.Out, exec.Block{Ptr: liftPointer(blockBase(1, i)), Count: count})
	}
	s := &tape{t: t, w: w, e: &w.Emitter, plan: p, split: p.Split, call: *call, mode: m,
		placed: map[int]bool{}}
	w.Stream = s
	w.freeAt = [plan.WindowSlots]uint64{page.At(2, 1, 0), page.At(1, 1, 0)}
	return s
}

// liftArenaBytes is the length of memory in which all blocks of a call are.
const liftArenaBytes = 1 << 39

func windowBase(rank int) cuda.Ptr          { return cuda.Ptr(1<<40 + rank<<24) }
func pageBase(rank int) cuda.Ptr            { return cuda.Ptr(1<<41 + rank<<24) }
func blockBase(out, i int) cuda.Ptr         { return cuda.Ptr(1<<42 + out<<38 + i<<24) }
func arenaBase(rank int) cuda.Ptr           { return cuda.Ptr(1<<44 + rank<<40) } // as peers see it
func liftPointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// ref returns the chunk at an address, and the rank whose it is.
func (s *tape) ref(p cuda.Ptr) (ref plan.Ref, rank int) {
	index, off := int(p>>24&0x3fff), int(p&(1<<24-1))
	switch {
	case p>>42 == 1:
		buf := plan.In
		if p>>38&1 == 1 {
			buf = plan.Out
		}
		for j := range s.split {
			if lo, _ := plan.Part(7*s.split+1, s.split, j); lo*liftElem == off {
				return plan.Ref{Buf: buf, At: index*s.split + j, N: 1}, s.w.g.rank
			}
		}
	case p>>43 == 1:
		for i, c := range s.e.Program.Chunks[plan.Tmp] {
			if c.Off == off {
				return plan.Ref{Buf: plan.Tmp, At: i, N: 1}, s.w.g.rank
			}
		}
	case p == windowBase(s.w.g.rank)+plan.WindowSlots*liftSlot:
		return plan.Ref{Buf: plan.Tmp, N: 1}, s.w.g.rank
	case p>>40 == 1:
		cell := s.e.Program.Cell
		require.Equal(s.t, 1, off/liftSlot, "operation 3 has the second slot")
		require.Zero(s.t, off%liftSlot%cell)
		return plan.Ref{Buf: plan.Win, At: off % liftSlot / cell, N: 1}, index
	}
	require.Fail(s.t, "no chunk", "%#x", p)
	return ref, 0
}

func (s *tape) Copy(to, from cuda.Ptr, bytes int) error {
	dst, owner := s.ref(to)
	require.Equal(s.t, s.w.g.rank, owner, "only the owner writes its window")
	src, peer := s.ref(from)
	require.True(s.t, s.mode < borrowed || peer == s.w.g.rank, "what a peer may lend is where its place says")
	step := &plan.Step{Kind: plan.Copy, Dst: dst, Src: []plan.Ref{src}}
	if dst.Buf == plan.Tmp {
		s.scratch = []plan.Extent{s.plan.Spec.Extent(s.split, s.w.g.rank, src.Buf, src.At)}
	}
	if peer != s.w.g.rank {
		step.Kind, step.Peer = plan.Get, peer
	}
	s.events = append(s.events, &event{step: step})
	return nil
}

func (s *tape) Launch(_ cuda.Function, _, _ int, args []byte) error {
	if len(args) == int(unsafe.Sizeof(kernel.Gather{})) {
		s.gather((*kernel.Gather)(unsafe.Pointer(unsafe.SliceData(args))))
		return nil
	}
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(args[at:]) }
	a := (*kernel.Arguments)(unsafe.Pointer(unsafe.SliceData(args)))
	require.Equal(s.t, a.Dst, word(0))
	dst, _ := s.ref(cuda.Ptr(a.Dst))
	step := &plan.Step{Kind: plan.GetReduce, Dst: dst, Final: a.Factor != 1}
	for k, from := range a.Src[:a.Count] {
		src, rank := s.ref(cuda.Ptr(from))
		step.Src, step.From = append(step.Src, src), append(step.From, rank)
		indirect := a.Indirect>>k&1 != 0
		require.Equal(s.t, s.mode >= borrowed && rank != s.w.g.rank, indirect)
		if indirect {
			place := pageBase(rank) + cuda.Ptr(s.w.layout.Place(1, src.At))
			lent := kernel.Lent{Place: uint64(place), Base: uint64(arenaBase(rank)), Bytes: liftArenaBytes}
			require.Equal(s.t, lent, a.Lent[k])
		}
	}
	switch rank := step.From[0]; {
	case a.Count == 1 && rank != s.w.g.rank:
		step.Kind, step.Peer, step.From = plan.Get, rank, nil
	case a.Count == 1:
		step.Kind, step.From = plan.Copy, nil
	}
	s.events = append(s.events, &event{step: step})
	return nil
}

// gather notes chunks that are copied together, in an order that is not that of the plan: the
// device has none.
func (s *tape) gather(g *kernel.Gather) {
	require.Greater(s.t, g.Count, uint64(1))
	for _, c := range slices.Backward(g.Chunks[:g.Count]) {
		if c.Place == 0 {
			require.NoError(s.t, s.Copy(cuda.Ptr(c.Dst), cuda.Ptr(c.Src), int(c.N)))
			continue
		}
		one := kernel.Copy().Arguments(c.Dst, int(c.N), 1, c.Src)
		one.Lend(0, c.Lent)
		require.NoError(s.t, s.Launch(nil, 0, 0, one.Bytes()))
	}
}

// tapedGraph makes the part of a rank part of a graph, as its second piece. Peer r has region r%3.
func tapedGraph(t *testing.T, p *plan.Plan, rank int) *tape {
	s := taped(t, p, rank)
	w, n := s.w, p.Spec.Ranks
	w.layout.Graphs = 3
	c := &graphs{shared: w.shared, Emitter: emit.Emitter{Program: new(program.Program), Stream: s,
		Room: w.Room, Places: w.Places, Scratch: w.Scratch,
		Functions: w.Functions, Processors: w.Processors, Gathers: true},
		mine: rank % 3, turn: 1, theirs: make([]int, n), seen: make([]int, n), signalled: make([]int, n),
		regions: make([]region, 3)}
	for peer := range c.theirs {
		c.theirs[peer] = peer % 3
	}
	c.regions[c.mine].captured = make([]captured, 1)
	s.graphs, s.e, s.events, s.scratch = c, &c.Emitter, nil, nil
	low, err := program.Lower(p, &c.Room)
	require.NoError(t, err)
	require.LessOrEqual(t, low.MostTold, page.MostTold)
	o := &Op{call: s.call}
	require.NoError(t, c.Compile(&o.call, low, 0))
	require.NoError(t, c.part(0))
	require.NoError(t, c.Flush())
	return s
}

// tapedTable makes the part of a rank the table of a kernel, which uses the second slot. What its
// steps do is noted as if each were enqueued by itself.
func tapedTable(t *testing.T, p *plan.Plan, rank int) *tape {
	s := taped(t, p, rank)
	w := s.w
	n := newInterpreter(w)
	copy(n.Places, w.Places) // where ref finds chunks
	n.turn, n.freeAt = 1, [plan.WindowSlots]usedSlot{{page.At(2, 1, 0), 1}, {page.At(1, 1, 0), 2}}
	clear(w.seenAt)
	s.e, s.events, s.scratch = &n.Emitter, nil, nil
	low, err := program.Lower(p, &n.Room)
	require.NoError(t, err)
	n.learn(p, low)
	o := &Op{call: s.call, first: 3, low: low}
	taken, err := n.suits(o)
	require.NoError(t, err)
	require.True(t, taken)
	require.NoError(t, n.tableOf(o, 2))
	for i := range n.steps.table.Steps[:n.steps.table.Count] {
		a := &n.steps.table.Steps[i]
		switch a.Kind {
		case kernel.Copies:
			require.NoError(t, s.Copy(cuda.Ptr(a.Dst), cuda.Ptr(a.Src[0]), int(a.N)))
		case kernel.Reduces, kernel.Scales:
			launched := kernel.Arguments{Step: *a}
			require.NoError(t, s.Launch(nil, 0, 0, launched.Bytes()))
		default:
			s.flagsOf(a, page.At(3, 1, 0))
		}
	}
	return s
}

// tapedPackets makes the part of a rank the table of a kernel that puts packets into the second
// set. Those of a rank are a chunk of the windows of all others.
func tapedPackets(t *testing.T, p *plan.Plan, rank int) *tape {
	s := taped(t, p, rank)
	w, ranks := s.w, p.Spec.Ranks
	n := newInterpreter(w)
	for r := range n.packets {
		n.packets[r] = packetBase(r)
	}
	n.put = 1
	s.e, s.events, s.scratch = &n.Emitter, nil, nil
	low, err := program.Lower(p, &n.Room)
	require.NoError(t, err)
	n.learn(p, low)
	o := &Op{call: s.call, first: 3, low: low}
	taken, err := n.suits(o)
	require.NoError(t, err)
	require.True(t, taken)
	require.True(t, n.inPackets(&o.call))
	n.packetTable(o)
	for r := range ranks {
		chunk := plan.Ref{Buf: plan.In}
		if p.Spec.Coll == dtype.AllGather {
			chunk = plan.Ref{Buf: plan.Out, At: r}
		}
		s.win = append(s.win, p.Spec.Extent(s.split, rank, chunk.Buf, chunk.At))
	}
	s.scratch = s.win
	steps := n.steps.table.Steps[:n.steps.table.Count]
	for i := range steps {
		s.packets(n, &steps[i])
	}
	return s
}

func packetBase(rank int) cuda.Ptr { return cuda.Ptr(1<<44 + rank<<24) }

// packets notes a step of a table of packets.
func (s *tape) packets(n *interpreter, a *kernel.Step) {
	ref := func(p uint64) (ref plan.Ref, owner int) {
		if p>>44 == 0 {
			return s.ref(cuda.Ptr(p))
		}
		owner = int(p >> 24 & 0xffff)
		for writer := range n.Places {
			switch {
			case cuda.Ptr(p) == n.packetsAt(owner, writer, 1):
				return plan.Ref{Buf: plan.Win, At: writer, N: 1}, owner
			case owner == s.w.g.rank && cuda.Ptr(p) == n.takenAt(writer):
				return plan.Ref{Buf: plan.Tmp, At: writer, N: 1}, owner
			}
		}
		require.Fail(s.t, "no packets", "%#x", p)
		return ref, 0
	}
	dst, owner := ref(a.Dst)
	step := &plan.Step{Kind: plan.Copy, Dst: dst, Final: a.Factor != 1 && a.Factor != 0}
	sources := a.Count
	for _, p := range a.Src[:sources] {
		src, own := ref(p)
		require.Equal(s.t, s.w.g.rank, own, "nobody reads what is another's")
		step.Src = append(step.Src, src)
	}
	switch {
	case a.Kind == kernel.Puts:
		require.NotEqual(s.t, s.w.g.rank, owner)
		require.Equal(s.t, s.w.g.rank, dst.At, "packets have one writer")
		require.EqualValues(s.t, packetFlag(1), a.Src[1])
		step.Kind, step.Peer = plan.Packet, owner
	case a.Kind == kernel.Takes:
		require.EqualValues(s.t, packetFlag(1), a.Src[1])
		require.EqualValues(s.t, step.Src[0].At, a.Src[2])
		s.events = append(s.events, &event{step: &plan.Step{Kind: plan.Wait, Peer: int(a.Src[2])}})
	case sources > 1:
		step.Kind = plan.Reduce
	}
	s.events = append(s.events, &event{step: step})
}

// flagsOf notes a step that signals or waits. left is the position of a rank that has left its
// slot.
func (s *tape) flagsOf(a *kernel.Step, left uint64) {
	waits := a.Kind == kernel.Waits
	word := page.Signal
	if waits && a.Src[0] > 0 {
		word = page.Left
		require.EqualValues(s.t, 2, a.Src[0], "of all blocks that have used the slot")
	} else if !waits && a.N == left {
		word = page.Left
	}
	for peer := range s.w.g.size {
		if a.Count>>peer&1 == 1 {
			require.NotEqual(s.t, s.w.g.rank, peer)
			s.events = append(s.events, &event{wait: waits, word: word, peer: peer, value: a.N})
		}
	}
}

// flags notes the words of a graph. Those that tell the host what the stream waits for are left
// out, and so are those that set a flag back, which must have been waited for.
func (s *tape) flags(ops []cuda.WordOp) {
	l, own := s.w.layout, s.w.g.rank
	waited := map[cuda.Ptr]bool{}
	for _, op := range ops {
		at, off := int(op.At>>24&0xffff), int(op.At&(1<<24-1))
		if off < l.Ticks(l.Graphs) {
			require.Equal(s.t, l.Ticks(s.graphs.mine)+8, off)
			require.Equal(s.t, own, at)
			continue
		}
		if !op.Wait && at == own {
			require.Zero(s.t, op.Value)
			require.True(s.t, waited[op.At], "what is set back was waited for")
			delete(waited, op.At)
			continue
		}
		require.EqualValues(s.t, 1, op.Value)
		lines := (off - l.Signal(0, 0, 0)) / page.WordBytes
		peer, region, word := lines/2/l.Graphs, lines/2%l.Graphs, []int{page.Signal, page.Left}[lines%2]
		nth := off % page.WordBytes / 8
		owner := peer // of the region
		if word == page.Left {
			owner = at
			require.Equal(s.t, 1, nth, "the second slot")
		} else {
			require.Equal(s.t, 1, nth/page.MostTold, "the second slot")
			nth %= page.MostTold
		}
		require.Equal(s.t, owner%3, region)
		e := &event{wait: op.Wait, word: word, peer: peer, value: uint64(nth)}
		if op.Wait {
			require.Equal(s.t, own, at, "a rank waits in its own page only")
			require.NotEqual(s.t, own, peer)
			waited[op.At] = true
			e.needed = true
		} else {
			require.Equal(s.t, own, peer, "a flag has one writer")
			e.peer, e.to = at, []int{at}
		}
		if word == page.Signal {
			require.Equal(s.t, s.seen(e), nth, "signals come in order, each once")
		}
		s.events = append(s.events, e)
	}
	require.Empty(s.t, waited, "every flag is set back")
}

// seen returns how many events like this one there were.
func (s *tape) seen(like *event) (n int) {
	for _, e := range s.events {
		if e.step == nil && e.wait == like.wait && e.word == like.word && e.peer == like.peer {
			n++
		}
	}
	return n
}

func (s *tape) Words(ops []cuda.WordOp) error {
	if s.graphs != nil {
		s.flags(ops)
		return nil
	}
	for _, op := range ops {
		at, off := int(op.At>>24&0xffff), int(op.At&(1<<24-1))
		if first := s.w.layout.Place(0, 0); off >= first {
			require.Equal(s.t, s.w.g.rank, at)
			s.tellPlace((off-first)/8, op)
			continue
		}
		peer, word := off/page.WordBytes/page.WordsOfPeer, off/page.WordBytes%page.WordsOfPeer
		if op.Wait {
			require.Equal(s.t, s.w.g.rank, at, "a rank waits in its own page only")
		} else {
			require.Equal(s.t, s.w.g.rank, peer, "a word has one writer")
			peer = at
		}
		if word == page.Offer { // in which the values of a piece come before those of the other word
			word = page.Signal
		}
		s.events = append(s.events, &event{wait: op.Wait, word: word, peer: peer, value: op.Value})
	}
	return nil
}

// tellPlace notes the place of a chunk. For the peers, to lend a chunk is the same as to copy it.
func (s *tape) tellPlace(n int, op cuda.WordOp) {
	require.False(s.t, op.Wait)
	require.Equal(s.t, 1, n/program.MaxExposed, "operation 3 has the second slot")
	chunk := n % program.MaxExposed
	s.placed[chunk] = true
	own := plan.Ref{Buf: plan.Win, At: chunk, N: 1}
	if op.Value&(1<<kernel.PlaceBits) == 0 {
		written := false // since the stream has waited
		for _, e := range slices.Backward(s.events) {
			if e.step == nil {
				break
			}
			written = written || e.step.Dst == own
		}
		require.True(s.t, written, "its data was written now")
		return
	}
	from, _ := s.ref(blockBase(0, 0) + cuda.Ptr(op.Value&(1<<kernel.PlaceBits-1)))
	s.events = append(s.events, &event{step: &plan.Step{Kind: plan.Copy, Dst: own, Src: []plan.Ref{from}}})
}

// meet makes the first write of a value, or a later one, a signal to a rank, and returns its value.
func (s *tape) meet(rank int, value uint64) uint64 {
	for _, e := range s.events {
		if e.step == nil && !e.wait && e.word == page.Signal && e.peer == rank && e.value >= value {
			e.to = append(e.to, rank)
			return e.value
		}
	}
	require.Fail(s.t, "nobody writes what a rank waits for")
	return 0
}

// steps returns the lane, and where it enters and leaves its slot.
func (s *tape) steps() (lane []plan.Step, ends verify.Ends) {
	entered, left, drained := 0, 0, 0
	var after []plan.Point
	add := func(step plan.Step) {
		step.After, after = after, nil
		lane = append(lane, step)
	}
	for _, e := range s.events {
		switch {
		case e.after != nil:
			after = append(after, e.after.point())
		case e.step != nil:
			require.Zero(s.t, drained)
			add(*e.step)
		case e.word == page.Left && e.wait && e.value == page.At(4, 0, 0):
			drained++
			ends.Drain = true
		case e.word == page.Left && e.wait:
			if s.graphs == nil {
				require.Equal(s.t, page.At(1, 1, 0), e.value)
			}
			entered++
			ends.Enter = []int{len(lane)}
		case e.word == page.Left:
			left++
			ends.Leave = []int{len(lane)}
		case e.wait && e.needed:
			add(plan.Step{Kind: plan.Wait, Peer: e.peer})
		case !e.wait:
			for _, peer := range e.to {
				add(plan.Step{Kind: plan.Signal, Peer: peer})
			}
		}
		s.counts = append(s.counts, len(lane))
	}
	if s.graphs == nil && s.win == nil {
		require.Contains(s.t, []int{0, len(s.w.peers)}, entered)
		require.Equal(s.t, len(s.w.peers), left)
		require.Equal(s.t, s.mode == lends, drained == len(s.w.peers))
	}
	return lane, ends
}

// Packets stand for a plan whose operands come in the order of the ranks, whatever its name is.
func TestPacketsByPlan(t *testing.T) {
	for name, want := range map[string]bool{"one_shot_window": true, "two_shot_window": false} {
		for _, ranks := range []int{2, 3, 8} {
			a, err := algo.Find(dtype.AllReduce, name)
			require.NoError(t, err)
			p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
			require.NoError(t, err)
			require.Equal(t, want, foldsOnce(p), name)
			other := *p
			other.Name = "one_shot_window"
			other.Program = func(rank int) plan.Program { // from the last rank to the first
				prog := p.Program(rank)
				lane := slices.Clone(prog.Lanes[0])
				for i := range lane {
					lane[i].Src, lane[i].From = slices.Clone(lane[i].Src), slices.Clone(lane[i].From)
					slices.Reverse(lane[i].Src)
					slices.Reverse(lane[i].From)
				}
				prog.Lanes = [][]plan.Step{lane}
				return prog
			}
			require.False(t, foldsOnce(&other), name)
		}
	}
}

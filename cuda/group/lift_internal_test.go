package group

import (
	"encoding/binary"
	"fmt"
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
	"github.com/goccl/goccl/cuda/kernel"
)

// What a rank enqueues for each plan that reads windows, turned back into steps, is proven like any
// other plan, and so are four operations in a row that use the slots in turn. The same holds for
// what becomes part of a graph.
func TestEnqueuedIsProven(t *testing.T) {
	plans := 0
	for _, a := range algo.All() {
		for _, ranks := range []int{2, 3, 5, 8, 9, 17} {
			for _, root := range verify.Roots(a.Coll, min(ranks, 3)) {
				p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks, Root: root})
				if err != nil || p.Needs&plan.Gets == 0 || p.Needs&plan.Puts == 0 {
					continue
				}
				plans++
				t.Run(fmt.Sprint(a.Coll, "=", a.Name, " ", ranks, " ranks, root ", root), func(t *testing.T) {
					for _, graph := range []bool{false, true} {
						op := enqueued(t, p, graph)
						_, err := verify.Plan(op.Plan, verify.Options{})
						require.NoError(t, err, "in a graph: %v", graph)
						four := []verify.Operation{op, op, op, op}
						require.NoError(t, verify.Sequence(four, verify.Options{}), "in a graph: %v", graph)
					}
				})
			}
		}
	}
	require.Greater(t, plans, 40)
}

// A wait, a copy or a signal that is missing is found.
func TestEnqueuedIsProvenWrong(t *testing.T) {
	a, err := algo.Find(dtype.AllReduce, "two_shot_window")
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 3})
	require.NoError(t, err)
	for _, graph := range []bool{false, true} {
		provenWrong(t, enqueued(t, p, graph))
	}
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
	liftSlot = 64 << 10
	liftElem = 4
)

// enqueued returns what all ranks enqueue for a plan.
func enqueued(t *testing.T, p *plan.Plan, graph bool) verify.Operation {
	n := p.Spec.Ranks
	all := make([]*tape, n)
	for rank := range all {
		if graph {
			all[rank] = tapedGraph(t, p, rank)
		} else {
			all[rank] = taped(t, p, rank)
		}
	}
	ends := make([]verify.Ends, n)
	for rank, tape := range all {
		if graph {
			continue // each flag is waited for once
		}
		known := make([]uint64, n)
		for _, e := range tape.events {
			if e.wait && e.word == wordSignal && known[e.peer] < e.value {
				known[e.peer] = all[e.peer].meet(rank, e.value)
				e.needed = true
			}
		}
	}
	made := *p
	made.Alias, made.Flags = made.Alias&^plan.Lend|plan.InPlace, 1
	programs := make([]plan.Program, n)
	for rank, tape := range all {
		programs[rank] = p.Program(rank)
		programs[rank].Lanes, ends[rank] = tape.steps()
		programs[rank].Tmp = tape.scratch
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
	graphs  *graphs  // or nil
	e       *emitter // of either
	plan    *plan.Plan
	split   int
	events  []*event
	scratch []plan.Extent
	call    exec.Call
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
}

// taped enqueues the part of a rank. The operation is not the first one, so it has to wait for its
// slot.
func taped(t *testing.T, p *plan.Plan, rank int) *tape {
	n := p.Spec.Ranks
	g := &Group{rank: rank, size: n}
	w := &windows{g: g, layout: layout{ranks: n}, pages: make([]page, n), heard: make([]uint64, n),
		emitter: emitter{places: make([]cuda.Ptr, n), scratch: windowBase(rank) + plan.WindowSlots*liftSlot,
			functions: map[*kernel.Function]cuda.Function{}, processors: 10}}
	w.room = program.Room{Rank: rank, Ranks: n, Channels: 1, Slot: liftSlot, Enqueued: true,
		Windows: make([]program.Window, n)}
	for r := range n {
		w.places[r], w.pages[r].device = windowBase(r), pageBase(r)
	}
	low, err := program.Lower(p, &w.room)
	require.NoError(t, err)
	require.True(t, low.Words)
	count := 7*p.Split + 1
	call := &exec.Call{Coll: p.Spec.Coll, Type: dtype.F32, Op: dtype.Avg, Root: p.Spec.Root}
	for i := range call.Coll.InBlocks(n, rank, call.Root) {
		call.In = append(call.In, exec.Block{Ptr: liftPointer(blockBase(0, i)), Count: count})
	}
	for i := range call.Coll.OutBlocks(n, rank, call.Root) {
		call.Out = append(call.Out, exec.Block{Ptr: liftPointer(blockBase(1, i)), Count: count})
	}
	s := &tape{t: t, w: w, e: &w.emitter, plan: p, split: p.Split, call: *call}
	w.stream = s
	o := &Op{call: *call, first: 3}
	w.used = [plan.WindowSlots]uint64{at(2, 1, 0), at(1, 1, 0)}
	require.NoError(t, w.compile(&o.call, low, 0))
	require.NoError(t, w.piece(o, 0, 0))
	require.NoError(t, w.flush())
	return s
}

func windowBase(rank int) cuda.Ptr          { return cuda.Ptr(1<<40 + rank<<24) }
func pageBase(rank int) cuda.Ptr            { return cuda.Ptr(1<<41 + rank<<24) }
func blockBase(out, i int) cuda.Ptr         { return cuda.Ptr(1<<42 + out<<41 + i<<24) }
func liftPointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// ref returns the chunk at an address, and the rank whose it is.
func (s *tape) ref(p cuda.Ptr) (ref plan.Ref, rank int) {
	index, off := int(p>>24&0xffff), int(p&(1<<24-1))
	switch {
	case p>>42 == 1 && p>>41&1 == 0 || p>>42 == 1 && p>>41&1 == 1:
		buf := plan.In
		if p>>41&1 == 1 {
			buf = plan.Out
		}
		for j := range s.split {
			if lo, _ := plan.Part(7*s.split+1, s.split, j); lo*liftElem == off {
				return plan.Ref{Buf: buf, At: index*s.split + j, N: 1}, s.w.g.rank
			}
		}
	case p == windowBase(s.w.g.rank)+plan.WindowSlots*liftSlot:
		return plan.Ref{Buf: plan.Tmp, N: 1}, s.w.g.rank
	case p>>40 == 1:
		cell := s.e.program.Cell
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
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(args[at:]) }
	a := (*kernel.Arguments)(unsafe.Pointer(unsafe.SliceData(args)))
	require.Equal(s.t, a.Dst, word(0))
	dst, _ := s.ref(cuda.Ptr(a.Dst))
	step := &plan.Step{Kind: plan.GetReduce, Dst: dst, Final: a.Factor != 1}
	for _, from := range a.Src[:a.Count] {
		src, rank := s.ref(cuda.Ptr(from))
		step.Src, step.From = append(step.Src, src), append(step.From, rank)
	}
	if a.Count == 1 {
		step.Kind, step.From = plan.Copy, nil
	}
	s.events = append(s.events, &event{step: step})
	return nil
}

// tapedGraph makes the part of a rank part of a graph, as its second piece. Peer r has region r%3.
func tapedGraph(t *testing.T, p *plan.Plan, rank int) *tape {
	s := taped(t, p, rank)
	w, n := s.w, p.Spec.Ranks
	w.layout.graphs = 3
	c := &graphs{w: w, emitter: emitter{stream: s, room: w.room, places: w.places, scratch: w.scratch,
		functions: w.functions, processors: w.processors},
		mine: rank % 3, turn: 1, theirs: make([]int, n), heard: make([]int, n), told: make([]int, n),
		regions: make([]region, 3)}
	for peer := range c.theirs {
		c.theirs[peer] = peer % 3
	}
	c.regions[c.mine].captured = make([]captured, 1)
	s.graphs, s.e, s.events, s.scratch = c, &c.emitter, nil, nil
	low, err := program.Lower(p, &c.room)
	require.NoError(t, err)
	require.LessOrEqual(t, low.MostTold, mostTold)
	o := &Op{call: s.call}
	require.NoError(t, c.compile(&o.call, low, 0))
	require.NoError(t, c.piece(o, 0))
	require.NoError(t, c.flush())
	return s
}

// flags notes the words of a graph. Those that tell the host what the stream waits for are left
// out, and so are those that set a flag back, which must have been waited for.
func (s *tape) flags(ops []cuda.WordOp) {
	l, own := s.w.layout, s.w.g.rank
	waited := map[cuda.Ptr]bool{}
	for _, op := range ops {
		page, off := int(op.At>>24&0xffff), int(op.At&(1<<24-1))
		if off < l.ticks(l.graphs) {
			require.Equal(s.t, l.ticks(s.graphs.mine)+8, off)
			require.Equal(s.t, own, page)
			continue
		}
		if !op.Wait && page == own {
			require.Zero(s.t, op.Value)
			require.True(s.t, waited[op.At], "what is set back was waited for")
			delete(waited, op.At)
			continue
		}
		require.EqualValues(s.t, 1, op.Value)
		lines := (off - l.signal(0, 0, 0)) / wordBytes
		peer, region, word := lines/2/l.graphs, lines/2%l.graphs, []int{wordSignal, wordLeft}[lines%2]
		nth := off % wordBytes / 8
		owner := peer // of the region
		if word == wordLeft {
			owner = page
			require.Equal(s.t, 1, nth, "the second slot")
		} else {
			require.Equal(s.t, 1, nth/mostTold, "the second slot")
			nth %= mostTold
		}
		require.Equal(s.t, owner%3, region)
		e := &event{wait: op.Wait, word: word, peer: peer, value: uint64(nth)}
		if op.Wait {
			require.Equal(s.t, own, page, "a rank waits in its own page only")
			require.NotEqual(s.t, own, peer)
			waited[op.At] = true
			e.needed = true
		} else {
			require.Equal(s.t, own, peer, "a flag has one writer")
			e.peer, e.to = page, []int{page}
		}
		if word == wordSignal {
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
		page, off := int(op.At>>24&0xffff), int(op.At&(1<<24-1))
		peer, word := off/wordBytes/wordsOfPeer, off/wordBytes%wordsOfPeer
		if op.Wait {
			require.Equal(s.t, s.w.g.rank, page, "a rank waits in its own page only")
		} else {
			require.Equal(s.t, s.w.g.rank, peer, "a word has one writer")
			peer = page
		}
		if word == wordOffer { // in which the values of a piece come before those of the other word
			word = wordSignal
		}
		s.events = append(s.events, &event{wait: op.Wait, word: word, peer: peer, value: op.Value})
	}
	return nil
}

// meet makes the first write of a value, or a later one, a signal to a rank, and returns its value.
func (s *tape) meet(rank int, value uint64) uint64 {
	for _, e := range s.events {
		if e.step == nil && !e.wait && e.word == wordSignal && e.peer == rank && e.value >= value {
			e.to = append(e.to, rank)
			return e.value
		}
	}
	require.Fail(s.t, "nobody writes what a rank waits for")
	return 0
}

// steps returns the lane, and where it enters and leaves its slot.
func (s *tape) steps() (lanes [][]plan.Step, ends verify.Ends) {
	var lane []plan.Step
	entered, left := 0, 0
	for _, e := range s.events {
		switch {
		case e.step != nil:
			lane = append(lane, *e.step)
		case e.word == wordLeft && e.wait:
			if s.graphs == nil {
				require.Equal(s.t, at(1, 1, 0), e.value)
			}
			entered++
			ends.Enter = []int{len(lane)}
		case e.word == wordLeft:
			left++
			ends.Leave = []int{len(lane)}
		case e.wait && e.needed:
			lane = append(lane, plan.Step{Kind: plan.Wait, Peer: e.peer})
		case !e.wait:
			for _, peer := range e.to {
				lane = append(lane, plan.Step{Kind: plan.Signal, Peer: peer})
			}
		}
	}
	if s.graphs == nil {
		require.Contains(s.t, []int{0, s.w.g.size - 1}, entered)
		require.Equal(s.t, s.w.g.size-1, left)
	}
	return [][]plan.Step{lane}, ends
}

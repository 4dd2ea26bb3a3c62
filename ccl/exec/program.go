package exec

import (
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// program is one rank's part of a plan, compiled for one shape of call: every instruction has its
// operands as base, block and offset, so that a repeated call needs only its base pointers. It is
// not changed while an operation runs by it.
type program struct {
	low   *lowered
	lanes [][]instr
	arithmetic
	layout
	fingerprint      transport.Meta // what fingerprints have of the call, without number and history
	digest           uint64         // what the call adds to the history
	unit             int            // bytes of an element; 1 where there are none
	chunks           [4][]chunk     // by plan.Buffer
	tmp              int            // bytes of Tmp, and of a Win that no peer reads
	straight         bool           // one lane, and no frames to look for
	messages         bool           // it sends or receives
	simple           bool           // straight, without messages and Tmp, and nothing is exposed
	short            bool           // ranks keep their core as long as that holds up nobody (window.Set.MaySpin)
	exposes          bool           // it may expose registered memory to the peers
	strict           bool           // lengths that peers announce are compared with those of this rank, one by one
	readsUnannounced bool           // it may read windows of ranks before it has heard from them where their chunks are
}

type opcode uint8

const (
	opSignal opcode = iota // words: publishes how many signals this rank has given
	opWait                 // words: a peer has given so many
	opCopy
	opReduce
	opEnter // the slot of the windows is free
	opLeave // this rank reads no window of a peer any more
	opDrain // no peer reads memory that this rank exposes
	opSend
	opRecv
	opPut  // frames: puts, packets and signals
	opTake // frames: a signal was counted
)

// instr is a step of a plan, or one chunk of it.
type instr struct {
	op        opcode
	first     bool // words: the first that this rank publishes, or hears from the peer, in the operation
	extended  bool // words: more than the call is announced
	plain     bool // its elements are not multiplied
	way       way
	gated     bool
	peer      int
	nth       int // words
	bytes     int
	elems     int   // of a reduction
	step      *step // nil for what no step says
	src       []operand
	dst       operand
	fusedCopy operand
	to, from  []chunk // of messages
	gates     []gate
	pc        int // the step in its lane; -1 and the length of the lane for what comes before and after
}

// way is how a copy, get, reduce or getreduce is done: the commonest ones are told apart before
// they run.
type way uint8

const (
	wayGeneral way = iota
	wayNothing     // there is nothing to do
	way4           // the copy of a number
	way8           // of a longer one
	way16          // of a complex one
	wayFused       // the copy does the step's fusedCopy, too
	wayOfTwo       // the reduction is of two sources, and nothing is multiplied
)

// base says in what memory an operand lies.
type base uint8

const (
	baseIn base = iota
	baseOut
	baseTmp
	baseOwn  // the window of this rank, or what it exposes in its place
	basePeer // that of another rank, or what that exposes
)

// operand is a chunk of a buffer: a place that depends on the buffers of a call and on whose turn
// the slots of the windows are.
type operand struct {
	base  base
	buf   plan.Buffer
	index int32 // block of In or Out; rank of a window
	chunk int32 // of the buffer
	off   int
	at    address // of a window: the first chunk, in the first turn; else nil
}

type chunk struct {
	operand
	bytes int
}

// in is where an operand lies, if it is in no window or nobody exposes memory in place of its
// window.
func (o *operand) in(f *frame, call *Call) address { return o.place(f, call, f.shift) }

// place is in with the shift of the turn.
func (o *operand) place(f *frame, call *Call, shift int) address {
	if o.at != nil {
		return plus(o.at, o.off+shift)
	}
	if o.base == baseTmp {
		return plus(f.tmp, o.off)
	}
	blocks := call.In
	if o.base == baseOut {
		blocks = call.Out
	}
	return plus(blocks[o.index].Ptr, o.off)
}

// layout says which part of each block an operation, or a piece of it, has, and where the chunks of
// a window are. A plan that reads windows is cut into pieces so that every chunk of a window fits
// its cell of the slot. All ranks find the same, because the lengths of all blocks are known to all
// of them, by the collective or by the exchange, or because each waits in every piece for all
// others and hears from them how many they need.
type layout struct {
	piece, last int
	reach       int                     // elements of each block in one piece; 0: all
	cell        int                     // bytes of a chunk of a slot
	inline      int                     // bytes of a chunk of this rank's window, which are in the record; 0 if they are in the slot
	depth       uint64                  // operations that may be under way at the same time
	shift       [plan.WindowNotices]int // by turn: how far chunks of windows lie behind those of the first turn
}

// cut makes the layout of a piece.
func (l *layout) cut(c *Comm, low *lowered, call *Call, piece int) {
	*l = layout{piece: piece, depth: plan.WindowNotices}
	if !low.slots || low.window == 0 {
		return
	}
	size := call.Type.Size()
	l.cell = c.windows.Slot / low.window &^ (mem.Align - 1)
	l.reach = l.cell / max(size, 1) * low.split
	longest := 0
	if low.counts {
		for _, n := range c.exchange.matrix {
			longest = max(longest, int(n))
		}
	}
	for _, blocks := range [2][]Block{call.In, call.Out} {
		for _, b := range blocks {
			longest = max(longest, b.Count)
		}
	}
	l.last = max(0, longest-1) / l.reach
	count := uint64(longest)
	if low.announces {
		count = evenCount(call.In)
	}
	if l.inline = low.inline(count, size); l.inline == 0 {
		l.depth = plan.WindowSlots
	}
	for turn := range l.shift {
		l.shift[turn] = turn * window.RecordBytes
		if l.inline == 0 {
			l.shift[turn] = turn % plan.WindowSlots * c.windows.Slot
		}
	}
}

// share is the part of a block of so many elements that the piece has: n elements from element at.
func (l *layout) share(count int) (at, n int) {
	if l.reach == 0 {
		return 0, count
	}
	at = min(l.piece*l.reach, count)
	return at, min(l.reach, count-at)
}

// compile makes p the program for a call, or for one piece of it. It keeps nothing of the call's
// memory.
func (c *Comm) compile(p *program, low *lowered, call *Call, piece int) error {
	size := call.Type.Size()
	changed := p.low != low
	p.low, p.unit = low, max(size, 1)
	p.cut(c, low, call, piece)
	p.chunks[plan.In] = p.cutBlocks(p.chunks[plan.In][:0], baseIn, call.In, size)
	p.chunks[plan.Out] = p.cutBlocks(p.chunks[plan.Out][:0], baseOut, call.Out, size)
	p.tmp = 0
	p.chunks[plan.Tmp] = c.layOut(p, p.chunks[plan.Tmp][:0], low.tmp, call)
	if low.slots {
		p.chunks[plan.Win] = p.chunks[plan.Win][:0]
		for i, e := range low.win {
			o := operand{base: baseOwn, chunk: int32(i)}
			o.off, o.at = c.windowPlace(p, c.rank, i)
			p.chunks[plan.Win] = append(p.chunks[plan.Win], chunk{o, c.length(p, e, call)})
		}
	} else {
		p.chunks[plan.Win] = c.layOut(p, p.chunks[plan.Win][:0], low.win, call)
	}
	if p.tmp > maxBytes {
		p.low = nil
		return fault.New(fault.System, "no memory for the intermediate results of plan %s: more than %d bytes", low.name, maxBytes)
	}
	bytes := total(p.chunks[plan.Win])
	p.short = bytes <= window.MaxKept
	p.exposes = low.exposes && !(call.Coll.Reduces() && call.Op == dtype.PremulSum) && (p.last > 0 || bytes >= worthExposing(call.Coll))
	p.straight = len(low.lanes) == 1 && low.signallers == nil
	p.strict, p.readsUnannounced = low.announces && !sameCounts(call), low.readsUnannounced
	p.calculate(c, call)
	p.sign(call)
	if changed {
		p.structure(c.rank)
	}
	p.simple = p.straight && !p.messages && p.tmp == 0 && !p.exposes
	for _, lane := range p.lanes {
		for i := range lane {
			c.fit(p, &lane[i])
		}
	}
	return nil
}

// resized is s with n elements, as they were or zero.
func resized[T any](s []T, n int) []T {
	if n > cap(s) {
		s = append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// sameCounts reports whether all blocks of an all_to_all have one length.
func sameCounts(call *Call) bool {
	count := evenCount(call.In)
	return count != uneven && count == evenCount(call.Out)
}

// calculate chooses the kernels of a call.
func (a *arithmetic) calculate(c *Comm, call *Call) {
	*a = arithmetic{pre: 1, post: 1, streams: c.lastLevel > 0 && call.touched(c.rank) >= c.lastLevel}
	if !call.Coll.Reduces() {
		return
	}
	unit, _ := dtype.Unit(call.Type, call.Op)
	a.kern, a.fold, a.elem = kernel.For(unit, call.Op), kernel.Reduce(unit, call.Op), unit.Size()
	a.scale, a.mean = kernel.Scale(unit), kernel.SumScale(unit)
	if fast := kernel.Fast(unit, call.Op); fast != nil && c.opts.FastBF16 {
		a.kern, a.fold, a.mean = fast.Pair, fast.Many, fast.Mean
	}
	switch call.Op {
	case dtype.PremulSum:
		a.pre = call.Factor
	case dtype.Avg:
		a.post = 1 / float64(c.size)
	}
}

// sign makes what fingerprints have of a call.
func (p *program) sign(call *Call) {
	print := printOf(call, p.low.hash)
	print.phase = phaseOf(p.piece)
	p.digest = print.digest()
	p.fingerprint = print.meta(0)
	if p.low.announces {
		p.fingerprint[1] |= uint64(p.last)
		p.fingerprint[2] |= evenCount(call.In)
	}
}

// cutBlocks appends the chunks of blocks.
func (p *program) cutBlocks(chunks []chunk, where base, blocks []Block, size int) []chunk {
	for i, b := range blocks {
		at, n := p.share(b.Count)
		for j := range p.low.split {
			lo, hi := plan.Part(n, p.low.split, j)
			chunks = append(chunks, chunk{operand{base: where, index: int32(i), off: (at + lo) * size}, (hi - lo) * size})
		}
	}
	return chunks
}

// layOut appends the chunks of memory that no peer reads, each aligned to a cache line.
func (c *Comm) layOut(p *program, chunks []chunk, extents []plan.Extent, call *Call) []chunk {
	for _, e := range extents {
		bytes := c.length(p, e, call)
		chunks = append(chunks, chunk{operand{base: baseTmp, off: p.tmp}, bytes})
		p.tmp = min(p.tmp+aligned(bytes), maxBytes+1) // each is at most maxBytes, so the sum does not overflow
	}
	return chunks
}

func aligned(bytes int) int { return (bytes + mem.Align - 1) &^ (mem.Align - 1) }

// windowPlace is where chunk i of a rank's window is, if that is laid out as this rank's.
func (c *Comm) windowPlace(p *program, rank, i int) (off int, at address) {
	if p.inline > 0 {
		return i * p.inline, c.windows.Rank(rank).Inline()
	}
	return i * p.cell, c.windows.Rank(rank).Slots()
}

// length is the bytes of a chunk that is as long as e: from the blocks of the call, or from what
// the ranks have told each other.
func (c *Comm) length(p *program, e plan.Extent, call *Call) int {
	if p.low.counts {
		return c.exchange.length(p, e, call)
	}
	buf, block := plan.Out, e.From
	switch call.Coll {
	case dtype.ReduceScatter, dtype.Reduce, dtype.AllReduce:
		buf = plan.In
	case dtype.AllToAll:
		if e.From == c.rank {
			buf, block = plan.In, e.To
		}
	case dtype.Scatter:
		if c.rank == call.Root {
			buf = plan.In
		} else {
			block = 0
		}
	case dtype.Gather:
		if c.rank != call.Root {
			buf, block = plan.In, 0
		}
	}
	return p.chunks[buf][block*p.low.split+e.Part].bytes
}

func total(chunks []chunk) int {
	n := 0
	for i := range chunks {
		n += chunks[i].bytes
	}
	return n
}

func (p *program) of(r plan.Ref) []chunk { return p.chunks[r.Buf][r.At : r.At+r.N] }

// structure makes the instructions of p from the steps of its plan, and says which chunks they work
// on.
func (p *program) structure(rank int) {
	low := p.low
	p.lanes = resized(p.lanes, len(low.lanes))
	for i, steps := range low.lanes {
		lane := p.lanes[i][:0]
		if low.slots {
			lane, _ = add(lane, opEnter, nil, -1)
		}
		for pc := range steps {
			lane = low.addStep(rank, lane, &steps[pc], pc)
		}
		p.lanes[i] = lane
	}
	p.messages = slices.ContainsFunc(p.lanes, func(lane []instr) bool {
		return slices.ContainsFunc(lane, func(b instr) bool { return b.op >= opSend })
	})
	if low.slots {
		p.end()
	}
}

// add appends an instruction for a step. What its place held before is used again.
func add(lane []instr, op opcode, s *step, pc int) ([]instr, *instr) {
	n := len(lane)
	if n < cap(lane) {
		lane = lane[:n+1]
	} else {
		lane = append(lane, instr{})
	}
	b := &lane[n]
	*b = instr{op: op, src: b.src[:0], step: s, pc: pc}
	if s != nil {
		b.peer, b.nth, b.first = s.peer, s.nth, s.first
		b.gates, b.gated = s.gates, s.gates != nil
	}
	return lane, b
}

// addStep appends the instructions of a step: one for each chunk of a copy, reduce, get or
// getreduce.
func (low *lowered) addStep(rank int, lane []instr, s *step, pc int) []instr {
	switch s.kind {
	case plan.Send:
		lane, _ = add(lane, opSend, s, pc)
		return lane
	case plan.Recv, plan.RecvReduce:
		lane, _ = add(lane, opRecv, s, pc)
		return lane
	case plan.Wait:
		op := opWait
		if !low.words {
			op = opTake
		}
		lane, _ = add(lane, op, s, pc)
		return lane
	case plan.Put, plan.Packet, plan.Signal:
		if !low.words {
			lane, _ = add(lane, opPut, s, pc)
		} else if s.nth > 0 { // else the next signal says it
			lane, _ = add(lane, opSignal, s, pc)
		}
		return lane
	}
	for i := range s.dst.N {
		var b *instr
		if lane, b = add(lane, opCopy, s, pc); i > 0 {
			b.gates, b.gated = nil, false
		}
		if len(s.src) > 1 {
			b.op = opReduce
		}
		b.dst = low.operand(s.dst, i)
		if s.fusedCopy != nil {
			b.fusedCopy = low.operand(s.fusedCopy.dst, i)
		}
		for k, r := range s.src {
			o := low.operand(r, i)
			if s.from != nil && s.from[k] != rank {
				o.base, o.index = basePeer, int32(s.from[k])
			}
			b.src = append(b.src, o)
		}
	}
	return lane
}

// operand is chunk i of a Ref.
func (low *lowered) operand(r plan.Ref, i int) operand {
	o := operand{buf: r.Buf, chunk: int32(r.At + i)}
	switch {
	case r.Buf == plan.In:
		o.base, o.index = baseIn, o.chunk/int32(low.split)
	case r.Buf == plan.Out:
		o.base, o.index = baseOut, o.chunk/int32(low.split)
	case r.Buf == plan.Win && low.slots:
		o.base = baseOwn
	default:
		o.base = baseTmp
	}
	return o
}

// end appends what a program that uses the slots of the windows ends with, in a lane of its own
// behind all others if there are several.
func (p *program) end() {
	last := len(p.lanes) - 1
	var gates []gate
	pc := 0
	if last != 0 {
		for lane, steps := range p.low.lanes {
			gates = append(gates, gate{lane: lane, step: len(steps) - 1})
		}
		last++
		p.lanes = resized(p.lanes, last+1)
		p.lanes[last] = p.lanes[last][:0]
	} else {
		pc = len(p.low.lanes[0])
	}
	var b *instr
	p.lanes[last], b = add(p.lanes[last], opLeave, nil, pc)
	b.gates, b.gated = gates, gates != nil
	if p.low.exposes {
		p.lanes[last], _ = add(p.lanes[last], opDrain, nil, pc)
	}
}

// fit gives an instruction the places and lengths of its chunks. Empty ones are left out when it
// runs: a place must not lie behind the memory, not even unused, since the garbage collector would
// find what is there.
func (c *Comm) fit(p *program, b *instr) {
	s := b.step
	switch b.op {
	case opSignal:
		b.extended = p.low.exposes || p.strict
	case opWait:
		b.extended = p.low.exposes
	case opCopy, opReduce:
		dst := &p.chunks[b.dst.buf][b.dst.chunk]
		b.bytes, b.dst.off, b.dst.at = dst.bytes, dst.off, dst.at
		b.plain = (!s.final || p.post == 1) && (p.pre == 1 || !s.readsIn)
		if b.op == opReduce {
			b.elems = b.bytes / p.elem
		}
		if b.way = b.chooseWay(); b.way == wayFused {
			fusedCopy := &p.chunks[b.fusedCopy.buf][b.fusedCopy.chunk]
			b.fusedCopy.off, b.fusedCopy.at = fusedCopy.off, fusedCopy.at
		}
		for k := range b.src {
			o := &b.src[k]
			if o.base == basePeer {
				o.off, o.at = c.windowPlace(p, int(o.index), int(o.chunk))
			} else {
				src := &p.chunks[o.buf][o.chunk]
				o.off, o.at = src.off, src.at
			}
		}
	case opSend, opRecv, opPut:
		b.plain = p.pre == 1 || !s.readsIn
		if s.kind == plan.Recv || s.kind == plan.RecvReduce {
			b.to = p.of(s.dst)
		}
		if len(s.src) > 0 {
			b.from = p.of(s.src[0])
		}
	}
}

func (b *instr) chooseWay() way {
	long := fuses(b.bytes)
	switch {
	case b.bytes == 0 || long && b.step.fusedInto != nil:
		return wayNothing
	case b.op == opReduce && len(b.src) == 2 && b.plain:
		return wayOfTwo
	case b.op == opReduce:
		return wayGeneral
	case long && b.step.fusedCopy != nil:
		return wayFused
	case b.bytes == 4 && b.plain:
		return way4
	case b.bytes == 8 && b.plain:
		return way8
	case b.bytes == 16 && b.plain:
		return way16
	}
	return wayGeneral
}

// shape is what calls have in common that differ only in where their buffers are.
type shape struct {
	call   Call     // without buffers
	blocks []region // of In, then of Out
}

// region is a block whose memory nobody here keeps alive.
type region struct {
	at    uintptr
	count int
}

func (f *shape) is(call *Call) bool {
	is, _ := f.compare(call)
	return is
}

// compare reports whether a call has this shape, and whether its blocks are where those of the one
// before were.
func (f *shape) compare(call *Call) (is, same bool) {
	if f.call.Coll != call.Coll || f.call.Type != call.Type || f.call.Op != call.Op || f.call.Root != call.Root || f.call.Factor != call.Factor ||
		len(f.blocks) != len(call.In)+len(call.Out) {
		return false, false
	}
	blocks, moved := f.blocks, uintptr(0)
	for i := range call.In {
		if blocks[i].count != call.In[i].Count {
			return false, false
		}
		moved |= blocks[i].at ^ uintptr(call.In[i].Ptr)
	}
	blocks = blocks[len(call.In):]
	for i := range call.Out {
		if blocks[i].count != call.Out[i].Count {
			return false, false
		}
		moved |= blocks[i].at ^ uintptr(call.Out[i].Ptr)
	}
	return true, moved == 0
}

// take makes f the shape of a call.
func (f *shape) take(call *Call) {
	f.call = *call
	f.call.In, f.call.Out = nil, nil
	f.takeBlocks(call)
}

// takeBlocks makes the blocks of a call those that f was seen with last.
func (f *shape) takeBlocks(call *Call) {
	f.blocks = f.blocks[:0]
	for _, blocks := range [2][]Block{call.In, call.Out} {
		for _, b := range blocks {
			f.blocks = append(f.blocks, region{uintptr(b.Ptr), b.Count})
		}
	}
}

// A Comm keeps so many programs, none of more instructions than mostKeptInstrs, and remembers so
// many shapes of calls that came once.
const (
	keptPrograms   = 16
	keptShapes     = 16
	mostKeptInstrs = 1024
)

// cache keeps the programs of calls that came more than once. The same calls come again and again,
// and to compile one takes longer than to run it.
type cache struct {
	each     [keptPrograms]cached
	recent   uint // the one that was used last
	next     uint // the one to give up for a new one
	seen     [keptShapes]shape
	nextSeen int
	scratch  program // for what is not kept
}

type cached struct {
	shape
	program
}

// of is the program of a call, nil if it has none, and whether the blocks are where they were.
// Calls come in the same order again, so the one after the last is tried first.
func (s *cache) of(call *Call) (x *cached, same bool) {
	for i := range uint(keptPrograms) {
		at := (s.recent + i) % keptPrograms
		x := &s.each[at]
		if x.call.Coll != call.Coll {
			continue
		}
		if is, same := x.compare(call); is {
			s.recent = at
			return x, same
		}
	}
	return nil, false
}

// known is the program by which a call can run as it is, nil if there is none. What it returns is
// checked, as Call.check and begin would.
func (c *Comm) known(call *Call) *program {
	x, same := c.cache.of(call)
	if x == nil || !same && !x.fits(call, c.rank) {
		return nil
	}
	return &x.program
}

// fits reports whether the buffers of a call are as they must be.
func (x *cached) fits(call *Call, rank int) bool {
	for _, blocks := range [2][]Block{call.In, call.Out} {
		for _, b := range blocks {
			if b.Ptr == nil && b.Count > 0 {
				return false
			}
		}
	}
	inPlace, err := call.overlap(rank)
	if err != nil || inPlace && x.low.alias&plan.InPlace == 0 {
		return false
	}
	x.takeBlocks(call)
	return true
}

// program finds or compiles the program of a call. It is kept from the second time on that the call
// comes.
func (c *Comm) program(low *lowered, call *Call) (*program, error) {
	s := &c.cache
	if !low.counts {
		if x, _ := s.of(call); x != nil {
			return &x.program, nil
		}
	}
	p := &s.scratch
	if err := c.compile(p, low, call, 0); err != nil || low.counts || p.last > 0 || p.size() > mostKeptInstrs || !s.seenBefore(call) {
		return p, err
	}
	x := &s.each[s.next]
	x.take(call)
	x.program, s.scratch = s.scratch, x.program
	s.recent = s.next
	s.next = (s.next + 1) % keptPrograms
	return &x.program, nil
}

func (p *program) size() int {
	n := 0
	for _, lane := range p.lanes {
		n += len(lane)
	}
	return n
}

// seenBefore reports whether a call came before, and remembers it if not.
func (s *cache) seenBefore(call *Call) bool {
	for i := range s.seen {
		if s.seen[i].is(call) {
			s.seen[i].call.Coll = dtype.NoCollective
			return true
		}
	}
	s.seen[s.nextSeen].take(call)
	s.nextSeen = (s.nextSeen + 1) % keptShapes
	return false
}

package program

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/mem"
)

// Program is one rank's part of a plan, compiled for one shape of call: every instruction has its
// operands as base, block and offset, so a repeated call needs only its base pointers. A Program
// does not change while an operation runs it.
type Program struct {
	Low   *Lowered
	Lanes [][]Instruction
	Layout
	Pre, Post float64    // factors of elements read from In, and of final results; 1 for none
	Unit      int        // bytes of an element; 1 if the call has none
	Elem      int        // of a reduction: bytes of the elements that its kernels work on
	Chunks    [4][]Chunk // by plan.Buffer
	Tmp       int        // bytes of Tmp, and of a Win that no peer reads
	Straight  bool       // it has one lane, and no frames
	Messages  bool       // it sends or receives
	sized     [][2]int32 // by lane and index: the instructions that fit sets
	Strict    bool       // the lengths that peers announce are compared with those of this rank, one by one
}

// Layout describes which part of each block belongs to an operation, or to a piece of it, and where
// the chunks of a window are. A plan that reads windows is cut into pieces so that every chunk of a
// window fits its cell of the slot; where it is enqueued, all chunks of Tmp fit as much memory. All
// ranks arrive at the same layout. Either they know the lengths of all blocks, from the collective
// or from the exchange; or in every piece each rank waits for all others, which announce how many
// pieces they need.
type Layout struct {
	Piece, Last int
	Cell        int                     // bytes of a chunk of a slot
	Inline      int                     // bytes of a chunk in this rank's record; 0 if its chunks are in the slot
	Depth       uint64                  // operations that may be in flight at the same time
	Shift       [plan.WindowRecords]int // by turn: distance of chunks of windows from their places in the first turn
	Step        int                     // by which chunks of a slot move on with each of its turns
	turns       uint64                  // of a slot, after which they are where they began, less one
	reach       int                     // elements of each block in one piece; 0 for all
}

// goodPieces is the number of pieces of a call that is long enough for that: so what a rank copies
// for one piece overlaps with what it reads for another.
const goodPieces = 4

// cut computes the layout of a piece.
func (l *Layout) cut(room *Room, low *Lowered, call *Call, lengths *Lengths, piece int) {
	*l = Layout{Piece: piece, Depth: plan.WindowRecords}
	if !low.Slots || low.Window == 0 {
		return
	}
	size := call.Type.Size()
	l.Cell = room.Slot / max(low.Window, low.Temps) &^ (mem.Align - 1)
	l.reach = l.Cell / max(size, 1) * low.Split
	longest := 0
	if low.Counts {
		for _, n := range lengths.Matrix {
			longest = max(longest, int(n))
		}
	}
	for _, blocks := range [2][]Block{call.In, call.Out} {
		for _, b := range blocks {
			longest = max(longest, b.Count)
		}
	}
	if room.Piece > 0 && call.Coll.LengthsKnown() {
		each := room.Piece / max(low.Window, low.Temps) &^ (mem.Align - 1) / max(size, 1)
		each = max(each, (longest+low.Split*goodPieces-1)/(low.Split*goodPieces), 1)
		l.reach = min(l.reach, each*low.Split)
	}
	l.Last = l.LastOf(uint64(longest))
	count := uint64(longest)
	if low.Announces {
		count = EvenCount(call.In)
	}
	if !room.Enqueued {
		l.Inline = low.InlineChunk(count, size)
	}
	if l.Inline == 0 {
		l.Depth = plan.WindowSlots
	}
	for turn := range l.Shift {
		l.Shift[turn] = turn * room.RecordBytes
		if l.Inline == 0 {
			l.Shift[turn] = turn % plan.WindowSlots * room.Slot
		}
	}
	if room.Rotates && l.Inline == 0 && !room.Enqueued && call.Coll.LengthsKnown() && !low.Announces && !low.Counts {
		l.rotate(longest, size, low)
	}
}

// Short chunks lie in turn at several places of their cell, since the readers' nearest cache must
// not hold all of them. A line should be written again when turnBytes of the window have been, with
// mostPlaces at most: with eight places, an all_gather of 16 KiB on two ranks took a tenth less
// time than with four. With as many places longer chunks would leave the writer's own cache: four
// ranks took a tenth longer for a reduce_scatter of 256 KiB (Intel Emerald Rapids, 2026-11).
const (
	mostPlaces = 8
	turnBytes  = 256 << 10
)

// rotate has chunks move on by their length from one turn of a slot to the next, if they are short.
// All ranks know the longest block, so all lay out their windows alike.
func (l *Layout) rotate(longest, size int, low *Lowered) {
	if l.reach > 0 {
		longest = min(longest, l.reach)
	}
	step := max(((longest+low.Split-1)/low.Split*size+mem.Align-1)&^(mem.Align-1), mem.Align)
	places := 1
	for places < mostPlaces && places*step*low.Window*plan.WindowSlots < turnBytes && 2*places*step <= l.Cell {
		places *= 2
	}
	if places > 1 {
		l.Step, l.turns = step, uint64(places-1)
	}
}

// Moved returns how far chunks of a slot have moved on in the given operation.
func (l *Layout) Moved(operation uint64) int {
	return int(operation/plan.WindowSlots&l.turns) * l.Step
}

// ShiftIn returns the distance of chunks of windows from their places in operation 0.
func (l *Layout) ShiftIn(operation uint64) int {
	return l.Shift[operation%plan.WindowRecords] + l.Moved(operation)
}

// LastOf returns the number of the last piece of an operation whose longest block has that many
// elements.
func (l *Layout) LastOf(longest uint64) int {
	if l.reach == 0 || longest == 0 {
		return 0
	}
	return int(min(longest, MaxBytes)-1) / l.reach
}

// share returns the part of a block of count elements that belongs to the piece: n elements, from
// element at on.
func (l *Layout) share(count int) (at, n int) {
	if l.reach == 0 {
		return 0, count
	}
	at = min(l.Piece*l.reach, count)
	return at, min(l.reach, count-at)
}

// Compile makes p the program of a call, or of one piece of it. p refers to none of the call's
// memory. lengths are needed only if low.Counts is set.
func (p *Program) Compile(room *Room, low *Lowered, call *Call, lengths *Lengths, piece int) error {
	size := call.Type.Size()
	changed, plain := p.Low != low, p.Pre == 1
	p.Low, p.Unit = low, max(size, 1)
	p.cut(room, low, call, lengths, piece)
	p.Chunks[plan.In] = p.cutBlocks(p.Chunks[plan.In], BaseIn, call.In, size)
	p.Chunks[plan.Out] = p.cutBlocks(p.Chunks[plan.Out], BaseOut, call.Out, size)
	l := sizes{p, room, call, lengths}
	p.Tmp = 0
	p.Chunks[plan.Tmp] = l.layOut(p.Chunks[plan.Tmp][:0], low.tmp)
	if low.Slots {
		p.Chunks[plan.Win] = p.Chunks[plan.Win][:0]
		for i, e := range low.win {
			o := Operand{Base: BaseOwn, Chunk: int32(i)}
			o.Off, o.At = room.place(p, room.Rank, i)
			p.Chunks[plan.Win] = append(p.Chunks[plan.Win], Chunk{o, l.length(e)})
		}
	} else {
		p.Chunks[plan.Win] = l.layOut(p.Chunks[plan.Win][:0], low.win)
	}
	if p.Tmp > MaxBytes {
		p.Low = nil
		return fault.New(fault.System,
			"no memory for the intermediate results of plan %s: more than %d bytes", low.Name, MaxBytes)
	}
	p.Straight = len(low.lanes) == 1 && low.Signallers == nil
	p.Strict = low.Announces && !call.sameCounts()
	p.scale(room, call)
	if changed || plain != (p.Pre == 1) {
		p.structure(room.Rank)
		p.fitMessages(room)
	}
	for _, at := range p.sized {
		p.fit(room, &p.Lanes[at[0]][at[1]])
	}
	if low.Words {
		ring(p.Lanes[0])
	}
	return nil
}

// longWork is the number of bytes that a rank copies or reduces in a time in which a peer that
// waits for it falls asleep.
const longWork = 32 << 10

// ring marks the signals of a lane with long work. The others wake a sleeping peer only after this
// rank has waited for a while itself: in short operations hardly any peer sleeps. In long ones many
// do, and an all_gather of 4 MiB on two ranks took 1.2 to 2 times as long with late wake-ups.
func ring(lane []Instruction) {
	work := 0
	for i := range lane {
		if b := &lane[i]; b.Way != WayNothing {
			work += b.Bytes
		}
	}
	for i := range lane {
		lane[i].Rings = lane[i].Op == OpSignal && work >= longWork
	}
}

// scale sets the size of the elements of a reduction, and the factors by which they are multiplied.
func (p *Program) scale(room *Room, call *Call) {
	p.Pre, p.Post, p.Elem = 1, 1, 0
	if !call.Coll.Reduces() {
		return
	}
	unit, _ := dtype.Unit(call.Type, call.Op)
	p.Elem = unit.Size()
	switch call.Op {
	case dtype.PremulSum:
		p.Pre = call.Factor
	case dtype.Avg:
		p.Post = 1 / float64(room.Ranks)
	}
}

// Factor returns what the elements that a copy, with its one source, moves are multiplied by.
func (p *Program) Factor(s *Step) float64 {
	factor := 1.0
	if s.ReadsIn {
		factor = p.Pre
	}
	if s.Final {
		factor *= p.Post
	}
	return factor
}

// Resized returns s with n elements. Each element has a value from earlier use of the memory, or
// zero.
func Resized[T any](s []T, n int) []T {
	if n > cap(s) {
		s = append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// Aligned returns a number of bytes, rounded up to whole cache lines.
func Aligned(bytes int) int { return (bytes + mem.Align - 1) &^ (mem.Align - 1) }

// cutBlocks returns the chunks of blocks, cut as by plan.Part. It reuses the memory of chunks,
// which are those of other blocks of the same buffer.
func (p *Program) cutBlocks(chunks []Chunk, where Base, blocks []Block, size int) []Chunk {
	split := p.Low.Split
	chunks = Resized(chunks, len(blocks)*split)
	for i, b := range blocks {
		at, n := p.share(b.Count)
		off, each, more := at*size, n/split*size, n%split
		for j := range split {
			bytes := each
			if j < more {
				bytes += size
			}
			c := &chunks[i*split+j]
			c.Base, c.Index, c.Off, c.Bytes = where, int32(i), off, bytes
			off += bytes
		}
	}
	return chunks
}

// sizes computes the lengths of the chunks of Tmp and Win.
type sizes struct {
	*Program
	room    *Room
	call    *Call
	lengths *Lengths
}

// layOut appends the chunks of memory that no peer reads, each aligned to a cache line.
func (s *sizes) layOut(chunks []Chunk, extents []plan.Extent) []Chunk {
	for _, e := range extents {
		bytes := s.length(e)
		chunks = append(chunks, Chunk{Operand{Base: BaseTmp, Off: s.Tmp}, bytes})
		s.Tmp = min(s.Tmp+Aligned(bytes), MaxBytes+1) // bytes is at most MaxBytes, so the sum does not overflow
	}
	return chunks
}

// length returns the number of bytes of a chunk with extent e: from the blocks of the call, or from
// the lengths that the ranks have exchanged.
func (s *sizes) length(e plan.Extent) int {
	if s.Low.Counts {
		return s.exchanged(e)
	}
	buf, block := plan.Out, e.From
	switch s.call.Coll {
	case dtype.ReduceScatter, dtype.Reduce, dtype.AllReduce:
		buf = plan.In
	case dtype.AllToAll:
		if e.From == s.room.Rank {
			buf, block = plan.In, e.To
		}
	case dtype.Scatter:
		if s.room.Rank == s.call.Root {
			buf = plan.In
		} else {
			block = 0
		}
	case dtype.Gather:
		if s.room.Rank != s.call.Root {
			buf, block = plan.In, 0
		}
	}
	return s.Chunks[buf][block*s.Low.Split+e.Part].Bytes
}

// exchanged is length for plans whose ranks have exchanged lengths.
func (s *sizes) exchanged(e plan.Extent) int {
	i := e.From
	if s.call.Coll == dtype.AllToAll {
		i = e.From*s.lengths.Row + e.To
	}
	_, n := s.share(int(s.lengths.Matrix[i]))
	lo, hi := plan.Part(n, s.Low.Split, e.Part)
	return (hi - lo) * s.call.Type.Size()
}

func (p *Program) of(r plan.Ref) []Chunk { return p.Chunks[r.Buf][r.At : r.At+r.N] }

// structure makes the instructions of p from the steps of its plan, and sets on which chunks they
// work.
func (p *Program) structure(rank int) {
	low := p.Low
	p.Lanes = Resized(p.Lanes, len(low.lanes))
	for i, steps := range low.lanes {
		lane := p.Lanes[i][:0]
		if low.Slots {
			lane, _ = add(lane, OpEnter, nil, -1)
		}
		for pc := range steps {
			lane = low.addStep(rank, lane, &steps[pc], pc)
		}
		p.Lanes[i] = lane
	}
	if low.Slots {
		p.end()
	}
}

// add appends an instruction for a step. It reuses the memory of the instruction that was in this
// place before.
func add(lane []Instruction, op Opcode, s *Step, pc int) ([]Instruction, *Instruction) {
	n := len(lane)
	if n < cap(lane) {
		lane = lane[:n+1]
	} else {
		lane = append(lane, Instruction{})
	}
	b := &lane[n]
	*b = Instruction{Op: op, Src: b.Src[:0], Step: s, PC: pc}
	if s != nil {
		b.Peer, b.Nth, b.First = s.Peer, s.nth, s.first
		b.Gates, b.Gated = s.gates, s.gates != nil
	}
	return lane, b
}

// addStep appends the instructions of a step: one for each chunk of a copy, reduce, get or
// getreduce.
func (low *Lowered) addStep(rank int, lane []Instruction, s *Step, pc int) []Instruction {
	switch s.Kind {
	case plan.Send:
		lane, _ = add(lane, OpSend, s, pc)
		return lane
	case plan.Recv, plan.RecvReduce:
		lane, _ = add(lane, OpRecv, s, pc)
		return lane
	case plan.Wait:
		op := OpWait
		if !low.Words {
			op = OpTake
		}
		lane, _ = add(lane, op, s, pc)
		return lane
	case plan.Put, plan.Packet, plan.Signal:
		if !low.Words {
			lane, _ = add(lane, OpPut, s, pc)
		} else if s.nth > 0 { // 0: the next signal publishes the count
			lane, _ = add(lane, OpSignal, s, pc)
		}
		return lane
	}
	for i := range s.Dst.N {
		var b *Instruction
		if lane, b = add(lane, OpCopy, s, pc); i > 0 {
			b.Gates, b.Gated = nil, false
		}
		if len(s.Src) > 1 {
			b.Op = OpReduce
		}
		b.Dst = low.operand(s.Dst, i)
		if s.FusedCopy != nil {
			b.FusedCopy = low.operand(s.FusedCopy.Dst, i)
		}
		for k, r := range s.Src {
			o := low.operand(r, i)
			if s.from != nil && s.from[k] != rank {
				o.Base, o.Index = BasePeer, int32(s.from[k])
			}
			b.Src = append(b.Src, o)
		}
	}
	return lane
}

// operand returns chunk i of a Ref.
func (low *Lowered) operand(r plan.Ref, i int) Operand {
	o := Operand{Buf: r.Buf, Chunk: int32(r.At + i)}
	switch {
	case r.Buf == plan.In:
		o.Base, o.Index = BaseIn, o.Chunk/int32(low.Split)
	case r.Buf == plan.Out:
		o.Base, o.Index = BaseOut, o.Chunk/int32(low.Split)
	case r.Buf == plan.Win && low.Slots:
		o.Base = BaseOwn
	default:
		o.Base = BaseTmp
	}
	return o
}

// end appends the last instructions of a program that uses the slots of the windows. If the program
// has several lanes, these instructions are in a lane of their own, which waits for all others.
func (p *Program) end() {
	last := len(p.Lanes) - 1
	var gates []Gate
	pc := 0
	if last != 0 {
		for lane, steps := range p.Low.lanes {
			gates = append(gates, Gate{Lane: lane, Step: len(steps) - 1})
		}
		last++
		p.Lanes = Resized(p.Lanes, last+1)
		p.Lanes[last] = p.Lanes[last][:0]
	} else {
		pc = len(p.Low.lanes[0])
	}
	var b *Instruction
	p.Lanes[last], b = add(p.Lanes[last], OpLeave, nil, pc)
	b.Gates, b.Gated = gates, gates != nil
	if p.Low.Exposes {
		p.Lanes[last], _ = add(p.Lanes[last], OpDrain, nil, pc)
	}
}

// fit sets the places and lengths of an instruction's chunks. Empty chunks are skipped when the
// instruction runs: a pointer must never point past the end of its memory, even if it is not used,
// since the garbage collector would take it for a pointer to whatever lies there.
func (p *Program) fit(room *Room, b *Instruction) {
	s := b.Step
	switch b.Op {
	case OpSignal:
		b.Extended = p.Low.Exposes || p.Strict
	case OpWait:
		b.Extended = p.Low.Exposes
	case OpCopy, OpReduce:
		dst := &p.Chunks[b.Dst.Buf][b.Dst.Chunk]
		b.Bytes, b.Dst.Off, b.Dst.At = dst.Bytes, dst.Off, dst.At
		b.Plain = (!s.Final || p.Post == 1) && (p.Pre == 1 || !s.ReadsIn)
		if b.Op == OpReduce {
			b.Elems = b.Bytes / p.Elem
		}
		if b.Way = b.chooseWay(); b.Way == WayFused {
			fused := &p.Chunks[b.FusedCopy.Buf][b.FusedCopy.Chunk]
			b.FusedCopy.Off, b.FusedCopy.At = fused.Off, fused.At
		}
		for k := range b.Src {
			o := &b.Src[k]
			if o.Base == BasePeer {
				o.Off, o.At = room.place(p, int(o.Index), int(o.Chunk))
			} else {
				src := &p.Chunks[o.Buf][o.Chunk]
				o.Off, o.At = src.Off, src.At
			}
		}
	case OpSend, OpRecv, OpPut:
		b.Plain = p.Pre == 1 || !s.ReadsIn
		if b.Op == OpRecv {
			b.To = p.of(s.Dst)
		}
		if len(s.Src) > 0 {
			b.From = p.of(s.Src[0])
		}
	}
}

// fitMessages fits messages, once for a plan: Compile changes what the chunks of p hold, not where
// they are in memory. It notes which other instructions are to be fitted to each call.
func (p *Program) fitMessages(room *Room) {
	p.Messages, p.sized = false, p.sized[:0]
	for k, lane := range p.Lanes {
		for i := range lane {
			if b := &lane[i]; b.Op >= OpSend {
				p.Messages = true
				p.fit(room, b)
			} else if b.Op <= OpReduce {
				p.sized = append(p.sized, [2]int32{int32(k), int32(i)})
			}
		}
	}
}

// Size returns the number of instructions.
func (p *Program) Size() int {
	n := 0
	for _, lane := range p.Lanes {
		n += len(lane)
	}
	return n
}

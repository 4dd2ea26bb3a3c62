package exec

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/plan"
)

// bind points the chunks of a program at the blocks of a call.
func (c *Comm) bind(op *Op, low *lowered) error {
	cur := &c.cur
	call := &op.call
	cur.op = op
	if err := c.bindProgram(low, call.In, call.Out, call.Type.Size()); err != nil {
		return err
	}
	cur.print = c.printOf(op, low)
	cur.print.phase = phaseOf(cur.piece)
	cur.pre, cur.post = 1, 1
	cur.past = cur.cache > 0 && call.touched(c.rank) >= cur.cache
	if call.Coll.Reduces() {
		unit, _ := dtype.Unit(call.Type, call.Op)
		cur.kern, cur.fold, cur.elem = kernel.For(unit, call.Op), kernel.Reduce(unit, call.Op), unit.Size()
		cur.scale, cur.mean = kernel.Scale(unit), kernel.SumScale(unit)
		if fast := kernel.Fast(unit, call.Op); fast != nil && c.opts.FastBF16 {
			cur.kern, cur.fold, cur.mean = fast.Pair, fast.Many, fast.Mean
		}
		switch call.Op {
		case dtype.PremulSum:
			cur.pre = call.Factor
		case dtype.Avg:
			cur.post = 1 / float64(c.size)
		}
	}
	return nil
}

// bindProgram makes the cursor stand at the start of a program over these blocks, whose elements have size bytes.
func (c *Comm) bindProgram(low *lowered, in, out []Block, size int) error {
	cur := &c.cur
	cur.low, cur.unit = low, max(size, 1)
	cur.lanes = append(cur.lanes[:0], make([]laneState, len(low.lanes))...)
	cur.bufs[plan.In] = cur.cut(cur.bufs[plan.In][:0], in, low.split, size)
	cur.bufs[plan.Out] = cur.cut(cur.bufs[plan.Out][:0], out, low.split, size)
	cur.entering = low.slots
	if low.signallers != nil {
		n := c.size * low.flags
		if cap(cur.signals) < n {
			cur.signals = make([]uint32, n)
		}
		cur.signals = cur.signals[:n]
		clear(cur.signals)
	}
	cur.bufs[plan.Tmp], cur.bufs[plan.Win] = cur.bufs[plan.Tmp][:0], cur.bufs[plan.Win][:0]
	if low.slots {
		base, stride := c.cells(c.rank)
		for i, e := range low.win {
			cur.bufs[plan.Win] = append(cur.bufs[plan.Win], span{unsafe.Add(base, i*stride), cur.length(e)})
		}
		if cur.lend {
			c.lendPiece()
		}
		return cur.bindTmp(low.tmp, nil)
	}
	return cur.bindTmp(low.tmp, low.win)
}

// printOf is what the messages of an operation carry.
func (c *Comm) printOf(op *Op, low *lowered) fingerprint {
	call := &op.call
	print := fingerprint{seq: uint32(op.seq), coll: call.Coll, typ: call.Type, hash: low.hash ^ c.history.hash()}
	switch call.Coll {
	case dtype.Broadcast:
		print.count = call.Out[0].Count
	case dtype.Reduce, dtype.AllReduce:
		print.count = call.In[0].Count
	case dtype.AllGather:
		print.blocks(call.Out)
	case dtype.ReduceScatter:
		print.blocks(call.In)
	}
	if call.Coll.Rooted() {
		print.root = call.Root
	}
	if call.Coll.Reduces() {
		print.op = call.Op
	}
	return print
}

// separate gives an operation a copy of its In, for a plan that needs In and Out apart.
func (cur *cursor) separate(op *Op) error {
	size, total := op.call.Type.Size(), 0
	for _, b := range op.in {
		total += aligned(b.Count * size)
	}
	var err error
	if cur.copied, err = mem.Alloc(total); err != nil {
		return fault.Wrap(fault.System, err, "no memory for a copy of the input")
	}
	at := unsafe.Pointer(unsafe.SliceData(cur.copied.Bytes()))
	for i := range op.in {
		b := &op.in[i]
		bytes := b.Count * size
		if bytes == 0 {
			continue
		}
		copy(unsafe.Slice((*byte)(at), bytes), unsafe.Slice((*byte)(b.Ptr), bytes))
		b.Ptr = at
		at = unsafe.Add(at, aligned(bytes))
	}
	return nil
}

func (cur *cursor) cut(spans []span, blocks []Block, split, size int) []span {
	for _, b := range blocks {
		at, n := cur.share(b.Count)
		for j := range split {
			lo, hi := plan.Part(n, split, j)
			spans = append(spans, spanAt(b.Ptr, (at+lo)*size, (hi-lo)*size))
		}
	}
	return spans
}

// spanAt keeps an empty span from pointing behind the memory.
func spanAt(base unsafe.Pointer, at, bytes int) span {
	if bytes == 0 {
		return span{base, 0}
	}
	return span{unsafe.Add(base, at), bytes}
}

// bindTmp lays out Tmp and behind it a Win that no peer reads, each chunk aligned to a cache line, and keeps the memory if it is small.
func (cur *cursor) bindTmp(tmp, win []plan.Extent) error {
	if len(tmp) == 0 && len(win) == 0 {
		return nil
	}
	total := 0
	for _, extents := range [2][]plan.Extent{tmp, win} {
		for _, e := range extents {
			// Each is at most maxBytes, so this finds the end before the sum overflows.
			if total += aligned(cur.length(e)); total > maxBytes {
				return fault.New(fault.System, "no memory for the intermediate results of plan %s: more than %d bytes", cur.low.name, maxBytes)
			}
		}
	}
	if total > cur.tmpSize {
		cur.freeTmp()
		var err error
		if cur.tmp, err = mem.Alloc(total); err != nil {
			return fault.Wrap(fault.System, err, "no memory for %d bytes of intermediate results", total)
		}
		cur.tmpSize = total
	}
	var base unsafe.Pointer
	if cur.tmp != nil {
		base = unsafe.Pointer(unsafe.SliceData(cur.tmp.Bytes()))
	}
	at := 0
	cur.bufs[plan.Tmp], at = cur.layOut(cur.bufs[plan.Tmp], tmp, base, at)
	cur.bufs[plan.Win], _ = cur.layOut(cur.bufs[plan.Win], win, base, at)
	return nil
}

func (cur *cursor) layOut(spans []span, extents []plan.Extent, base unsafe.Pointer, at int) ([]span, int) {
	for _, e := range extents {
		bytes := cur.length(e)
		spans = append(spans, spanAt(base, at, bytes))
		at += aligned(bytes)
	}
	return spans, at
}

func aligned(bytes int) int { return (bytes + mem.Align - 1) &^ (mem.Align - 1) }

// length is the bytes of a chunk that is as long as e: from the blocks of the call, or from what the ranks have told each other.
func (cur *cursor) length(e plan.Extent) int {
	if cur.low.counts {
		return cur.told(e)
	}
	call := &cur.op.call
	buf, block := plan.Out, e.From
	if cur.counting {
		return cur.bufs[buf][block*cur.low.split+e.Part].bytes // of an all_gather
	}
	switch call.Coll {
	case dtype.ReduceScatter, dtype.Reduce, dtype.AllReduce:
		buf = plan.In
	case dtype.AllToAll:
		if e.From == cur.rank {
			buf, block = plan.In, e.To
		}
	case dtype.Scatter:
		if cur.rank == call.Root {
			buf = plan.In
		} else {
			block = 0
		}
	case dtype.Gather:
		if cur.rank != call.Root {
			buf, block = plan.In, 0
		}
	}
	return cur.bufs[buf][block*cur.low.split+e.Part].bytes
}

func (cur *cursor) freeTmp() {
	if cur.tmp != nil {
		cur.tmp.Free()
		cur.tmp, cur.tmpSize = nil, 0
	}
}

// keepTmp is how much intermediate memory a Comm keeps between operations.
const keepTmp = 4 << 20

// unbind forgets the caller's memory.
func (cur *cursor) unbind() {
	cur.op, cur.low = nil, nil
	cur.lend, cur.mask, cur.parting = false, 0, false
	for i := range cur.bufs {
		clear(cur.bufs[i])
	}
	if cur.tmpSize > keepTmp {
		cur.freeTmp()
	}
	if cur.copied != nil {
		cur.copied.Free()
		cur.copied = nil
	}
	cur.forget()
}

package exec

import (
	"slices"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// express is a call that came before, with everything about it that does not depend on where its buffers are. The same small calls come
// again and again, and to bind the program of one takes longer than to run it. Only straight programs have an express: one lane, over windows,
// in one piece.
//
// It is a shortcut and nothing else. Where it would have to sleep, or anything is unusual, it leaves the operation to the cursor, at the
// step where it stands.
type express struct {
	form // of the call before; its blocks are known to be as they must be

	low    *lowered
	said   transport.Meta
	hash   uint64 // word 2 of said, without the history
	digest uint64 // what the call adds to the history
	steps  []bound
	arithmetic
	turns uint64
	large bool // it lends its blocks where they lie in registered memory
	short bool // ranks keep their core as long as that holds up nobody (undisturbing)
}

// form is what calls have in common that differ only in where their buffers are.
type form struct {
	call   Call     // without buffers
	blocks []region // of In, then of Out
}

// region is a block whose memory nobody here keeps alive.
type region struct {
	at    uintptr
	count int
}

// bound is a step, or one chunk of it.
type bound struct {
	kind   plan.Kind // this and the next four as in step
	first  bool
	lends  bool
	peer   int
	nth    int
	scales bool // it does arithmetic that kernels for two operands do not
	both   bool // it does its twin too
	step   *step
	pc     int
	bytes  int
	elems  int // of a reduction
	dst    spot
	twin   spot
	src    []spot
}

// spot is memory in a block of the call, or in the slot of a window that it is its turn to use.
type spot struct {
	buf   plan.Buffer
	block int
	at    int
	turns [plan.WindowNotices]unsafe.Pointer // of Win, by whose turn it is
}

// A Comm keeps so many expresses, and remembers so many forms of calls that came once.
const (
	expresses  = 16
	candidates = 16
)

// shortcuts are the expresses of a Comm.
type shortcuts struct {
	each     [expresses]express
	recent   int // the one that was used last
	next     int // the one to give up for a new one
	once     [candidates]form
	nextOnce int
}

// of is the express of a call, nil if it has none, and whether the blocks are where they were. Calls come in the same order again, so the one
// after the last is tried first.
func (s *shortcuts) of(call *Call) (x *express, same bool) {
	for i := range expresses {
		at := (s.recent + i) % expresses
		x := &s.each[at]
		if x.low == nil {
			continue
		}
		if is, same := x.compare(call); is {
			s.recent = at
			return x, same
		}
	}
	return nil, false
}

// shortcut is the express by which a call can run as it is, nil if there is none.
func (c *Comm) shortcut(call *Call) *express {
	x, same := c.shortcuts.of(call)
	if x == nil || !same && !x.fits(call, c.rank) || x.large && c.canLend(x.low, call) {
		return nil
	}
	return x
}

// again reports whether a call came before, and remembers it if not.
func (s *shortcuts) again(call *Call) bool {
	for i := range s.once {
		if s.once[i].is(call) {
			s.once[i].call.Coll = dtype.NoCollective
			return true
		}
	}
	s.once[s.nextOnce].take(call)
	s.nextOnce = (s.nextOnce + 1) % candidates
	return false
}

func (f *form) is(call *Call) bool {
	is, _ := f.compare(call)
	return is
}

// compare reports whether a call has this form, and whether its blocks are where those of the one before were.
func (f *form) compare(call *Call) (is, same bool) {
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

// take makes f the form of a call.
func (f *form) take(call *Call) {
	f.call = *call
	f.call.In, f.call.Out = nil, nil
	f.takeBlocks(call)
}

// takeBlocks makes the blocks of a call those that f was seen with last.
func (f *form) takeBlocks(call *Call) {
	f.blocks = f.blocks[:0]
	for _, blocks := range [2][]Block{call.In, call.Out} {
		for _, b := range blocks {
			f.blocks = append(f.blocks, region{uintptr(b.Ptr), b.Count})
		}
	}
}

// fits reports whether the buffers of a call are as they must be.
func (x *express) fits(call *Call, rank int) bool {
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

// learn is called when an operation is bound: at the second time that the call comes, an express is made of it.
func (c *Comm) learn(op *Op, low *lowered) {
	cur := &c.cur
	if !low.straight || cur.last > 0 || cur.copied != nil || cur.pre != 1 || cur.lend || low.told && evenCount(op.in) == uneven {
		return
	}
	s := &c.shortcuts
	if x, _ := s.of(&op.call); x != nil || !s.again(&op.call) {
		return
	}
	x := &s.each[s.next]
	s.recent = s.next
	s.next = (s.next + 1) % expresses
	x.take(&op.call)
	x.low, x.said = low, c.said()
	x.hash, x.digest = x.said[2]^uint64(c.history.hash())<<48, cur.print.digest()
	x.arithmetic, x.turns = cur.arithmetic, cur.turns
	x.short = total(cur.bufs[plan.Win]) <= mostKept
	x.large = low.lends && total(cur.bufs[plan.Win]) >= worthLending(op.call.Coll)
	x.steps = x.steps[:0]
	for pc := range low.lanes[0] {
		switch st := &low.lanes[0][pc]; st.kind {
		case plan.Signal:
			if st.nth > 0 {
				x.add(st, pc)
			}
		case plan.Wait:
			x.add(st, pc)
		default:
			for i, dst := range cur.spans(st.dst) {
				if dst.bytes == 0 || st.twinOf != nil && together(dst.bytes) {
					continue
				}
				b := x.add(st, pc)
				b.bytes, b.dst = dst.bytes, c.spot(st.dst, i, c.rank)
				b.scales = st.final && x.post != 1
				if b.both = st.twin != nil && together(dst.bytes); b.both {
					b.twin = c.spot(st.twin.dst, i, c.rank)
				}
				if len(st.src) > 1 {
					b.elems = dst.bytes / x.elem
				}
				for k, ref := range st.src {
					owner := c.rank
					if st.from != nil {
						owner = st.from[k]
					}
					b.src = append(b.src, c.spot(ref, i, owner))
				}
			}
		}
	}
}

// begin makes said that of the call with this number.
func (x *express) begin(seq uint64, before history) {
	x.said[0] = x.said[0]&^(1<<32-1) | uint64(uint32(seq))
	x.said[2] = x.hash ^ uint64(before.hash())<<48
}

// add appends a step. What its place held before is used again.
func (x *express) add(st *step, pc int) *bound {
	if n := len(x.steps); n < cap(x.steps) {
		x.steps = x.steps[:n+1]
	} else {
		x.steps = append(x.steps, bound{})
	}
	b := &x.steps[len(x.steps)-1]
	b.kind, b.first, b.lends, b.peer, b.nth = st.kind, st.first, st.lends, st.peer, st.nth
	b.step, b.pc, b.bytes, b.both, b.src = st, pc, 0, false, b.src[:0]
	return b
}

// spot is where chunk i of a Ref lies.
func (c *Comm) spot(ref plan.Ref, i, owner int) spot {
	cur := &c.cur
	if ref.Buf == plan.Win {
		p := spot{buf: plan.Win}
		for turn := range p.turns {
			p.turns[turn] = unsafe.Add(c.windows.ranks[owner].slots, turn%plan.WindowSlots*c.windows.slot+(ref.At+i)*cur.cell)
			if cur.tiny > 0 {
				p.turns[turn] = unsafe.Pointer(&c.windows.ranks[owner].each[turn].tiny[(ref.At+i)*cur.tiny])
			}
		}
		return p
	}
	blocks := cur.op.in
	if ref.Buf == plan.Out {
		blocks = cur.op.out
	}
	block := (ref.At + i) / cur.low.split
	at := uintptr(cur.bufs[ref.Buf][ref.At+i].ptr) - uintptr(blocks[block].Ptr)
	return spot{buf: ref.Buf, block: block, at: int(at)}
}

func (p *spot) in(call *Call, turn int) unsafe.Pointer {
	switch p.buf {
	case plan.In:
		return unsafe.Add(call.In[p.block].Ptr, p.at)
	case plan.Out:
		return unsafe.Add(call.Out[p.block].Ptr, p.at)
	}
	return p.turns[turn]
}

// runExpress is runAlone by an express. The caller holds the lock, and it is let go. Ranks wait for each other, so whatever is done here
// between two waits counts twice; that is why steps are told apart here, and the commonest are done without another call. The words of
// said are stored one by one: one that was just written is not read back as part of something longer, which would wait for the store.
func (c *Comm) runExpress(x *express, call *Call) error {
	w := &c.windows
	quick := c.quick.Load() + 1
	park.Publish(&c.quick, quick)
	seq := c.colls.Load() + quick
	x.begin(seq, c.history)
	turn := int(w.begun % plan.WindowNotices)
	var pace park.Spinner
	if w.late(x.turns) >= 0 && !c.entered(x.turns, &pace) {
		return c.resume(x, call, seq, -1, &pace)
	}
	for i := range x.steps {
		b := &x.steps[i]
		switch b.kind {
		case plan.Signal:
			n := &w.ranks[c.rank].each[turn]
			if b.first {
				n.meta[0], n.meta[1], n.meta[2] = x.said[0], x.said[1], x.said[2]
				if b.lends && n.mask != 0 {
					n.mask = 0
				}
			}
			park.Publish(&n.word, w.word(b.nth))
		case plan.Wait:
			from := &w.ranks[b.peer]
			n := &from.each[turn]
			if n.word.Load() < w.word(b.nth) && !c.listen(b.step, x.short, &pace) {
				return c.resume(x, call, seq, b.pc, &pace)
			}
			from.known = max(from.known, w.begun)
			if b.first && n.differs(&x.said, b.lends) {
				return c.resume(x, call, seq, b.pc, &pace)
			}
		case plan.Copy, plan.Get:
			dst, src := b.dst.in(call, turn), b.src[0].in(call, turn)
			if b.both {
				x.both(b.step, dst, b.twin.in(call, turn), src, b.bytes)
				continue
			}
			if b.bytes <= 8 && !b.scales && copyNumber(dst, src, b.bytes) {
				continue
			}
			x.copy(b.step, dst, src, b.bytes)
		default:
			if len(b.src) == 2 && !b.scales {
				x.kern(b.dst.in(call, turn), b.src[0].in(call, turn), b.src[1].in(call, turn), b.elems)
				continue
			}
			x.reduce(b, call, turn, &c.cur.operands)
		}
	}
	c.history.add(x.digest)
	c.leaveSlot(&x.said)
	c.unlock()
	if c.pending.Load() != 0 {
		c.handOver()
	}
	return nil
}

// differs reports whether a rank has called another thing than was said, or lends what an express does not look for.
func (n *notice) differs(said *transport.Meta, lends bool) bool {
	return n.meta[0] != said[0] || n.meta[1] != said[1] || n.meta[2] != said[2] || lends && n.mask != 0
}

// copyNumber copies what is as long as a number.
func copyNumber(dst, src unsafe.Pointer, bytes int) bool {
	switch bytes {
	case 4:
		*(*[4]byte)(dst) = *(*[4]byte)(src)
	case 8:
		*(*[8]byte)(dst) = *(*[8]byte)(src)
	default:
		return false
	}
	return true
}

func (x *express) reduce(b *bound, call *Call, turn int, o *operands) {
	dst := b.dst.in(call, turn)
	if len(b.src) == 2 {
		x.pair(b.step, dst, b.src[0].in(call, turn), b.src[1].in(call, turn), b.elems)
		return
	}
	o.sources = o.sources[:0]
	for k := range b.src {
		o.sources = append(o.sources, b.src[k].in(call, turn))
	}
	x.many(b.step, dst, o, b.bytes)
}

// aheadPauses are those of a rank that is as far ahead of another one as notices let it, before it looks again: it has nothing to lose, and each
// look takes the line away that the other one writes in every operation.
const aheadPauses = 8

// entered waits awake until the memory whose turn it is may be used, and reports whether it may. It was not free just now.
func (c *Comm) entered(turns uint64, pace *park.Spinner) bool {
	if turns == plan.WindowNotices {
		park.Pause(aheadPauses)
	}
	return c.awake(pace, func() bool { return c.windows.late(turns) < 0 })
}

// listen waits awake for a signal that was not there yet, and reports whether it came.
func (c *Comm) listen(s *step, short bool, pace *park.Spinner) bool {
	w := &c.windows
	for short && w.undisturbing(c.rank, s.peer) {
		if !pace.Spin() {
			w.waitedInVain()
			break
		}
		if w.heard(s.peer, s.nth) {
			pace.Reset()
			return true
		}
	}
	return c.awake(pace, func() bool { return w.heard(s.peer, s.nth) })
}

// awake waits for something without sleeping. It gives up when the thread should sleep, or somebody wants something of the driver.
func (c *Comm) awake(pace *park.Spinner, ready func() bool) bool {
	for pace.Turn() && pace.Spinning() {
		if ready() {
			pace.Reset()
			return true
		}
	}
	c.ring() // only now: who is awake has seen it, and the fence would hold this thread up until then
	enterWait()
	defer leaveWait()
	for {
		if ready() {
			pace.Reset()
			return true
		}
		if c.stop.Load() != nil || c.posted.Load() != nil || !pace.Turn() {
			return false
		}
	}
}

// resume leaves an operation to the cursor, which is to begin with a step; -1 if the slot could not be entered.
func (c *Comm) resume(x *express, call *Call, seq uint64, pc int, pace *park.Spinner) error {
	c.ring() // what was said may not be known to those who sleep
	op := &c.alone
	op.set(c, call, seq)
	c.pending.Add(1)
	c.head, c.tail = op, op
	c.cutPieces(x.low, op.in, op.out, call.Type.Size())
	if err := c.bind(op, x.low); err != nil {
		c.fail(op, err)
	} else {
		c.cur.entering = pc < 0
		c.cur.lanes[0].pc = max(pc, 0)
	}
	return c.driveAlone(op, pace)
}

// isStraight reports whether an express can stand for a program.
func (low *lowered) isStraight(rank int) bool {
	if !low.words || low.counts || len(low.lanes) != 1 || len(low.tmp) > 0 || low.lends && !hearsAll(low.lanes[0], rank) {
		return false
	}
	return !slices.ContainsFunc(low.lanes[0], func(s step) bool {
		switch s.kind {
		case plan.Copy, plan.Reduce, plan.Get, plan.GetReduce, plan.Signal, plan.Wait:
			return false
		}
		return true
	})
}

package exec

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

const (
	// maxFragment is how much a send asks for at once: large enough to hide the hand-over, small enough that
	// both sides find it in the cache and that several are in flight.
	maxFragment = 128 << 10
	// tile is the piece of local work that is done before the next: it stays in the first-level cache, and keeps
	// the time in assembly short.
	tile = 16 << 10
)

// span is one chunk of a buffer, bound to memory.
type span struct {
	ptr   unsafe.Pointer
	bytes int
}

// laneState is how far a lane has come: steps before pc are done, of step pc `moved` bytes are, which end at
// offset off of chunk number chunk of its Ref.
type laneState struct {
	pc, chunk, off, moved int
	taken                 int // bytes used of the fragment that is being looked at
}

// cursor runs one operation at a time: the head of the Comm's queue. Everything here is kept from one operation to the
// next, so that running one allocates nothing.
type cursor struct {
	rank  int
	cache int // bytes of the last-level cache that this rank can count on; 0: not known
	op    *Op
	low   *lowered
	lanes []laneState
	bufs  [4][]span // by plan.Buffer
	unit  int       // bytes of an element; 1 where there are none
	print fingerprint
	meta  transport.Meta // of the fragment that is being sent; here, because Commit takes a pointer
	arithmetic
	operands
	tmp    *mem.Block // Tmp, and behind it Win
	copied *mem.Block // of In, where the plan does not run in place

	tmpSize int
	signals []uint32 // counted and not waited for, by peer and flag
	exchange
	pieces
	lending
	asking
}

// run moves every lane as far as it goes. It reports whether anything moved, and whether the program has ended.
func (c *Comm) run() (moved, ended bool, err error) {
	if c.cur.entering {
		if entered, err := c.enter(); !entered {
			return false, false, err
		}
		moved = true
	}
	for {
		again := false
		if c.cur.low.signallers != nil {
			if again, err = c.inbound(c.cur.low.signallers); err != nil {
				return true, false, err
			}
		}
		ended = true
		for lane := range c.cur.lanes {
			m, err := c.runLane(lane)
			if err != nil {
				return true, false, err
			}
			again = again || m
			ended = ended && c.cur.lanes[lane].pc == len(c.cur.low.lanes[lane])
		}
		moved = moved || again
		if ended || !again {
			return moved, ended, nil
		}
	}
}

func (c *Comm) runLane(lane int) (moved bool, err error) {
	cur := &c.cur
	st := &cur.lanes[lane]
	steps := cur.low.lanes[lane]
	for st.pc < len(steps) {
		s := &steps[st.pc]
		limit := cur.limit(s)
		if limit == 0 {
			return moved, nil
		}
		before := *st
		done := false
		switch s.kind {
		case plan.Copy, plan.Reduce, plan.Get, plan.GetReduce:
			err = c.local(s)
			done = true
		case plan.Send:
			done, err = c.send(s, st, limit)
		case plan.Recv, plan.RecvReduce:
			done, err = c.receive(s, st)
		case plan.Wait:
			if cur.low.words {
				done, err = c.hear(s)
			} else {
				done, err = c.wait(s)
			}
		default:
			if !cur.low.words {
				done, err = c.put(s, st)
				break
			}
			if done = true; s.nth > 0 {
				cur.meta = c.said()
				c.say(s, &cur.meta, cur.op.in)
				c.ring()
			}
		}
		if err != nil {
			return true, err
		}
		if !done {
			return moved || *st != before, nil
		}
		*st = laneState{pc: st.pc + 1}
		moved = true
	}
	return moved, nil
}

// limit is how many bytes of step s its gates let through: 0 when it has to wait, else a count that it may reach. An
// open gate, or none, gives maxBytes.
func (cur *cursor) limit(s *step) int {
	limit := maxBytes
	for _, g := range s.gates {
		at := &cur.lanes[g.lane]
		switch {
		case at.pc > g.step:
		case at.pc == g.step && g.pipelined && at.moved > 0:
			limit = min(limit, at.moved)
		default:
			return 0
		}
	}
	return limit
}

func (cur *cursor) spans(r plan.Ref) []span { return cur.bufs[r.Buf][r.At : r.At+r.N] }

func total(spans []span) int {
	n := 0
	for i := range spans {
		n += spans[i].bytes
	}
	return n
}

// send puts fragments of the message into the channel until the space, or the limit, is used up. It reports the end.
func (c *Comm) send(s *step, st *laneState, limit int) (done bool, err error) {
	cur := &c.cur
	src := cur.spans(s.src[0])
	all := total(src)
	ch := c.planChannel(s)
	scaled := cur.pre != 1 && s.src[0].Buf == plan.In
	for {
		for st.chunk < len(src) && st.off == src[st.chunk].bytes {
			st.chunk, st.off = st.chunk+1, 0
		}
		if st.moved == all && all > 0 {
			return true, nil
		}
		want := 0
		if all > 0 {
			want = min(src[st.chunk].bytes-st.off, maxFragment)
			if st.moved+want > limit {
				// Only the first bytes of the chunk are there: send what makes a whole fragment, else wait.
				if want = limit - st.moved; want < maxFragment/4 {
					return false, nil
				}
				want &^= 63
			}
		}
		space := ch.Reserve(want)
		if space == nil {
			// A peer that is gone gives no credit back, and this lane may be the only one that waits for it.
			if err := c.opts.Links[s.peer].Err(); err != nil {
				return false, c.named(s.peer, err)
			}
			return false, nil
		}
		n := min(want, len(space))
		if n > 0 {
			from := unsafe.Add(src[st.chunk].ptr, st.off)
			if scaled {
				cur.scale(unsafe.Pointer(&space[0]), from, n/cur.elem, cur.pre)
			} else {
				kernel.Copy(space[:n], unsafe.Slice((*byte)(from), n))
			}
		}
		cur.meta = cur.print.meta(all)
		ch.Commit(n, &cur.meta)
		if all == 0 {
			return true, nil
		}
		st.off += n
		st.moved += n
	}
}

// receive takes fragments of the message out of the channel as they are there. It reports the end of the message.
func (c *Comm) receive(s *step, st *laneState) (done bool, err error) {
	cur := &c.cur
	dst := cur.spans(s.dst)
	all := total(dst)
	ch := c.planChannel(s)
	for {
		data, m, ok := ch.Peek()
		if !ok {
			return false, c.peerError(s.peer, ch)
		}
		if isTold(m) {
			if ahead, err := c.hearTold(s.peer, ownChannels+s.channel, data, m); err != nil {
				return false, err
			} else if !ahead {
				continue
			}
		}
		if m != cur.print.meta(all) || len(data) > all-st.moved || len(data) == 0 && all > 0 || len(data)%cur.unit != 0 {
			return false, c.mismatch(s.peer, m, all)
		}
		for len(data) > 0 {
			for st.off == dst[st.chunk].bytes {
				st.chunk, st.off = st.chunk+1, 0
			}
			n := min(len(data), dst[st.chunk].bytes-st.off)
			to := unsafe.Add(dst[st.chunk].ptr, st.off)
			if s.kind == plan.Recv {
				cur.move(s, to, unsafe.Pointer(&data[0]), n)
			} else {
				local := cur.spans(s.src[0])[st.chunk]
				cur.combine(s, to, unsafe.Add(local.ptr, st.off), unsafe.Pointer(&data[0]), n)
			}
			data = data[n:]
			st.off += n
			st.moved += n
		}
		ch.Release()
		if st.moved == all {
			return true, nil
		}
	}
}

// combine is one fragment of a recvreduce.
func (cur *cursor) combine(s *step, dst, local, msg unsafe.Pointer, bytes int) {
	n := bytes / cur.elem
	if cur.pre != 1 && s.src[0].Buf == plan.In {
		cur.scale(dst, local, n, cur.pre)
		local = dst
	}
	if s.msgFirst {
		local, msg = msg, local
	}
	cur.pair(s, dst, local, msg, n)
}

// local does a copy, reduce, get or getreduce, chunk by chunk.
func (c *Comm) local(s *step) error {
	for i, dst := range c.cur.spans(s.dst) {
		if s.twinOf != nil && c.cur.together(s.twinOf, i, dst.bytes) {
			continue
		}
		if len(s.src) > 1 {
			if err := c.reduce(s, dst, i); err != nil {
				return err
			}
			continue
		}
		src, err := c.source(s, 0, i, dst.bytes)
		if err != nil {
			return err
		}
		if s.twin != nil && c.cur.together(s, i, dst.bytes) {
			c.cur.both(s, dst.ptr, c.cur.spans(s.twin.dst)[i].ptr, src, dst.bytes)
			continue
		}
		c.cur.copy(s, dst.ptr, src, dst.bytes)
	}
	return nil
}

// together reports whether chunk i of a copy into the window and of its twin are done in one. What is lent is not copied into the window.
func (cur *cursor) together(window *step, i, bytes int) bool {
	return together(bytes) && cur.mask>>(window.dst.At+i)&1 == 0
}

// reduce combines chunk i of all sources.
func (c *Comm) reduce(s *step, dst span, i int) error {
	cur := &c.cur
	cur.sources = cur.sources[:0]
	for k := range s.src {
		src, err := c.source(s, k, i, dst.bytes)
		if err != nil {
			return err
		}
		cur.sources = append(cur.sources, src)
	}
	cur.many(s, dst.ptr, &cur.operands, dst.bytes)
	return nil
}

// mismatch is the error for a fragment that belongs to another call than this rank's.
func (c *Comm) mismatch(peer int, m transport.Meta, want int) error {
	got, bytes := decode(m)
	mine := c.cur.print.meta(want)
	if m == mine {
		return fault.Peer(fault.Internal, peer, "sent a fragment that does not fit its message of %d bytes", want)
	}
	ours, before := c.cur.print, ""
	if m[0] == mine[0] && m[1] == mine[1] && (m[2]^mine[2])&low48 == 0 {
		// The same call: what differs is the plan, or the calls before.
		before = "; either they have run different plans, or made different calls before"
		if earlier, theirs, ok := c.parted(peer); ok {
			ours, want = decode(earlier)
			got, bytes = decode(theirs)
			before = "; they find out only now"
		}
	}
	return fault.Peer(fault.Mismatch, peer, "this rank called %s, rank %d called %s%s; all ranks of a group must make the same calls in the same order",
		ours.describe(want), peer, got.describe(bytes), before)
}

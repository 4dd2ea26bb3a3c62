package exec

import (
	"encoding/binary"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// Put, packet and signal travel as frames on a channel of their own, so that they need no shared memory. A frame is a piece of one chunk
// of the receiver's window, then a trailer (behind it, so that the piece is aligned):
//
//	offset of the piece in the chunk, in bytes (48) | flag (8) | what (8)
//	chunk (64)
//
// The receiver applies the frames of the operation that it runs whenever it is driven, whatever its program waits for; those
// of later operations stay in the channel, and behind them everything else of that peer. So the frames of one peer are
// applied in the order in which they were given: who has seen a signal sees the puts before it.
const trailer = 16

// What a frame does.
const (
	frameData   = 1 << iota // the piece goes into the window
	frameSignal             // the flag is counted up, after that
	frameKinds  = frameData | frameSignal
)

// put sends what a put, packet or signal has to tell, as far as the channel lends space. It reports the end.
func (c *Comm) put(s *step, st *laneState) (done bool, err error) {
	cur := &c.cur
	var src []span
	if s.kind != plan.Signal {
		src = cur.spans(s.src[0])
	}
	scaled := src != nil && cur.pre != 1 && s.src[0].Buf == plan.In
	all := total(src)
	for {
		for st.chunk < len(src) && st.off == src[st.chunk].bytes {
			st.chunk, st.off = st.chunk+1, 0
		}
		if st.moved == all && (all > 0 || s.kind == plan.Put) {
			return true, nil
		}
		want := 0
		if all > 0 {
			want = min(src[st.chunk].bytes-st.off, maxFragment-trailer)
		}
		ch := c.channel(s.peer, windowChannel)
		space := ch.Reserve(want + trailer)
		if len(space) <= trailer && want > 0 || space == nil {
			// A peer that is gone gives no credit back, and this lane may be the only one that waits for it.
			if err := c.opts.Links[s.peer].Err(); err != nil {
				return false, c.named(s.peer, err)
			}
			return false, nil
		}
		// What is lent is a multiple of 64 if it is less than wanted, so no element is cut.
		n := min(want, len(space)-trailer)
		what, chunk, bytes := 0, 0, 0
		if all > 0 {
			what, chunk, bytes = frameData, s.dst.At+st.chunk, src[st.chunk].bytes
			from := unsafe.Add(src[st.chunk].ptr, st.off)
			if scaled {
				cur.scale(unsafe.Pointer(&space[0]), from, n/cur.elem, cur.pre)
			} else {
				kernel.Copy(space[:n], unsafe.Slice((*byte)(from), n))
			}
		}
		if s.kind != plan.Put && st.moved+n == all {
			what |= frameSignal
		}
		binary.LittleEndian.PutUint64(space[n:], uint64(st.off)|uint64(s.channel)<<48|uint64(what)<<56)
		binary.LittleEndian.PutUint64(space[n+8:], uint64(chunk))
		cur.meta = cur.print.meta(bytes)
		ch.Commit(n+trailer, &cur.meta)
		st.off += n
		st.moved += n
		if all == 0 {
			return true, nil
		}
	}
}

// wait takes one signal, if there is one.
func (c *Comm) wait(s *step) (done bool, err error) {
	at := &c.cur.signals[s.peer*c.cur.low.flags+s.channel]
	if *at > 0 {
		*at--
		return true, nil
	}
	ch := c.channel(s.peer, windowChannel)
	if _, m, ok := ch.Peek(); ok && c.cur.print.before(m) {
		return false, c.mismatch(s.peer, m, 0) // it has gone on, so the signal will never come
	}
	return false, c.peerError(s.peer, ch)
}

// before reports whether m is of an operation, or phase, after that of f.
func (f *fingerprint) before(m transport.Meta) bool {
	return order(f.seq, uint32(m[0]), f.phase, uint8(m[0]>>56)) < 0
}

// after reports whether m is of an operation, or phase, before that of f.
func (f *fingerprint) after(m transport.Meta) bool {
	return order(f.seq, uint32(m[0]), f.phase, uint8(m[0]>>56)) > 0
}

// inbound applies the frames that these peers have sent for the running operation. It reports whether there were any.
func (c *Comm) inbound(peers []int) (moved bool, err error) {
	for _, peer := range peers {
		m, err := c.inboundFrom(peer)
		if err != nil {
			return true, err
		}
		moved = moved || m
	}
	return moved, nil
}

func (c *Comm) inboundFrom(peer int) (moved bool, err error) {
	ch := c.channel(peer, windowChannel)
	for {
		frame, m, ok := ch.Peek()
		if ok && isTold(m) {
			if ahead, err := c.hearTold(peer, windowChannel, frame, m); err != nil {
				return true, err
			} else if !ahead {
				continue
			}
		}
		if !ok || c.cur.print.before(m) {
			return moved, nil
		}
		// What came too late for its operation was asked for by nobody.
		if !c.cur.print.after(m) {
			if err := c.apply(peer, frame, m); err != nil {
				return true, err
			}
		}
		ch.Release()
		moved = true
	}
}

// apply does what a frame of the running operation says. Everything in it was written by the peer.
func (c *Comm) apply(peer int, frame []byte, m transport.Meta) error {
	cur := &c.cur
	if cur.low.signallers == nil || len(frame) < trailer {
		return c.mismatch(peer, m, 0)
	}
	n := len(frame) - trailer
	word, chunk := binary.LittleEndian.Uint64(frame[n:]), binary.LittleEndian.Uint64(frame[n+8:])
	at, flag, what := int(word&low48), int(uint8(word>>48)), uint8(word>>56)
	win := cur.bufs[plan.Win]
	bytes := 0
	if what&frameData != 0 && chunk < uint64(len(win)) {
		bytes = win[chunk].bytes
	}
	if m != cur.print.meta(bytes) {
		return c.mismatch(peer, m, bytes)
	}
	switch {
	case what == 0 || what&^frameKinds != 0:
		return c.badFrame(peer, "is neither data nor a signal")
	case what&frameData == 0 && n > 0:
		return c.badFrame(peer, "is a signal with data")
	case what&frameData != 0 && chunk >= uint64(len(win)):
		return c.badFrame(peer, "is for a chunk that the window does not have")
	case what&frameData != 0 && (n == 0 || at > bytes || n > bytes-at || at%cur.unit != 0 || n%cur.unit != 0):
		return c.badFrame(peer, "lies outside its chunk of the window")
	case what&frameSignal != 0 && flag >= cur.low.flags:
		return c.badFrame(peer, "signals a flag that the plan does not have")
	}
	if what&frameData != 0 {
		copy(unsafe.Slice((*byte)(unsafe.Add(win[chunk].ptr, at)), n), frame[:n])
	}
	if what&frameSignal != 0 {
		cur.signals[peer*cur.low.flags+flag]++
	}
	return nil
}

func (c *Comm) badFrame(peer int, why string) error {
	return fault.Peer(fault.Internal, peer, "sent a frame for plan %s that %s", c.cur.low.name, why)
}

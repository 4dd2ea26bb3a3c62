package exec

import (
	"encoding/binary"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// Put, packet and signal travel as frames on a channel of their own, so that they need no shared
// memory. A frame is a piece of one chunk of the receiver's window, then a trailer (behind it, so
// that the piece is aligned):
//
//	offset of the piece in the chunk, in bytes (48) | flag (8) | what (8)
//	chunk (64)
//
// The receiver applies the frames of the operation that it runs whenever it is driven, whatever its
// program waits for; those of later operations stay in the channel, and behind them everything else
// of that peer. So the frames of one peer are applied in the order in which they were given: who
// has seen a signal sees the puts before it.
const trailer = 16

// What a frame does.
const (
	frameData   = 1 << iota // the piece goes into the window
	frameSignal             // the flag is counted up, after that
	frameKinds  = frameData | frameSignal
)

// put sends what a put, packet or signal has to tell, as far as the channel lends space. It reports
// the end.
func (c *Comm) put(f *frame, b *instr, st *laneState, call *Call) (done bool) {
	src, s := b.from, b.step
	all := total(src)
	for {
		for st.chunk < len(src) && st.off == src[st.chunk].bytes {
			st.chunk, st.off = st.chunk+1, 0
		}
		if st.moved == all && (all > 0 || s.kind == plan.Put) {
			return true
		}
		want := 0
		if all > 0 {
			want = min(src[st.chunk].bytes-st.off, maxFragment-trailer)
		}
		ch := c.channel(b.peer, windowChannel)
		space := ch.Reserve(want + trailer)
		if len(space) <= trailer && want > 0 || space == nil {
			return false
		}
		// What is lent is a multiple of 64 if it is less than wanted, so no element is cut.
		n := min(want, len(space)-trailer)
		what, chunk, bytes := 0, 0, 0
		if all > 0 {
			what, chunk, bytes = frameData, s.dst.At+st.chunk, src[st.chunk].bytes
			c.pack(f, b, space[:n], plus(src[st.chunk].in(f, call), st.off))
		}
		if s.kind != plan.Put && st.moved+n == all {
			what |= frameSignal
		}
		binary.LittleEndian.PutUint64(space[n:], uint64(st.off)|uint64(s.channel)<<48|uint64(what)<<56)
		binary.LittleEndian.PutUint64(space[n+8:], uint64(chunk))
		f.out = f.meta(bytes)
		ch.Commit(n+trailer, &f.out)
		f.moves++
		st.off += n
		st.moved += n
		if all == 0 {
			return true
		}
	}
}

// pack fills the space of a fragment.
func (c *Comm) pack(f *frame, b *instr, space []byte, from address) {
	switch a := &f.prog.arithmetic; {
	case len(space) == 0:
	case b.plain:
		kernel.Copy(space, bytesAt(from, len(space)))
	default:
		a.scale(address(&space[0]), from, len(space)/a.elem, a.pre)
	}
}

// takeSignal takes one signal, if there is one.
func (c *Comm) takeSignal(f *frame, b *instr) (done bool, err error) {
	at := &f.signals[b.peer*f.prog.low.flags+b.step.channel]
	if *at > 0 {
		*at--
		return true, nil
	}
	if _, m, ok := c.channel(b.peer, windowChannel).Peek(); ok && f.before(m) {
		return false, c.mismatch(b.peer, m, 0) // it has gone on, so the signal will never come
	}
	return false, nil
}

// before reports whether m is of an operation, or phase, after that of f.
func (f *frame) before(m transport.Meta) bool { return order(f.fingerprint, m) < 0 }

// after reports whether m is of an operation, or phase, before that of f.
func (f *frame) after(m transport.Meta) bool { return order(f.fingerprint, m) > 0 }

// inbound applies the frames that these peers have sent for the running operation.
func (c *Comm) inbound(peers []int) error {
	for _, peer := range peers {
		if err := c.inboundFrom(peer); err != nil {
			return err
		}
	}
	return nil
}

func (c *Comm) inboundFrom(peer int) error {
	f, ch := &c.frame, c.channel(peer, windowChannel)
	for {
		frame, m, ok := ch.Peek()
		if ok && isQuestion(m) {
			if ahead, err := c.hearQuestion(peer, windowChannel, frame, m); err != nil {
				return err
			} else if !ahead {
				continue
			}
		}
		if !ok || f.before(m) || f.entering() && !f.after(m) {
			return nil
		}
		// What came too late for its operation was asked for by nobody.
		if !f.after(m) {
			if err := c.apply(peer, frame, m); err != nil {
				return err
			}
		}
		ch.Release()
		f.moves++
	}
}

// apply does what a frame of the running operation says. Everything in it was written by the peer.
func (c *Comm) apply(peer int, frame []byte, m transport.Meta) error {
	f, low := &c.frame, c.frame.prog.low
	if low.signallers == nil || len(frame) < trailer {
		return c.mismatch(peer, m, 0)
	}
	n := len(frame) - trailer
	word, chunk := binary.LittleEndian.Uint64(frame[n:]), binary.LittleEndian.Uint64(frame[n+8:])
	at, flag, what := int(word&low48), int(uint8(word>>48)), uint8(word>>56)
	win := f.prog.chunks[plan.Win]
	bytes := 0
	if what&frameData != 0 && chunk < uint64(len(win)) {
		bytes = win[chunk].bytes
	}
	if m != f.meta(bytes) {
		return c.mismatch(peer, m, bytes)
	}
	switch {
	case what == 0 || what&^frameKinds != 0:
		return c.badFrame(peer, "is neither data nor a signal")
	case what&frameData == 0 && n > 0:
		return c.badFrame(peer, "is a signal with data")
	case what&frameData != 0 && chunk >= uint64(len(win)):
		return c.badFrame(peer, "is for a chunk that the window does not have")
	case what&frameData != 0 && (n == 0 || at > bytes || n > bytes-at || at%f.prog.unit != 0 || n%f.prog.unit != 0):
		return c.badFrame(peer, "lies outside its chunk of the window")
	case what&frameSignal != 0 && flag >= low.flags:
		return c.badFrame(peer, "signals a flag that the plan does not have")
	}
	if what&frameData != 0 {
		copy(bytesAt(plus(win[chunk].in(f, nil), at), n), frame[:n])
	}
	if what&frameSignal != 0 {
		f.signals[peer*low.flags+flag]++
	}
	return nil
}

func (c *Comm) badFrame(peer int, why string) error {
	return fault.Peer(fault.Internal, peer, "sent a frame for plan %s that %s", c.frame.prog.low.name, why)
}

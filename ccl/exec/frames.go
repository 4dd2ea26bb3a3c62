package exec

import (
	"encoding/binary"

	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/transport"
)

// Put, packet and signal travel as frames on a channel of their own, so that they need no shared
// memory. A frame has a part of one chunk of the receiver's window, followed by a trailer. The
// trailer comes last so that the data is aligned:
//
//	offset of the data in the chunk, in bytes (48) | flag (8) | what (8)
//	chunk (64)
//
// The receiver applies the frames of its operation in flight whenever it is driven, whatever its
// program waits for. Frames of later operations stay in the channel, and so does everything that
// the peer has sent behind them. So the frames of one peer are applied in the order in which they
// were sent: a rank that has seen a signal also sees the puts before it.
const trailer = 16

// The actions of a frame, bits of "what".
const (
	frameData   = 1 << iota // the data is written to the window
	frameSignal             // then the flag is counted up
	frameKinds  = frameData | frameSignal
)

// put sends the frames of a put, packet or signal, as far as the channel lends space. It reports
// whether all of them are sent.
func (r *runner) put(f *frame, b *program.Instruction, st *laneState, call *Call) (done bool) {
	src, s := b.From, b.Step
	all, signals := program.Total(src), s.Kind.Traits().Signals
	for {
		for st.chunk < len(src) && st.off == src[st.chunk].Bytes {
			st.chunk, st.off = st.chunk+1, 0
		}
		if st.moved == all && (all > 0 || !signals) {
			return true
		}
		want := 0
		if all > 0 {
			want = min(src[st.chunk].Bytes-st.off, maxFragment-trailer)
		}
		ch := r.links.Channel(b.Peer, windowChannel)
		space := ch.Reserve(want + trailer)
		if len(space) <= trailer && want > 0 || space == nil {
			return false
		}
		// If the channel lends less than requested, it lends a multiple of 64 bytes, so no element
		// is cut.
		n := min(want, len(space)-trailer)
		what, chunk, bytes := 0, 0, 0
		if all > 0 {
			what, chunk, bytes = frameData, s.Dst.At+st.chunk, src[st.chunk].Bytes
			r.pack(f, b, space[:n], plus(f.in(&src[st.chunk].Operand, call), st.off))
		}
		if signals && st.moved+n == all {
			what |= frameSignal
		}
		binary.LittleEndian.PutUint64(space[n:], uint64(st.off)|uint64(s.Channel)<<48|uint64(what)<<56)
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

// pack fills the space of a fragment, with multiplied elements where the operation requires it.
func (r *runner) pack(f *frame, b *program.Instruction, space []byte, from address) {
	switch p := f.prog; {
	case len(space) == 0:
	case b.Plain && r.links.Network[b.Peer]:
		kernel.Copy(space, bytesAt(from, len(space)))
	case b.Plain:
		kernel.CopyAcross(space, bytesAt(from, len(space)))
	default:
		p.scale(address(&space[0]), from, len(space)/p.Elem, p.Pre)
	}
}

// takeSignal consumes one signal, if there is one.
func (r *runner) takeSignal(f *frame, b *program.Instruction) (done bool, err error) {
	at := &f.signals[b.Peer*f.prog.Low.Flags+b.Step.Channel]
	if *at > 0 {
		*at--
		return true, nil
	}
	if _, m, ok := r.links.Channel(b.Peer, windowChannel).Peek(); ok && f.before(m) {
		return false, r.mismatch(b.Peer, m, 0) // the peer has gone on, so the signal will never come
	}
	return false, nil
}

// before reports whether m is of a later operation, or phase, than f.
func (f *frame) before(m transport.Meta) bool { return fingerprint.Order(f.fingerprint, m) < 0 }

// after reports whether m is of an earlier operation, or phase, than f.
func (f *frame) after(m transport.Meta) bool { return fingerprint.Order(f.fingerprint, m) > 0 }

// inbound applies the frames that the given peers have sent for the operation in flight.
func (r *runner) inbound(peers []int) error {
	for _, peer := range peers {
		if err := r.inboundFrom(peer); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) inboundFrom(peer int) error {
	f, ch := &r.frame, r.links.Channel(peer, windowChannel)
	for {
		frame, m, ok := ch.Peek()
		if ok && isQuestion(m) {
			if ahead, err := r.hearQuestion(peer, windowChannel, frame, m); err != nil {
				return err
			} else if !ahead {
				continue
			}
		}
		if !ok || f.before(m) || f.entering() && !f.after(m) {
			return nil
		}
		// A frame of an earlier operation came too late: no step waited for it, so it is dropped.
		if !f.after(m) {
			if err := r.apply(peer, frame, m); err != nil {
				return err
			}
		}
		ch.Release()
		f.moves++
	}
}

// apply does what a frame of the operation in flight requests. Everything in the frame was written
// by the peer, so all of it is checked.
func (r *runner) apply(peer int, frame []byte, m transport.Meta) error {
	f, low := &r.frame, r.frame.prog.Low
	if low.Signallers == nil || len(frame) < trailer {
		return r.mismatch(peer, m, 0)
	}
	n := len(frame) - trailer
	word, chunk := binary.LittleEndian.Uint64(frame[n:]), binary.LittleEndian.Uint64(frame[n+8:])
	at, flag, what := int(word&fingerprint.Low48), int(uint8(word>>48)), uint8(word>>56)
	win := f.prog.Chunks[plan.Win]
	bytes := 0
	if what&frameData != 0 && chunk < uint64(len(win)) {
		bytes = win[chunk].Bytes
	}
	if m != f.meta(bytes) {
		return r.mismatch(peer, m, bytes)
	}
	switch {
	case what == 0 || what&^frameKinds != 0:
		return r.badFrame(peer, "is neither data nor a signal")
	case what&frameData == 0 && n > 0:
		return r.badFrame(peer, "is a signal with data")
	case what&frameData != 0 && chunk >= uint64(len(win)):
		return r.badFrame(peer, "is for a chunk that the window does not have")
	case what&frameData != 0 && (n == 0 || at > bytes || n > bytes-at || at%f.prog.Unit != 0 || n%f.prog.Unit != 0):
		return r.badFrame(peer, "lies outside its chunk of the window")
	case what&frameSignal != 0 && flag >= low.Flags:
		return r.badFrame(peer, "signals a flag that the plan does not have")
	}
	if what&frameData != 0 {
		copy(bytesAt(plus(f.in(&win[chunk].Operand, nil), at), n), frame[:n])
	}
	if what&frameSignal != 0 {
		f.signals[peer*low.Flags+flag]++
	}
	return nil
}

func (r *runner) badFrame(peer int, why string) error {
	return fault.Peer(fault.Internal, peer, "sent a frame for plan %s that %s", r.frame.prog.Low.Name, why)
}

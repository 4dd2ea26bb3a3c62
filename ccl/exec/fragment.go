package exec

import (
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
)

const (
	// maxFragment is the largest number of bytes that a send requests from the channel at once:
	// large enough to hide the cost of passing a fragment on, small enough that both sides find it
	// in the cache and that several fragments are in flight.
	maxFragment = 128 << 10
	// tile is the number of bytes that local work processes at a time. A tile stays in the
	// first-level cache, and keeps the time in assembly short.
	tile = 16 << 10
)

// send puts fragments of the message into the channel until the channel's space, or what the gates
// let through, is used up. It reports whether the message is complete.
func (r *runner) send(f *frame, b *program.Instruction, st *laneState, call *Call) (done bool) {
	if f.keyed != nil {
		return f.keyed.message(b, st)
	}
	src, limit := b.From, f.limit(b.Gates)
	all := program.Total(src)
	ch, in := r.planChannel(b.Step), r.gatherer(b, all)
	tries := in != nil
	for {
		for st.chunk < len(src) && st.off == src[st.chunk].Bytes {
			st.chunk, st.off = st.chunk+1, 0
		}
		if st.moved == all && all > 0 {
			return in == nil || in.Sent()
		}
		want := 0
		if all > 0 {
			want = min(src[st.chunk].Bytes-st.off, maxFragment)
			if st.moved+want > limit {
				// Only the first bytes of the chunk are there: send them if they make at least a
				// quarter of a fragment, else wait.
				if want = limit - st.moved; want < maxFragment/4 {
					return false
				}
				want &^= 63
			}
		}
		if tries {
			f.out = f.meta(all)
			n, ok := in.Gather(bytesAt(plus(f.in(&src[st.chunk].Operand, call), st.off), want), &f.out)
			if ok && n == 0 {
				return false
			}
			if tries = ok; ok {
				f.moves++
				st.off += n
				st.moved += n
				continue
			}
		}
		space := ch.Reserve(want)
		if space == nil {
			return false
		}
		n := min(want, len(space))
		if n > 0 {
			r.pack(f, b, space[:n], plus(f.in(&src[st.chunk].Operand, call), st.off))
		}
		f.out = f.meta(all)
		ch.Commit(n, &f.out)
		f.moves++
		if all == 0 {
			return true
		}
		st.off += n
		st.moved += n
	}
}

// receive takes the fragments of the message that have arrived out of the channel. It reports
// whether the message is complete.
func (r *runner) receive(f *frame, b *program.Instruction, st *laneState, call *Call) (done bool, err error) {
	if f.keyed != nil {
		return f.keyed.message(b, st), nil
	}
	dst, s := b.To, b.Step
	all := program.Total(dst)
	ch := r.planChannel(s)
	for {
		data, m := ch.Look()
		if m == nil {
			return false, nil
		}
		if isQuestion(*m) {
			if ahead, err := r.hearQuestion(b.Peer, ownChannels+s.Channel, data, *m); err != nil {
				return false, err
			} else if !ahead {
				continue
			}
		}
		if *m != f.meta(all) || len(data) > all-st.moved || len(data) == 0 && all > 0 || len(data)%f.prog.Unit != 0 {
			return false, r.mismatch(b.Peer, *m, all)
		}
		for len(data) > 0 {
			for st.off == dst[st.chunk].Bytes {
				st.chunk, st.off = st.chunk+1, 0
			}
			n := min(len(data), dst[st.chunk].Bytes-st.off)
			to := plus(f.in(&dst[st.chunk].Operand, call), st.off)
			if !s.Kind.Traits().Reduces {
				f.prog.move(s, to, address(&data[0]), n)
			} else {
				f.prog.combine(s, to, plus(f.in(&b.From[st.chunk].Operand, call), st.off), address(&data[0]), n)
			}
			data = data[n:]
			st.off += n
			st.moved += n
		}
		ch.Release()
		f.moves++
		if st.moved == all {
			return true, nil
		}
	}
}

// combine performs a recvreduce on one fragment.
func (p *compiled) combine(s *program.Step, dst, local, msg address, bytes int) {
	n := bytes / p.Elem
	if p.Pre != 1 && s.Src[0].Buf == plan.In {
		p.scale(dst, local, n, p.Pre)
		local = dst
	}
	if s.MsgFirst {
		local, msg = msg, local
	}
	p.pair(s, dst, local, msg, n)
}

package exec

import (
	"github.com/goccl/goccl/ccl/plan"
)

const (
	// maxFragment is how much a send asks for at once: large enough to hide the hand-over, small
	// enough that both sides find it in the cache and that several are in flight.
	maxFragment = 128 << 10
	// tile is the piece of local work that is done before the next: it stays in the first-level
	// cache, and keeps the time in assembly short.
	tile = 16 << 10
)

// send puts fragments of the message into the channel until the space, or the limit, is used up. It
// reports the end.
func (c *Comm) send(f *frame, b *instr, st *laneState, call *Call) (done bool) {
	src, limit := b.from, f.limit(b.gates)
	all := total(src)
	ch := c.planChannel(b.step)
	for {
		for st.chunk < len(src) && st.off == src[st.chunk].bytes {
			st.chunk, st.off = st.chunk+1, 0
		}
		if st.moved == all && all > 0 {
			return true
		}
		want := 0
		if all > 0 {
			want = min(src[st.chunk].bytes-st.off, maxFragment)
			if st.moved+want > limit {
				// Only the first bytes of the chunk are there: send what makes a whole fragment,
				// else wait.
				if want = limit - st.moved; want < maxFragment/4 {
					return false
				}
				want &^= 63
			}
		}
		space := ch.Reserve(want)
		if space == nil {
			return false
		}
		n := min(want, len(space))
		if n > 0 {
			c.pack(f, b, space[:n], plus(src[st.chunk].in(f, call), st.off))
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

// receive takes fragments of the message out of the channel as they are there. It reports the end
// of the message.
func (c *Comm) receive(f *frame, b *instr, st *laneState, call *Call) (done bool, err error) {
	dst, s := b.to, b.step
	all := total(dst)
	ch := c.planChannel(s)
	for {
		data, m, ok := ch.Peek()
		if !ok {
			return false, nil
		}
		if isQuestion(m) {
			if ahead, err := c.hearQuestion(b.peer, ownChannels+s.channel, data, m); err != nil {
				return false, err
			} else if !ahead {
				continue
			}
		}
		if m != f.meta(all) || len(data) > all-st.moved || len(data) == 0 && all > 0 || len(data)%f.prog.unit != 0 {
			return false, c.mismatch(b.peer, m, all)
		}
		for len(data) > 0 {
			for st.off == dst[st.chunk].bytes {
				st.chunk, st.off = st.chunk+1, 0
			}
			n := min(len(data), dst[st.chunk].bytes-st.off)
			to := plus(dst[st.chunk].in(f, call), st.off)
			if s.kind == plan.Recv {
				f.prog.move(s, to, address(&data[0]), n)
			} else {
				f.prog.combine(s, to, plus(b.from[st.chunk].in(f, call), st.off), address(&data[0]), n)
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

// combine is one fragment of a recvreduce.
func (a *arithmetic) combine(s *step, dst, local, msg address, bytes int) {
	n := bytes / a.elem
	if a.pre != 1 && s.src[0].Buf == plan.In {
		a.scale(dst, local, n, a.pre)
		local = dst
	}
	if s.msgFirst {
		local, msg = msg, local
	}
	a.pair(s, dst, local, msg, n)
}

package verify

import (
	"slices"
)

// trail is the list of steps that the fragments of a message have come through: its send and, if
// that passes on what a recv receives, the recv and the trail of the recv's message.
type trail struct {
	by   stamp
	next *trail
}

// mostTrail bounds how far back a trail is followed. Older steps count as not ordered.
const mostTrail = 1 << 12

// begun is what was known when the first fragment of a recv had arrived.
type begun struct {
	clock int32 // in clocks
	trail *trail
}

// send adds a message to its stream; the send is over if its receiver is already there.
func (x *execution) send(l *lane, a *action) (over bool, bad *Counterexample) {
	st := x.streams.of(int32(l.rank), a.peer, a.channel)
	if bad := x.inOrder(l, &st.lastSend, "messages sent"); bad != nil {
		return false, bad
	}
	if st.sender != nil {
		return false, nil // only while other counterexamples are ignored
	}
	st.sender = l
	return x.meet(st, l)
}

func (x *execution) recv(l *lane, a *action) (over bool, bad *Counterexample) {
	st := x.streams.of(a.peer, int32(l.rank), a.channel)
	if bad := x.inOrder(l, &st.lastRecv, "messages received"); bad != nil {
		return false, bad
	}
	if st.receiver != nil {
		return false, nil
	}
	st.receiver = l
	return x.meet(st, l)
}

// inOrder checks that the step of l comes after the previous step at its end of a stream in every
// schedule.
func (x *execution) inOrder(l *lane, last *stamp, what string) *Counterexample {
	before := *last
	*last = l.stamp()
	known := l.clock
	if l.follows != nil {
		known = l.early // its first fragment must not come between those of the previous message
	}
	if before.end > 0 && before.lane != l.id && known[before.lane-l.offset] < before.end {
		return x.unordered(l, before, what)
	}
	return nil
}

// meet moves the message of a stream when both of its ends are there; l is the end that came last.
func (x *execution) meet(st *stream, l *lane) (over bool, bad *Counterexample) {
	from, to := st.sender, st.receiver
	if from == nil || to == nil {
		return false, nil
	}
	st.sender, st.receiver = nil, nil
	if x.full {
		x.arrives(from, to)
	}
	if bad := x.message(from, to); bad != nil {
		return false, bad
	}
	if x.full {
		to.clock.join(from.clock)
		to.clock[from.id] = ended(from.pc) // the send has read its whole source
	} else {
		*to.clock.rounds() = max(*to.clock.rounds(), *from.clock.rounds())
	}
	*to.clock.rounds()++
	*from.clock.rounds()++
	x.end(from)
	x.end(to)
	if from == l {
		x.enqueue(to)
	} else {
		x.enqueue(from)
	}
	return true, nil
}

// message moves the chunks of a message from the source of a send to the destination of a recv.
func (x *execution) message(from, to *lane) *Counterexample {
	s, d := &from.code[from.pc], &to.code[to.pc]
	sender, receiver := &x.ranks[from.rank], &x.ranks[to.rank]
	src, op := sender.code.refs[s.src], int(d.op)
	if s.op != d.op || src.n != d.dst.n {
		return x.mismatch(from, to, s.op != d.op)
	}
	for i := range int(src.n) {
		to.chunk = i
		if sent, wanted := x.extent(op, src, i), x.extent(op, d.dst, i); sent != wanted {
			if bad := x.badLength(from, to, i, sent, wanted); bad != nil {
				return bad
			}
		}
		v, bad := x.read(from, src, i)
		if bad != nil {
			return bad
		}
		if d.kind.Traits().Reduces {
			own, bad := x.read(to, receiver.code.refs[d.src], i)
			if bad != nil {
				return bad
			}
			if d.msgFirst {
				v = x.reduce(to, v, own)
			} else {
				v = x.reduce(to, own, v)
			}
			receiver.load.Reduced++
		}
		if bad := x.write(to, d, i, v); bad != nil {
			return bad
		}
	}
	x.messages++
	sender.load.Messages++
	sender.load.Sent += int(src.n)
	receiver.load.Received += int(src.n)
	return nil
}

// arrives delivers the first fragment of a message to its recv: everything that came before the
// start of the send also came before the recv accesses memory. A send that passes on what a recv
// receives starts when that recv starts.
func (x *execution) arrives(from, to *lane) {
	first := from.clock
	if from.follows != nil {
		first = from.early
	}
	to.clock.join(first)
	to.trail = &trail{from.stamp(), from.follows}
	if to.followers != nil && to.followers[to.pc] > 0 {
		to.begun[to.pc] = begun{x.clocks.copyOf(to.clock), to.trail}
	}
}

// startEarly computes what is known when a send sends its first fragment. At that time the recv
// whose fragments it passes on, if there is one, has started, and all other steps that the send
// comes after have ended.
func (x *execution) startEarly(l *lane, a *action) {
	rk := &x.ranks[l.rank]
	points := rk.code.after[a.after:a.afterEnd]
	if !slices.ContainsFunc(points, func(p point) bool { return rk.code.follows(a, p) }) {
		return
	}
	l.early = append(l.early[:0], l.clock...)
	for _, p := range points {
		if rk.code.follows(a, p) {
			x.passOn(l, p)
		} else {
			l.early.join(x.clocks.at(rk.lanes[p.lane].ends[p.step]))
		}
	}
	l.early[l.id-l.offset] = started(l.pc)
}

// passOn records that a send of l passes on what the recv at p receives, fragment by fragment: the
// send starts once the recv has started.
func (x *execution) passOn(l *lane, p point) {
	before := &x.ranks[l.rank].lanes[p.lane]
	b := before.begun[p.step]
	l.early.join(x.clocks.at(b.clock))
	l.follows = &trail{stamp{before.id, ended(int(p.step))}, b.trail}
	if before.followers[p.step]--; before.followers[p.step] == 0 {
		before.begun[p.step] = begun{}
		x.clocks.release(b.clock)
	}
}

// follows reports whether action a of a rank is a send that may start while the step at p, a recv
// of the same Ref, is still running.
func (c *code) follows(a *action, p point) bool {
	w := &c.lanes[p.lane][p.step]
	return a.kind.Traits().Sends && w.kind.Traits().Receives && w.op == a.op && c.refs[a.src] == w.dst
}

// behind reports whether the step of l is a recv that accesses a place only after the step of s has
// accessed it, although that step may not have ended: the order holds fragment by fragment, since
// the recv's message has come through that step, which has the place in the same chunk.
func (x *execution) behind(l *lane, m *memory, place int, s stamp) bool {
	if !x.full || l.pc == len(l.code) || !l.code[l.pc].kind.Traits().Receives {
		return false
	}
	t := l.trail
	for n := 0; t != nil && n < mostTrail; n++ {
		if t.by == s {
			return x.has(s, l.chunk, m, place)
		}
		t = t.next
	}
	return false
}

// has reports whether the given chunk of a Ref of a send or recv is at a place.
func (x *execution) has(s stamp, chunk int, m *memory, place int) bool {
	l := x.byID[s.lane]
	c, a := &x.codes[l.rank], &l.code[stepOf(s.end)]
	if !a.kind.Traits().Sends && a.dst.rank == int32(m.rank) && m.place(a.dst, chunk) == place {
		return true
	}
	for _, r := range c.refs[a.src:a.srcEnd] {
		if r.rank == int32(m.rank) && m.place(r, chunk) == place {
			return true
		}
	}
	return false
}

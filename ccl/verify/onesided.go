package verify

import "github.com/goccl/goccl/ccl/plan"

// put is a chunk that was put into a window.
type put struct {
	mem    *memory
	place  int
	by     stamp
	op     uint8 // index of its plan in a sequence
	waited bool  // its target has waited for it
}

// signal is a signal that was given and not yet waited for.
type signal struct {
	clock int32 // number of the clock of its giver
	lane  *lane
	step  int // index of the step in the lane
}

// put executes the writing part of a put or a packet.
func (x *execution) put(l *lane, a *action) *Counterexample {
	rk := &x.ranks[l.rank]
	src := rk.code.refs[a.src]
	if ok, bad := x.reaches(l, src, a.dst); !ok {
		return bad
	}
	for i := range int(a.dst.n) {
		v, bad := x.read(l, src, i)
		if bad != nil {
			return bad
		}
		if bad := x.write(l, a, i, v); bad != nil {
			return bad
		}
	}
	rk.load.Messages++
	rk.load.Sent += int(a.dst.n)
	x.ranks[a.peer].load.Received += int(a.dst.n)
	x.messages++
	return nil
}

// reaches checks remote, a Ref in the window of another rank, against that window and against own,
// the Ref on this side.
func (x *execution) reaches(l *lane, own, remote ref) (ok bool, bad *Counterexample) {
	op := int(l.code[l.pc].op)
	if remote.buf == plan.Win && int(remote.at)+int(remote.n) > len(x.codes[remote.rank].progs[op].Win) {
		return false, x.outside(l, remote, len(x.codes[remote.rank].progs[op].Win))
	}
	for i := range int(remote.n) {
		if here, there := x.extent(op, own, i), x.extent(op, remote, i); here != there {
			return false, x.badReach(l, remote, i, here, there)
		}
	}
	return true, nil
}

// signal executes the signalling part of a signal or a packet. The put of a packet counts as
// executed before its signal.
func (x *execution) signal(l *lane, a *action) *Counterexample {
	st := x.flags.of(int32(l.rank), a.peer, a.channel)
	if bad := x.inOrder(l, &st.lastSend, "signals given"); bad != nil {
		return bad
	}
	if bad := x.touchRecord(l, a, l.rank); bad != nil {
		return bad
	}
	known := x.clocks.copyOf(l.clock)
	x.clocks.at(known)[l.id-l.offset] = ended(l.pc)
	*l.clock.rounds()++
	st.signals = append(st.signals, signal{known, l, l.pc})
	x.ranks[l.rank].load.Signals++
	if st.receiver != nil {
		x.enqueue(st.receiver)
	}
	return nil
}

// wait ends if the signal is there. It makes visible all puts that the giver made before the
// signal.
func (x *execution) wait(l *lane, a *action) (over bool, bad *Counterexample) {
	st := x.flags.of(a.peer, int32(l.rank), a.channel)
	if st.lastRecv != l.stamp() { // not when the wait resumes
		if bad := x.inOrder(l, &st.lastRecv, "waits"); bad != nil {
			return false, bad
		}
	}
	if len(st.signals) == 0 {
		st.receiver = l
		return false, nil
	}
	s := st.signals[0]
	st.signals, st.receiver = st.signals[1:], nil
	given := &s.lane.code[s.step]
	if given.op != a.op {
		return false, x.crossed(s.lane, s.step, l)
	}
	if bad := x.touchRecord(l, a, int(a.peer)); bad != nil {
		return false, bad
	}
	known := x.clocks.at(s.clock)
	l.clock.join(known)
	*l.clock.rounds()++
	key := [2]int32{a.peer, int32(l.rank)}
	left := x.puts[key][:0]
	for _, p := range x.puts[key] {
		last := p.mem.wrote[p.place] == p.by // no later put has overwritten it
		if p.op == a.op && p.by.end <= known[p.by.lane] {
			p.waited = true
			if last {
				p.mem.see(l, p.place)
			}
		}
		// Waits of other lanes may make the put visible, too. A signal of a later plan is too late
		// for it.
		if !p.waited || last && p.op == a.op && len(x.ranks[l.rank].lanes) > 1 {
			left = append(left, p)
		}
	}
	x.puts[key] = left
	x.clocks.release(s.clock)
	x.end(l)
	return true, nil
}

// leftover finds signals, and puts, that their target has not waited for.
func (x *execution) leftover() *Counterexample {
	if bad := x.leftoverSignal(); bad != nil {
		return bad
	}
	return x.leftoverPut()
}

// leftoverPut finds the first step whose put may arrive after its target has ended.
func (x *execution) leftoverPut() *Counterexample {
	var first *put
	for _, all := range x.puts {
		for i := range all {
			p := &all[i]
			if p.waited {
				continue
			}
			if first == nil || p.by.lane < first.by.lane || p.by.lane == first.by.lane && p.by.end < first.by.end {
				first = p
			}
		}
	}
	if first == nil {
		return nil
	}
	return x.late(first)
}

func (x *execution) leftoverSignal() *Counterexample {
	var first *signal
	for _, st := range x.flags.all {
		for i := range st.signals {
			s := &st.signals[i]
			if first == nil || s.lane.id < first.lane.id || s.lane.id == first.lane.id && s.step < first.step {
				first = s
			}
		}
	}
	if first == nil {
		return nil
	}
	return x.unwaited(first)
}

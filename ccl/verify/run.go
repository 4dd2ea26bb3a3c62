package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/plan"
)

// lane is one lane of one rank in execution.
type lane struct {
	rank, lane int
	self       int // index of its element in clocks
	steps      []plan.Step
	pc         int
	running    bool // step pc has started
	queued     bool // in execution.ready
	clock      clock
	waits      []int32 // for each step how many others come After it and have not started; nil if none ever does
	ends       []clock // for each step its end, while waits > 0
}

// rank is one rank in execution.
type rank struct {
	lanes []lane
	prog  *plan.Program
	mem   *memory
	load  *Load
}

// streamKey names the messages that match first in, first out.
type streamKey struct{ from, to, channel int32 }

// stream holds who is at its ends: the lane that waits there now, and the last step that used it.
type stream struct {
	sender, receiver   *lane
	lastSend, lastRecv stamp
}

// execution runs all ranks of a plan on symbols.
type execution struct {
	plan    *plan.Plan
	inPlace bool
	reduces bool
	ranks   []rank
	values  *values
	streams map[streamKey]*stream
	clocks  clocks
	base    []int // for each rank the element of its lane 0 in clocks
	ready   []*lane
	left    int // lanes that have not ended
	report  *Report
}

func newExecution(p *plan.Plan, progs []plan.Program, inPlace bool, report *Report) *execution {
	n := len(progs)
	x := &execution{plan: p, inPlace: inPlace, reduces: p.Spec.Coll.Reduces(), ranks: make([]rank, n),
		streams: map[streamKey]*stream{}, base: make([]int, n), report: report}
	ins, lanes := make([]int, n), 0
	for r := range progs {
		ins[r] = p.InChunks(r)
		x.base[r] = lanes
		lanes += len(progs[r].Lanes)
	}
	x.values = newValues(ins)
	x.clocks.size = lanes + 1
	for r := range progs {
		rk := &x.ranks[r]
		rk.prog = &progs[r]
		rk.mem = newMemory(p, r, rk.prog, x.values, inPlace)
		rk.load = &report.Ranks[r]
		rk.lanes = make([]lane, len(progs[r].Lanes))
		for l, steps := range progs[r].Lanes {
			rk.lanes[l] = lane{rank: r, lane: l, self: x.base[r] + l, steps: steps, clock: make(clock, x.clocks.size)}
			if len(steps) > 0 {
				x.left++
				x.enqueue(&rk.lanes[l])
			}
		}
		for _, steps := range progs[r].Lanes {
			for i := range steps {
				for _, a := range steps[i].After {
					before := &rk.lanes[a.Lane]
					if before.waits == nil {
						before.waits = make([]int32, len(before.steps))
						before.ends = make([]clock, len(before.steps))
					}
					before.waits[a.Step]++
				}
			}
		}
	}
	return x
}

func (x *execution) enqueue(l *lane) {
	if !l.queued && l.pc < len(l.steps) {
		l.queued = true
		x.ready = append(x.ready, l)
	}
}

// run executes the plan until all lanes have ended or something is wrong.
func (x *execution) run() *Counterexample {
	for len(x.ready) > 0 {
		l := x.ready[len(x.ready)-1]
		x.ready = x.ready[:len(x.ready)-1]
		l.queued = false
		if bad := x.advance(l); bad != nil {
			return bad
		}
	}
	if x.left > 0 {
		return x.stuck()
	}
	return nil
}

// advance runs a lane as far as it gets.
func (x *execution) advance(l *lane) *Counterexample {
	for l.pc < len(l.steps) {
		s := &l.steps[l.pc]
		if !l.running {
			if x.waitsFor(l) != nil {
				return nil // whoever ends this step enqueues the lane
			}
			x.start(l, s)
		} else if s.Kind != plan.Copy && s.Kind != plan.Reduce {
			return nil // whoever brings the other side of the message ends this step
		}
		var bad *Counterexample
		over := true
		switch s.Kind {
		case plan.Copy, plan.Reduce:
			bad = x.local(l, s)
			x.end(l)
		case plan.Send:
			over, bad = x.send(l, s)
		default:
			over, bad = x.recv(l, s)
		}
		if bad != nil || !over {
			return bad
		}
	}
	return nil
}

// waitsFor returns the lane that has yet to execute a step that the next step of l comes After, nil if none has.
func (x *execution) waitsFor(l *lane) *lane {
	lanes := x.ranks[l.rank].lanes
	for _, a := range l.steps[l.pc].After {
		if lanes[a.Lane].pc <= a.Step {
			return &lanes[a.Lane]
		}
	}
	return nil
}

// start begins the step of l. The clock of l stays that of the start until the end.
func (x *execution) start(l *lane, s *plan.Step) {
	for _, a := range s.After {
		before := &x.ranks[l.rank].lanes[a.Lane]
		end := before.ends[a.Step]
		l.clock.join(end)
		if before.waits[a.Step]--; before.waits[a.Step] == 0 {
			before.ends[a.Step] = nil
			x.clocks.giveBack(end)
		}
	}
	l.clock[l.self] = started(l.pc)
	l.running = true
}

// end completes the step of l.
func (x *execution) end(l *lane) {
	l.clock[l.self] = ended(l.pc)
	if l.waits != nil && l.waits[l.pc] > 0 {
		l.ends[l.pc] = x.clocks.copyOf(l.clock)
		for i := range x.ranks[l.rank].lanes {
			if other := &x.ranks[l.rank].lanes[i]; other != l {
				x.enqueue(other)
			}
		}
	}
	x.ranks[l.rank].load.Steps++
	l.running = false
	if l.pc++; l.pc == len(l.steps) {
		x.left--
	}
}

func (x *execution) stream(from, to, channel int) *stream {
	key := streamKey{int32(from), int32(to), int32(channel)}
	st := x.streams[key]
	if st == nil {
		st = &stream{}
		x.streams[key] = st
	}
	return st
}

// send brings a message to its stream; it is over if its receiver is there already.
func (x *execution) send(l *lane, s *plan.Step) (over bool, bad *Counterexample) {
	st := x.stream(l.rank, s.Peer, s.Chan)
	if bad := x.inOrder(l, &st.lastSend, "sent"); bad != nil {
		return false, bad
	}
	st.sender = l
	return x.meet(st, l)
}

func (x *execution) recv(l *lane, s *plan.Step) (over bool, bad *Counterexample) {
	st := x.stream(s.Peer, l.rank, s.Chan)
	if bad := x.inOrder(l, &st.lastRecv, "received"); bad != nil {
		return false, bad
	}
	st.receiver = l
	return x.meet(st, l)
}

// inOrder checks that the step of l comes after the last one at its end of a stream in every schedule.
func (x *execution) inOrder(l *lane, last *stamp, verb string) *Counterexample {
	if l.clock[x.base[l.rank]+int(last.lane)] < last.end {
		before := Where{l.rank, int(last.lane), int(last.end)/2 - 1}
		return x.counterexample(Unordered, fmt.Sprintf("nothing orders the messages %s by %s and %s, which use the same peer and channel",
			verb, x.name(before), x.name(l.where())), l.where(), before)
	}
	*last = stamp{int32(l.lane), ended(l.pc)}
	return nil
}

// meet moves the message of a stream when both of its ends are there; l is the one that came last.
func (x *execution) meet(st *stream, l *lane) (over bool, bad *Counterexample) {
	from, to := st.sender, st.receiver
	if from == nil || to == nil {
		return false, nil
	}
	st.sender, st.receiver = nil, nil
	if bad := x.message(from, to); bad != nil {
		return false, bad
	}
	to.clock.join(from.clock)
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
	s, d := &from.steps[from.pc], &to.steps[to.pc]
	src := s.Src[0]
	if src.N != d.Dst.N {
		return x.counterexample(Length, fmt.Sprintf("%s sends %d chunks, %s receives %d",
			x.name(from.where()), src.N, x.name(to.where()), d.Dst.N), from.where(), to.where())
	}
	sender, receiver := &x.ranks[from.rank], &x.ranks[to.rank]
	for i := range src.N {
		sent := x.plan.Extent(from.rank, sender.prog.Tmp, src.Buf, src.At+i)
		wanted := x.plan.Extent(to.rank, receiver.prog.Tmp, d.Dst.Buf, d.Dst.At+i)
		if sent != wanted {
			return x.counterexample(Length, fmt.Sprintf("chunk %d of the message from %s to %s: its length is that of %s, wanted is that of %s",
				i, x.name(from.where()), x.name(to.where()), x.length(sent), x.length(wanted)), from.where(), to.where())
		}
		v, bad := x.read(from, src, i)
		if bad != nil {
			return bad
		}
		if d.Kind == plan.RecvReduce {
			own, bad := x.read(to, d.Src[0], i)
			if bad != nil {
				return bad
			}
			if d.MsgFirst {
				v = x.values.reduce(v, own, to.where())
			} else {
				v = x.values.reduce(own, v, to.where())
			}
			receiver.load.Reduced++
		}
		if bad := x.write(to, d, i, v); bad != nil {
			return bad
		}
	}
	x.report.Messages++
	sender.load.Messages++
	sender.load.Sent += src.N
	receiver.load.Received += src.N
	return nil
}

// length says which length an extent is.
func (x *execution) length(e plan.Extent) string {
	if e.From == e.To {
		return fmt.Sprintf("part %d of block %d", e.Part, e.From)
	}
	return fmt.Sprintf("part %d of the block from %d to %d", e.Part, e.From, e.To)
}

// local executes a copy or a reduce. Chunk i of a source is the memory of chunk i of Dst or of none, in place too: Refs of
// one step are congruent, and In and Out in the same memory have each length in the same place.
func (x *execution) local(l *lane, s *plan.Step) *Counterexample {
	r := &x.ranks[l.rank]
	for i := range s.Dst.N {
		if !x.reduces && r.mem.place(s.Dst, i) == r.mem.place(s.Src[0], i) {
			continue // a copy onto itself is skipped: there is no scaling to do
		}
		v, bad := x.read(l, s.Src[0], i)
		if bad != nil {
			return bad
		}
		for _, src := range s.Src[1:] {
			w, bad := x.read(l, src, i)
			if bad != nil {
				return bad
			}
			v = x.values.reduce(v, w, l.where())
			r.load.Reduced++
		}
		if bad := x.write(l, s, i, v); bad != nil {
			return bad
		}
	}
	return nil
}

// read is the value that the step of l reads as chunk i of r.
func (x *execution) read(l *lane, r plan.Ref, i int) (value, *Counterexample) {
	m := x.ranks[l.rank].mem
	place := m.place(r, i)
	if other, ok := m.conflict(place, l.lane, x.own(l), false); ok {
		return nothing, x.race(l, r, i, other, "reads", "writes")
	}
	m.noteRead(place, l.lane, l.pc)
	v := m.vals[place]
	if v == nothing {
		return nothing, x.counterexample(Undefined, fmt.Sprintf("%s reads %s before anything was written there",
			x.name(l.where()), chunk(r, i)), l.where())
	}
	if r.Buf != plan.In {
		return v, nil
	}
	if v != x.values.raw(l.rank, r.At+i) {
		w := m.wrote[place]
		before := Where{l.rank, int(w.lane), int(w.end)/2 - 1}
		return nothing, x.counterexample(Overwritten, fmt.Sprintf("%s reads %s after %s has written out, which is the same memory",
			x.name(l.where()), chunk(r, i), x.name(before)), l.where(), before)
	}
	if x.reduces {
		v = x.values.mark(v, scaled, l.where())
	}
	return v, nil
}

// write is the step of l writing v as chunk i of its Dst.
func (x *execution) write(l *lane, s *plan.Step, i int, v value) *Counterexample {
	m := x.ranks[l.rank].mem
	place := m.place(s.Dst, i)
	if other, ok := m.conflict(place, l.lane, x.own(l), true); ok {
		verb := "reads"
		if other == m.wrote[place] {
			verb = "writes"
		}
		return x.race(l, s.Dst, i, other, "writes", verb)
	}
	if s.Final {
		v = x.values.mark(v, final, l.where())
	}
	m.noteWrite(place, l.lane, l.pc, v)
	return nil
}

// own is what the step of l knew, at its start, of the lanes of its rank.
func (x *execution) own(l *lane) clock {
	base := x.base[l.rank]
	return l.clock[base : base+len(x.ranks[l.rank].lanes)]
}

func (x *execution) race(l *lane, r plan.Ref, i int, other stamp, verb, otherVerb string) *Counterexample {
	before := Where{l.rank, int(other.lane), int(other.end)/2 - 1}
	return x.counterexample(Race, fmt.Sprintf("%s %s %s, which %s %s, and nothing orders the two", x.name(l.where()), verb, chunk(r, i),
		x.name(before), otherVerb), l.where(), before)
}

func (l *lane) where() Where { return Where{l.rank, l.lane, l.pc} }

// name is a step and what it does.
func (x *execution) name(w Where) string {
	if w.Lane < 0 {
		return w.String()
	}
	return fmt.Sprintf("%v (%v)", w, &x.ranks[w.Rank].lanes[w.Lane].steps[w.Step])
}

// chunk names chunk i of r.
func chunk(r plan.Ref, i int) string { return plan.Ref{Buf: r.Buf, At: r.At + i, N: 1}.String() }

func (x *execution) counterexample(reason Reason, text string, at ...Where) *Counterexample {
	return &Counterexample{Plan: x.plan.Name, Spec: x.plan.Spec, InPlace: x.inPlace, Reason: reason, At: at, Text: text}
}

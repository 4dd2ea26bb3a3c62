package verify

import (
	"cmp"

	"github.com/goccl/goccl/ccl/plan"
)

// lane is one lane of one rank during execution.
type lane struct {
	rank, lane  int
	id          int32 // index among the lanes of all ranks
	offset      int32 // id of the lane that element 0 of clocks is about
	first, last int32 // ids of the rank's first lane and of the one behind its last
	code        []action
	pc          int
	running     bool // step pc has started
	queued      bool // in execution.ready
	clock       clock
	// For each step, how many others come After it and have not started; nil if no step ever does.
	waits []int32
	ends  []int32 // for each step, the number of the clock of its end, while waits > 0
	past  []bool  // sequences: for each plan, whether all ranks are known to have ended it

	// Of fragments, only used with clocks over all ranks (message.go).

	// For each step, how many of its waiting steps are sends that pass on its fragments; nil if no
	// send ever does.
	followers []int32
	begun     []begun // for each step, its start, while followers > 0
	early     clock   // of a send that passes on fragments: the clock when it sends the first fragment
	follows   *trail  // the recv whose fragments the send passes on, else nil
	trail     *trail  // of a recv: the steps that its message has come through
	chunk     int     // of a recv: the chunk of its message that is being moved
}

// stamp returns the end of the current step of l.
func (l *lane) stamp() stamp { return stamp{l.id, ended(l.pc)} }

func (l *lane) sameRank(id int32) bool { return id >= l.first && id < l.last }

func (l *lane) self() *int32 { return &l.clock[l.id-l.offset] }

// rank is one rank during execution.
type rank struct {
	lanes []lane
	code  *code
	mem   []*memory // of each plan
	load  *Load

	// Only in sequences:
	op      int     // the plan that the rank is in
	gone    bool    // the rank has left the slot of that plan
	left    []int   // for each plan, the number of steps left
	inside  []int   // for each plan, the number of steps left that come before leaving its slot
	outside []bool  // for each plan, whether it had no steps before leaving
	knew    []clock // for each plan, what was known when it ended; only of barriers
}

// execution runs all ranks of a job on symbols.
type execution struct {
	*job
	inPlace  bool
	full     bool // clocks cover the lanes of all ranks
	ranks    []rank
	streams  streams            // of messages
	flags    streams            // of signals
	puts     map[[2]int32][]put // by writer and target: puts that a wait of the target may make visible
	byID     []*lane
	clocks   clocks
	ready    []*lane
	left     int // lanes that have not ended
	messages int
	credits  []credit                   // of each plan; only in sequences
	seek     func(*Counterexample) bool // if not nil, counterexamples that it rejects are ignored
	out      int                        // the chunk of Out, or the rank, that outcome is checking
	returned *Counterexample            // sequences: memory was returned to its caller too early
}

func newExecution(j *job, inPlace, full bool, report *Report) *execution {
	n := len(j.codes)
	chans, flags := 0, 0
	for _, p := range j.plans {
		chans, flags = max(chans, p.Chans), max(flags, p.Flags)
	}
	x := &execution{job: j, inPlace: inPlace, full: full, ranks: make([]rank, n), streams: newStreams(n, chans),
		flags: newStreams(n, flags), puts: map[[2]int32][]put{}}
	lanes, most := 0, 0
	for r := range j.codes {
		lanes += len(j.codes[r].lanes)
		most = max(most, len(j.codes[r].lanes))
	}
	x.clocks.size = most + 1
	if full {
		x.clocks.size = lanes + 1
	}
	x.byID = make([]*lane, 0, lanes)
	for r := range j.codes {
		x.addRank(r, &report.Ranks[r])
	}
	if len(j.plans) > 1 {
		x.credits = make([]credit, len(j.plans))
		for op := range x.credits {
			x.credits[op].clock, x.credits[op].ends = make(clock, x.clocks.size), make(clock, x.clocks.size)
		}
		for r := range x.ranks {
			x.leave(&x.ranks[r])
		}
	}
	return x
}

func (x *execution) addRank(r int, load *Load) {
	rk, c := &x.ranks[r], &x.codes[r]
	rk.code, rk.load = c, load
	base, count := int32(len(x.byID)), len(c.lanes)
	for k, p := range x.plans {
		rk.mem = append(rk.mem, newMemory(p, r, base, count, &c.progs[k], x.values[k], x.inPlace))
		if x.lend && (len(x.plans) == 1 || x.turns[k].lends) {
			rk.mem[k].lend(c.lent[k])
		}
		if len(x.plans) > 1 {
			rk.mem[k].touched, rk.mem[k].recorded = map[int32]int32{}, map[int32]int32{}
		}
	}
	rk.lanes = make([]lane, count)
	offset := base
	if x.full {
		offset = 0
	}
	for i, actions := range c.lanes {
		l := &rk.lanes[i]
		*l = lane{rank: r, lane: i, id: base + int32(i), offset: offset, first: base, last: base + int32(count),
			code: actions, clock: make(clock, x.clocks.size), past: make([]bool, len(x.plans))}
		x.byID = append(x.byID, l)
		if len(actions) > 0 {
			x.left++
			x.enqueue(l)
		}
	}
	for _, actions := range c.lanes {
		for i := range actions {
			for _, p := range c.after[actions[i].after:actions[i].afterEnd] {
				before := &rk.lanes[p.lane]
				if before.waits == nil {
					before.waits = make([]int32, len(before.code))
					before.ends = make([]int32, len(before.code))
				}
				before.waits[p.step]++
				if x.full && c.follows(&actions[i], p) {
					if before.followers == nil {
						before.followers, before.begun = make([]int32, len(before.code)),
							make([]begun, len(before.code))
					}
					before.followers[p.step]++
				}
			}
		}
	}
	if len(x.plans) > 1 {
		rk.left, rk.inside = make([]int, len(x.plans)), make([]int, len(x.plans))
		rk.outside = make([]bool, len(x.plans))
		rk.knew = make([]clock, len(x.plans))
		for _, actions := range c.lanes {
			for i := range actions {
				rk.left[actions[i].op]++
				if actions[i].inside {
					rk.inside[actions[i].op]++
				}
			}
		}
		for op := range rk.outside {
			rk.outside[op] = rk.inside[op] == 0
		}
	}
}

func (x *execution) enqueue(l *lane) {
	if !l.queued && l.pc < len(l.code) {
		l.queued = true
		x.ready = append(x.ready, l)
	}
}

// run executes the job until all lanes have ended or a failure is found.
func (x *execution) run() *Counterexample {
	for len(x.ready) > 0 {
		l := x.ready[len(x.ready)-1]
		x.ready = x.ready[:len(x.ready)-1]
		l.queued = false
		if bad := cmp.Or(x.advance(l), x.returned); bad != nil {
			return bad
		}
	}
	if x.left > 0 {
		bad := x.stuck()
		if bad != nil && x.seek == nil {
			bad.Stuck = x.waiting()
		}
		return bad
	}
	return x.leftover()
}

// advance runs a lane as far as it can go.
func (x *execution) advance(l *lane) *Counterexample {
	for l.pc < len(l.code) {
		a := &l.code[l.pc]
		if !l.running {
			if x.waitsFor(l) != nil || !x.entered(&x.ranks[l.rank], a) {
				return nil // the lane that ends the awaited step enqueues this lane
			}
			x.start(l, a)
		} else if a.kind.Traits().Message() {
			return nil // the lane that brings the other side of the message ends this step
		}
		if over, bad := x.act(l, a); bad != nil || !over {
			return bad
		}
	}
	return nil
}

// act executes the step of l, which has started, if the other side of it is present.
func (x *execution) act(l *lane, a *action) (over bool, bad *Counterexample) {
	switch a.kind {
	case plan.Send:
		return x.send(l, a)
	case plan.Recv, plan.RecvReduce:
		return x.recv(l, a)
	case plan.Wait:
		return x.wait(l, a)
	case plan.Put, plan.Packet:
		bad = x.put(l, a)
	case plan.Signal:
	default:
		bad = x.local(l, a)
	}
	if bad == nil && a.kind.Traits().Signals {
		bad = x.signal(l, a)
	}
	if bad == nil {
		x.end(l)
	}
	return true, bad
}

// waitsFor returns a lane that has yet to execute a step that the next step of l comes After, or
// nil if there is none.
func (x *execution) waitsFor(l *lane) *lane {
	a, rk := &l.code[l.pc], &x.ranks[l.rank]
	for _, p := range rk.code.after[a.after:a.afterEnd] {
		if rk.lanes[p.lane].pc <= int(p.step) {
			return &rk.lanes[p.lane]
		}
	}
	return nil
}

// start begins the step of l. The clock of l keeps the moment of the start until the step ends.
func (x *execution) start(l *lane, a *action) {
	rk := &x.ranks[l.rank]
	l.follows = nil
	if x.full && a.kind.Traits().Sends {
		x.startEarly(l, a)
	}
	for _, p := range rk.code.after[a.after:a.afterEnd] {
		before := &rk.lanes[p.lane]
		end := before.ends[p.step]
		l.clock.join(x.clocks.at(end))
		if before.waits[p.step]--; before.waits[p.step] == 0 {
			before.ends[p.step] = 0
			x.clocks.release(end)
		}
	}
	x.enter(l, a)
	*l.self() = started(l.pc)
	l.running = true
}

// end completes the step of l.
func (x *execution) end(l *lane) {
	*l.self() = ended(l.pc)
	rk := &x.ranks[l.rank]
	if l.waits != nil && l.waits[l.pc] > 0 {
		l.ends[l.pc] = x.clocks.copyOf(l.clock)
		for i := range rk.lanes {
			if other := &rk.lanes[i]; other != l && !other.running {
				x.enqueue(other)
			}
		}
	}
	rk.load.Steps++
	a := &l.code[l.pc]
	l.running = false
	if l.pc++; l.pc == len(l.code) {
		x.left--
	}
	if rk.left != nil {
		x.pass(l, a)
	}
}

// extent returns the length of chunk i of r.
func (x *execution) extent(op int, r ref, i int) plan.Extent {
	return x.plans[op].Extent(int(r.rank), &x.codes[r.rank].progs[op], r.buf, int(r.at)+i)
}

// local executes a step that reads, possibly from windows of other ranks, and writes to the memory
// of its own rank. Chunk i of a source shares memory either with chunk i of Dst or with no chunk of
// Dst, even in place: Refs of one step are congruent, and In and Out in the same memory have each
// length in the same place.
func (x *execution) local(l *lane, a *action) *Counterexample {
	rk, op := &x.ranks[l.rank], int(a.op)
	m, refs := rk.mem[op], rk.code.refs[a.src:a.srcEnd]
	if a.kind.Traits().Gets {
		for _, src := range refs {
			if ok, bad := x.reaches(l, a.dst, src); !ok {
				return bad
			}
			if int(src.rank) != l.rank {
				*l.clock.rounds()++
				x.ranks[src.rank].load.Sent += int(src.n)
				rk.load.Received += int(src.n)
			}
		}
	}
	moves := !x.plans[op].Spec.Coll.Reduces()
	for i := range int(a.dst.n) {
		if moves && int(refs[0].rank) == l.rank && m.place(a.dst, i) == m.place(refs[0], i) {
			continue // a copy onto itself is skipped: there is no scaling to do
		}
		v, bad := x.read(l, refs[0], i)
		if bad != nil {
			return bad
		}
		for _, src := range refs[1:] {
			w, bad := x.read(l, src, i)
			if bad != nil {
				return bad
			}
			v = x.reduce(l, v, w)
			rk.load.Reduced++
		}
		if bad := x.write(l, a, i, v); bad != nil {
			return bad
		}
	}
	return nil
}

// reduce returns v ⊕ w, computed by the step of l.
func (x *execution) reduce(l *lane, v, w value) value {
	if v == nothing || w == nothing {
		return nothing // only while other counterexamples are ignored
	}
	return x.values[l.code[l.pc].op].reduce(v, w, l.at())
}

// read returns the value that the step of l reads as chunk i of r.
func (x *execution) read(l *lane, r ref, i int) (value, *Counterexample) {
	op := l.code[l.pc].op
	m := x.ranks[r.rank].mem[op]
	place := m.place(r, i)
	if other, ok := x.conflict(l, m, place, false, false); ok {
		if bad := x.race(l, r, i, other, "reads", "writes"); bad != nil {
			return nothing, bad
		}
	}
	if m.touched != nil && r.buf == plan.Win {
		if bad := x.touch(l, m, r, i); bad != nil {
			return nothing, bad
		}
	}
	if m.lent != nil && r.buf == plan.Win {
		if bad := x.borrow(l, m, r, i); bad != nil {
			return nothing, bad
		}
	}
	m.noteRead(l, place)
	v := m.vals[place]
	if v == nothing {
		return nothing, x.undefined(l, r, i)
	}
	if r.buf != plan.In {
		return v, nil
	}
	if v != x.values[op].raw(l.rank, int(r.at)+i) {
		return nothing, x.overwritten(l, r, i, m.wrote[place])
	}
	if x.plans[op].Spec.Coll.Reduces() {
		v = x.values[op].mark(v, scaled, l.at())
	}
	return v, nil
}

// write lets the step of l write v as chunk i of its Dst.
func (x *execution) write(l *lane, a *action, i int, v value) *Counterexample {
	m := x.ranks[a.dst.rank].mem[a.op]
	place, isPut := m.place(a.dst, i), a.kind.Traits().Puts
	if other, ok := x.conflict(l, m, place, true, isPut); ok {
		verb := "reads"
		if other == m.wrote[place] {
			verb = "writes"
		}
		if bad := x.race(l, a.dst, i, other, "writes", verb); bad != nil {
			return bad
		}
	}
	if m.touched != nil && a.dst.buf == plan.Win {
		if bad := x.touch(l, m, a.dst, i); bad != nil {
			return bad
		}
	}
	if m.lent != nil && a.dst.buf == plan.Win {
		if bad := x.lendChunk(l, m, a, i); bad != nil {
			return bad
		}
	}
	if a.final && v != nothing {
		v = x.values[a.op].mark(v, final, l.at())
	}
	m.noteWrite(l, place, v, isPut)
	if isPut {
		key := [2]int32{int32(l.rank), a.dst.rank}
		x.puts[key] = append(x.puts[key], put{mem: m, place: place, by: m.wrote[place], op: a.op})
	}
	return nil
}

// at returns the name of the step of l in trees.
func (l *lane) at() spot { return spot{int32(l.rank), int32(l.lane), int32(l.pc)} }

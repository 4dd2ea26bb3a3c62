//go:build !race

package exec

import "fmt"

// modelStep is what a thread does at a place.
type modelStep struct {
	// name is the name of the atomic operation: in the code, "model: NAME" is beside it. Steps
	// that are not in this package, or are no atomic operation, are absent there.
	name   string
	absent bool
	// In coarse scenarios, a fused step is done together with the step before it. The other
	// scenarios search its effects step by step. The steps that coarse scenarios keep apart are the
	// lock, the checks of handOver, awaitTurn and pass, and the last checks before sleeping.
	fused bool
	// between is the code before the step. It reports true if it has continued elsewhere, and false
	// if the place is a step to do.
	between func(m *machine) bool
	do      func(m *machine, way int)
	ways    func(m *machine) int // how many ways there are, where the kernel or the model chooses; nil for 1
}

// mutation redirects edges.
type mutation struct {
	name, in string // in: the scenario that shows it
	rewire   map[edge]place
	lazy     bool // the last check before sleeping may leave out unasked messages
	heedless bool // the last check before sleeping may leave out Comms that seem attended
}

type machine struct {
	*scenario
	*mutation
	wires     [places][places]place
	kinds     []thread
	sends     [maxOps]bool // a peer's event needs what the operation sends
	aborts    bool
	closes    bool
	expedites bool
	unasked   [maxComms]bool
	s         *state
	t         *threadState
	self      int
}

type thread struct {
	name  string
	rank  int
	start place
	user  int
	op    int
}

func newMachine(sc *scenario, mu *mutation) (*machine, state) {
	m := &machine{scenario: sc, mutation: mu}
	for e, to := range mu.rewire {
		m.wires[e.from][e.to] = to
	}
	var s state
	for i := range sc.comms {
		s.comms[i].listed = !sc.fresh
	}
	ranks := 0
	for i, u := range sc.users {
		m.kinds = append(m.kinds, thread{name: fmt.Sprintf("thread %d", i), rank: u.rank, start: nextAction, user: i})
		ranks = max(ranks, u.rank+1)
		for _, a := range u.script {
			m.aborts = m.aborts || a.verb == doAbort || a.verb == doClose
			m.closes = m.closes || a.verb == doClose
			m.expedites = m.expedites || a.verb == doExpedite
		}
	}
	for r := range ranks {
		if sc.alone[r] {
			continue
		}
		m.kinds = append(m.kinds, thread{name: fmt.Sprintf("progress %d", r), rank: r, start: progressSeen})
	}
	for i, op := range sc.ops {
		s.ops[i] = opState{pending: !op.unasked, left: max(1, op.fragments)}
		for _, n := range op.needs {
			m.sends[n] = true
		}
		if !sc.silent {
			m.kinds = append(m.kinds, thread{name: fmt.Sprintf("peer of %c", 'a'+i), rank: sc.comms[op.comm],
				start: publish, op: i})
		}
		if op.unasked {
			m.unasked[op.comm] = true
		}
	}
	if sc.watch {
		m.kinds = append(m.kinds, thread{name: "watcher", start: watchSeen})
	}
	for i, k := range m.kinds {
		m.at(&s, i)
		m.t.op, m.t.comm = uint8(k.op), uint8(sc.ops[k.op].comm)
		if k.start == progressSeen && !sc.fresh {
			m.t.at, m.t.asleep, m.t.rests, m.t.ticket, m.t.word = sleep, true, idleDoorbell, true, true
			m.t.stack[0], m.t.depth = progressSeen, 1
			s.ranks[k.rank].idle = 1
			continue
		}
		m.jump(k.start)
	}
	return m, s
}

func (m *machine) at(s *state, thread int) { m.s, m.t, m.self = s, &s.threads[thread], thread }

func (m *machine) comm() *commState { return &m.s.comms[m.t.comm] }
func (m *machine) op() *opState     { return &m.s.ops[m.t.op] }
func (m *machine) spec() *opSpec    { return &m.ops[m.t.op] }
func (m *machine) target() *opState { return &m.s.ops[m.t.ending] }
func (m *machine) rank() *rankState { return &m.s.ranks[m.kinds[m.self].rank] }
func (m *machine) progresses() bool { return m.kinds[m.self].start == progressSeen }
func (m *machine) script() []action { return m.users[m.kinds[m.self].user].script }
func (m *machine) current() verb    { return m.script()[m.t.action-1].verb }
func (m *machine) do(s *state, i, way int) {
	m.at(s, i)
	steps[m.t.at].do(m, way)
}

// ways returns how many things thread i can do next: 0 if it sleeps, waits or has ended.
func (m *machine) ways(s *state, i int) int {
	m.at(s, i)
	t := m.t
	if t.at == ended || t.asleep && t.rests != napDoorbell && !m.timed(s, i) {
		return 0
	}
	if ways := steps[t.at].ways; ways != nil {
		return ways(m)
	}
	return 1
}

// timed reports whether thread i sleeps in a slice. Its end may come late: nothing may rely on it.
func (m *machine) timed(s *state, i int) bool {
	t := &s.threads[i]
	return t.asleep && m.kinds[i].start == nextAction && m.ops[t.op].slices
}

// jump continues at a place. It also runs the code between two atomic operations.
func (m *machine) jump(to place) {
	t := m.t
	if w := m.wires[t.at][to]; w != 0 {
		to = w
	} else if w := m.wires[ended][to]; w != 0 {
		to = w
	}
	s := &steps[to]
	if s.between != nil && s.between(m) {
		return
	}
	t.at = to
	if m.coarse && s.fused {
		s.do(m, 0)
	}
}

func (m *machine) call(to, then place) {
	m.t.stack[m.t.depth] = then
	m.t.depth++
	m.jump(to)
}

// choose continues at yes if cond holds, otherwise at no.
func (m *machine) choose(cond bool, yes, no place) {
	if cond {
		m.jump(yes)
	} else {
		m.jump(no)
	}
}

// ring calls Doorbell.Ring.
func (m *machine) ring(b doorbell, then place) {
	m.t.rings = b
	m.call(ringLook, then)
}

// sleepersOf returns the count of sleepers of a doorbell of this thread's Comm, or rank.
func (m *machine) sleepersOf(b doorbell) *uint8 {
	switch b {
	case processDoorbell:
		return &m.rank().doorbell
	case turnsDoorbell:
		return &m.comm().turns
	case idleDoorbell:
		return &m.rank().idle
	case napDoorbell:
		return &m.rank().nap
	}
	return &m.s.watchers
}

// atDoorbell visits the threads that sleep, or are about to sleep, on a doorbell of this thread's
// Comm, or rank.
func (m *machine) atDoorbell(b doorbell, visit func(i int, t *threadState)) {
	for i := range m.kinds {
		t := &m.s.threads[i]
		if t.rests == b && (b != turnsDoorbell || t.comm == m.t.comm) &&
			(b == countDoorbell || m.kinds[i].rank == m.kinds[m.self].rank) {
			visit(i, t)
		}
	}
}

// outdate makes all tickets of a doorbell old, and returns the threads that sleep on it.
func (m *machine) outdate(b doorbell) (asleep []int) {
	m.atDoorbell(b, func(i int, t *threadState) {
		t.ticket = false
		if t.asleep {
			asleep = append(asleep, i)
		}
	})
	return asleep
}

// wake lets thread i go on after its futex wait.
func (m *machine) wake(i int) {
	self := m.self
	m.at(m.s, i)
	m.t.asleep = false
	m.t.ticket = false
	m.jump(cancelSleep)
	m.at(m.s, self)
}

func (m *machine) locked() {
	c := m.comm()
	c.lock = true
	c.drivers++
	m.t.holds = true
}

// next returns the operation of a Comm that was posted first, of those in a phase that pick
// selects, or -1.
func (m *machine) next(s *state, comm uint8, phase uint8, pick func(*opSpec) bool) int {
	best := -1
	for i := range m.ops {
		op := &s.ops[i]
		if m.ops[i].comm == int(comm) && op.phase == phase && pick(&m.ops[i]) &&
			(best < 0 || op.pos < s.ops[best].pos) {
			best = i
		}
	}
	return best
}

func anyOp(*opSpec) bool         { return true }
func collective(op *opSpec) bool { return !op.message && !op.unasked }
func unaskedFor(op *opSpec) bool { return op.unasked }

// free reports whether no collective of the Comm is queued.
func (m *machine) free() bool { return m.next(m.s, m.t.comm, queued, collective) < 0 }

// try tries an operation before it counts as pending, and reports whether that has ended it.
func (m *machine) try() bool {
	op := m.op()
	op.begun = true
	m.comm().clash = m.comm().clash || !m.spec().message && !m.free()
	if op.events < op.left {
		return false
	}
	op.events, op.left, op.pending, op.phase, op.urgency = 0, 0, false, done, uint8(opOver)
	return true
}

// enqueue puts the operation, which counts as pending, behind the others.
func (m *machine) enqueue(phase uint8) {
	m.comm().posts++
	m.op().phase, m.op().pos = phase, m.comm().posts
}

// begin starts the next call of a user's script.
func (m *machine) begin() {
	t := m.t
	t.moved, t.last = false, false
	if int(t.action) == len(m.script()) {
		t.op, t.comm = 0, 0
		m.jump(ended)
		return
	}
	a := m.script()[t.action]
	t.action++
	if a.verb == doAbort || a.verb == doClose {
		t.comm = a.arg
		m.jump(abortStop)
		return
	}
	t.op, t.comm = a.arg, uint8(m.ops[a.arg].comm)
	if a.verb == doPost {
		m.op().notify, m.op().kept = true, true
	} else if m.spec().slices && a.verb != doRun && !m.op().kept { // Run has ended it and returned no Op
		m.begin()
		return
	}
	m.jump(map[verb]place{doPost: postStop, doRun: runPending, doWait: waitState, doCancel: cancelFire,
		doExpedite: expediteMark, doPoll: pollState}[a.verb])
}

func (m *machine) done(s *state) bool {
	for i := range m.ops {
		if s.ops[i].pending {
			return false
		}
	}
	return true
}

// fault returns what is wrong in a state, judged by the state alone, or "". quiet means that only a
// peer can do a step; still, that only a peer or the end of a nap can; dead, that no thread can.
func (m *machine) fault(s *state, quiet, still, dead bool) string {
	for i := range m.comms {
		if s.comms[i].drivers > 1 {
			return "two drivers of one Comm"
		}
		if s.comms[i].clash {
			return "an operation runs in the frame of another"
		}
	}
	if !still {
		return ""
	}
	for i := range m.ops {
		op, spec := &s.ops[i], &m.ops[i]
		if !quiet && s.comms[spec.comm].urgent == 0 {
			continue // the end of the nap is early enough for it
		}
		head := m.next(s, uint8(spec.comm), queued, collective)
		if head < 0 {
			head = m.next(s, uint8(spec.comm), inList, collective)
		}
		first := head == i || spec.message
		switch {
		case spec.unasked && op.events > 0 && s.comms[spec.comm].pending > 0:
			return fmt.Sprintf("message %c has arrived, and everybody sleeps", 'a'+i)
		case op.phase == inList && first:
			return fmt.Sprintf("operation %c was posted and nobody has taken it, and everybody sleeps", 'a'+i)
		case op.phase == queued && first && (op.events > 0 || m.sends[i] && !op.begun):
			return fmt.Sprintf("operation %c could go on, and everybody sleeps", 'a'+i)
		}
	}
	for i := range m.kinds {
		if t := &s.threads[i]; t.asleep && t.rests == turnsDoorbell && !s.ops[t.op].pending {
			return m.kinds[i].name + " sleeps, and its operation is done"
		} else if t.asleep && quiet && m.kinds[i].start != progressSeen &&
			t.rests != countDoorbell && s.ops[t.op].fire {
			return m.kinds[i].name + " sleeps, and its wait was cancelled"
		}
	}
	if !dead {
		return ""
	}
	return m.faultAtRest(s)
}

// faultAtRest returns what is wrong in a state in which no thread can do anything any more, or "".
func (m *machine) faultAtRest(s *state) string {
	var asleep [maxRanks]rankState
	for i, k := range m.kinds {
		t := &s.threads[i]
		if k.start != progressSeen && t.at != ended {
			return k.name + " never goes on: " + steps[t.at].name
		}
		switch r := &asleep[k.rank]; {
		case t.asleep && t.rests == processDoorbell:
			r.doorbell++
		case t.asleep && t.rests == idleDoorbell:
			r.idle++
		case t.asleep && t.rests == napDoorbell:
			r.nap++
		}
	}
	if !m.done(s) {
		return "an operation does not end"
	}
	for i, c := range s.comms {
		if c.lock || c.pending != 0 || c.waiting != 0 || c.turns != 0 || c.urgent != 0 {
			return fmt.Sprintf("wrong counts at rest: comm %d %+v", i, c)
		}
	}
	for r := range asleep {
		if asleep[r].onDoorbell = s.ranks[r].onDoorbell; asleep[r] != s.ranks[r] {
			return fmt.Sprintf("rank %d's doorbells count %+v where %+v sleep", r, s.ranks[r], asleep[r])
		}
	}
	return ""
}

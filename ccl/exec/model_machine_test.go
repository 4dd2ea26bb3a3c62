//go:build !race

package exec

import (
	"fmt"
	"slices"
)

// A mutation sends edges elsewhere.
type mutation struct {
	name, in string // in: the scenario that shows it
	rewire   map[edge]place
	lazy     bool // the last look before sleeping may leave out unasked messages
	heedless bool // and what seems attended
}

type machine struct {
	*scenario
	*mutation
	wires   [places][places]place
	kinds   []thread
	sends   [maxOps]bool // somebody needs it
	aborts  bool
	closes  bool
	urges   bool
	unasked [maxComms]bool
	s       *state
	t       *threadState
	self    int
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
			m.urges = m.urges || a.verb == doUrge
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
			m.kinds = append(m.kinds, thread{name: fmt.Sprintf("peer of %c", 'a'+i), rank: sc.comms[op.comm], start: publish, op: i})
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
			m.t.at, m.t.asleep, m.t.word, s.ranks[k.rank].state = idleSleep, true, true, 1
			continue
		}
		m.jump(k.start)
	}
	return m, s
}

func (m *machine) at(s *state, thread int) { m.s, m.t, m.self = s, &s.threads[thread], thread }

// ways is how many things thread i can do next: 0 if it sleeps, waits or has ended, more than 1 where the kernel or
// the model chooses.
func (m *machine) ways(s *state, i int) int {
	t := &s.threads[i]
	switch {
	case t.at == ended || t.asleep && t.at != napSleep:
		return 0
	case t.at == publish:
		for _, n := range m.ops[t.op].needs {
			if !s.ops[n].begun {
				return 0
			}
		}
		if m.queue && t.op > 0 && s.threads[i-1].at != ended {
			return 0
		}
	case t.at == waitLook || t.at == urgeMark || t.at == pollLook:
		if s.ops[t.op].phase == unposted && s.ops[t.op].pending {
			return 0 // another thread posts it
		}
	case t.at == handWake || t.at == notifyWake || t.at == rouse:
		m.at(s, i)
		return max(1, len(m.sleepers(m.futex(t.at))))
	case t.at == hastenTurn, t.at == advUnasked && (!t.last || m.lazy), t.at == idleState && m.urges,
		t.at == m.attend() && (!t.last || m.heedless) && s.comms[t.comm].urgent == 0:
		return 2
	}
	return 1
}

// attend is the step of a pass at which Comms may be left to others.
func (m *machine) attend() place {
	if m.urges {
		return passUrgent
	}
	return passLock
}

// futex names the step whose sleepers a wake is for.
func (m *machine) futex(wake place) place {
	switch wake {
	case handWake, wakeTurn:
		return turnSleep
	case ringAdd:
		return bellSleep
	case notifyWake:
		return idleSleep
	case rouse:
		return napSleep
	}
	return watchSleep
}

// sleepers are the threads that sleep at a futex: those of the same Comm or rank.
func (m *machine) sleepers(at place) (list []int) {
	for i := range m.kinds {
		t := &m.s.threads[i]
		if !t.asleep || t.at != at || at == turnSleep && t.comm != m.t.comm ||
			at != watchSleep && m.kinds[i].rank != m.kinds[m.self].rank {
			continue
		}
		list = append(list, i)
	}
	return list
}

// wake lets thread i go on after its futex wait.
func (m *machine) wake(i int) {
	self := m.self
	m.at(m.s, i)
	m.t.asleep = false
	m.awake()
	m.at(m.s, self)
}

// sleep is a futex wait.
func (m *machine) sleep(newest bool) {
	if newest {
		m.t.asleep = true
		return
	}
	m.awake()
}

func (m *machine) awake() {
	switch m.t.at {
	case turnSleep:
		m.t.turn = false
		m.jump(turnLeave)
	case bellSleep:
		m.t.ring = false
		m.t.word = false
		m.jump(bellCancel)
	case idleSleep, napSleep:
		m.jump(awakeState)
	case watchSleep:
		m.t.word = false
		m.jump(watchLeave)
	}
}

func (m *machine) wakeEach() {
	for _, i := range m.sleepers(m.futex(m.t.at)) {
		m.wake(i)
	}
}

func (m *machine) call(to, then place) {
	m.t.stack[m.t.depth] = then
	m.t.depth++
	m.jump(to)
}

// choose goes to one step or the other.
func (m *machine) choose(cond bool, yes, no place) {
	if cond {
		m.jump(yes)
	} else {
		m.jump(no)
	}
}

func (m *machine) locked() {
	c := &m.s.comms[m.t.comm]
	c.lock = true
	c.drivers++
}

func (m *machine) unlock(next place) {
	c := &m.s.comms[m.t.comm]
	c.lock = false
	c.drivers--
	m.t.moved = false
	m.jump(next)
}

// next finds the operation of a Comm in some phase that was posted first, or -1.
func (m *machine) next(s *state, comm uint8, phase uint8, pick func(*opSpec) bool) int {
	best := -1
	for i := range m.ops {
		op := &s.ops[i]
		if m.ops[i].comm == int(comm) && op.phase == phase && pick(&m.ops[i]) && (best < 0 || op.pos < s.ops[best].pos) {
			best = i
		}
	}
	return best
}

func anyOp(*opSpec) bool         { return true }
func isMessage(op *opSpec) bool  { return op.message }
func collective(op *opSpec) bool { return !op.message && !op.unasked }
func unaskedFor(op *opSpec) bool { return op.unasked }

// jump goes on at a step: what lies between two atomic operations is done here.
func (m *machine) jump(to place) {
	t := m.t
	if w := m.wires[t.at][to]; w != 0 {
		to = w
	} else if w := m.wires[ended][to]; w != 0 {
		to = w
	}
	c := &m.s.comms[t.comm]
	switch to {
	case back:
		t.depth--
		then := t.stack[t.depth]
		t.stack[t.depth] = 0
		m.jump(then)
	case nextAction:
		m.begin()
	case waitTake:
		m.locked()
		m.call(advTake, driveLook)
	case firstHand:
		m.call(handPending, postStopAgain)
	case firstOverHand:
		m.call(handPending, firstCount)
	case firstCount:
		if m.watch {
			m.call(countAdd, nextAction)
			return
		}
		m.jump(nextAction)
	case postStopAgain:
		if !m.aborts {
			m.jump(pushPending)
			return
		}
		t.at = to
	case hastenLook: // only the lock's holder ends operations
		m.choose(m.s.ops[t.op].pending, hastenTurn, hastenUnlock)
	case leaveHand, postHand, urgeHand, pollHand:
		m.call(handPending, nextAction)
	case handThenUrgent:
		m.call(handPending, urgeCount)
	case handThenLeave:
		m.call(handPending, waitLeave)
	case driveLook: // only the lock's holder ends operations
		if op := &m.s.ops[t.op]; op.pending && m.ops[t.op].cancel {
			m.jump(driveCancel)
		} else {
			m.choose(op.pending, driveNext, waitUnlock)
		}
	case bellLookOp:
		if op := &m.s.ops[t.op]; op.pending && m.ops[t.op].cancel {
			m.jump(bellLookCancel)
		} else {
			m.choose(op.pending, bellSleep, bellCancel)
		}
	case driveNext:
		m.choose(t.moved, driveAgain, bellAnnounce)
	case driveAgain:
		t.last = false
		m.call(advTake, driveLook)
	case bellLookedAgain:
		m.choose(t.moved, bellCancel, bellLookOp)
	case passLocked:
		t.passMoved = t.passMoved || t.moved
		m.jump(passUnlock)
	case passNext:
		if t.todo == 0 {
			t.comm = 0
			m.jump(passDone)
			return
		}
		t.comm = 0
		for t.todo>>t.comm&1 == 0 {
			t.comm++
		}
		t.todo &^= 1 << t.comm
		m.jump(passPending)
	case passDone:
		responsible, attended, moved := t.responsible, t.attended, t.passMoved
		t.responsible, t.attended, t.passMoved = false, false, false
		switch {
		case t.last:
			t.last = false
			m.choose(responsible && !moved, bellLookWord, bellCancel)
		case !responsible:
			m.choose(attended, napState, idleState)
		default:
			t.word = t.word && !moved
			m.choose(moved, progressSeen, bellState)
		}
	case notifyLook:
		if c.listed && !m.closes {
			m.jump(notifyUrgent) // it stays so
			return
		}
		t.at = to
	case notifyUrgent:
		if !m.urges {
			m.jump(notifyWord)
			return
		}
		t.at = to
	case progressUrges:
		if !m.urges {
			m.jump(passStart)
			return
		}
		t.at = to
		if m.coarse {
			m.do(m.s, m.self, 0)
		}
	case napState:
		if !m.urges { // as if it had not come to the pass yet
			m.t.word = false
			m.jump(progressSeen)
			return
		}
		t.at = to
	case endOp:
		m.choose(m.urges && m.posted(t.ending), endUrgency, endState)
	case passStart:
		t.at = to
		if !m.closes && !m.fresh {
			m.do(m.s, m.self, 0)
		}
	case notifyAct:
		saw, urgent := t.saw, t.urgent
		t.saw, t.urgent = 0, false
		switch {
		case saw == 1:
			m.jump(notifyWake)
		case saw == 2:
			m.jump(ringLook) // its return is notify's
		case saw == 3 && urgent:
			m.jump(rouse)
		default:
			m.jump(back)
		}
	case advHead:
		if i := m.next(m.s, t.comm, queued, collective); i >= 0 {
			t.ending = uint8(i)
			m.choose(m.sends[i] && !m.s.ops[i].begun, advBegin, advLook)
			return
		}
		t.saw = 0
		m.jump(advMessages)
	case advMessages: // saw counts the operations looked at
		for ; int(t.saw) < len(m.ops); t.saw++ {
			if spec := &m.ops[t.saw]; spec.message && spec.comm == int(t.comm) && m.s.ops[t.saw].phase == queued {
				t.ending = t.saw
				t.saw++
				m.jump(advMessage)
				return
			}
		}
		t.saw, t.ending = 0, 0
		m.choose(m.unasked[t.comm] && !c.broken, advUnasked, back)
	case advBroken:
		if i := m.next(m.s, t.comm, queued, anyOp); i >= 0 {
			m.s.ops[i].phase, m.s.ops[i].pos = over, 0
			t.ending = uint8(i)
			m.call(endOp, advBroken)
			return
		}
		t.ending = 0
		m.jump(back)
	case endWake:
		saw := t.saw
		t.saw &^= 0x80
		if saw&0x80 != 0 {
			m.call(wakeTurn, endCount)
			return
		}
		m.jump(endCount)
	case endCount:
		m.choose(m.watch && m.posted(t.ending), countAdd, back)
	case abortAgain:
		m.jump(abortTry)
	case abortHand:
		then := nextAction
		if m.users[m.kinds[m.self].user].script[t.action-1].verb == doClose {
			then = closeRemove
		}
		m.call(handPending, then)
	case nudgeWake:
		m.call(wakeTurn, nextAction)
	case publishNext:
		m.choose(t.action < max(1, m.ops[t.op].fragments), publish, ended)
	default:
		t.at = to
		if m.coarse && fused[to] {
			m.do(m.s, m.self, 0)
		}
	}
}

// posted reports whether an operation is posted by Post, not by Run.
func (m *machine) posted(op uint8) bool {
	for _, u := range m.users {
		if slices.Contains(u.script, post(op)) {
			return true
		}
	}
	return false
}

// entry is where Post or Run begins, when the Comm was not stopped.
func (m *machine) entry(v verb) place {
	if spec := &m.ops[m.t.op]; v == doPost && (spec.known || spec.unknown) {
		return firstLock
	}
	return pushPending
}

// begin starts the next call of a user's script.
func (m *machine) begin() {
	t := m.t
	script := m.users[m.kinds[m.self].user].script
	t.moved, t.last = false, false
	for int(t.action) < len(script) {
		a := script[t.action]
		t.action++
		if a.verb == doAbort || a.verb == doClose {
			t.comm = a.arg
			m.jump(abortStop)
			return
		}
		t.op, t.comm = a.arg, uint8(m.ops[a.arg].comm)
		switch a.verb {
		case doWait:
			m.jump(waitLook)
		case doCancel:
			m.jump(cancelFire)
		case doUrge:
			m.jump(urgeMark)
		case doPoll:
			m.jump(pollLook)
		default:
			m.choose(m.aborts, postStop, m.entry(a.verb))
		}
		return
	}
	t.op, t.comm = 0, 0
	m.jump(ended)
}

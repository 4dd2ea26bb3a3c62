//go:build !race

package exec

// steps is the model: what a thread does at each place.
var steps [places]modelStep

// then returns a place that is no step: code that always continues elsewhere.
func then(do func(m *machine)) modelStep {
	return modelStep{between: func(m *machine) bool {
		do(m)
		return true
	}}
}

// answer returns what over has found, and clears it.
func (m *machine) answer() bool {
	yes := m.t.yes
	m.t.yes = false
	return yes
}

// to returns a place that is no step: code that calls one place and continues at another.
func to(call, next place) modelStep { return then(func(m *machine) { m.call(call, next) }) }

// unless returns the code before a step: if cond holds, it leaves the step out and continues at
// next.
func unless(cond func(m *machine) bool, next place) func(m *machine) bool {
	return func(m *machine) bool {
		if cond(m) {
			m.jump(next)
			return true
		}
		return false
	}
}

func noAborts(m *machine) bool    { return !m.aborts }
func noExpedites(m *machine) bool { return !m.expedites }

// posts returns the ways of a step that waits until another thread has posted the operation.
func posts(m *machine) int {
	if m.op().phase == unposted && m.op().pending {
		return 0
	}
	return 1
}

func init() {
	for _, part := range []map[place]modelStep{
		postSteps, waitSteps, doorbellSteps, handSteps, advanceSteps, progressSteps, otherSteps,
	} {
		for at, s := range part {
			steps[at] = s
		}
	}
}

var postSteps = map[place]modelStep{
	back: then(func(m *machine) {
		t := m.t
		t.depth--
		next := t.stack[t.depth]
		t.stack[t.depth] = 0
		m.jump(next)
	}),
	nextAction: then(func(m *machine) { m.begin() }),

	postStop: {name: "postStop", between: unless(noAborts, postLock),
		do: func(m *machine, _ int) { m.choose(m.comm().stop, callAllowed, postLock) }},
	postLock: {name: "postLock", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.jump(callAllowed)
			return
		}
		m.locked()
		if m.spec().unknown || m.comm().broken {
			m.call(unlock, lockedInVain)
			return
		}
		m.call(take, postTry)
	}},
	lockedInVain: to(handPending, callAllowed),
	// A known call or a plain message runs before it counts as pending, if no other is in front of
	// it.
	postTry: {name: "a post's look for its event", absent: true, do: func(m *machine, _ int) {
		m.choose((m.spec().message || m.free()) && m.try(), postOver, postCount)
	}},
	postOver: to(unlock, postNotify),
	postNotify: then(func(m *machine) {
		m.call(handPending, endNotify)
	}),
	postCount: to(pend, postQueued),
	postQueued: then(func(m *machine) {
		alone := m.free()
		m.enqueue(queued)
		if alone && !m.spec().message {
			m.jump(postUnlock)
			return
		}
		m.call(advance, postUnlock)
	}),
	postUnlock: to(unlock, postHand),
	postHand:   to(handPending, nextAction),

	runPending: {name: "runPending", do: func(m *machine, _ int) {
		m.choose(m.comm().pending != 0, callAllowed, runStop)
	}},
	runStop: {name: "runStop", between: unless(noAborts, runLock),
		do: func(m *machine, _ int) { m.choose(m.comm().stop, callAllowed, runLock) }},
	runLock: {name: "runLock", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.jump(callAllowed)
			return
		}
		m.locked()
		m.jump(runAgain)
	}},
	runAgain: {name: "runAgain", do: func(m *machine, _ int) {
		if m.comm().pending != 0 || m.comm().broken {
			m.call(unlock, lockedInVain)
			return
		}
		m.t.alone = true
		m.choose(m.spec().unknown, callAllowed, runTry)
	}},
	runBlind: then(func(m *machine) { m.t.alone = true; m.jump(runTry) }),
	// The thread waits awake. It may be counted as a waiter by then, or give up.
	runTry: {name: "a run's look for its event", absent: true,
		ways: func(m *machine) int {
			if m.t.counted || m.spec().message {
				return 1
			}
			return 2
		},
		do: func(m *machine, way int) {
			switch {
			case m.try():
				m.jump(runOver)
			case way == 1:
				m.call(count, runTry)
			default:
				m.jump(runCount)
			}
		}},
	runOver:  to(leave, runFreed),
	runFreed: then(func(m *machine) { m.t.alone = false; m.call(unlock, runAfter) }),
	runAfter: {name: "runAfter", fused: true, do: func(m *machine, _ int) {
		m.choose(m.comm().pending != 0, postHand, nextAction)
	}},
	runCount: then(func(m *machine) { m.t.alone = false; m.call(pend, runQueued) }),
	runQueued: then(func(m *machine) {
		m.enqueue(queued)
		m.call(drive, runDriven)
	}),
	runDriven: then(func(m *machine) {
		m.op().kept = m.op().pending
		m.choose(m.op().kept, runNotify, runLeave)
	}),
	runNotify: then(func(m *machine) { m.op().notify = true; m.jump(runLeave) }),
	runLeave:  to(leave, runUnlock),
	runUnlock: to(unlock, postHand),

	callAllowed: then(func(m *machine) { m.call(allowed, stillToPost) }),
	allowed: {name: "allowed",
		between: unless(func(m *machine) bool { return !m.aborts && !m.spec().wrong }, back),
		do: func(m *machine, _ int) {
			if !m.comm().stop && !m.spec().wrong {
				m.jump(back)
				return
			}
			m.t.depth--
			m.t.stack[m.t.depth] = 0
			m.op().pending, m.op().phase = false, done
			m.jump(turnedAway)
		}},
	turnedAway: then(func(m *machine) {
		alone := m.t.alone
		m.t.alone = false
		m.choose(alone, postUnlock, nextAction)
	}),
	stillToPost: then(func(m *machine) { m.choose(m.t.alone, runCount, pushing) }),
	pushing:     to(pend, push),
	pend: {name: "pend", do: func(m *machine, _ int) {
		m.comm().pending++
		m.jump(back)
	}},
	push: {name: "push", fused: true, do: func(m *machine, _ int) {
		m.enqueue(inList)
		m.op().kept = m.op().kept || m.spec().slices
		m.op().notify = m.op().kept
		m.choose(m.current() == doRun, runRing, postAgain)
	}},
	postAgain: {name: "postAgain", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.ring(processDoorbell, postHand)
			return
		}
		m.locked()
		m.call(advance, postUnlock)
	}},
	runRing: {name: "runRing", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.ring(processDoorbell, waitState)
			return
		}
		m.jump(waitState)
	}},
	unlock: {name: "unlock", do: func(m *machine, _ int) {
		m.comm().lock = false
		m.comm().drivers--
		m.t.moved, m.t.holds, m.t.last = false, false, m.t.last && m.progresses()
		m.jump(back)
	}},
}

var waitSteps = map[place]modelStep{
	waitState: {name: "waitState", ways: posts,
		do: func(m *machine, _ int) { m.choose(m.op().pending, waitLock, nextAction) }},
	waitLock: {name: "waitLock", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.call(count, waitTurn)
			return
		}
		m.jump(waitTake)
	}},
	waitTakeLate: {name: "lock.Store(1)", absent: true, do: func(m *machine, _ int) { m.jump(waitTake) }},
	waitTake: then(func(m *machine) {
		m.locked()
		m.call(drive, waitDriven)
	}),
	waitDriven: to(unlock, waitOver),
	waitTurn:   then(func(m *machine) { m.t.rests = turnsDoorbell; m.call(resting, waitOver) }),
	waitOver:   to(over, waitAgain),
	waitAgain: then(func(m *machine) {
		m.choose(m.answer(), waitLeave, waitLock)
	}),
	waitLeave: to(leave, waitHand),
	waitHand:  to(handPending, nextAction),
	handThenLeave: then(func(m *machine) {
		m.t.stack[m.t.depth] = nextAction // leave continues there
		m.t.depth++
		m.call(handPending, leave)
	}),

	over: then(func(m *machine) {
		if m.t.holds { // only the lock's holder ends operations
			m.findOver()
			return
		}
		m.jump(overState)
	}),
	overState: {name: "overState", do: func(m *machine, _ int) { m.findOver() }},
	overCancel: {name: "overCancel", do: func(m *machine, _ int) {
		m.t.yes = m.op().fire
		m.jump(back)
	}},
	overTime: {name: "a look at the clock", absent: true, ways: func(*machine) int { return 2 },
		do: func(m *machine, way int) {
			m.t.yes = way == 1
			m.jump(back)
		}},
	count: {name: "count", fused: true, between: unless(func(m *machine) bool { return m.t.counted }, back),
		do: func(m *machine, _ int) {
			m.comm().waiting++
			m.t.counted = true
			m.jump(back)
		}},
	leave: {name: "leave", between: unless(func(m *machine) bool { return !m.t.counted }, back),
		do: func(m *machine, _ int) {
			m.comm().waiting--
			m.t.counted = false
			m.jump(back)
		}},

	drive:     then(func(m *machine) { m.t.last = false; m.call(advance, driveOver) }),
	driveOver: to(over, driveWaits),
	driveWaits: then(func(m *machine) {
		switch {
		case m.answer():
			m.jump(back)
		case m.t.moved:
			m.jump(drive)
		default:
			m.call(count, driveSleeps)
		}
	}),
	driveSleeps: then(func(m *machine) { m.t.rests = processDoorbell; m.call(resting, drive) }),
}

// findOver is over's check of the operation's state.
func (m *machine) findOver() {
	m.t.yes = !m.op().pending
	switch {
	case m.t.yes:
		m.jump(back)
	case m.spec().cancel:
		m.jump(overCancel)
	default:
		m.choose(m.spec().slices && m.t.counted, overTime, back)
	}
}

var doorbellSteps = map[place]modelStep{
	resting: then(func(m *machine) { m.jump(announce) }),
	announce: {name: "Doorbell.Prepare: sleepers.Add(1)", absent: true, do: func(m *machine, _ int) {
		*m.sleepersOf(m.t.rests)++
		m.jump(ticket)
	}},
	ticket: {name: "Doorbell.Prepare: rings.Load", absent: true, fused: true, do: func(m *machine, _ int) {
		m.t.ticket = true
		m.jump(look)
	}},
	// The last check before sleeping.
	look: then(func(m *machine) {
		switch {
		case m.t.rests == turnsDoorbell:
			m.call(over, turnOver)
		case m.t.rests == idleDoorbell:
			m.jump(idleWord)
		case m.t.rests == napDoorbell:
			m.jump(napExpedites)
		case m.t.rests == countDoorbell:
			m.jump(watchCount)
		case m.progresses():
			m.t.last = true
			m.jump(passComms)
		default:
			m.t.last = true
			m.call(advance, lookDriven)
		}
	}),
	lookDriven: then(func(m *machine) {
		if m.t.moved {
			m.jump(cancelSleep)
			return
		}
		m.call(over, lookOver)
	}),
	lookOver: then(func(m *machine) {
		m.choose(m.answer(), cancelSleep, sleep)
	}),
	turnOver: then(func(m *machine) {
		m.choose(m.answer(), cancelSleep, turnLock)
	}),
	turnLock: {name: "turnLock", do: func(m *machine, _ int) { m.choose(m.comm().lock, sleep, cancelSleep) }},
	sleep: {name: "Doorbell.Sleep: futex wait on rings", absent: true, do: func(m *machine, _ int) {
		switch {
		case m.t.asleep: // the time of a nap, or of a slice, is over
			m.wake(m.self)
		case m.t.ticket:
			m.t.asleep = true
		default:
			m.jump(cancelSleep)
		}
	}},
	cancelSleep: {name: "Doorbell.Cancel: sleepers-1", absent: true, fused: true, do: func(m *machine, _ int) {
		*m.sleepersOf(m.t.rests)--
		m.t.rests, m.t.ticket = noDoorbell, false
		if m.progresses() || m.kinds[m.self].start == watchSeen {
			m.t.word, m.t.expedites = false, false // they are read again
		}
		m.jump(back)
	}},
	ringLook: {name: "Doorbell.Ring: sleepers.Load", absent: true, fused: true, do: func(m *machine, _ int) {
		if *m.sleepersOf(m.t.rings) != 0 {
			m.jump(ringAdd)
			return
		}
		m.t.rings = noDoorbell
		m.jump(back)
	}},
	// Adding and waking are one step. This leaves out only that a thread which falls asleep in
	// between is woken for nothing.
	ringAdd: {name: "Doorbell.Ring: rings.Add(1), futex wake of all", absent: true, fused: true,
		do: func(m *machine, _ int) {
			for _, i := range m.outdate(m.t.rings) {
				m.wake(i)
			}
			m.t.rings = noDoorbell
			m.jump(back)
		}},
}

var handSteps = map[place]modelStep{
	handPending: {name: "handPending", do: func(m *machine, _ int) { m.choose(m.comm().pending == 0, back, handLock) }},
	handLock:    {name: "handLock", do: func(m *machine, _ int) { m.choose(m.comm().lock, back, handTurns) }},
	handTurns: {name: "handTurns", do: func(m *machine, _ int) {
		m.choose(m.comm().turns != 0, handRing, handWaiting)
	}},
	handRing: {name: "Doorbell.RingOne: rings.Add(1), futex wake of 1", absent: true,
		ways: func(m *machine) (n int) {
			m.atDoorbell(turnsDoorbell, func(_ int, t *threadState) {
				if t.asleep {
					n++
				}
			})
			return max(1, n)
		},
		do: func(m *machine, way int) {
			if asleep := m.outdate(turnsDoorbell); len(asleep) > 0 {
				m.wake(asleep[way])
			}
			m.jump(back)
		}},
	handWaiting: {name: "handWaiting", do: func(m *machine, _ int) {
		m.choose(m.comm().waiting != 0 || m.scenario.alone[m.kinds[m.self].rank], back, notifyComms)
	}},
	notifyComms: {name: "notifyComms",
		// Without Close, a Comm that is listed stays so.
		between: unless(func(m *machine) bool { return m.comm().listed && !m.closes }, notifyUrgent),
		do:      func(m *machine, _ int) { m.choose(m.comm().listed, notifyUrgent, notifyAdd) }},
	notifyAdd: {name: "notifyAdd", do: func(m *machine, _ int) {
		m.comm().listed = true
		m.jump(notifyUrgent)
	}},
	notifyUrgent: {name: "notifyUrgent", between: unless(noExpedites, notifyWord), do: func(m *machine, _ int) {
		m.t.urgent = m.comm().urgent > 0
		m.choose(m.t.urgent, notifyExpedites, notifyWord)
	}},
	notifyExpedites: {name: "notifyExpedites", fused: true, do: func(m *machine, _ int) {
		m.eachProgress(func(t *threadState) { t.expedites = false })
		m.jump(notifyWord)
	}},
	notifyWord: {name: "notifyWord", fused: true, do: func(m *machine, _ int) {
		m.eachProgress(func(t *threadState) { t.word = false })
		m.jump(notifyIdle)
	}},
	notifyIdle: then(func(m *machine) { m.ring(idleDoorbell, notifyNap) }),
	notifyNap: then(func(m *machine) {
		if m.t.urgent {
			m.t.urgent = false
			m.ring(napDoorbell, notifyDoorbell)
			return
		}
		m.jump(notifyDoorbell)
	}),
	notifyDoorbell: {name: "notifyDoorbell", fused: true, do: func(m *machine, _ int) {
		if m.rank().onDoorbell {
			m.t.rings = processDoorbell
			m.jump(ringLook) // which then returns from notify, too
			return
		}
		m.jump(back)
	}},
}

// eachProgress visits the progress thread of this thread's rank.
func (m *machine) eachProgress(visit func(t *threadState)) {
	for k := range m.kinds {
		if m.kinds[k].rank == m.kinds[m.self].rank && m.kinds[k].start == progressSeen {
			visit(&m.s.threads[k])
		}
	}
}

var advanceSteps = map[place]modelStep{
	advance: then(func(m *machine) { m.t.moved = false; m.call(take, advTaken) }),
	take: {name: "take", do: func(m *machine, _ int) {
		for k := range m.ops {
			if op := &m.s.ops[k]; m.ops[k].comm == int(m.t.comm) && op.phase == inList {
				op.phase, op.begun = queued, m.ops[k].message && m.sends[k]
			}
		}
		m.jump(back)
	}},
	advTaken: then(func(m *machine) {
		switch {
		case m.comm().broken:
			m.jump(advBroken)
		default:
			m.choose(m.aborts, advStop, advHead)
		}
	}),
	advStop: {name: "advStop", do: func(m *machine, _ int) {
		if c := m.comm(); c.stop && !c.broken {
			c.broken, m.t.moved = true, true
			m.jump(advBroken)
			return
		}
		m.jump(advHead)
	}},
	advHead: then(func(m *machine) {
		if i := m.next(m.s, m.t.comm, queued, collective); i >= 0 {
			m.t.ending = uint8(i)
			m.choose(m.sends[i] && !m.s.ops[i].begun, advBegin, advLook)
			return
		}
		m.t.saw = 0
		m.jump(advMessages)
	}),
	advBegin: {name: "advance: begin, first bytes sent", absent: true, fused: true, do: func(m *machine, _ int) {
		m.target().begun, m.t.moved = true, true
		m.jump(advLook)
	}},
	advLook: {name: "advance: look for the event of the head", absent: true,
		do: func(m *machine, _ int) { m.event(advHead) }},
	advMessage: {name: "advance: look for the event of a message", absent: true,
		do: func(m *machine, _ int) { m.event(advMessages) }},
	advMessages: then(func(m *machine) { // saw counts the operations checked
		t := m.t
		for ; int(t.saw) < len(m.ops); t.saw++ {
			if spec := &m.ops[t.saw]; spec.message && spec.comm == int(t.comm) && m.s.ops[t.saw].phase == queued {
				t.ending = t.saw
				t.saw++
				m.jump(advMessage)
				return
			}
		}
		t.saw, t.ending = 0, 0
		m.choose(m.unasked[t.comm] && !m.comm().broken, advUnasked, back)
	}),
	advUnasked: {name: "advance: p2p for messages nobody asked for", absent: true,
		ways: func(m *machine) int {
			if !m.t.last || m.lazy {
				return 2
			}
			return 1
		},
		do: func(m *machine, way int) {
			if mail := m.next(m.s, m.t.comm, unposted, unaskedFor); mail >= 0 && way == 0 && m.s.ops[mail].events > 0 {
				m.s.ops[mail].events--
				m.s.ops[mail].begun, m.t.moved = true, true
			}
			m.jump(back)
		}},
	advBroken: then(func(m *machine) {
		if i := m.next(m.s, m.t.comm, queued, anyOp); i >= 0 {
			m.s.ops[i].phase, m.s.ops[i].pos = done, 0
			m.t.ending = uint8(i)
			m.call(endOp, advBroken)
			return
		}
		m.t.ending = 0
		m.jump(back)
	}),
	endOp: then(func(m *machine) { m.choose(m.expedites && m.s.ops[m.t.ending].notify, endUrgency, endState) }),
	endUrgency: {name: "endUrgency", fused: true, do: func(m *machine, _ int) {
		expedited := uint32(m.target().urgency) == opExpedited
		m.target().urgency = uint8(opOver)
		m.choose(expedited, endUrgent, endState)
	}},
	endUrgent: {name: "endUrgent", fused: true, do: func(m *machine, _ int) {
		m.comm().urgent--
		m.jump(endState)
	}},
	endState: {name: "endState", do: func(m *machine, _ int) {
		m.target().pending = false
		m.jump(endPending)
	}},
	endPending: {name: "endPending", fused: true, do: func(m *machine, _ int) {
		m.comm().pending--
		m.jump(endTurns)
	}},
	endTurns: then(func(m *machine) { m.ring(turnsDoorbell, endNotify) }),
	endNotify: then(func(m *machine) {
		user := m.t.depth == 0 // a post that has ended before it was queued
		switch watched := m.watch && (user || m.s.ops[m.t.ending].notify); {
		case watched && user:
			m.call(countAdd, nextAction)
		case watched:
			m.jump(countAdd)
		default:
			m.choose(user, nextAction, back)
		}
	}),
	countAdd: {name: "countAdd", fused: true, do: func(m *machine, _ int) {
		for k := range m.kinds {
			if m.kinds[k].start == watchSeen {
				m.s.threads[k].word = false
			}
		}
		m.t.rings = countDoorbell
		m.jump(ringLook)
	}},
}

// event uses up an event of the operation that is checked, and continues at more. If there is none,
// it continues at advMessages.
func (m *machine) event(more place) {
	target := m.target()
	if target.events == 0 {
		m.jump(advMessages)
		return
	}
	target.events--
	target.left--
	m.t.moved = true
	if target.left > 0 {
		m.jump(more)
		return
	}
	target.phase, target.pos = done, 0
	m.call(endOp, more)
	if m.t.at == endState {
		steps[endState].do(m, 0) // no other thread sees what is between
	}
}

var progressSteps = map[place]modelStep{
	progressSeen: {name: "progressSeen", fused: true, do: func(m *machine, _ int) {
		m.t.word, m.t.last = true, false
		m.jump(progressExpedites)
	}},
	progressExpedites: {name: "progressExpedites", fused: true, between: unless(noExpedites, passComms),
		do: func(m *machine, _ int) {
			m.t.expedites = true
			m.jump(passComms)
		}},
	passComms: {name: "passComms",
		between: func(m *machine) bool {
			if m.closes || m.fresh {
				return false
			}
			steps[passComms].do(m, 0)
			return true
		},
		do: func(m *machine, _ int) {
			for k, of := range m.comms {
				if of == m.kinds[m.self].rank && m.s.comms[k].listed {
					m.t.todo |= 1 << k
				}
			}
			m.jump(passNext)
		}},
	passNext: then(func(m *machine) {
		t := m.t
		t.comm = 0
		if t.todo == 0 {
			m.jump(passDone)
			return
		}
		for t.todo>>t.comm&1 == 0 {
			t.comm++
		}
		t.todo &^= 1 << t.comm
		m.jump(passPending)
	}),
	passPending: {name: "passPending", do: func(m *machine, _ int) {
		m.choose(m.comm().pending != 0, passWaiting, passNext)
	}},
	passWaiting: {name: "passWaiting", do: func(m *machine, _ int) {
		m.choose(m.comm().waiting == 0, passLock, passNext)
	}},
	passLock: {name: "passLock", ways: func(m *machine) int { return m.attends(!m.expedites) },
		do: func(m *machine, way int) {
			switch {
			case m.comm().lock:
				m.jump(passNext)
			case m.expedites:
				m.jump(passUrgent)
			default:
				m.attend(way)
			}
		}},
	passUrgent: {name: "passUrgent", ways: func(m *machine) int { return m.attends(true) }, do: (*machine).attend},
	passTry: {name: "passTry", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.jump(passNext)
			return
		}
		m.t.responsible = true
		m.locked()
		m.call(advance, passLocked)
	}},
	passLocked: then(func(m *machine) {
		m.t.passMoved = m.t.passMoved || m.t.moved
		m.call(unlock, passHand)
	}),
	passHand: {name: "passHand", do: func(m *machine, _ int) {
		if m.comm().waiting != 0 {
			m.call(handPending, passNext)
			return
		}
		m.choose(m.closes, passStop, passNext)
	}},
	passStop: {name: "passStop", do: func(m *machine, _ int) {
		if m.comm().stop {
			m.call(handPending, passNext)
			return
		}
		m.jump(passNext)
	}},
	passDone: then(func(m *machine) {
		t := m.t
		responsible, attended, moved := t.responsible, t.attended, t.passMoved
		t.responsible, t.attended, t.passMoved = false, false, false
		switch {
		case t.last:
			t.last = false
			m.choose(responsible && !moved, sleep, cancelSleep)
		case !responsible:
			m.choose(attended, nap, doze)
		default:
			t.word = false // it is read again before it matters
			m.choose(moved, progressSeen, doorbellSay)
		}
	}),
	doze: {name: "the progress thread sleeps or naps", absent: true,
		ways: func(m *machine) int {
			if m.expedites {
				return 2
			}
			return 1
		},
		do: func(m *machine, way int) {
			if way == 1 {
				m.jump(nap)
				return
			}
			m.t.rests = idleDoorbell
			m.call(resting, progressSeen)
		}},
	nap: then(func(m *machine) {
		if !m.expedites { // as if the thread had not come to the pass yet
			m.t.word = false
			m.jump(progressSeen)
			return
		}
		m.t.rests = napDoorbell
		m.call(resting, progressSeen)
	}),
	doorbellQuiet: then(func(m *machine) { m.t.rests = processDoorbell; m.call(resting, progressSeen) }),
	idleWord: {name: "idleWord", fused: true,
		do: func(m *machine, _ int) { m.choose(m.t.word, sleep, cancelSleep) }},
	napExpedites: {name: "napExpedites", fused: true,
		do: func(m *machine, _ int) { m.choose(m.t.expedites, sleep, cancelSleep) }},
	doorbellSay: {name: "doorbellSay", do: func(m *machine, _ int) {
		m.rank().onDoorbell = true
		m.t.rests = processDoorbell
		m.call(resting, doorbellUnsay)
	}},
	doorbellUnsay: {name: "doorbellUnsay", fused: true, do: func(m *machine, _ int) {
		m.rank().onDoorbell = false
		m.jump(progressSeen)
	}},
}

// attends returns how many things a pass can do at a Comm: two if it may leave the Comm to other
// threads.
func (m *machine) attends(here bool) int {
	if here && (!m.t.last || m.heedless) && m.comm().urgent == 0 {
		return 2
	}
	return 1
}

// attend takes a Comm, or leaves it to other threads.
func (m *machine) attend(way int) {
	m.t.attended = m.t.attended || way == 1 && !m.t.last
	m.choose(way == 0, passTry, passNext)
}

var otherSteps = map[place]modelStep{
	abortStop: {name: "abortStop", do: func(m *machine, _ int) {
		m.comm().stop = true
		m.jump(abortLock)
	}},
	abortLock: {name: "abortLock", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.ring(processDoorbell, abortLock)
			return
		}
		m.locked()
		m.call(advance, abortUnlock)
	}},
	abortUnlock: to(unlock, abortHand),
	abortHand: then(func(m *machine) {
		next := nextAction
		if m.current() == doClose {
			next = closeRemove
		}
		m.call(handPending, next)
	}),
	closeRemove: {name: "closeRemove", do: func(m *machine, _ int) {
		m.comm().listed = false
		m.call(handPending, nextAction)
	}},

	cancelFire: {name: "cancelFire", do: func(m *machine, _ int) {
		m.op().fire = true
		m.ring(processDoorbell, nudgeTurns)
	}},
	nudgeTurns: then(func(m *machine) { m.ring(turnsDoorbell, nextAction) }),

	expediteMark: {name: "expediteMark", ways: posts, do: func(m *machine, _ int) {
		if uint32(m.op().urgency) != opCalm {
			m.jump(nextAction)
			return
		}
		m.op().urgency = uint8(opExpedited)
		m.jump(expediteCount)
	}},
	expediteCount: {name: "expediteCount", do: func(m *machine, _ int) {
		m.comm().urgent++
		m.jump(expediteHand)
	}},
	expediteHand:   to(handPending, nextAction),
	handThenUrgent: to(handPending, expediteCount),

	pollState: {name: "pollState", ways: posts,
		do: func(m *machine, _ int) { m.choose(m.op().pending, pollLock, nextAction) }},
	pollLock: {name: "pollLock", do: func(m *machine, _ int) {
		if m.comm().lock {
			m.jump(nextAction)
			return
		}
		m.locked()
		m.call(advance, pollUnlock)
	}},
	pollUnlock: to(unlock, pollHand),
	pollHand:   to(handPending, nextAction),

	watchSeen: {name: "watchSeen", ways: func(m *machine) int {
		for i := range m.ops { // an operation inside Run is nobody else's
			if op := &m.s.ops[i]; m.ops[i].slices && op.pending && !op.kept {
				return 0
			}
		}
		return 1
	}, do: func(m *machine, _ int) {
		m.t.word = true
		m.jump(watchStates)
	}},
	watchStates: {name: "a watcher's look at all operations", absent: true, do: func(m *machine, _ int) {
		if m.done(m.s) {
			m.jump(ended)
			return
		}
		m.t.rests = countDoorbell
		m.call(resting, watchSeen)
	}},
	watchCount: {name: "watchCount", do: func(m *machine, _ int) { m.choose(m.t.word, sleep, cancelSleep) }},

	publish: {name: "a peer publishes its event", absent: true,
		ways: func(m *machine) int {
			for _, n := range m.spec().needs {
				if !m.s.ops[n].begun {
					return 0
				}
			}
			if m.queue && m.t.op > 0 && m.s.threads[m.self-1].at != ended {
				return 0
			}
			return 1
		},
		do: func(m *machine, _ int) {
			m.t.action++
			m.op().events++
			m.ring(processDoorbell, publishNext)
		}},
	publishNext: then(func(m *machine) { m.choose(m.t.action < max(1, m.spec().fragments), publish, ended) }),
}

//go:build !race

package exec

import (
	"fmt"
)

// do is one step of thread i, in the way chosen.
func (m *machine) do(s *state, i, way int) {
	m.at(s, i)
	t := m.t
	c, op, spec := &s.comms[t.comm], &s.ops[t.op], &m.ops[t.op]
	rank := m.kinds[i].rank
	r := &s.ranks[rank]
	target := &s.ops[t.ending]
	switch t.at {
	case postStop, postStopAgain:
		if c.stop {
			op.pending, op.phase = false, over
			m.jump(nextAction)
			return
		}
		script := m.users[m.kinds[i].user].script
		if t.at == postStop {
			m.jump(m.entry(script[t.action-1].verb))
			return
		}
		m.jump(pushPending)
	case firstLock:
		if c.lock {
			m.jump(postStopAgain)
			return
		}
		m.locked()
		m.choose(spec.known && !c.broken, firstTake, firstUnlock)
	case firstTake:
		m.take()
		m.choose(m.next(s, t.comm, queued, collective) < 0, firstRide, firstPending)
	case firstRide: // alone: it begins before it counts as pending, and may end so
		op.begun = true
		if op.events == op.left {
			op.events, op.left, op.pending, op.phase, op.urgency = 0, 0, false, over, uint8(opOver)
			m.jump(firstOver)
			return
		}
		m.jump(firstPending)
	case firstPending:
		c.pending++
		c.posts++
		alone := m.next(s, t.comm, queued, collective) < 0
		op.phase, op.pos = queued, c.posts
		if alone {
			m.jump(postUnlock)
			return
		}
		m.call(advTake, postUnlock)
	case firstUnlock:
		m.unlock(firstHand)
	case firstOver:
		m.unlock(firstOverHand)
	case pushPending:
		c.pending++
		m.jump(pushList)
	case pushList:
		c.posts++
		op.phase, op.pos = inList, c.posts
		script := m.users[m.kinds[i].user].script
		m.choose(script[t.action-1].verb == doRun, runLock, postLock)
	case postLock:
		if !c.lock {
			m.locked()
			m.call(advTake, postUnlock)
			return
		}
		m.call(ringLook, postHand)
	case postUnlock:
		m.unlock(postHand)
	case runLock:
		if c.lock {
			m.call(ringLook, waitLook)
			return
		}
		m.jump(waitLook)

	case waitLook:
		m.choose(op.pending, hastenTry, nextAction)
	case hastenTry:
		if c.lock {
			m.jump(waitEnter)
			return
		}
		m.locked()
		m.call(advTake, hastenLook)
	case hastenTurn:
		if way == 1 {
			m.call(advTake, hastenLook)
			return
		}
		m.jump(hastenEnter)
	case hastenUnlock:
		m.unlock(leaveHand)
	case hastenEnter:
		c.waiting++
		m.choose(spec.cancel, hastenCancel, driveAgain)
	case hastenCancel:
		m.choose(op.fire, heldUnlock, driveAgain)
	case heldUnlock:
		m.unlock(waitLeave)
	case waitEnter:
		c.waiting++
		m.jump(waitLoop)
	case waitLoop:
		if op.pending && spec.cancel {
			m.jump(waitCancel)
			return
		}
		m.choose(op.pending, waitTry, waitLeave)
	case waitCancel:
		m.choose(op.fire, waitLeave, waitTry)
	case waitTry:
		m.choose(c.lock, turnLoad, waitTake)
	case waitTryLate:
		m.jump(waitTake)
	case driveCancel:
		m.choose(op.fire, waitUnlock, driveNext)
	case waitUnlock:
		m.unlock(waitLoop)
	case waitLeave:
		c.waiting--
		m.jump(leaveHand)

	case bellAnnounce:
		r.bell++
		m.jump(bellTicket)
	case bellTicket:
		t.last, t.ring = true, true
		if m.kinds[i].start == progressSeen {
			m.jump(passStart)
			return
		}
		m.call(advTake, bellLookedAgain)
	case bellLookCancel:
		m.choose(op.fire, bellCancel, bellSleep)
	case bellSleep:
		m.sleep(t.ring)
	case bellCancel:
		if r.bell > 0 {
			r.bell--
		}
		t.ring, t.word = false, false
		m.choose(m.kinds[i].start == progressSeen, awakeState, driveAgain)

	case turnLoad:
		t.turn = true
		m.jump(turnAnnounce)
	case turnAnnounce:
		c.sleepers++
		m.jump(turnLookOp)
	case turnLookOp:
		m.choose(op.pending, turnLookLock, turnLeave)
	case turnLookLock:
		if c.lock && spec.cancel {
			m.jump(turnLookCancel)
			return
		}
		m.choose(c.lock, turnSleep, turnLeave)
	case turnLookCancel:
		m.choose(op.fire, turnLeave, turnSleep)
	case turnSleep:
		m.sleep(t.turn)
	case turnLeave:
		c.sleepers--
		t.turn = false
		m.jump(waitLoop)

	case handPending:
		m.choose(c.pending == 0, back, handLock)
	case handLock:
		m.choose(c.lock, back, handSleepers)
	case handSleepers:
		m.choose(c.sleepers != 0, handTurn, handWaiting)
	case handTurn, wakeTurn:
		for k := range s.threads {
			if s.threads[k].comm == t.comm {
				s.threads[k].turn = false
			}
		}
		if t.at == handTurn {
			m.jump(handWake)
			return
		}
		m.wakeEach()
		m.jump(back)
	case handWake, notifyWake, rouse:
		if list := m.sleepers(m.futex(t.at)); len(list) > 0 {
			m.wake(list[way])
		}
		m.jump(back)
	case handWaiting:
		m.choose(c.waiting != 0 || m.alone[rank], back, notifyLook)
	case notifyLook:
		m.choose(c.listed, notifyUrgent, notifyAdd)
	case notifyAdd:
		c.listed = true
		m.jump(notifyUrgent)
	case notifyUrgent:
		t.urgent = c.urgent > 0
		m.choose(t.urgent, notifyUrges, notifyWord)
	case notifyUrges:
		for k := range m.kinds {
			if m.kinds[k].rank == rank && m.kinds[k].start == progressSeen {
				s.threads[k].urges = false
			}
		}
		m.jump(notifyWord)
	case notifyWord:
		for k := range m.kinds {
			if m.kinds[k].rank == rank && m.kinds[k].start == progressSeen {
				s.threads[k].word = false
			}
		}
		m.jump(notifyState)
	case notifyState:
		t.saw = r.state
		m.jump(notifyAct)

	case ringLook:
		m.choose(r.bell != 0, ringAdd, back)
	case ringAdd:
		for k := range m.kinds {
			if m.kinds[k].rank == rank {
				s.threads[k].ring = false
			}
		}
		m.wakeEach()
		m.jump(back)
	case countWake:
		m.wakeEach()
		m.jump(back)

	case advTake:
		t.moved = false
		m.take()
		if c.broken {
			m.jump(advBroken)
			return
		}
		m.choose(m.aborts, advStop, advHead)
	case advStop:
		if c.stop && !c.broken {
			c.broken, t.moved = true, true
			m.jump(advBroken)
			return
		}
		m.jump(advHead)
	case advBegin:
		target.begun, t.moved = true, true
		m.jump(advLook)
	case advLook, advMessage:
		more := advHead
		if t.at == advMessage {
			more = advMessages
		}
		if target.events == 0 {
			m.jump(advMessages)
			return
		}
		target.events--
		target.left--
		t.moved = true
		if target.left > 0 {
			m.jump(more)
			return
		}
		target.phase, target.pos = over, 0
		m.call(endOp, more)
		if t.at == endState {
			m.do(s, i, 0) // nobody else sees what is between
		}
	case advUnasked:
		if mail := m.next(s, t.comm, unposted, unaskedFor); mail >= 0 && way == 0 && s.ops[mail].events > 0 {
			s.ops[mail].events--
			s.ops[mail].begun, t.moved = true, true
		}
		m.jump(back)
	case endUrgency:
		urged := uint32(target.urgency) == opUrged
		target.urgency = uint8(opOver)
		m.choose(urged, endUrgent, endState)
	case endUrgent:
		c.urgent--
		m.jump(endState)
	case endState:
		target.pending = false
		m.jump(endPending)
	case endPending:
		c.pending--
		m.jump(endSleepers)
	case endSleepers:
		if c.sleepers != 0 {
			t.saw |= 0x80
		}
		m.jump(endWake)
	case countAdd:
		for k := range m.kinds {
			if m.kinds[k].start == watchSeen {
				s.threads[k].word = false
			}
		}
		m.jump(countSleepers)
	case countSleepers:
		m.choose(s.watchers != 0, countWake, back)

	case progressSeen:
		t.word, t.last = true, false
		m.jump(progressUrges)
	case progressUrges:
		t.urges = true
		m.jump(passStart)
	case passStart:
		for k, of := range m.comms {
			if of == rank && s.comms[k].listed {
				t.todo |= 1 << k
			}
		}
		m.jump(passNext)
	case passPending:
		m.choose(c.pending != 0, passWaiting, passNext)
	case passWaiting:
		m.choose(c.waiting == 0, passLock, passNext)
	case passLock, passUrgent:
		switch {
		case t.at == passLock && c.lock:
			m.jump(passNext)
		case t.at == passLock && m.urges:
			m.jump(passUrgent)
		default:
			t.attended = t.attended || way == 1 && !t.last
			m.choose(way == 0, passTry, passNext)
		}
	case passTry:
		if !c.lock {
			t.responsible = true
			m.locked()
			m.call(advTake, passLocked)
			return
		}
		m.jump(passNext)
	case passUnlock:
		m.unlock(passSleepers)
	case passSleepers:
		if c.sleepers != 0 {
			m.call(handPending, passNext)
			return
		}
		m.choose(m.closes, passStop, passNext)
	case passStop:
		if c.stop {
			m.call(handPending, passNext)
			return
		}
		m.jump(passNext)
	case idleState:
		if way == 1 {
			m.jump(napState)
			return
		}
		r.state = 1
		m.jump(idleLook)
	case idleLook:
		m.choose(t.word, idleSleep, awakeState)
	case idleSleep:
		m.sleep(t.word)
	case napState:
		r.state = 3
		m.jump(napLook)
	case napLook:
		m.choose(t.urges, napSleep, awakeState)
	case napSleep:
		if t.asleep {
			m.wake(i) // its time is over
			return
		}
		m.sleep(t.urges)
	case bellState:
		r.state = 2
		m.jump(bellAnnounce)
	case bellLookWord:
		newest := t.word
		t.word = false // it is read again before it matters
		m.choose(newest, bellSleep, bellCancel)
	case awakeState:
		r.state, t.word, t.urges = 0, false, false
		m.jump(progressSeen)

	case abortStop:
		c.stop = true
		m.jump(abortTry)
	case abortTry:
		if !c.lock {
			m.locked()
			m.call(advTake, abortUnlock)
			return
		}
		m.call(ringLook, abortAgain)
	case abortUnlock:
		m.unlock(abortHand)
	case closeRemove:
		c.listed = false
		m.call(handPending, nextAction)

	case cancelFire:
		op.fire = true
		m.call(ringLook, nudgeWake)

	case urgeMark:
		if uint32(op.urgency) != opCalm {
			m.jump(nextAction)
			return
		}
		op.urgency = uint8(opUrged)
		m.jump(urgeCount)
	case urgeCount:
		c.urgent++
		m.jump(urgeHand)

	case pollLook:
		m.choose(op.pending, pollTry, nextAction)
	case pollTry:
		if !c.lock {
			m.locked()
			m.call(advTake, pollUnlock)
			return
		}
		m.jump(nextAction)
	case pollUnlock:
		m.unlock(pollHand)

	case watchSeen:
		t.word = true
		m.jump(watchLook)
	case watchLook:
		m.choose(m.done(s), ended, watchAnnounce)
	case watchAnnounce:
		s.watchers++
		m.jump(watchCheck)
	case watchCheck:
		m.choose(t.word, watchSleep, watchLeave)
	case watchSleep:
		m.sleep(t.word)
	case watchLeave:
		s.watchers--
		t.word = false
		m.jump(watchSeen)

	case publish:
		t.action++
		op.events++
		m.call(ringLook, publishNext)
	default:
		panic("no such step: " + text[t.at])
	}
}

// take is Comm.take.
func (m *machine) take() {
	for k := range m.ops {
		if op := &m.s.ops[k]; m.ops[k].comm == int(m.t.comm) && op.phase == inList {
			op.phase, op.begun = queued, m.ops[k].message && m.sends[k]
		}
	}
}

func (m *machine) done(s *state) bool {
	for i := range m.ops {
		if s.ops[i].pending {
			return false
		}
	}
	return true
}

// fault says what is wrong in a state, judged by itself; quiet means that nothing but a peer can do a step, still
// that nothing but a peer or the end of a nap can.
func (m *machine) fault(s *state, quiet, still, dead bool) string {
	for i := range m.comms {
		if s.comms[i].drivers > 1 {
			return "two drivers of one Comm"
		}
	}
	if !still {
		return ""
	}
	for i := range m.ops {
		op, spec := &s.ops[i], &m.ops[i]
		if !quiet && s.comms[spec.comm].urgent == 0 {
			continue // it has to go on after the nap
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
		if t := &s.threads[i]; t.asleep && t.at == turnSleep && !s.ops[t.op].pending {
			return m.kinds[i].name + " sleeps, and its operation is done"
		}
	}
	if !dead {
		return ""
	}
	for i, c := range s.comms {
		if c.urgent != 0 {
			return fmt.Sprintf("comm %d counts %d urgent operations at rest", i, c.urgent)
		}
	}
	bells := [maxRanks]uint8{}
	for i, k := range m.kinds {
		switch t := &s.threads[i]; {
		case k.start != progressSeen && t.at != ended:
			return k.name + " never goes on: " + text[t.at]
		case t.at == bellSleep:
			bells[k.rank]++
		}
	}
	if !m.done(s) {
		return "an operation does not end"
	}
	for i, c := range s.comms {
		if c.lock || c.pending != 0 || c.waiting != 0 || c.sleepers != 0 {
			return fmt.Sprintf("wrong counts at rest: comm %d %+v", i, c)
		}
	}
	for i := range bells {
		if s.ranks[i].bell != bells[i] {
			return fmt.Sprintf("rank %d's bell counts %d sleepers where %d sleep", i, s.ranks[i].bell, bells[i])
		}
	}
	return ""
}

//go:build !race

package tcp

import (
	"slices"
)

// A model of a pair: both sides of one link of one session, on use, with one channel in each
// direction, over one socket (which carries frames), and everything that may happen to them in any
// order. What a side decides is the code of recovery.go; the model has the order of the steps
// around it, each a function or a part of one, as the table says:
//
//	begin           pair.start, match
//	publish         channel.Publish
//	consume         channel.Consume
//	leave, close    session.Leave, pair.close
//	want            pair.want
//	dial            pair.redial and first: an attempt begins
//	greet           pair.shakes, shake: the hello leaves
//	reply           Fabric.authenticate, acceptHandshake: the answer leaves
//	prove           dialHandshake: the proof leaves
//	accept          Fabric.authenticate, pair.takes: the last word leaves
//	hear            dialHandshake: the last word is read
//	attach          pair.attach, forget, resumption
//	abandon         pair.dialOne: the attempt fails, or was made in vain
//	connected       pair.first: it ends
//	read            socket.frameBegins, frameDone, pair.announce, left, gone, rewind
//	notice          conn.fail, pair.broken, heal, rest
//	open … gone     socket.sessionFrame, channelFrame, pairFrame
//	refused         pair.redial, first: the peer's process is gone; giveUp, unreachable, lose
//
//	large           the path loses large packets: data, and all behind it, until time out
//	time out        conn.fail, as the kernel gives up what is not acknowledged
//
// A firewall may refuse or drop whatever one side dials (walled): that side has no attempt that
// leads anywhere, and must leave it to the other one, whose id may be the larger one.
//
// and what may befall them, a few times:
//
//	break           the path breaks; in each direction any end of what is under way is lost (drop)
//	give up         a side has no connection for too long: giveUp, lose
//	die             the process of a side ends
//
// The model leaves out control messages, further sockets, Fabric.Close, paths that are given up
// for what they change (after the resumption both sides lose the pair, as they do after they give
// up) and violations: that there is none is one of the things that it shows. A side has one
// attempt to dial at a time; a direction has up to mostUnderWay frames under way, room for two
// fragments, and credit is due for each. A side knows one session of the peer at a time: the
// search goes no further where it would know two (beyond), since the path broke while a side
// opened a session only to say that it had left it.

const (
	mostConnections = 4 // one attempt and one live connection of each side
	mostUnderWay    = 3
	modelRoom       = 2
)

// The stages of the handshake of a connection.
const (
	unused = iota
	dialled
	greeted
	replied
	proven
	accepts
	answered
)

// The state of one end of a connection.
const (
	unattached = iota
	attached
	closedEnd
)

// none is no connection, or one that both sides have forgotten.
const none = -1

// modelFrame is a frame. A resumption is one frame here: number fragments have arrived of the
// session with this index, if it is listed, and credit is the index that is expected next.
type modelFrame struct {
	kind, index, number, credit uint8
	listed                      bool // of goodbye: it has the reason
}

// modelConn is a connection, and what is under way in it from either side.
type modelConn struct {
	stage    uint8
	dialer   uint8
	limit    uint8 // of segments
	wants    uint8 // that of the acceptor
	again    bool
	replaces int8
	epochs   [2]uint8 // by side
	began    [2]uint8 // by side, as in span
	ended    [2]uint8
	ends     [2]uint8 // by side
	cut      bool
	large    [2]bool  // by sender: what it has sent since does not arrive
	count    [2]uint8 // by sender
	frames   [2][mostUnderWay]modelFrame
}

// How the session of a side has ended, as its user knows it.
const (
	stillOpen = iota
	endedLost
	endedLeft
)

// modelSide is one of the two processes: its pair, and its session with all counters.
type modelSide struct {
	dead             bool
	epoch            uint8
	epochs           [2]uint8 // when the last connection was attached: own, the peer's
	live, dials      int8
	newest           uint8
	healing, dialing bool
	broken           int8
	crossing         crossing
	unresumed        bool
	limit            uint8 // of segments
	silent           bool  // the connection that broke was given up by the kernel
	lacked           bool  // of the peer, when the last connection was made
	lacking          uint8

	// The session in the table.
	begun, exists, waiting, bid            bool
	announced, openSent, byeSent, answered bool
	closing                                bool
	err                                    uint8
	index, next                            uint8
	committed, started, freed              uint8
	arrived, released, advertised          uint8
	due                                    bool

	// The peer's session.
	opens, inIndex    uint8
	incoming, joined  bool // it is known; it is that of this side's session
	inbound, departed bool
	farewells         [2]uint8
	owed              uint8 // how many of those are to be answered
	toSend            uint8
	toLeave, left     bool
	outcome           uint8
	reasoned          bool // the outcome came with the peer's reason
	sent, heard       uint8
}

// link is the state of the model.
type link struct {
	sides               [2]modelSide // the smaller id first
	conns               [mostConnections]modelConn
	breaks, gives, dies uint8   // how many may follow
	given, died         bool    // some have
	hole                bool    // the path loses large packets
	walled              [2]bool // by side: what it dials leads nowhere
	wrong               string
	beyond              bool // what follows is not explored
}

// mutant is a mistake that the model must find.
type mutant struct {
	name string
	in   string // the scenario

	takesAlways, takesLive, shakesAlways        bool
	sendsNothingAgain, skipsOne, oneEarly       bool
	noCredit, noGoodbye, noOpen                 bool
	oldEpoch, noForget, attachesOutdated        bool
	hastyGoodbye                                bool
	attachesLate, missesAnswer, forgetsDeparted bool
	forgetsReason, forgetsWaiting               bool
	leavesDialling, believesFirewalls           bool
	keepsSegments, ignoresLimit                 bool
}

// mover makes the steps of a link.
type mover struct {
	mu *mutant
	do func(step string, fair bool, to *link)
}

func (s *modelSide) unsent() bool {
	return !s.announced && s.err == stillOpen && s.started != s.committed
}

func (s *modelSide) standing() standing {
	return standing{announced: s.announced, openSent: s.openSent, onUse: true, closing: s.closing,
		ended: s.err != stillOpen, unsent: s.unsent()}
}

func (s *modelSide) waits() bool {
	return s.exists && s.err == stillOpen && (!s.closing || s.unsent())
}

// fail is session.fail.
func (s *modelSide) fail(how uint8, reasoned bool) {
	if s.err != stillOpen {
		return
	}
	s.err = how
	if !s.bid && s.outcome == stillOpen {
		s.outcome, s.reasoned = how, reasoned
	}
}

// remove is pair.remove.
func (m *mover) remove(s *modelSide) {
	s.exists, s.waiting = false, false
	if !s.answered && !m.mu.forgetsDeparted {
		s.departed = true
	}
}

// match is pair.match.
func match(s *modelSide) { s.joined, s.announced = true, true }

// free forgets a connection that both ends have closed.
func (l *link) free(c int8) {
	l.conns[c] = modelConn{}
	for i := range l.sides {
		if l.sides[i].broken == c {
			l.sides[i].broken = none
		}
	}
	for i := range l.conns {
		if k := &l.conns[i]; k.stage != unused && k.replaces == c {
			k.replaces = none
		}
	}
}

// numbers returns what a side has counted and still knows.
func (l *link) numbers(side int) (all []*uint8) {
	all = append(all, &l.sides[side].newest)
	for i := range l.conns {
		all = append(all, &l.conns[i].began[side], &l.conns[i].ended[side])
	}
	return all
}

// count returns the next number of a side.
func (l *link) count(side int) uint8 {
	largest := uint8(0)
	for _, n := range l.numbers(side) {
		largest = max(largest, *n)
	}
	return largest + 1
}

// recount keeps the numbers small: what matters is which are larger.
func (l *link) recount(side int) {
	all := []uint8{0}
	for _, n := range l.numbers(side) {
		all = append(all, *n)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, n := range l.numbers(side) {
		*n = uint8(slices.Index(all, *n))
	}
}

// shut closes one end of a connection.
func (l *link) shut(side int, c int8) {
	k := &l.conns[c]
	k.ends[side], k.cut = closedEnd, true
	k.count[1-side] = 0
	k.frames[1-side] = [mostUnderWay]modelFrame{}
	if k.ends[1-side] == closedEnd {
		l.free(c)
	}
}

// endDial ends a handshake of the side that dialled.
func (l *link) endDial(side int, began bool) {
	s := &l.sides[side]
	s.dials = none
	if began {
		s.crossing.shaken()
	}
}

// abandon ends an attempt of the side that dialled.
func (l *link) abandon(c int8) {
	k := &l.conns[c]
	side := int(k.dialer)
	l.endDial(side, k.stage >= greeted)
	if k.stage < accepts {
		k.ends[1-side] = closedEnd // it has nothing yet
	}
	l.shut(side, c)
}

// lose is pair.lose.
func (m *mover) lose(l *link, side int) {
	s := &l.sides[side]
	if s.exists && s.standing().falls() {
		s.fail(endedLost, false)
		m.remove(s)
	}
	s.inbound, s.owed, s.farewells = false, 0, [2]uint8{}
	if !m.mu.oldEpoch {
		s.epoch++
	}
	s.healing = false
}

// notice is conn.fail and what follows.
func (m *mover) notice(l *link, side int) {
	s := &l.sides[side]
	c := s.live
	s.live, s.unresumed = none, false
	if s.exists && s.standing().misses() {
		s.healing, s.broken = true, c
	} else if s.exists && s.standing().settled() {
		m.remove(s)
	}
	l.shut(side, c)
}

// attach is pair.attach, and the end of the handshake.
func (m *mover) attach(l *link, side int, c int8) {
	s, k := &l.sides[side], &l.conns[c]
	over := func() {
		if int(k.dialer) == side {
			l.endDial(side, true)
		} else if k.dialer == 1 {
			s.crossing.taken()
		}
	}
	late := span{began: uint64(k.began[side])}.outdated(uint64(s.newest)) && !m.mu.attachesLate
	if s.epoch != k.epochs[side] && !m.mu.attachesOutdated || late {
		over()
		l.shut(side, c)
		return
	}
	s.newest = k.ended[side]
	if old := s.live; old >= 0 {
		if o := &l.conns[old]; !o.cut && o.ends == [2]uint8{attached, attached} {
			l.wrong = "a connection that works is given up"
		}
		s.live = none
		l.shut(side, old)
	}
	if epochs := [2]uint8{k.epochs[side], k.epochs[1-side]}; epochs != s.epochs {
		s.epochs = epochs
		if !m.mu.noForget {
			m.forget(s)
		}
	}
	resumption := modelFrame{kind: kindResume, credit: s.opens, listed: s.incoming}
	if s.incoming {
		resumption.index = s.inIndex
		if s.joined && !s.bid {
			resumption.number = s.arrived
		}
	}
	k.ends[side] = attached
	s.live, s.unresumed, s.healing = c, true, false
	l.push(side, resumption)
	over()
}

// forget is pair.forget.
func (m *mover) forget(s *modelSide) {
	if s.exists {
		if s.standing().outlived() {
			s.fail(endedLost, false)
			m.remove(s)
		} else {
			s.openSent = false
		}
	}
	s.incoming, s.joined, s.inbound, s.opens = false, false, false, 0
	s.owed, s.farewells = 0, [2]uint8{}
}

// push adds a frame to what is under way. Over a broken path it goes nowhere.
func (l *link) push(side int, f modelFrame) {
	k := &l.conns[l.sides[side].live]
	k.large[side] = k.large[side] || f.kind == kindData && l.hole && k.limit == 0
	if k.cut || k.large[side] {
		return
	}
	k.frames[side][k.count[side]] = f
	k.count[side]++
}

// read handles the next frame from the peer.
func (m *mover) read(l *link, side int) {
	s := &l.sides[side]
	k := &l.conns[s.live]
	from := 1 - side
	f := k.frames[from][0]
	copy(k.frames[from][:], k.frames[from][1:])
	k.count[from]--
	k.frames[from][k.count[from]] = modelFrame{}
	if (f.kind == kindResume) != s.unresumed {
		l.wrong = "a frame before or after the resumption"
		return
	}
	known := s.incoming && s.inIndex == f.index
	switch f.kind {
	case kindResume:
		m.rewind(l, s, f)
	case kindOpen:
		m.announce(l, s, f, known)
	case kindGone:
		if s.exists && s.openSent && s.index == f.index && s.closing {
			s.answered = s.announced
			m.remove(s)
		}
	case kindGoodbye:
		if !known && f.index >= s.opens {
			l.wrong = "goodbye of a session that is not open"
			return
		}
		if known && s.joined && !s.closing && f.number != s.arrived {
			l.wrong = "goodbye before all fragments"
			return
		}
		if known {
			s.incoming, s.inbound = false, false
			if s.joined {
				s.fail(endedLeft, f.listed)
			}
			s.joined = false
		}
		if int(s.owed) == len(s.farewells) {
			l.wrong = "three goodbyes to be answered"
			return
		}
		s.farewells[s.owed] = f.index
		s.owed++
	default:
		m.data(l, s, f, known)
	}
}

// rewind is pair.rewind.
func (m *mover) rewind(l *link, s *modelSide, f modelFrame) {
	s.unresumed = false
	if !s.exists {
		return
	}
	listed := s.openSent && f.listed && f.index == s.index
	arrived := uint8(0)
	if listed {
		arrived = f.number
	}
	after := s.standing().after(uint32(s.index), uint32(f.credit), listed, s.byeSent)
	if after == isLeft && m.mu.missesAnswer {
		after = isMissing
	}
	switch after {
	case opensAnew:
		s.openSent = m.mu.noOpen
	case isLeft:
		m.remove(s)
		return
	case isMissing:
		l.wrong = "a session was forgotten"
		return
	}
	s.byeSent = s.byeSent && m.mu.noGoodbye
	again, possible := rewinds(uint32(arrived), uint32(s.freed), uint32(s.started))
	if listed && possible && l.hole {
		stays := stays(s.lacked, uint32(s.lacking), uint32(arrived), again)
		if stays && s.silent && s.limit == 0 && !m.mu.keepsSegments {
			s.limit = 1
			l.conns[s.live].cut = true
			l.conns[s.live].large = [2]bool{}
		}
		s.lacked, s.lacking = again > 0, arrived
	}
	switch {
	case !possible:
		l.wrong = "more fragments have arrived than were sent"
		return
	case m.mu.sendsNothingAgain:
	case m.mu.skipsOne && again > 0:
		s.started = arrived + 1
	case m.mu.oneEarly && arrived > 0:
		s.started = arrived - 1
	default:
		s.started = arrived
	}
	s.due = s.released > 0 && !m.mu.noCredit
}

// announce is pair.announce, with what comes before in frameDone.
func (m *mover) announce(l *link, s *modelSide, f modelFrame, known bool) {
	if f.index < s.opens {
		if !known {
			l.wrong = "an index is used again"
		}
		return
	}
	if s.incoming {
		l.beyond = true
		return
	}
	s.incoming, s.inIndex, s.opens, s.joined = true, f.index, f.index+1, false
	switch {
	case s.waiting:
		s.waiting = false
		match(s)
	case s.departed:
		s.departed = false
		// The session of the user is over; this one is there to say goodbye.
		old := *s
		*s = modelSide{epoch: old.epoch, epochs: old.epochs, live: old.live, dials: old.dials, newest: old.newest,
			healing: old.healing, dialing: old.dialing, broken: old.broken, crossing: old.crossing,
			unresumed: old.unresumed, begun: true, exists: true, bid: true, closing: true, answered: true,
			next: old.next, opens: old.opens, inIndex: old.inIndex, incoming: true, farewells: old.farewells,
			owed: old.owed, left: old.left, outcome: old.outcome, reasoned: old.reasoned, sent: old.sent,
			heard: old.heard}
		if m.mu.forgetsReason {
			s.left = false
		}
		match(s)
	default:
		s.inbound = true
	}
}

// data handles a fragment or credit.
func (m *mover) data(l *link, s *modelSide, f modelFrame, known bool) {
	switch {
	case !known:
		l.wrong = "a fragment for a session that is not open"
		return
	case !s.joined:
		l.wrong = "a fragment for a session that is not open on both sides"
		return
	}
	freed, possible := credits(uint32(f.credit), uint32(s.freed), uint32(s.started), false)
	if !possible {
		l.wrong = "credit for fragments that were not sent"
		return
	}
	s.freed = uint8(freed)
	if f.kind == kindCredit || s.closing {
		return
	}
	switch placeOf(uint32(f.number), uint32(s.arrived), uint32(s.released), modelRoom, false) {
	case refused:
		l.wrong = "a fragment without credit"
	case duplicate:
		l.wrong = "a fragment comes twice over one socket"
	case placed:
		if f.number != s.arrived {
			l.wrong = "a fragment is missing"
			return
		}
		s.arrived++
		s.heard = max(s.heard, s.arrived)
	}
}

// next makes all steps that are possible.
func (m *mover) next(l *link) {
	if l.beyond {
		return
	}
	for side := range l.sides {
		if !l.sides[side].dead {
			m.user(l, side)
			m.dialer(l, side)
			m.wire(l, side)
			m.ends(l, side)
		}
	}
	for c := range l.conns {
		m.conn(l, int8(c))
	}
}

// step makes one step of a copy.
func (m *mover) step(l *link, side int, name string, fair bool, change func(l *link, s *modelSide)) {
	to := *l
	change(&to, &to.sides[side])
	m.do([]string{"A ", "B "}[side]+name, fair, &to)
}

// user is what the threads that use the link do.
func (m *mover) user(l *link, side int) {
	s := &l.sides[side]
	if !s.begun {
		m.step(l, side, "begin", true, func(_ *link, s *modelSide) {
			s.begun, s.exists = true, true
			if s.inbound {
				s.inbound = false
				match(s)
			} else {
				s.waiting = true
			}
		})
		return
	}
	leave := func(l *link, s *modelSide) {
		s.closing, s.toSend = true, 0
		if m.mu.forgetsWaiting && s.waiting && !s.unsent() {
			s.waiting = false
		}
		st, idle := s.standing(), s.live == none && !s.healing && !s.dialing
		if s.exists && idle && !st.owesGoodbye() && !st.unsent {
			m.remove(s)
		}
	}
	if !s.bid && s.err == stillOpen && !s.closing && s.toSend > 0 && s.committed-s.freed < modelRoom {
		m.step(l, side, "publish", true, func(_ *link, s *modelSide) { s.committed++; s.toSend--; s.sent++ })
	}
	if !s.bid && s.arrived > s.released && !s.closing {
		m.step(l, side, "consume", true, func(_ *link, s *modelSide) { s.released++; s.due = true })
	}
	if s.toLeave && !s.closing && s.err == stillOpen {
		m.step(l, side, "leave", true, func(l *link, s *modelSide) { s.left, s.toLeave = true, false; leave(l, s) })
	}
	if s.err != stillOpen && !s.closing { // what has arrived may still be read
		m.step(l, side, "close", true, leave)
	}
}

// dialer is what redial and first do.
func (m *mover) dialer(l *link, side int) {
	s := &l.sides[side]
	if s.live == none && !s.dialing && !s.healing && s.waits() {
		m.step(l, side, "want", true, func(_ *link, s *modelSide) { s.dialing = true })
	}
	if s.dialing && s.live != none && s.dials == none {
		m.step(l, side, "connected", true, func(_ *link, s *modelSide) { s.dialing = false })
	}
	if !s.healing && !(s.dialing && s.live == none) || s.dials != none {
		return
	}
	end := func(l *link, s *modelSide) {
		s.dialing = false
		m.lose(l, side)
	}
	// A peer that lives dials before this side has been refused for long.
	dead := l.sides[1-side].dead
	r := refusal{all: dead || l.walled[side], open: !l.walled[side] || m.mu.believesFirewalls, long: dead}
	if r.dead() {
		m.step(l, side, "refused", true, end)
		return
	}
	if l.gives > 0 {
		m.step(l, side, "give up", false, func(l *link, s *modelSide) { l.gives--; l.given = true; end(l, s) })
	}
	if l.walled[side] || m.mu.leavesDialling && side == 1 {
		return
	}
	at := slices.IndexFunc(l.conns[:], func(k modelConn) bool { return k.stage == unused })
	if at < 0 {
		return
	}
	m.step(l, side, "dial", true, func(l *link, s *modelSide) {
		k := modelConn{stage: dialled, dialer: uint8(side), limit: s.limit, again: s.healing, replaces: none}
		if s.healing {
			k.replaces = s.broken
		}
		l.conns[at], s.dials = k, int8(at)
	})
}

// wire is what the live connection carries.
func (m *mover) wire(l *link, side int) {
	s := &l.sides[side]
	if s.live == none {
		return
	}
	k := &l.conns[s.live]
	if k.count[1-side] > 0 {
		m.step(l, side, "read", true, func(l *link, _ *modelSide) { m.read(l, side) })
	} else if k.large[side] && !k.cut {
		m.step(l, side, "time out", true, func(l *link, s *modelSide) { l.conns[s.live].cut, s.silent = true, true })
	} else if k.cut {
		m.step(l, side, "notice", true, func(l *link, _ *modelSide) { m.notice(l, side) })
	}
	if s.unresumed || k.count[side] == mostUnderWay {
		return
	}
	send := func(name string, frame func(s *modelSide) modelFrame) {
		m.step(l, side, name, true, func(l *link, s *modelSide) { l.push(side, frame(s)) })
	}
	if s.owed > 0 {
		send("gone", func(s *modelSide) modelFrame {
			index := s.farewells[0]
			s.farewells = [2]uint8{s.farewells[1], 0}
			s.owed--
			return modelFrame{kind: kindGone, index: index}
		})
	}
	drained := s.started == s.committed
	switch {
	case !s.exists:
	case !s.openSent:
		send("open", func(s *modelSide) modelFrame {
			s.index, s.openSent = s.next, true
			s.next++
			return modelFrame{kind: kindOpen, index: s.index}
		})
	default:
		if s.announced && !drained {
			send("data", func(s *modelSide) modelFrame {
				if s.started < s.freed || s.committed-s.started > modelRoom {
					return modelFrame{kind: kindData, index: s.index, number: 99} // its memory was used again
				}
				s.started++
				s.due, s.advertised = false, s.released
				return modelFrame{kind: kindData, index: s.index, number: s.started - 1, credit: s.released}
			})
		}
		if s.announced && drained && s.due && !s.closing {
			send("credit", func(s *modelSide) modelFrame {
				s.due, s.advertised = false, s.released
				return modelFrame{kind: kindCredit, index: s.index, credit: s.released}
			})
		}
		refused := !s.announced && s.err != stillOpen
		if s.closing && !s.byeSent && (drained && !s.unsent() || refused || m.mu.hastyGoodbye) {
			send("goodbye", func(s *modelSide) modelFrame {
				s.byeSent = true
				return modelFrame{kind: kindGoodbye, index: s.index, number: s.started, listed: s.left}
			})
		}
	}
}

// conn is what happens to one connection: its handshake, and its path.
func (m *mover) conn(l *link, c int8) {
	k := &l.conns[c]
	if k.stage == unused {
		return
	}
	dialer, acceptor := int(k.dialer), int(1-k.dialer)
	from, to := &l.sides[dialer], &l.sides[acceptor]
	if l.breaks > 0 && !k.cut {
		m.step(l, dialer, "break", false, func(l *link, _ *modelSide) { l.breaks--; l.conns[c].cut = true })
	}
	for side := range 2 {
		if k.cut && k.count[side] > 0 {
			m.step(l, side, "drop", false, func(l *link, _ *modelSide) {
				k := &l.conns[c]
				k.count[side]--
				k.frames[side][k.count[side]] = modelFrame{}
			})
		}
	}
	open := k.ends[dialer] == unattached && !from.dead && k.stage < answered
	vain := k.again && !from.healing // the other side's came first
	if open && (k.cut || vain) && !(k.stage == dialled && !k.cut) {
		m.step(l, dialer, "abandon", true, func(l *link, _ *modelSide) { l.abandon(c) })
	}
	same := func(s *modelSide) bool { return s.live != none && s.live == k.replaces }
	stage := func(side int, name string, change func(l *link, s *modelSide, k *modelConn)) {
		if k.cut || l.sides[side].dead {
			return
		}
		m.step(l, side, name, true, func(l *link, s *modelSide) { change(l, s, &l.conns[c]) })
	}
	switch k.stage {
	case dialled:
		stage(dialer, "greet", func(l *link, s *modelSide, k *modelConn) {
			shakes := s.crossing.shakes(s.live != none, same(from))
			if !shakes && m.mu.shakesAlways && (s.live == none || same(from)) {
				s.crossing.shaking++
				shakes = true
			}
			if !shakes {
				l.abandon(c)
				return
			}
			k.stage, k.epochs[dialer] = greeted, s.epoch
			k.began[dialer] = l.count(dialer)
			l.recount(dialer)
		})
	case greeted:
		if to.begun {
			stage(acceptor, "reply", func(l *link, s *modelSide, k *modelConn) {
				k.stage, k.epochs[acceptor], k.wants = replied, s.epoch, s.limit
				k.began[acceptor] = l.count(acceptor)
				k.ended[acceptor] = k.began[acceptor]
				l.recount(acceptor)
			})
		}
	case replied:
		stage(dialer, "prove", func(l *link, s *modelSide, k *modelConn) {
			if k.stage = proven; !fits(k.limit, k.wants) && !m.mu.ignoresLimit {
				s.limit = k.wants
				l.abandon(c)
			}
		})
	case proven:
		stage(acceptor, "accept", func(l *link, s *modelSide, k *modelConn) {
			k.stage = accepts
			s.limit = max(s.limit, k.limit)
			if dialer == 0 {
				return
			}
			live, broken := s.live != none, same(to)
			if m.mu.takesLive {
				broken = true
			}
			takes := s.crossing.takes(live, broken)
			if !takes && m.mu.takesAlways && (!live || broken) {
				s.crossing.taking++
				takes = true
			}
			if !takes {
				k.stage = proven
				l.shut(acceptor, c)
			}
		})
	case accepts, answered:
		if k.stage == accepts && k.ends[dialer] == unattached && !from.dead {
			m.step(l, dialer, "hear", !k.cut, func(l *link, _ *modelSide) { // it may have arrived before the path broke
				l.conns[c].stage = answered
				l.conns[c].ended[dialer] = l.count(dialer)
				l.recount(dialer)
			})
		}
		for _, side := range []int{acceptor, dialer} {
			if k.ends[side] == unattached && !l.sides[side].dead && (side == acceptor || k.stage == answered) {
				m.step(l, side, "attach", true, func(l *link, _ *modelSide) { m.attach(l, side, c) })
			}
		}
	}
}

// ends is what may befall a process.
func (m *mover) ends(l *link, side int) {
	if l.dies > 0 && !l.died {
		m.step(l, side, "die", false, func(l *link, _ *modelSide) {
			l.dies--
			l.die(side)
		})
	}
}

// die ends a process.
func (l *link) die(side int) {
	l.died = true
	for c := range l.conns {
		k := &l.conns[c]
		if k.stage == unused {
			continue
		}
		if k.ends[side] != closedEnd {
			if int(k.dialer) != side && k.stage < accepts {
				k.ends[side], k.cut = closedEnd, true // the other side's attempt goes on, and fails
				continue
			}
			if int(k.dialer) == side && k.stage < accepts {
				l.free(int8(c))
				continue
			}
			l.shut(side, int8(c))
		}
	}
	l.sides[side] = modelSide{dead: true, live: none, dials: none, broken: none, sent: l.sides[side].sent,
		left: l.sides[side].left}
}

// rest returns what is wrong with a state in which nothing more happens, or "".
func (l *link) rest() string {
	if l.beyond {
		return ""
	}
	for side := range l.sides {
		s, peer := &l.sides[side], &l.sides[1-side]
		if s.dead {
			continue
		}
		over := s.left || s.outcome != stillOpen
		switch {
		case peer.dead && !over:
			return "the peer has died, and this side goes on"
		case peer.dead:
		case over != (peer.left || peer.outcome != stillOpen):
			return "one side has ended, and the other goes on"
		case !over && (s.live == none || s.live != peer.live):
			return "the sides have no connection in common"
		case !over && !s.announced:
			return "the session is not open on both sides"
		case !over && (s.toSend > 0 || s.sent != peer.heard):
			return "not all that was sent has arrived"
		case s.outcome == endedLost && !l.given && !l.died:
			return "lost, although nobody gave up"
		case s.outcome == endedLeft && !s.reasoned && peer.left && !l.given:
			return "the reason of the goodbye is missing"
		case s.outcome == endedLeft && s.reasoned && !s.left && s.heard != peer.sent && !l.given:
			return "fragments before the goodbye are missing"
		}
	}
	return ""
}

package rdma

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// pair is this process and another one that it has links with. They tell each other what they need
// for connections over a tcp session of their own.
type pair struct {
	f     *Fabric
	peer  []byte                     // its address
	first bool                       // this side begins connections anew
	up    atomic.Pointer[connection] // that fragments may take
	over  atomic.Bool                // the peer has left, or is lost
	count int                        // links; under f.mu
	moved atomic.Int64               // fragments that go again by tcp

	// What follows is the manager's.
	control transport.Link
	links   map[uint32]*link      // that the pair knows of, by their number
	unbound map[sessionKey]*link  // of them: the peer has not opened its end
	opened  map[sessionKey]uint32 // ends that the peer has opened and this side has not
	bound   map[uint32]*link      // by the number at the peer
	trial   *trial                // a connection that is being made
	epoch   uint32                // of the last connection
	again   time.Time             // when the next one is tried
	pause   time.Duration
	tried   bool // the first connection was decided on
	bye     bool // the peer closes its fabric
	hurries bool // the manager is to look again soon
}

// trial is a connection that is being made.
type trial struct {
	way       *connection
	connected bool
	heard     bool // the peer is connected, too
	posted    bool // the write that is the trial
	until     time.Time
}

func newPair(f *Fabric, peer []byte) *pair {
	return &pair{f: f, peer: peer, first: bytes.Compare(f.Address(), peer) < 0, links: map[uint32]*link{},
		unbound: map[sessionKey]*link{}, opened: map[sessionKey]uint32{}, bound: map[uint32]*link{}}
}

func (p *pair) stir() { p.f.manager.stir(p) }

// start opens the session of the pair.
func (p *pair) start() error {
	if p.control != nil {
		return nil
	}
	own := p.f.Address()
	if bytes.Equal(own, p.peer) {
		return fault.New(fault.NotSupported, "the ranks are of one process")
	}
	s := transport.Session{Channels: 1, OnUse: true, Control: func(text []byte) {
		m, err := parse(text)
		p.f.manager.do(func() { p.hear(m, err) })
	}}
	low, high := own, p.peer
	if s.Peer = 1; !p.first {
		low, high, s.Rank, s.Peer = p.peer, own, 1, 0
	}
	h := sha256.New()
	h.Write([]byte("goccl rdma pair"))
	h.Write(low)
	h.Write(high)
	copy(s.ID[:], h.Sum(nil))
	var err error
	p.control, err = p.f.opts.TCP.Connect(context.Background(), p.peer, s)
	return err
}

// say sends a message. If it cannot be sent, the pair goes on by tcp.
func (p *pair) say(m message) {
	if p.control != nil && !p.control.Tell(m.text()) && p.control.Err() == nil {
		p.f.opts.Warn("rdma: too many messages wait for a peer; its links go on by tcp")
		p.abandon(fault.New(fault.System, "messages wait"))
	}
}

// enroll notes a link.
func (p *pair) enroll(l *link) {
	if l.ending == open_ {
		p.links[l.base] = l
		p.unbound[keyOf(&l.spec)] = l
		_ = p.start() // the peer may open its end before, and waits for this session until it leaves; enter looks again
	}
}

// enter opens a link to the peer, now that it has a path.
func (p *pair) enter(l *link) {
	if l.ending != open_ || l.entered {
		return
	}
	l.entered = true
	if err := p.start(); err != nil || p.over.Load() {
		p.decide(err)
		return
	}
	key := keyOf(&l.spec)
	mirrored := key.mirrored()
	p.say(message{Kind: sayOpen, Link: l.base, Session: &mirrored})
	if theirs, ok := p.opened[key]; ok {
		delete(p.opened, key)
		p.bind(l, theirs)
	}
	if p.epoch == 0 {
		p.begin(1)
	}
	if p.tried && p.up.Load() == nil {
		p.stay(l)
	}
}

// stay lets Connect return: fragments begin by tcp.
func (p *pair) stay(l *link) {
	if !l.isReady {
		l.isReady = true
		close(l.ready)
	}
}

// bind notes the peer's number of a link.
func (p *pair) bind(l *link, theirs uint32) {
	delete(p.unbound, keyOf(&l.spec))
	l.theirs.Store(theirs)
	p.bound[theirs] = l
	p.offer(l)
}

// hear handles a message of the peer.
func (p *pair) hear(m *message, err error) {
	if err != nil {
		p.breach(err)
		return
	}
	switch m.Kind {
	case sayHello:
		p.meet(m)
	case sayReady:
		if t := p.trial; t != nil && m.Epoch == p.epoch {
			t.heard = true
		}
	case sayBroken:
		if m.Epoch == p.epoch && (p.trial != nil || p.up.Load() != nil) {
			p.broken(fault.New(fault.System, "the peer says: %s", m.Why))
		}
	case sayBye:
		p.bye = true
	case sayOpen:
		if l := p.unbound[*m.Session]; l != nil {
			p.enter(l) // first: who is offered slots sends, and has to know the number of the link by then
			p.bind(l, m.Link)
		} else if len(p.opened) < mostChannel {
			p.opened[*m.Session] = m.Link
		}
	case sayOffer:
		if l := p.links[m.To]; l != nil && l.ending == open_ && l.theirs.Load() != 0 && m.Epoch == p.epoch {
			p.accept(l, m)
		}
	case sayClose:
		p.closed(m.Link)
	case sayClosed:
		if l := p.links[m.Link]; l != nil && l.ending == leaving {
			p.finish(l)
		}
	}
	p.advance()
}

// breach ends RDMA with a peer that does not keep to the protocol.
func (p *pair) breach(err error) {
	p.f.opts.Warn("%v", err)
	p.abandon(err)
}

// begin makes a queue pair, and says so.
func (p *pair) begin(epoch uint32) {
	p.epoch = epoch
	way, err := p.make()
	if err != nil {
		p.say(message{Kind: sayBroken, Epoch: epoch, Why: err.Error()})
		p.postpone()
		p.decide(err)
		return
	}
	p.trial = &trial{way: way, until: time.Now().Add(p.f.opts.Try)}
	p.f.manager.attends.Add(1)
	a := way.a
	p.say(message{Kind: sayHello, Epoch: epoch, End: &endpoint{Ethernet: a.port.Ethernet, LID: a.port.LID,
		GID: a.place.GID.Value, MTU: a.port.MTU, Pair: way.qp.Number(), Sequence: way.sequence,
		Pool: remotePool{At: a.in.memory.at, Key: a.in.memory.region.Remote(), Slots: a.in.all}}})
}

// make makes a queue pair that is not connected.
func (p *pair) make() (*connection, error) {
	a, err := p.f.adapter()
	if err != nil {
		return nil, err
	}
	table := *a.connections.Load()
	switch {
	case a.failed.Load():
		return nil, fault.New(fault.System, "%s has failed", a.place)
	case len(table) >= a.room:
		return nil, fault.New(fault.System, "%s has room for %d connections", a.place, a.room)
	}
	qp, err := a.context.NewPair(verbs.PairOptions{Completions: a.queue, Receives: a.receives, Posted: posted,
		Inline: inlineBytes})
	if err != nil {
		return nil, err
	}
	way := &connection{pair: p, a: a, qp: qp, inline: min(qp.Inline(), inlineBytes), sequence: rand.Uint32N(1 << 24)}
	a.setConnection(qp.Number(), way)
	return way, nil
}

// meet connects with the queue pair of the peer.
func (p *pair) meet(m *message) {
	if m.Epoch < p.epoch || m.Epoch == p.epoch && p.trial == nil {
		return // that one has failed here already
	}
	if m.Epoch > p.epoch {
		p.drop(fault.New(fault.System, "the peer has begun anew"))
		p.begin(m.Epoch)
	}
	t := p.trial
	if t == nil || t.connected {
		return
	}
	a, end := t.way.a, m.End
	if end.Ethernet != a.port.Ethernet {
		p.broken(fault.New(fault.NotSupported, "one side is InfiniBand, the other one Ethernet"))
		return
	}
	t.way.pool = end.Pool
	err := t.way.qp.Connect(verbs.Connection{Port: a.place.Port.Number, GID: a.place.GID.Index,
		MTU: min(a.port.MTU, end.MTU), Sequence: t.way.sequence,
		Timing: p.f.opts.timing(), Class: p.f.opts.Class, Service: p.f.opts.Service,
		Remote: verbs.Remote{Pair: end.Pair, Sequence: end.Sequence, LID: end.LID, GID: end.GID}})
	if err != nil {
		p.broken(err)
		return
	}
	t.connected = true
	p.say(message{Kind: sayReady, Epoch: p.epoch})
}

// advance does what is due.
func (p *pair) advance() {
	p.hurries = false
	if p.over.Load() {
		p.tidy()
		return
	}
	if p.control != nil && p.control.Err() != nil {
		p.end(fault.New(fault.System, "the peer has left"))
		return
	}
	p.try()
	if way := p.up.Load(); way != nil && !way.works() {
		p.broken(way.broken.Load().err)
	}
	idle := p.trial == nil && p.up.Load() == nil
	if idle && p.first && !p.bye && !p.again.IsZero() && time.Now().After(p.again) {
		p.begin(p.epoch + 1)
	}
	p.tidy()
}

// try goes on with a trial: a write with an immediate, both ways.
func (p *pair) try() {
	t := p.trial
	if t == nil {
		return
	}
	p.hurries = true
	way := t.way
	switch {
	case !way.works():
		p.broken(way.broken.Load().err)
	case time.Now().After(t.until):
		p.broken(fault.New(fault.Timeout, "a write did not arrive within %v", p.f.opts.Try))
	case t.connected && t.heard && !t.posted:
		t.posted = true
		way.claim()
		b := way.a.out.trial()
		way.post(verbs.Write{Tell: true, Complete: true, Immediate: immediate(kindProbe, 0, 0),
			From: [2]verbs.Piece{{At: address(b), Bytes: uint32(len(b)), Key: way.a.out.memory.region.Local()}},
			To:   way.pool.At + uint64(way.pool.Slots)*longBytes, Key: way.pool.Key})
		way.fence(func(complete bool) {
			way.tried.Store(complete)
			p.stir()
		})
	case way.probed.Load() && way.tried.Load():
		p.trial = nil
		p.f.manager.attends.Add(-1)
		p.again, p.pause = time.Time{}, 0
		p.up.Store(way)
		if p.epoch > 1 && p.tried {
			p.f.opts.Info("rdma: %s reaches %s again", way.a.place, p.who())
		}
		p.tried = true
		for _, l := range p.links {
			p.offer(l)
		}
	}
}

// broken leaves a connection that does not work; fragments go by tcp, and a new one is tried.
func (p *pair) broken(err error) {
	p.say(message{Kind: sayBroken, Epoch: p.epoch, Why: err.Error()})
	worked := p.up.Load() != nil
	again := p.drop(err)
	if worked && !p.bye {
		p.f.opts.Warn("rdma: the path to %s has broken, and tcp takes over with %d fragments: %v", p.who(), again, err)
	}
	p.postpone()
	p.decide(err)
}

// postpone has the next connection tried after a pause.
func (p *pair) postpone() {
	p.pause = min(max(2*p.pause, leastPause), mostPause)
	p.again = time.Now().Add(p.pause)
}

// The pauses before a connection is made anew.
const (
	leastPause = 100 * time.Millisecond
	mostPause  = 30 * time.Second
)

// decide lets those go on who wait for the first connection, if there will be none.
func (p *pair) decide(err error) {
	if !p.tried {
		p.tried = true
		p.f.opts.Info("rdma: %s is reached by tcp: %v", p.who(), err)
	}
	for _, l := range p.links {
		p.stay(l)
	}
}

// drop ends the connection that there is, or is being made, and returns how many fragments go by
// tcp now.
func (p *pair) drop(err error) (again int64) {
	p.f.byTCP.Store(true)
	way := p.up.Swap(nil)
	if t := p.trial; t != nil {
		p.trial, way = nil, t.way
		p.f.manager.attends.Add(-1)
	}
	if way == nil {
		return 0
	}
	way.fail(err)
	way.a.poll(true)
	way.a.setConnection(way.qp.Number(), nil)
	if err := way.close(); err != nil {
		p.f.opts.Warn("rdma: a queue pair could not be destroyed: %v", err)
	}
	way.a.poll(true) // the next queue pair may have its number
	for _, l := range p.links {
		for i := range l.channels {
			c := &l.channels[i]
			c.out.leave()
			if q := c.in.Load(); q != nil && q.way == way {
				q.end()
			}
		}
	}
	p.f.opts.Doorbell.Ring()
	return p.moved.Swap(0)
}

// abandon goes on by tcp for good.
func (p *pair) abandon(err error) {
	p.drop(err)
	p.again, p.pause = time.Time{}, 0
	p.decide(err)
}

// end ends everything with a peer that is gone.
func (p *pair) end(err error) {
	if p.over.Swap(true) {
		return
	}
	p.tried = true // nobody needs a line about that
	p.abandon(err)
	if p.control != nil {
		p.control.Close()
	}
	p.tidy()
}

// who names the peer.
func (p *pair) who() string {
	if w, ok := p.control.(transport.Wired); ok {
		if _, to := w.Wire(); to != "" {
			return to
		}
	}
	return "a peer"
}

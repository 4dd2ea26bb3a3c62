package rdma

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strings"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// pair is this process and another one that it has links with. They tell each other what they need
// for connections over a tcp session of their own.
type pair struct {
	f      *Fabric
	peer   []byte                     // its address
	first  bool                       // this side begins connections anew
	used   atomic.Pointer[[]*path]    // none before both sides know the ports of the other one
	closed atomic.Bool                // the peer has left, or is lost
	why    atomic.Pointer[brokenness] // fragments go by tcp; nil while they do not, or it is not known
	count  int                        // links; under f.mu

	origin atomic.Pointer[origin] // the last one that was asked for

	// What follows is the manager's.
	control   transport.Link
	links     map[uint32]*link      // that the pair knows of, by their number
	unbound   map[sessionKey]*link  // of them: the peer has not opened its end
	opened    map[sessionKey]uint32 // ends that the peer has opened and this side has not
	bound     map[uint32]*link      // by the number at the peer
	told      bool                  // the peer knows the ports of this side
	met       bool                  // it is settled which paths there are
	tried     bool                  // a path has worked once, or a line has said that none does
	bye       bool                  // the peer closes its fabric
	retrySoon bool                  // the manager is to look again soon
}

func newPair(f *Fabric, peer []byte) *pair {
	p := &pair{f: f, peer: peer, first: bytes.Compare(f.Address(), peer) < 0, links: map[uint32]*link{},
		unbound: map[sessionKey]*link{}, opened: map[sessionKey]uint32{}, bound: map[uint32]*link{}}
	p.used.Store(&[]*path{})
	return p
}

// paths returns those between this process and the peer.
func (p *pair) paths() []*path { return *p.used.Load() }

// path returns a path by its number, or nil.
func (p *pair) path(number int) *path {
	for _, t := range p.paths() {
		if t.number == number {
			return t
		}
	}
	return nil
}

// origin is what a link's State says of this side.
type origin struct {
	working uint
	tcp     string // what tcp says
	from    string // with the ports of those paths
}

// working returns the paths that work, a bit each.
func (p *pair) working() (all uint) {
	for _, t := range p.paths() {
		if way := t.up.Load(); way != nil && way.works() {
			all |= 1 << t.number
		}
	}
	return all
}

// ports names the ports whose paths work, empty if there is none.
func (p *pair) ports() string { return p.named(p.working()) }

// named names the ports of paths.
func (p *pair) named(of uint) string {
	var all []string
	for _, t := range p.paths() {
		if of>>t.number&1 != 0 {
			all = append(all, t.a.place.String())
		}
	}
	return strings.Join(all, ",")
}

// from puts the ports whose paths work, if any, before what tcp says of this side.
func (p *pair) from(tcp string) string {
	working := p.working()
	if o := p.origin.Load(); o != nil && o.working == working && o.tcp == tcp {
		return o.from
	}
	o := &origin{working, tcp, tcp}
	if ports := p.named(working); ports != "" {
		o.from = ports + " " + tcp
	}
	p.origin.Store(o)
	return o.from
}

// works reports whether there is a connection that fragments may take.
func (p *pair) works() bool {
	for _, t := range p.paths() {
		if t.up.Load() != nil {
			return true
		}
	}
	return false
}

// hopes reports whether there is a path that works, or of which it is not known yet.
func (p *pair) hopes() bool {
	for _, t := range p.paths() {
		if !t.tried || t.up.Load() != nil {
			return true
		}
	}
	return false
}

func (p *pair) schedule() { p.f.manager.schedule(p) }

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

// introduce opens the ports of this process, and tells the peer which there are, once.
func (p *pair) introduce() {
	if p.told {
		return
	}
	p.told = true
	m := message{Kind: sayPorts}
	open, err := p.f.open()
	for _, a := range open {
		m.Ports = append(m.Ports, a.port.Ethernet)
	}
	if err != nil {
		m.Why = err.Error()
		p.met = true
		p.byTCP(err)
	}
	p.say(m)
}

// match settles which paths there are: one for each port that both sides have.
func (p *pair) match(m *message) {
	p.introduce()
	if p.met {
		return // everything goes by tcp
	}
	p.met = true
	err := fault.New(fault.NotSupported, "the peer says: %s", m.Why)
	var all []*path
	own := p.f.adapters()
	for i, a := range own[:min(len(own), len(m.Ports))] {
		if a.port.Ethernet != m.Ports[i] {
			err = fault.New(fault.NotSupported, "one side is InfiniBand, the other one Ethernet")
			p.f.opts.Info("rdma: %s does not reach %s: %v", a.place, p.who(), err)
			continue
		}
		all = append(all, &path{pair: p, number: i, a: a})
	}
	p.used.Store(&all)
	if len(all) == 0 {
		p.byTCP(err)
	} else if len(own) != len(m.Ports) {
		p.f.opts.Info("rdma: paths to %s: %d (ports there: %d, here: %d)", p.who(), len(all), len(m.Ports), len(own))
	}
	for _, t := range all {
		t.begin(1)
	}
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
	if err := p.start(); err != nil || p.closed.Load() {
		p.byTCP(err)
		return
	}
	p.introduce()
	key := keyOf(&l.spec)
	mirrored := key.mirrored()
	p.say(message{Kind: sayOpen, Link: l.base, Session: &mirrored})
	if theirs, ok := p.opened[key]; ok {
		delete(p.opened, key)
		p.bind(l, theirs)
	}
	if p.met && !p.hopes() {
		p.markReady(l)
	}
}

// markReady lets Connect return.
func (p *pair) markReady(l *link) {
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
		p.fail(err)
		return
	}
	switch m.Kind {
	case sayPorts:
		p.match(m)
	case sayHello, sayReady, sayBroken, sayOffer, sayVacate, sayVacated:
		if t := p.path(m.Path); t != nil {
			p.hearOf(t, m)
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
	case sayClose:
		p.peerClosed(m.Link)
	case sayClosed:
		if l := p.links[m.Link]; l != nil && l.ending == leaving {
			p.finish(l)
		}
	}
	p.advance()
}

// hearOf handles a message that is of a path.
func (p *pair) hearOf(t *path, m *message) {
	switch l := p.links[m.To]; {
	case m.Kind == sayHello:
		t.meet(m)
	case m.Epoch != t.epoch || t.way() == nil: // of a connection that was left
	case m.Kind == sayReady:
		if t.trial != nil {
			t.trial.heard = true
		}
	case m.Kind == sayBroken:
		t.broken(fault.New(fault.System, "the peer says: %s", m.Why))
	case l == nil || l.ending != open_ || l.theirs.Load() == 0:
	case m.Kind == sayOffer:
		p.accept(l, t.way(), m)
	case m.Kind == sayVacate:
		p.vacate(l, t.way(), m.Channels)
	case m.Kind == sayVacated:
		p.vacated(l, t.way(), m.Channels)
	}
}

// fail ends RDMA with a peer that does not keep to the protocol.
func (p *pair) fail(err error) {
	p.f.opts.Warn("%v", err)
	p.abandon(err)
}

// advance does what is due.
func (p *pair) advance() {
	p.retrySoon = false
	if p.closed.Load() {
		p.advanceLinks()
		return
	}
	if p.control != nil && p.control.Err() != nil {
		p.end(fault.New(fault.System, "the peer has left"))
		return
	}
	for _, t := range p.paths() {
		t.advance()
	}
	p.advanceLinks()
}

// abandon goes on by tcp for good.
func (p *pair) abandon(err error) {
	for _, t := range p.paths() {
		t.abandon(err)
	}
	p.met = true
	p.byTCP(err)
}

// byTCP lets those go on who wait for a connection, since there is none to wait for.
func (p *pair) byTCP(err error) {
	if err != nil {
		p.why.Store(&brokenness{err})
	}
	if !p.tried {
		p.tried = true
		p.f.opts.Info("rdma: %s is reached by tcp: %v", p.who(), err)
	}
	for _, l := range p.links {
		p.markReady(l)
	}
}

// end ends everything with a peer that is gone.
func (p *pair) end(err error) {
	if p.closed.Swap(true) {
		return
	}
	p.tried = true // nobody needs a line about that
	p.abandon(err)
	if p.control != nil {
		p.control.Close()
	}
	p.advanceLinks()
}

// who names the peer.
func (p *pair) who() string {
	if p.control != nil {
		if to := p.control.State().To; to != "" {
			return to
		}
	}
	return "a peer"
}

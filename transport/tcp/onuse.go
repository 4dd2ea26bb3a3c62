package tcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// mostDialing is the number of pairs that a process dials for the first time at the same time.
const mostDialing = 64

// mostLeft bounds what a pair remembers of the sessions that one side left before the other had
// opened them.
const mostLeft = 1024

// onUse begins a session without the peer (Session.OnUse). Where the pair has a socket, the session
// opens at once; otherwise when it is needed.
func (p *pair) onUse(spec transport.Session) (*session, error) {
	p.used.Store(true) // from here on the peer may dial at any time
	s, err := p.start(spec)
	if err == nil && p.live.Load() != nil && !s.removed.Load() {
		p.enqueue(&s.node)
	}
	return s, err
}

// Open implements transport.Link.
func (s *session) Open() bool {
	if s.ready.Load() || s.ended() {
		return true
	}
	if s.pair.live.Load() == nil {
		s.pair.want()
	}
	return false
}

// want has a socket made, unless somebody makes one or nobody needs it.
func (p *pair) want() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits() {
		p.dialFirst()
	}
}

// dialFirst has the first socket made, unless there is one or somebody makes it. p.mu is held.
func (p *pair) dialFirst() {
	if p.live.Load() == nil && !p.dialing && p.healing == nil {
		p.dialing = p.f.task(p.first)
	}
}

// waits reports whether a session may wait for the first socket. p.mu is held.
func (p *pair) waits() bool {
	for s := range p.sessions {
		if s.spec.OnUse && s.err.Load() == nil && (!s.closing.Load() || s.unsent()) {
			return true
		}
	}
	return false
}

// unsent reports whether fragments or control messages wait for the peer to open the session.
func (s *session) unsent() bool {
	return s.spec.OnUse && !s.ready.Load() && s.err.Load() == nil && (!s.drained() || s.spoke.Load())
}

// first dials until the pair has a socket, made by this side or by the other, or is lost. Either
// side dials first; where both do at once, the smaller id's is taken (takes). A peer that keeps
// connections without an answer is there: it has not called Connect yet, or was stopped. One that
// ends them at once may be a proxy of a process that is gone.
func (p *pair) first() {
	f := p.f
	defer func() {
		p.mu.Lock()
		p.dialing = false
		p.broadcast()
		p.mu.Unlock()
	}()
	select {
	case f.dials <- struct{}{}:
		defer func() { <-f.dials }()
	case <-f.ctx.Done():
		return
	}
	var last error
	begun := time.Now()
	heard := begun
	for pause := 2 * time.Millisecond; f.ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		wires, refused := p.routes(f.ctx), 0
		for _, w := range wires {
			if p.live.Load() != nil || f.ctx.Err() != nil {
				return
			}
			tried := time.Now()
			err := p.dialOne(f.ctx, w, helloFirst, nonce{})
			switch {
			case err == nil:
				return
			case errors.Is(err, syscall.ECONNREFUSED):
				refused++
			case !dialing(err) && time.Since(tried) >= f.opts.HandshakeTimeout/2:
				heard = time.Now()
			}
			last = fmt.Errorf("%v: %w", w.to.addrPort(), err)
		}
		if p.isGone(refused > 0 && refused == len(wires), begun) || time.Since(heard) > f.opts.PeerTimeout {
			p.unreachable(last)
			return
		}
		waits(f.ctx, pause+time.Duration(rand.Int64N(int64(pause))))
	}
}

// dialing reports whether an attempt ended before there was a connection.
func dialing(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// unreachable ends the sessions of a pair that has got no first socket, unless there is one by now.
func (p *pair) unreachable(last error) {
	p.attaching.Lock()
	defer p.attaching.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live.Load() != nil {
		return
	}
	p.lose(func(peer int) *fault.Error { return p.noFirst(peer, last) })
}

// noFirst returns the error of a session for which no socket could be made.
func (p *pair) noFirst(peer int, last error) *fault.Error {
	if p.f.stopped() {
		return errFabricClosed
	}
	who, refused := p.peer.who(), errors.Is(last, syscall.ECONNREFUSED)
	text := fmt.Sprintf("cannot connect to %s for %v; it may be behind a firewall, or its host down", who,
		p.f.opts.PeerTimeout)
	switch {
	case refused && p.admits():
		text = who + " refuses connections; its process may have ended, or have given up"
	case refused:
		text = fmt.Sprintf("%s has refused connections for %v; its process may have ended, or a firewall refuse them",
			who, p.f.opts.PeerTimeout)
	}
	e := fault.Peer(fault.PeerLost, peer, "tcp: %s", text)
	e.Cause, e.Silent, e.Dead = last, !refused, refused && p.near()
	return e
}

// expect has the fabric's goroutine read, although perhaps no thread polls, until the peer has
// opened a session for which fragments wait. The writing lock is held.
func (s *session) expect(c *conn) {
	if !s.expecting.Swap(true) {
		s.pair.background.Add(1)
	}
	if s.ready.Load() || s.removed.Load() {
		s.expected()
		return
	}
	c.rearm()
}

// expected undoes expect.
func (s *session) expected() {
	if s.expecting.Swap(false) {
		s.pair.background.Add(-1)
	}
}

// wake queues what a session may send now that the peer has opened it.
func (s *session) wake() {
	for i := range s.channels {
		if q := &s.channels[i].out; q.started.Load() != q.committed.Load() {
			s.pair.push(&s.channels[i].node)
		}
	}
	s.pair.push(&s.node)
}

// departure is a session that this side has left before the peer opened it.
type departure struct {
	spec transport.Session
	why  *[]byte // what the goodbye is to say; nil for nothing
}

// noteDeparture remembers that this side has left a session that the peer may still open: one that
// opens on use, or was given up for a reason. p.mu is held.
func (p *pair) noteDeparture(s *session) {
	why := s.why.Load()
	if !s.spec.OnUse && why == nil || s.answered || p.f.stopped() {
		return
	}
	if len(p.departed) >= mostLeft {
		for key := range p.departed {
			delete(p.departed, key)
			break
		}
	}
	spec := s.spec
	spec.Window, spec.Control, spec.OnUse = nil, nil, true
	p.departed[s.key()] = departure{spec, why}
}

// near reports whether the peer is on this host, so that no firewall between the two refuses
// connections: nobody listens.
func (p *pair) near() bool { return p.peer.host == p.f.self.host }

// giveUpFirst ends a session for which there was no socket. A peer that comes late learns why: this
// side goes on dialling for that.
func (p *pair) giveUpFirst(s *session, why []byte) {
	if len(why) > 0 {
		p.used.Store(true)
	}
	s.Leave(why)
	if len(why) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialFirst()
}

// bid opens a session that this side has left, in order to close it: the peer learns that nobody is
// there, and why. p.mu is held.
func (p *pair) bid(d departure, in *incoming) {
	s := newSession(p, d.spec)
	s.why.Store(d.why)
	s.closing.Store(true)
	s.answered = true
	p.sessions[s] = true
	s.pending(true)
	p.match(s, in)
}

// task runs fn as one of the fabric's goroutines, unless the fabric is closing.
func (f *Fabric) task(fn func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false
	}
	f.tasks.Go(fn)
	return true
}

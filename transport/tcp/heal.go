package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// healing describes a pair whose socket has broken while sessions need it.
type healing struct {
	cause  error
	where  string // the socket that broke
	host   netip.Addr
	broken nonce
	since  time.Time
	ctx    context.Context // ends when the pair is open again, or lost
	end    context.CancelFunc
}

// silent reports whether the socket broke since nobody answered.
func (h *healing) silent() bool {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN} {
		if errors.Is(h.cause, e) {
			return true
		}
	}
	return false
}

// errReplaced ends a socket when another one is attached.
var errReplaced = errors.New("the peer lost the connection and made a new one")

var errOutdated = errors.New("the pair was lost during the handshake, or another connection was made")

// errCorrupt ends a socket over which a fragment with a wrong checksum has arrived. The next socket
// brings it again.
var errCorrupt = errors.New("a fragment arrived with a wrong checksum")

// protocolError reports a frame that the peer must not send.
type protocolError struct{ text string }

func (v *protocolError) Error() string { return v.text }

func protocolErrorf(format string, a ...any) error { return &protocolError{fmt.Sprintf(format, a...)} }

// broken is called when a socket has ended. If sessions still need it, a new one is made; otherwise
// the pair is unopened again.
func (p *pair) broken(c *conn, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.control.socket; k != nil && k.conn == c {
		p.control.socket = nil
		k.close()
	}
	if !p.live.CompareAndSwap(c, nil) || errors.Is(cause, errReplaced) {
		return
	}
	switch {
	case p.spoilt != nil: // the peer has hung up, since it knows that, or it cannot be told
		cause = p.spoilt
	case errors.Is(cause, errCorrupt):
		over := p.changes.add(p.f.now(), p.arrivals())
		cause = fmt.Errorf("%w, %s", errCorrupt, p.changes.rate())
		if over {
			p.spoilt = fault.New(fault.Internal, "tcp: %d fragments arrived over %s with a wrong checksum, %s; "+
				"something on the path from %v to this process changes data", p.changes.total, c.path(),
				p.changes.why(), c.who)
		}
	}
	heals := mends(cause)
	if heals && !p.needed() {
		p.rest()
		return
	}
	if !heals || !p.heal(c, cause) {
		p.lose(func(peer int) *fault.Error { return c.reason(peer, cause) })
	}
}

// rest makes the pair unopened, without losing anything: no session of this side needs a socket
// now, but the other side may make one. p.mu is held.
func (p *pair) rest() {
	p.spoilt = nil
	for s := range p.sessions {
		if s.standing().settled() {
			p.remove(s)
		}
	}
	p.broadcast()
}

// mends reports whether a new socket can help.
func mends(cause error) bool {
	var v *protocolError
	var e *fault.Error
	return !errors.As(cause, &v) && !errors.As(cause, &e)
}

// needed reports whether a session would miss something if the pair ended. p.mu is held.
func (p *pair) needed() bool {
	if p.owesControl() {
		return true
	}
	for s := range p.sessions {
		if s.standing().misses() {
			return true
		}
	}
	return false
}

// heal begins to make a new socket, unless the fabric has closed. While it is closing, goodbyes may
// still have to be said. p.mu is held.
func (p *pair) heal(c *conn, cause error) bool {
	h := &healing{cause: cause, where: c.where(), broken: c.nonce, since: time.Now()}
	if at, err := netip.ParseAddrPort(c.main.remote); err == nil {
		h.host = at.Addr().Unmap()
	}
	if errors.Is(h.cause, syscall.ETIMEDOUT) {
		// An idle connection broke somewhen between the last answer and the first probe.
		silent := max(p.f.opts.silence(), unheard(c.main.fd)-probeIdle/2)
		h.since = h.since.Add(-min(silent, p.f.opts.PeerTimeout-p.f.opts.silence()))
	}
	h.ctx, h.end = context.WithDeadline(p.f.ctx, h.since.Add(p.f.opts.PeerTimeout))
	if !p.f.task(func() { p.redial(h) }) {
		h.end()
		return false
	}
	p.healing = h
	p.broadcast()
	return true
}

// redial dials until the pair is open again, by this side or by the other, or is lost.
func (p *pair) redial(h *healing) {
	defer h.end()
	var last error
	var since time.Time // the first refusal
	targets := p.known()
	round := 0
	for pause := 2 * time.Millisecond; h.ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		refused := 0
		limit := p.attempt(round)
		for _, to := range targets {
			ctx, cancel := context.WithTimeout(h.ctx, limit)
			err := p.dialOne(ctx, to, helloAgain, h.broken)
			cancel()
			if err == nil {
				return
			}
			if h.ctx.Err() != nil {
				break
			}
			last = fmt.Errorf("%v: %w", to.to.addrPort(), err)
			if errors.Is(err, syscall.ECONNREFUSED) {
				if refused++; since.IsZero() {
					since = time.Now()
				}
				r := refusal{all: refused == len(targets), there: to.to.prefix.Addr() == h.host, open: p.admits(),
					cut: h.silent(), long: time.Since(since) >= p.tolerance()}
				if r.dead() {
					p.giveUp(h, last)
					return
				}
			}
		}
		waits(h.ctx, pause+time.Duration(rand.Int64N(int64(pause))))
		round++
	}
	p.giveUp(h, last)
}

// The limits of attempts to redial.
const (
	shortAttempt = 125 * time.Millisecond
	tripsAttempt = 8 // round trips of a handshake, with TLS, and some patience
)

// attempt returns how long each address is tried in a round of redialling. A path that comes back
// for a moment only is missed while an attempt waits whose first packet was lost: the kernel
// repeats it after a second. So there are short attempts, and since the peer may be slow, long ones
// between them, which become longer.
func (p *pair) attempt(round int) time.Duration {
	p.mu.Lock()
	limit := max(shortAttempt, tripsAttempt*p.trip)
	p.mu.Unlock()
	for range round%3 + round/3 {
		limit *= 2
	}
	return min(limit, p.f.opts.DialTimeout+p.f.opts.HandshakeTimeout)
}

// refusalSpan is how long a peer that only dials itself, since a firewall refuses what this side
// dials, has to make a new connection.
const refusalSpan = 500 * time.Millisecond

// tolerance returns that, or more where round trips are long.
func (p *pair) tolerance() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(refusalSpan, tripsAttempt*p.trip)
}

// admits reports whether only the peer itself can refuse connections of this side.
func (p *pair) admits() bool { return p.peer.host == p.f.self.host || p.reached.Load() }

// waits waits for d, or until ctx ends.
func waits(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// giveUp ends healing without a new socket, unless there is one by now.
func (p *pair) giveUp(h *healing, last error) {
	p.attaching.Lock() // a socket that is being attached counts
	defer p.attaching.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healing != h {
		return
	}
	p.lose(func(peer int) *fault.Error {
		if p.f.stopped() {
			return errFabricClosed
		}
		e := reason(peer, h.where, h.cause, p.f.opts.PeerTimeout)
		e.Silent = h.silent()
		switch {
		case errors.Is(last, syscall.ECONNREFUSED):
			e.Silent, e.Dead = false, p.near()
			e.Text += "; it refuses new connections"
		case last != nil:
			e.Text += fmt.Sprintf("; no new connection for %v: %v", time.Since(h.since).Round(time.Millisecond), last)
		}
		return e
	})
}

// lose ends all sessions, except those that the peer has not announced yet and whose Connects go
// on. p.mu is held.
func (p *pair) lose(why func(peer int) *fault.Error) {
	if spoilt := p.spoilt; spoilt != nil {
		why = func(peer int) *fault.Error {
			e := *spoilt
			e.Peer = peer
			return &e
		}
		p.spoilt, p.changes = nil, changes{}
	}
	for s := range p.sessions {
		if s.standing().falls() {
			s.fail(why(s.spec.Peer))
			p.remove(s)
		}
	}
	p.untell(func(s *session) bool { return s.removed.Load() })
	clear(p.inbounds)
	p.farewells = nil
	p.epoch, p.healing = newEpoch(), nil
	p.broadcast()
	p.f.doorbell.Ring()
}

// remove takes a session out of the table. p.mu is held.
func (p *pair) remove(s *session) {
	s.removed.Store(true)
	s.pending(false)
	s.expected()
	if p.waiting[s.key()] == s {
		delete(p.waiting, s.key())
	}
	p.noteDeparture(s)
	p.refund(s)
	delete(p.sessions, s)
	if p.control.hears[s.theirs] == s {
		delete(p.control.hears, s.theirs)
	}
	if !s.speaks() {
		p.untell(func(silent *session) bool { return silent == s })
	}
	if s.openSent {
		delete(p.indexed, s.index)
	}
}

// unindex makes the next open frame of a session its first one. No thread writes, and p.mu is held.
func (p *pair) unindex(s *session) {
	if s.openSent {
		s.openSent = false
		s.known.Store(false)
		delete(p.indexed, s.index)
	}
}

// attach makes c, which a handshake has yielded, the socket of the pair, after the one before has
// come to its end.
func (p *pair) attach(c *conn, g *greeting) error {
	p.attaching.Lock()
	defer p.attaching.Unlock()
	epochs := g.epochs
	if p.currentEpoch() != epochs[0] || g.span.outdated(p.newest) {
		return errOutdated
	}
	p.newest = g.span.ended
	if old := p.last; old != nil {
		old.fail(errReplaced)
		<-old.reaped // from here on no thread reads or writes for this pair
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch != epochs[0] { // the pair was lost meanwhile
		return errOutdated
	}
	if epochs != p.attached {
		p.attached = epochs
		p.forget(c)
	}
	c.main.writer.rest = p.resumption()
	c.check()
	if c.healed = p.healing; c.healed == nil && p.last != nil {
		c.healed = p.last.healed // both sides have dialled, and it was replaced before the peer answered
	}
	c.unresumed.Store(true)
	p.background.Add(1)
	if err := p.f.watch(c.main); err != nil {
		c.settled()
		if p.healing == nil {
			p.lose(func(peer int) *fault.Error { return c.reason(peer, err) })
		}
		return err
	}
	if p.spoilt != nil { // the peer hangs up when it has read that
		time.AfterFunc(spoiltSpan, func() { c.fail(io.EOF) })
	}
	p.last = c
	p.trip, _ = p.f.trips(c.main.fd, &c.info)
	p.longest.Store(longestPayload(segment(c.main.fd), c.main.secure != nil))
	p.used.Store(true)
	p.live.Store(c)
	if p.healing != nil {
		p.healing.end()
		p.healing = nil
	}
	p.broadcast()
	return nil
}

// forget removes what this side and the peer do not both remember. No socket is live, and p.mu is
// held.
func (p *pair) forget(c *conn) {
	for s := range p.sessions {
		if s.standing().outlived() {
			s.fail(fault.Peer(fault.PeerLost, s.spec.Peer,
				"tcp: %s has given up this group, after the connection broke", c.where()))
			p.remove(s)
			continue
		}
		p.unindex(s)
	}
	clear(p.incoming)
	clear(p.inbounds)
	p.opens, p.parting, p.farewells = 0, 0, nil
	p.untell(func(s *session) bool { return s.removed.Load() })
	p.control.told.Reset()
	p.control.heard = 0
	clear(p.control.hears)
}

// resumption returns the frames that tell the peer what has arrived here. No socket is live, and
// p.mu is held.
func (p *pair) resumption() []byte {
	var frames []byte
	add := func(h header, counts []uint32) {
		h.length = uint32(4 * len(counts))
		at := len(frames)
		frames = append(frames, make([]byte, headerBytes+4*len(counts))...)
		h.put(frames[at:])
		for i, n := range counts {
			binary.LittleEndian.PutUint32(frames[at+headerBytes+4*i:], n)
		}
		if p.f.opts.Checksum {
			seal(frames[at:])
		}
	}
	for index, in := range p.incoming {
		var counts []uint32
		if s := in.session.Load(); s != nil {
			for i := range s.channels {
				counts = append(counts, s.channels[i].in.unbroken())
			}
		}
		add(header{kind: kindArrived, session: index}, counts)
	}
	end := header{kind: kindResume, number: p.opens}
	if p.spoilt != nil {
		end.session = uint32(p.changes.total)
	}
	add(end, nil)
	return frames
}

// spoiltSpan is how long a peer has to hang up when it was told that the path is given up.
const spoiltSpan = time.Second

// arrivals returns a number that changes when fragments arrive. p.mu is held.
func (p *pair) arrivals() (n uint32) {
	for s := range p.sessions {
		for i := range s.channels {
			n += s.channels[i].in.arrived.Load()
		}
	}
	return n
}

// resume handles the end of the peer's resumption: what has not arrived there is sent again. The
// reading lock is held, and the writer waits for unresumed. If wrong is not 0, the peer has given
// up the path, since it has changed that many fragments.
func (p *pair) resume(c *conn, opens, wrong uint32, arrived map[uint32][]uint32) error {
	p.mu.Lock()
	spoilt := p.spoilt != nil
	p.mu.Unlock()
	if wrong != 0 {
		return fault.New(fault.Internal, "tcp: %d fragments of this process arrived with a wrong checksum at %s, "+
			"which has given up the path; something on it changes data", wrong, c.where())
	}
	if spoilt { // nothing more is sent
		return nil
	}
	if err := p.stalls(c, arrived); err != nil {
		return err
	}
	again, err := p.rewind(opens, arrived, c.healed)
	if err != nil {
		return err
	}
	c.settled()
	p.mu.Lock()
	p.tells()
	p.mu.Unlock()
	c.check()
	if h := c.healed; h != nil {
		c.healed = nil
		p.f.opts.Warn("tcp: the connection to %s broke (%v); a new one to %s carries on after %v; %d fragments were sent again",
			h.where, h.cause, c.main.remote, time.Since(h.since).Round(100*time.Microsecond), again)
	}
	return nil
}

// errLarge ends a connection that is to be made again with smaller segments.
type errLarge struct {
	bytes int
	path  string
}

func (e *errLarge) Error() string {
	return fmt.Sprintf("large packets are lost between %s, so the MTU of an interface is too large for the path; "+
		"segments have %d bytes from now on", e.path, e.bytes)
}

// stalls looks at what has arrived at the peer when a connection was made in place of one that had
// broken. Small packets have passed, or there would be no connection: if nothing has come of what
// was sent over the former one until it was given up, large ones may get lost. A path that brings
// nothing is given up after Options.PeerTimeout, however often it is connected.
func (p *pair) stalls(c *conn, arrived map[uint32][]uint32) error {
	h, since := c.healed, p.lacking(arrived)
	if h == nil || since.IsZero() {
		return nil
	}
	lasts := p.f.now().Sub(since)
	if lasts >= p.f.opts.PeerTimeout {
		e := fault.Peer(fault.PeerLost, fault.NoPeer, "tcp: %s takes connections, but nothing that was sent has arrived there "+
			"for %v; the path loses packets, large ones perhaps (MTU)", c.where(), lasts.Round(time.Millisecond))
		e.Cause, e.Silent = h.cause, true
		return e
	}
	limit := p.f.limitTo(p.peer)
	if !errors.Is(h.cause, syscall.ETIMEDOUT) || int(limit)+1 == len(segments) {
		return nil
	}
	p.f.limit(p.peer, limit+1)
	return &errLarge{segments[limit+1], c.path()}
}

// lacking returns since when the peer has lacked a fragment that was sent at least twice, zero if
// it lacks none.
func (p *pair) lacking(arrived map[uint32][]uint32) (since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		if !s.openSent {
			continue
		}
		counts := arrived[s.index]
		for i := range min(len(counts), len(s.channels)) {
			q := &s.channels[i].out
			x := &q.stuck
			if !stays(x.lacks, x.next, counts[i], q.started.Load()-counts[i]) {
				continue
			}
			if since.IsZero() || x.since.Before(since) {
				since = x.since
			}
		}
	}
	return since
}

// limitTo returns the limit of segments to a host, as an index of segments.
func (f *Fabric) limitTo(peer *address) uint8 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limits[peer.host]
}

// limit lowers the limit of segments to a host.
func (f *Fabric) limit(peer *address, to uint8) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if to > f.limits[peer.host] {
		f.limits[peer.host] = min(to, uint8(len(segments)-1))
	}
}

// rewind has what has not arrived sent again, and returns how many fragments that is. h is what
// broke before.
func (p *pair) rewind(opens uint32, arrived map[uint32][]uint32, h *healing) (again int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	broke := time.Now()
	if h != nil {
		broke = h.since
	}
	for s := range p.sessions {
		counts, listed := []uint32(nil), false
		if s.openSent {
			counts, listed = arrived[s.index]
		}
		switch s.standing().after(s.index, opens, listed, s.byeSent) {
		case opensAnew:
			p.unindex(s)
			counts = nil
		case isLeft:
			p.remove(s)
			continue
		case isMissing:
			return 0, protocolErrorf("session %d was forgotten", s.index)
		}
		s.byeSent = false
		for i := range s.channels {
			ch := &s.channels[i]
			n := uint32(0)
			if i < len(counts) {
				n = counts[i]
			}
			lost, possible := ch.out.resume(n)
			if !possible {
				return 0, protocolErrorf("%d fragments of channel %d have arrived, of %d", n, i, ch.out.started.Load())
			}
			again += int(lost)
			ch.out.stuck.resumed(n, lost, broke)
			ch.in.due.Store(ch.in.released.Load() > 0 || ch.in.scale.Load() > 0)
			p.push(&ch.node)
		}
		s.pending(s.closing.Load())
		p.push(&s.node)
	}
	p.push(&p.node)
	// Of sessions that have ended here before the peer knew of them it will never know.
	p.untell(func(s *session) bool { return s.removed.Load() && s.index >= opens })
	return again, nil
}

package tcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// pairKey identifies a peer process and the role of this process. The side with the smaller id
// dials. A process that is linked with itself has both roles; there the smaller rank dials.
type pairKey struct {
	id     [16]byte
	accept bool
}

func keyOf(self, peer *address, s *transport.Session) pairKey {
	order := bytes.Compare(self.id[:], peer.id[:])
	return pairKey{peer.id, order > 0 || order == 0 && s.Rank > s.Peer}
}

// pair is the path to one peer process: the sessions with it, and the connection that carries their
// frames. It is unopened at first, and again once it is lost; open while it has a connection; and
// healing while that has broken and a new one is being made.
type pair struct {
	f       *Fabric
	key     pairKey
	peer    *address
	binding [32]byte // binds the proofs of sessions to the two processes
	users   int      // Connects in flight; guarded by Fabric.mu

	live       atomic.Pointer[conn]
	ready      atomic.Pointer[node] // those with something to write, newest first
	background atomic.Int32         // reasons to go on while no thread polls
	longest    atomic.Uint32        // payload of a fragment (longestPayload)
	used       atomic.Bool          // it has had a socket, or the peer may make one: the pair stays in the table
	reached    atomic.Bool          // this side has dialled the peer, and it has answered
	finishing  atomic.Bool          // the fabric is closing: end this side's direction after all goodbyes

	// Guarded by the writing lock of the live connection.
	head, tail *node // taken from ready, oldest first

	// Guarded by the reading lock of the live connection.
	incoming map[uint32]*incoming // by the peer's index
	opens    uint32               // an index from here on is new; changes under mu too
	parting  int                  // sessions whose goodbye has come before all their fragments

	hearing   sync.Mutex // one handler of control messages at a time runs
	attaching sync.Mutex // one socket at a time becomes the live one
	last      *conn      // guarded by attaching
	newest    uint64     // when the handshake of that one ended; guarded by attaching

	mu        sync.Mutex
	crossing  crossing
	changed   chan struct{} // closed and replaced when live, dialing, healing or opens changes
	dialing   bool
	healing   *healing
	epoch     epoch        // another one each time the pair is lost
	attached  [2]epoch     // of this side and of the peer, when the last socket was attached
	changes   changes      // fragments with a wrong checksum
	spoilt    *fault.Error // why the path is given up for them, until the pair is lost
	next      uint32       // index of the next session of this side
	sessions  map[*session]bool
	indexed   map[uint32]*session      // those with an index
	waiting   map[sessionKey]*session  // not announced by the peer yet
	inbounds  map[sessionKey]*incoming // announced by the peer, but Connect was not called
	departed  map[sessionKey]departure // left by this side before the peer opened them
	parted    map[sessionKey]*incoming // left by the peer, for a reason, before Connect was called
	farewells []uint32                 // goodbyes to be answered, by the peer's index
	node      node                     // for the farewells
	spent     [2]int64                 // what the sessions have spent
	trip      time.Duration            // the shortest round trip when the last socket was attached
	control   controls
}

// epoch is a random number that stands for what both sides remember of their sessions. Where one
// side has lost the pair, the other one forgets its sessions at the next handshake.
type epoch [8]byte

func newEpoch() (e epoch) {
	rand.Read(e[:])
	return e
}

// incoming is a session that the peer has announced.
type incoming struct {
	opening   opening
	index     uint32
	session   atomic.Pointer[session]
	parting   bool   // its goodbye has come, but not all its fragments; guarded by the reading lock
	fragments uint32 // how many there are
	why       []byte // what the goodbye said; guarded by the reading lock
}

func newPair(f *Fabric, key pairKey, peer *address) *pair {
	p := &pair{f: f, key: key, peer: peer, binding: pairBinding(f.self, peer), incoming: map[uint32]*incoming{},
		changed: make(chan struct{}), sessions: map[*session]bool{}, indexed: map[uint32]*session{},
		waiting:  map[sessionKey]*session{},
		inbounds: map[sessionKey]*incoming{}, departed: map[sessionKey]departure{}, parted: map[sessionKey]*incoming{},
		epoch: newEpoch()}
	p.node.pair = p
	p.control.hears = map[uint32]*session{}
	p.longest.Store(maxPayload)
	return p
}

// connect opens a session, over a new socket if necessary.
func (p *pair) connect(ctx context.Context, spec transport.Session) (*session, error) {
	s, err := p.start(spec)
	if err != nil || s.removed.Load() {
		return s, err
	}
	p.background.Add(1)
	defer p.background.Add(-1)
	for {
		c, err := p.connection(ctx, spec.Peer)
		if err != nil {
			p.giveUpFirst(s, transport.Why(ctx))
			return nil, err
		}
		p.enqueue(&s.node)
		c.main.progress()
		c.rearm()
		select {
		case <-s.opened:
		case <-c.gone:
		case <-p.f.stopping:
		case <-ctx.Done():
		}
		p.mu.Lock()
		announced := s.announced
		p.mu.Unlock()
		switch e := s.err.Load(); {
		case announced && (e == nil || !errors.Is(e, fault.Mismatch)):
			return s, nil // even if the peer has left already: it may have sent something before
		case announced:
			s.Close()
			return nil, e
		case p.f.stopped():
			s.Close()
			return nil, errFabricClosed
		case ctx.Err() != nil:
			s.Leave(transport.Why(ctx))
			return nil, contextFault(ctx, spec.Peer, fmt.Sprintf(
				"connected to %s, which has not come to make this group yet", c.where()))
		}
		// The peer had a reason to end the connection, such as a deadline of its own or a restart.
		// Give it some time.
		if !sleep(ctx, p.f, 20*time.Millisecond) {
			s.Close()
			return nil, p.missing(ctx, spec.Peer, "the connection to "+c.where()+" ended before this group was made")
		}
	}
}

// sleep waits for d. It reports false if ctx or the fabric ends first.
func sleep(ctx context.Context, f *Fabric, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
	case <-f.stopping:
	}
	return false
}

func (p *pair) missing(ctx context.Context, rank int, what string) error {
	if p.f.stopped() {
		return errFabricClosed
	}
	return contextFault(ctx, rank, what)
}

// contextFault returns the error of a Connect whose context ended.
func contextFault(ctx context.Context, rank int, what string) error {
	code := fault.Timeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = fault.Aborted
	}
	e := fault.Peer(code, rank, "tcp: %s", what)
	e.Cause = ctx.Err()
	return e
}

// turn is how long the side with the larger id waits to be dialled before it dials, too: the peer
// may be behind a firewall that lets only one of them through.
const turn = time.Second

// connection returns the live socket. If there is none it dials or waits for the peer to dial.
func (p *pair) connection(ctx context.Context, rank int) (*conn, error) {
	dials := !p.key.accept
	wait := time.NewTimer(turn)
	defer wait.Stop()
	for {
		if err := p.f.lack.Load().Fault("tcp: this process cannot take connections"); err != nil {
			return nil, err
		}
		p.mu.Lock()
		if c := p.live.Load(); c != nil {
			p.mu.Unlock()
			return c, nil
		}
		dial := dials && !p.dialing && p.healing == nil
		p.dialing = p.dialing || dial
		changed := p.changed
		p.mu.Unlock()
		if dial {
			err := p.dial(ctx, rank)
			p.mu.Lock()
			p.dialing = false
			p.broadcast()
			p.mu.Unlock()
			if err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err := p.refusesStill(ctx); err != nil { // which counts, although nobody waits for it any more
				return nil, p.noFirst(rank, err)
			}
			return nil, p.missing(ctx, rank, fmt.Sprintf(
				"no connection from %s to this process at %s; "+
					"it may not have come to make the group, or cannot reach these addresses (firewall, GOCCL_SOCKET_IFNAME)",
				p.peer.who(), list(p.f.self.endpoints)))
		case <-p.f.stopping:
			return nil, errFabricClosed
		case <-wait.C:
			dials = true
		case <-time.After(probePeriod):
			if err := p.refuses(ctx); err != nil {
				return nil, p.noFirst(rank, err)
			}
		}
	}
}

// probePeriod is how often the side that waits to be dialled checks whether the other still lives.
const probePeriod = 300 * time.Millisecond

// lastLook is how long the last such check may take. The kernel of this host answers at once, but a
// machine with more work than processors may need a while to hear it.
const lastLook = 2 * time.Second

// refuses returns an error if the process that has to dial this one refuses connections itself at
// all its addresses: it has ended. That of another host is not asked, since firewalls refuse, too.
func (p *pair) refuses(ctx context.Context) (refused error) {
	if !p.near() {
		return nil
	}
	for _, w := range wires(p.f.self, p.peer) {
		nc, err := p.f.dial(ctx, w, p.peer)
		if err == nil {
			nc.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		refused = err
	}
	return refused
}

// refusesStill is refuses after an attempt to connect has ended for want of time, or since others
// have failed. Who has cancelled it is told so.
func (p *pair) refusesStill(ended context.Context) error {
	if context.Cause(ended) == context.Canceled {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.f.ctx, lastLook)
	defer cancel()
	return p.refuses(ctx)
}

// broadcast wakes the threads that wait for changed. p.mu is held.
func (p *pair) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// dial tries the peer's addresses, nearest first, repeatedly until there is a connection, ctx ends,
// or the peer is found to be gone.
func (p *pair) dial(ctx context.Context, rank int) error {
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.f.ctx, cancel)()
	p.f.task(func() {
		p.whileClosed(ctx)
		cancel() // the peer may connect while this side waits for an address that does not answer
	})
	failures := map[netip.AddrPort]string{}
	var short *transport.Lack
	begun := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		wires, refused := p.routes(ctx), 0
		for _, w := range wires {
			err := p.dialOne(ctx, w, helloFirst, nonce{})
			if err == nil || p.live.Load() != nil {
				return nil
			}
			if errors.Is(err, errTaken) {
				sleep(ctx, p.f, pause)
				return nil // the caller looks again
			}
			if errors.Is(err, syscall.ECONNREFUSED) {
				refused++
			}
			if p.isGone(refused == len(wires), begun) {
				return p.noFirst(rank, fmt.Errorf("%v: %w", w.to.addrPort(), err))
			}
			short = short.Again(err)
			if lacking := short.Fault("tcp: this process cannot connect"); lacking != nil {
				return lacking
			}
			// An attempt that ends with ctx says less than an answer before it.
			var op net.Error
			late := ctx.Err() != nil || errors.As(err, &op) && op.Timeout()
			if at := w.to.addrPort(); !late || failures[at] == "" {
				failures[at] = fmt.Sprintf("%v: %v", at, err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		if !sleep(ctx, p.f, pause) {
			if caller.Err() == nil && !p.f.stopped() {
				return nil // there is a connection, or was one: the caller looks again
			}
			if err := p.refusesStill(caller); err != nil {
				return p.noFirst(rank, err)
			}
			return p.missing(ctx, rank, fmt.Sprintf(
				"cannot connect to %s, and it has not connected to this process at %s; it may be gone, not have come to "+
					"make the group, or be behind a firewall: %s", p.peer.who(), list(p.f.self.endpoints),
				strings.Join(slices.Sorted(maps.Values(failures)), "; ")))
		}
	}
}

// whileClosed waits until the pair has a connection, or ctx ends.
func (p *pair) whileClosed(ctx context.Context) {
	for {
		p.mu.Lock()
		live, changed := p.live.Load() != nil, p.changed
		p.mu.Unlock()
		if live {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// isGone reports whether a peer that this side has dialled since begun, without a connection by
// either of the two, is gone. all is whether it has just refused at all its addresses. A fabric
// that closes has nothing but goodbyes to say, and waits less.
func (p *pair) isGone(all bool, begun time.Time) bool {
	patience := p.f.opts.PeerTimeout
	if p.f.stopped() {
		patience = p.tolerance()
	}
	return refusal{all: all, open: p.admits(), long: time.Since(begun) >= patience}.dead()
}

func list(endpoints []endpoint) string {
	var s []string
	for _, e := range endpoints {
		s = append(s, e.addrPort().String())
	}
	return strings.Join(s, ", ")
}

// start adds a session to the tables.
func (p *pair) start(spec transport.Session) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := sessionKey{spec.ID, spec.Rank, spec.Peer}
	for s := range p.sessions {
		if s.key() == key && !s.closing.Load() {
			return nil, fault.Peer(fault.Invalid, spec.Peer, "tcp: rank %d is being linked with it already", spec.Rank)
		}
	}
	if len(p.sessions) == maxSessions {
		return nil, fault.Peer(fault.System, spec.Peer,
			"tcp: %d links between two processes are the limit", maxSessions)
	}
	s := newSession(p, spec)
	if in := p.parted[key]; in != nil && s.check(&in.opening) == nil {
		delete(p.parted, key)
		s.removed.Store(true)
		s.fail(p.goodbye(s, in))
		return s, nil
	}
	p.sessions[s] = true
	if in := p.inbounds[key]; in != nil {
		delete(p.inbounds, key)
		p.match(s, in)
	} else {
		p.waiting[key] = s
	}
	return s, nil
}

// match joins a local session with the peer's announcement. p.mu is held.
func (p *pair) match(s *session, in *incoming) {
	e := s.check(&in.opening)
	if e != nil {
		s.fail(e)
	}
	in.session.Store(s)
	s.announced, s.theirs = true, in.index
	close(s.opened)
	s.ready.Store(e == nil)
	if e == nil && s.spec.Control != nil {
		p.control.hears[in.index] = s
	}
	if e != nil {
		p.untell(func(refused *session) bool { return refused == s })
	}
	s.expected()
	s.wake()
	p.tells()
}

// announce handles an open frame. The reading lock is held.
func (p *pair) announce(in *incoming) {
	o := &in.opening
	key := sessionKey{o.id, int(o.to), int(o.from)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opens = in.index + 1
	p.broadcast()
	delete(p.parted, key)
	if s := p.waiting[key]; s != nil {
		delete(p.waiting, key)
		p.match(s, in)
		return
	}
	if d, left := p.departed[key]; left {
		delete(p.departed, key)
		p.bid(d, in)
		return
	}
	p.inbounds[key] = in
}

// index gives a session the next index. The peer takes indices in this order only, so a session
// gets its index when its open frame is made.
func (p *pair) index(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.index, s.openSent = p.next, true
	p.next++
	p.indexed[s.index] = s
	p.tells()
}

// close notes that a session is closing. It reports whether the peer is to be told, perhaps over a
// later socket, or the one that is being made for another session.
func (p *pair) close(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// If the peer is going to know the session, its open is for this one: what it sends until it
	// hears the goodbye is skipped.
	if !p.sessions[s] {
		return false
	}
	if p.live.Load() == nil && p.healing == nil && !p.dialing && !s.standing().owesGoodbye() && !s.unsent() {
		p.remove(s)
		return false
	}
	s.pending(true)
	return true
}

// answers returns the next goodbye to be answered.
func (p *pair) answers() (index uint32, found, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.farewells) == 0 {
		return 0, false, false
	}
	index = p.farewells[0]
	p.farewells = p.farewells[1:]
	return index, true, len(p.farewells) > 0
}

// gone handles the peer's answer to a goodbye.
func (p *pair) gone(index uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.indexed[index]; s != nil && s.closing.Load() {
		s.answered = s.announced // otherwise the peer may open it later
		p.remove(s)
	}
}

// left handles the peer's goodbye; in is nil if it has come before. The reading lock is held.
func (p *pair) left(index uint32, in *incoming) error {
	defer p.push(&p.node)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.farewells = append(p.farewells, index); len(p.farewells) > maxSessions {
		return protocolErrorf("more goodbyes than sessions")
	}
	if in == nil {
		return nil
	}
	key := sessionKey{in.opening.id, int(in.opening.to), int(in.opening.from)}
	if p.inbounds[key] == in {
		delete(p.inbounds, key)
		if len(in.why) > 0 && len(p.parted) < mostLeft {
			p.parted[key] = in
		}
	}
	if s := in.session.Load(); s != nil {
		s.fail(p.goodbye(s, in))
	}
	return nil
}

// goodbye returns the error of a session that the peer has left.
func (p *pair) goodbye(s *session, in *incoming) *fault.Error {
	e := fault.Peer(fault.PeerLeft, s.spec.Peer, "tcp: %s has left the group", p.where())
	e.Left = in.why
	return e
}

// busy reports whether a session has not sent its goodbye yet, or a control message has not
// arrived. The writing lock is held.
func (p *pair) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owesControl() {
		return true
	}
	for s := range p.sessions {
		if !s.byeSent {
			return true
		}
	}
	return false
}

// where identifies the peer process in messages.
func (p *pair) where() string {
	if c := p.live.Load(); c != nil {
		return c.where()
	}
	return p.peer.who()
}

package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// pair is the path to one peer process. It holds one connection at a time; after a connection is
// lost, the next Connect makes a new one.
type pair struct {
	f     *Fabric
	key   pairKey
	peer  *address
	users int // Connects in flight; guarded by Fabric.mu

	mu      sync.Mutex
	conn    *conn
	dialing bool
	changed chan struct{} // closed and replaced when conn or dialing changes
}

func newPair(f *Fabric, key pairKey, peer *address) *pair {
	return &pair{f: f, key: key, peer: peer, changed: make(chan struct{})}
}

// connect opens a session, over a new connection if necessary.
func (p *pair) connect(ctx context.Context, spec transport.Session) (*session, error) {
	for {
		c, err := p.connection(ctx, spec.Peer)
		if err != nil {
			return nil, err
		}
		s, err := c.open(ctx, spec)
		if !errors.Is(err, errRetry) {
			return s, err
		}
		// The peer had a reason to end the connection, such as a deadline of its own or a restart.
		// Give it some time.
		if !sleep(ctx, p.f, 20*time.Millisecond) {
			return nil, p.missing(ctx, spec.Peer, "the connection to "+c.where()+" ended before the session was open")
		}
	}
}

// sleep waits for d. It reports false if ctx or the fabric ends first.
func sleep(ctx context.Context, f *Fabric, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	return false
}

func (p *pair) missing(ctx context.Context, rank int, what string) error {
	if p.f.ctx.Err() != nil {
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

// connection returns the live connection. If there is none it dials or waits for the peer to dial.
func (p *pair) connection(ctx context.Context, rank int) (*conn, error) {
	for {
		p.mu.Lock()
		if c := p.conn; c != nil && !c.down.Load() {
			p.mu.Unlock()
			return c, nil
		}
		dial := !p.key.accept && !p.dialing
		p.dialing = p.dialing || dial
		changed := p.changed
		p.mu.Unlock()
		if dial {
			c, err := p.dial(ctx, rank)
			p.mu.Lock()
			p.dialing = false
			if err == nil {
				p.conn = c
			}
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
			return nil, p.missing(ctx, rank, fmt.Sprintf(
				"no connection from %s, which has to dial this process at %s; "+
					"it did not call Connect, or cannot reach these addresses (firewall, Options.Interfaces)",
				p.peer.who(), list(p.f.self.endpoints)))
		case <-p.f.ctx.Done():
			return nil, errFabricClosed
		}
	}
}

// broadcast wakes the threads that wait in connection. p.mu is held.
func (p *pair) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// adopt takes an accepted connection. The peer dials only when it has none: if this side still has
// another, that one is broken and this side has not learned of it yet.
func (p *pair) adopt(c *conn) {
	p.mu.Lock()
	old := p.conn
	p.conn = c
	p.broadcast()
	p.mu.Unlock()
	if old != nil {
		old.fail(errReplaced)
	}
}

var errReplaced = errors.New("the peer lost the connection and made a new one")

// dial tries the peer's addresses, nearest first, repeatedly until ctx ends.
func (p *pair) dial(ctx context.Context, rank int) (*conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.f.ctx, func() { cancel(errFabricClosed) })()
	targets := usable(p.f.self, p.peer)
	failures := make([]string, len(targets))
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for i, to := range targets {
			c, err := p.dialOne(ctx, to)
			if err == nil {
				return c, nil
			}
			if ctx.Err() == nil || failures[i] == "" {
				failures[i] = fmt.Sprintf("%v: %v", to.addrPort(), err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		if !sleep(ctx, p.f, pause) {
			return nil, p.missing(ctx, rank, fmt.Sprintf(
				"cannot connect to %s; it may be gone, not have called Connect, "+
					"or be behind a firewall: %s", p.peer.who(),
				strings.Join(slices.DeleteFunc(failures, func(s string) bool { return s == "" }), "; ")))
		}
	}
}

func list(endpoints []endpoint) string {
	var s []string
	for _, e := range endpoints {
		s = append(s, e.addrPort().String())
	}
	return strings.Join(s, ", ")
}

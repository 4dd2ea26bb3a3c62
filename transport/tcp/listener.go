package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// portAttempts is how often listen draws a port that must be free on every address.
const portAttempts = 16

// listen binds one port on all addresses that are wanted: any, or the first of a range that is free
// on all. It leaves out addresses that cannot be bound (not ready yet, or removed meanwhile) as
// long as there are others.
func listen(wanted []endpoint, port, last int) (listeners []*net.TCPListener, endpoints []endpoint, err error) {
	attempts, next := portAttempts, 0
	if port != 0 {
		attempts, next = max(last, port)-port+1, 1
	}
	for at := port; attempts > 0; attempts, at = attempts-1, at+next {
		if listeners, endpoints, err = bind(wanted, at); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		what := "is the interface down?"
		switch {
		case errors.Is(err, syscall.EMFILE):
			what = "raise the limit of open files (ulimit -n)"
		case errors.Is(err, syscall.EADDRINUSE) && last > port:
			what = fmt.Sprintf("every port of GOCCL_PORT=%d-%d is taken; a host needs as many as it has ranks", port, last)
		case errors.Is(err, syscall.EADDRINUSE) && port != 0:
			what = fmt.Sprintf("the port of GOCCL_PORT=%d is taken; several ranks of a host need a range of ports", port)
		}
		return nil, nil, fault.Wrap(fault.System, err, "tcp: cannot listen; %s", what)
	}
	return listeners, endpoints, nil
}

func bind(wanted []endpoint, port int) (listeners []*net.TCPListener, endpoints []endpoint, err error) {
	for _, e := range wanted {
		l, lerr := net.Listen("tcp", net.JoinHostPort(e.prefix.Addr().String(), strconv.Itoa(port)))
		switch {
		case lerr == nil:
			port = l.Addr().(*net.TCPAddr).Port
			listeners = append(listeners, l.(*net.TCPListener))
			e.port = uint16(port)
			endpoints = append(endpoints, e)
		case errors.Is(lerr, syscall.EADDRINUSE):
			closeAll(listeners)
			return nil, nil, lerr
		default:
			err = lerr
		}
	}
	if len(listeners) > 0 {
		err = nil
	}
	return listeners, endpoints, err
}

func closeAll(listeners []*net.TCPListener) {
	for _, l := range listeners {
		l.Close()
	}
}

// descriptor returns the socket of a listener or connection, for Options.Track.
func descriptor(c syscall.Conn) int {
	fd := -1
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(s uintptr) { fd = int(s) })
	}
	return fd
}

// accept accepts connections until the listener is closed.
func (f *Fabric) accept(l *net.TCPListener) {
	for {
		nc, err := l.AcceptTCP()
		if err != nil {
			if f.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Descriptors or memory are short, or the dialer gave up: other connections will come.
			f.lack.Store(f.lack.Load().Again(err))
			select {
			case <-f.ctx.Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		g := &guest{nc: f.server(nc)}
		g.ctx, g.cancel = context.WithTimeout(f.ctx, f.opts.HandshakeTimeout)
		f.silent.Add(g)
		f.tasks.Go(func() { f.welcome(g) })
	}
}

// guest is an accepted connection without proof. At first it is silent; after its hello it waits
// until this process also wants to connect. Silent connections take no place from those that have
// sent a hello.
type guest struct {
	nc     *stream
	ctx    context.Context // of the handshake
	cancel context.CancelFunc
}

// Close resets the connection, so that it leaves no waiting state behind, and ends its handshake.
func (g *guest) Close() error {
	g.cancel()
	g.nc.SetLinger(0)
	return g.nc.Close()
}

// welcome authenticates a new connection and makes it the socket of its pair.
func (f *Fabric) welcome(g *guest) {
	defer g.cancel()
	p, said, err := f.authenticate(g)
	if said.taken {
		defer p.taken()
	}
	if err != nil {
		g.Close()
		return
	}
	if said.probe {
		f.answerProbe(g)
		g.nc.Close()
		return
	}
	if said.visit {
		f.receive(g.nc)
		return
	}
	if said.control {
		said.join.serveControl(g.nc)
		return
	}
	if said.join != nil {
		said.join.join(g.nc)
		return
	}
	f.newConn(g.nc, p, &said)
}

// authenticate has the guest prove its identity, and tells it that it is taken.
func (f *Fabric) authenticate(g *guest) (p *pair, said greeting, err error) {
	g.nc.SetDeadline(time.Now().Add(f.opts.HelloTimeout))
	deadline, _ := g.ctx.Deadline()
	if s := g.nc.secure; s != nil {
		s.heard = func() { g.nc.SetDeadline(deadline) } // TLS has begun, which takes longer than a hello
	}
	h, err := readHello(g.nc, f.self)
	if !f.silent.Remove(g) || err != nil {
		return nil, said, errStranger
	}
	heard := f.hellos.Add(1)
	f.waiting.Add(g)
	g.nc.SetDeadline(deadline)
	if h.kind() == helloKnock {
		return nil, greeting{visit: true}, f.admits(g, h)
	}
	if p = f.wanted(g.ctx, h); p != nil && g.nc.certificate() != p.peer.certificate {
		err = errStranger
	} else if p != nil {
		said, err = acceptHandshake(g.nc, h, p.peer, f.self, p.currentEpoch(), f.limitTo(p.peer))
		said.span = span{heard, heard}
	}
	if !f.waiting.Remove(g) || p == nil || err != nil {
		return nil, said, errStranger
	}
	f.limit(p.peer, said.limit)
	switch kind := h.kind(); {
	case kind == helloProbe:
		said.probe = true
	case kind == helloJoin || kind == helloControl:
		if said.join = p.joins(h); said.join == nil {
			return p, said, errOutdated
		}
		said.control = kind == helloControl
	case h.reversed():
		if said.taken = p.takes(h); !said.taken {
			return p, said, errTaken
		}
	}
	if _, err = g.nc.Write([]byte{accepted}); err != nil {
		return p, said, err
	}
	if said.probe {
		return p, said, nil
	}
	return p, said, g.nc.SetDeadline(time.Time{})
}

// wanted returns the pair that a hello is for, or nil. A peer that connects for the first time
// waits until this process wants to, too.
func (f *Fabric) wanted(ctx context.Context, h *hello) *pair {
	key := pairKey{h.dialer(), !h.reversed()}
	if h.kind() == helloFirst || h.kind() == helloProbe {
		return f.await(ctx, key)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pairs[key]
}

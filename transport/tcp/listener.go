package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// portAttempts is how often a port is drawn that must be free on every address.
const portAttempts = 16

// listen binds one port on all addresses of the interfaces. Addresses that cannot be bound (not ready, taken away meanwhile) are left
// out as long as there are others.
func listen(nics []nic, port int) (listeners []*net.TCPListener, endpoints []endpoint, err error) {
	var prefixes []netip.Prefix
	for _, n := range nics {
		prefixes = append(prefixes, n.prefixes...)
	}
	prefixes = prefixes[:min(len(prefixes), maxEndpoints)]
	for range portAttempts {
		listeners, endpoints, err = bind(prefixes, port)
		if err == nil || port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return nil, nil, fault.Wrap(fault.System, err, "tcp: cannot listen; is the port taken (Options.Port), or the interface down?")
	}
	return listeners, endpoints, nil
}

func bind(prefixes []netip.Prefix, port int) (listeners []*net.TCPListener, endpoints []endpoint, err error) {
	for _, p := range prefixes {
		l, lerr := net.Listen("tcp", net.JoinHostPort(p.Addr().String(), strconv.Itoa(port)))
		switch {
		case lerr == nil:
			port = l.Addr().(*net.TCPAddr).Port
			listeners = append(listeners, l.(*net.TCPListener))
			endpoints = append(endpoints, endpoint{p, uint16(port)})
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

// descriptor is the socket of a listener, for Options.Track.
func descriptor(l *net.TCPListener) int {
	fd := -1
	if raw, err := l.SyscallConn(); err == nil {
		raw.Control(func(s uintptr) { fd = int(s) })
	}
	return fd
}

// accept takes connections until the listener is closed.
func (f *Fabric) accept(l *net.TCPListener) {
	for {
		nc, err := l.AcceptTCP()
		if err != nil {
			if f.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Short of descriptors or memory, or the dialer gave up: others come.
			select {
			case <-f.ctx.Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		select {
		case f.strangers <- struct{}{}:
			f.tasks.Go(func() {
				defer func() { <-f.strangers }()
				f.welcome(nc)
			})
		default:
			reject(nc)
		}
	}
}

// reject closes a connection at once, without waiting states left behind.
func reject(nc *net.TCPConn) {
	nc.SetLinger(0)
	nc.Close()
}

// welcome finds out who has connected and makes the connection that of its pair.
func (f *Fabric) welcome(nc *net.TCPConn) {
	ctx, cancel := context.WithTimeout(f.ctx, f.opts.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	var p *pair
	binding, err := acceptHandshake(nc, f.self, func(id [16]byte) *address {
		if p = f.await(ctx, pairKey{id, true}); p == nil {
			return nil
		}
		return p.peer
	})
	if !stop() || err != nil {
		reject(nc)
		return
	}
	nc.SetDeadline(time.Time{})
	c, err := f.newConn(nc, p, binding)
	if err == nil {
		p.adopt(c)
	}
}

package tcp

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// visit is a connection that Knock has made, at either side. It belongs to no pair, and has no
// frames.
type visit struct {
	net.Conn // a stream, and no more: TCPConn's other methods would go around TLS
	f        *Fabric
	fd       int
	once     sync.Once
	cancel   context.CancelFunc // ends the watch for the end of the fabric
}

func (f *Fabric) newVisit(nc *stream) (*visit, error) {
	if err := tune(nc.TCPConn, &f.opts); err != nil {
		nc.Close()
		return nil, err
	}
	v := &visit{Conn: nc, f: f, fd: descriptor(nc.TCPConn)}
	f.opts.Track(v.fd, true)
	ctx, cancel := context.WithCancel(f.ctx)
	v.cancel = cancel
	context.AfterFunc(ctx, func() { v.Close() }) // a deadline could be set again by its user
	return v, nil
}

// Close ends the visit. The end of the fabric does so, too.
func (v *visit) Close() error {
	err := net.ErrClosed
	v.once.Do(func() {
		v.cancel()
		v.f.opts.Track(v.fd, false)
		err = v.Conn.Close()
	})
	return err
}

// stranger is the address of whoever knocks: nobody knows its secret, so its proof is that it knows
// this process's, and the secret of all.
func (f *Fabric) stranger() *address {
	a := &address{}
	f.mix(a)
	return a
}

// Admit implements transport.Door.
func (f *Fabric) Admit(to func(net.Conn)) {
	if to == nil {
		f.visits.Store(nil)
		return
	}
	f.visits.Store(&to)
}

// admits has a visitor prove that it was given the address of this process.
func (f *Fabric) admits(g *guest, h *hello) error {
	err := error(errStranger)
	if f.visits.Load() != nil {
		_, err = acceptHandshake(g.nc, h, f.stranger(), f.self, epoch{}, *h.limit())
	}
	if !f.waiting.Remove(g) || err != nil {
		return errStranger
	}
	if _, err := g.nc.Write([]byte{accepted}); err != nil {
		return err
	}
	return g.nc.SetDeadline(time.Time{})
}

// receive hands a visitor over.
func (f *Fabric) receive(nc *stream) {
	to := f.visits.Load()
	if to == nil {
		nc.Close()
		return
	}
	if v, err := f.newVisit(nc); err == nil {
		(*to)(v)
	}
}

// Knock implements transport.Door.
func (f *Fabric) Knock(ctx context.Context, peer []byte) (net.Conn, error) {
	a, err := parseAddress(peer)
	if err == nil {
		err = f.protects(a, fault.NoPeer)
	}
	if err != nil {
		return nil, err
	}
	f.mix(a)
	err = fault.New(fault.NotSupported, "no address of it can be reached from the interfaces of this process (%s)",
		list(f.self.endpoints))
	for _, to := range usable(f.self, a) {
		var v net.Conn
		v, err = f.knock(ctx, wire{to: to}, a)
		if err == nil {
			return v, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fault.Wrap(fault.PeerLost, errors.Join(err, context.Cause(ctx)), "tcp: %s (%s) cannot be reached",
		a.who(), list(a.endpoints))
}

func (f *Fabric) knock(ctx context.Context, w wire, peer *address) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.opts.HandshakeTimeout)
	defer cancel()
	nc, err := f.dial(ctx, w, peer)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	h := makeHello(helloKnock, &f.self.id, &peer.id, epoch{}, nonce{})
	*h.limit() = nc.limit
	_, err = dialHandshake(nc, h, f.stranger(), peer)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return f.newVisit(nc)
}

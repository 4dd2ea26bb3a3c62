package tcp

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// The handshake, before any frame:
//
//	dialer → acceptor   magic, version, kind, limit of segments, dialer's id, acceptor's id,
//	                    dialer's epoch, the nonce of the connection that broke, or is joined, nonce
//	acceptor → dialer   acceptor's epoch, nonce, limit of segments, proof "accept"
//	dialer → acceptor   proof "dial"
//	acceptor → dialer   one byte: the connection is taken
//
// A proof is an HMAC over its label, the hello, and what the acceptor has said before its proof,
// under a key derived from both secrets. The dialer hangs up where its own limit is the larger one,
// and dials again with that of the acceptor (segments).
const (
	helloMagic = "gocclTCP"
	helloBytes = len(helloMagic) + 1 + 1 + 1 + 16 + 16 + 8 + 32 + 32
	nonceBytes = 8 + 32 + 1 // with the epoch and the limit
	replyBytes = nonceBytes + 32
)

// The kinds of hellos.
const (
	helloFirst   = 1 // the acceptor may want to connect later
	helloAgain   = 2 // after a connection has broken
	helloProbe   = 3 // a measurement of the path; no connection follows
	helloJoin    = 4 // a further socket of a connection
	helloControl = 5 // its control socket
	helloKnock   = 6 // a visit: no pair, no frames (knock.go)

	helloReversed = 1 << 7 // added to a kind: the dialer has the larger id
)

// accepted is the acceptor's last word.
const accepted = 1

// hello is the first message of the handshake.
type hello [helloBytes]byte

// makeHello makes a hello of a connection whose segments are not limited.
func makeHello(kind byte, dialer, acceptor *[16]byte, e epoch, other nonce) *hello {
	h := &hello{}
	at := copy(h[:], helloMagic)
	h[at], h[at+1] = protocol, kind
	at += 3
	at += copy(h[at:], dialer[:])
	at += copy(h[at:], acceptor[:])
	at += copy(h[at:], e[:])
	at += copy(h[at:], other[:])
	rand.Read(h[at:])
	return h
}

func (h *hello) valid() bool {
	return string(h[:len(helloMagic)]) == helloMagic && h[len(helloMagic)] == protocol &&
		h.kind() >= helloFirst && h.kind() <= helloKnock && int(*h.limit()) < len(segments)
}

// limit is where the hello has the limit of segments that the connection was made with.
func (h *hello) limit() *uint8 { return &h[len(helloMagic)+2] }

func (h *hello) kind() byte              { return h[len(helloMagic)+1] &^ helloReversed }
func (h *hello) reversed() bool          { return h[len(helloMagic)+1]&helloReversed != 0 }
func (h *hello) dialer() (id [16]byte)   { copy(id[:], h[len(helloMagic)+3:]); return id }
func (h *hello) acceptor() (id [16]byte) { copy(id[:], h[len(helloMagic)+3+16:]); return id }
func (h *hello) epoch() (e epoch)        { copy(e[:], h[len(helloMagic)+3+32:]); return e }
func (h *hello) other() (n nonce)        { copy(n[:], h[len(helloMagic)+3+32+8:]); return n }

// nonce is the acceptor's nonce, which identifies a connection.
type nonce [32]byte

// greeting is what a handshake yields.
type greeting struct {
	epochs  [2]epoch // of this side and of the peer
	nonce   nonce
	span    span
	probe   bool  // no connection follows
	visit   bool  // likewise: somebody knocks
	join    *conn // a socket for this connection follows
	control bool  // it is the control socket
	taken   bool  // of the side with the larger id: taken must follow
	limit   uint8 // the peer's, of segments
}

// prove returns the proof of one side.
func prove(label string, dialer, acceptor *address, h *hello, said []byte) (proof [32]byte) {
	key := hmac.New(sha256.New, append(dialer.secret[:len(dialer.secret):len(dialer.secret)], acceptor.secret[:]...))
	io.WriteString(key, "goccl tcp key 1")
	mac := hmac.New(sha256.New, key.Sum(nil))
	io.WriteString(mac, label)
	mac.Write([]byte{0})
	mac.Write(h[:])
	mac.Write(said)
	mac.Sum(proof[:0])
	return proof
}

// pairBinding returns the value that binds sessions to two processes. Both compute the same.
func pairBinding(self, peer *address) (binding [32]byte) {
	if bytes.Compare(self.id[:], peer.id[:]) > 0 {
		self, peer = peer, self
	}
	mac := hmac.New(sha256.New, append(self.secret[:len(self.secret):len(self.secret)], peer.secret[:]...))
	io.WriteString(mac, "goccl tcp pair")
	mac.Write(self.id[:])
	mac.Write(peer.id[:])
	mac.Sum(binding[:0])
	return binding
}

var errStranger = errors.New(
	"it does not prove that it is the peer; something else listens there, its address is outdated, or it has another " +
		"secret")

// errTooLarge ends an attempt because the acceptor wants smaller segments.
var errTooLarge = errors.New("the peer wants smaller segments")

// dialHandshake proves this process to the acceptor, and the acceptor to this process.
func dialHandshake(nc net.Conn, h *hello, self, peer *address) (g greeting, err error) {
	if _, err = nc.Write(h[:]); err != nil {
		return g, err
	}
	var reply [replyBytes]byte
	if _, err = io.ReadFull(nc, reply[:]); err != nil {
		return g, err
	}
	said := reply[:nonceBytes]
	want := prove("accept", self, peer, h, said)
	if !hmac.Equal(want[:], reply[nonceBytes:]) {
		return g, errStranger
	}
	g.epochs[0] = h.epoch()
	copy(g.nonce[:], said[copy(g.epochs[1][:], said):])
	g.limit = said[nonceBytes-1]
	if !fits(*h.limit(), g.limit) {
		return g, errTooLarge
	}
	proof := prove("dial", self, peer, h, said)
	if _, err = nc.Write(proof[:]); err != nil {
		return g, err
	}
	var word [1]byte
	if _, err = io.ReadFull(nc, word[:]); err == nil && word[0] != accepted {
		err = errStranger
	}
	return g, err
}

// readHello reads the first message of a dialer. A dialer that knows the id of this process was
// given its address, or has overheard a process that was.
func readHello(nc net.Conn, self *address) (*hello, error) {
	h := &hello{}
	if _, err := io.ReadFull(nc, h[:]); err != nil {
		return nil, err
	}
	if !h.valid() || h.acceptor() != self.id {
		return nil, errStranger
	}
	return h, nil
}

// acceptHandshake is the acceptor's side of dialHandshake between the hello and the last word.
func acceptHandshake(nc net.Conn, h *hello, peer, self *address, e epoch, limit uint8) (g greeting, err error) {
	g.epochs, g.limit = [2]epoch{e, h.epoch()}, *h.limit()
	rand.Read(g.nonce[:])
	var reply [replyBytes]byte
	said := reply[:nonceBytes]
	copy(said[copy(said, e[:]):], g.nonce[:])
	said[nonceBytes-1] = limit
	proof := prove("accept", peer, self, h, said)
	copy(reply[nonceBytes:], proof[:])
	if _, err = nc.Write(reply[:]); err != nil {
		return g, err
	}
	var got [32]byte
	if _, err = io.ReadFull(nc, got[:]); err != nil {
		return g, err
	}
	want := prove("dial", peer, self, h, said)
	if !hmac.Equal(want[:], got[:]) {
		return g, errStranger
	}
	return g, nil
}

// dialOne tries one wire to a peer, including the handshake, and attaches the connection.
func (p *pair) dialOne(ctx context.Context, w wire, kind byte, broken nonce) error {
	nc, err := p.f.dial(ctx, w, p.peer)
	if err != nil {
		return err
	}
	if !p.shakes(broken) {
		nc.Close()
		return errTaken
	}
	defer p.shaken()
	began := p.f.hellos.Add(1)
	g, err := p.shake(ctx, nc, kind, broken)
	if err != nil {
		return err
	}
	g.span = span{began, p.f.hellos.Add(1)}
	c, err := p.f.newConn(nc, p, &g)
	if err != nil {
		return err
	}
	p.f.task(func() { c.keepControl(w) })
	if p.f.opts.Streams != 1 {
		p.f.task(func() { p.spread(c) })
	}
	return nil
}

// errTaken ends an attempt to connect because the peer's has come first.
var errTaken = errors.New("the peer has connected meanwhile")

// shakes begins a handshake of this side, unless the peer's connection has been taken instead.
// broken identifies the connection that is to be replaced.
func (p *pair) shakes(broken nonce) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.live.Load()
	return p.crossing.shakes(c != nil, c != nil && c.nonce == broken)
}

func (p *pair) shaken() {
	p.mu.Lock()
	p.crossing.shaken()
	p.mu.Unlock()
}

// takes reports whether this side takes a connection of the side with the larger id.
func (p *pair) takes(h *hello) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.live.Load()
	return p.crossing.takes(c != nil, c != nil && c.nonce == h.other())
}

// taken follows a connection that takes has allowed, once it is attached or has failed.
func (p *pair) taken() {
	p.mu.Lock()
	p.crossing.taken()
	p.mu.Unlock()
}

// dial connects by one wire. Where this host has lost the address of the wire's interface, as one
// that DHCP or a VPN gives, routes decide.
func (f *Fabric) dial(ctx context.Context, w wire, peer *address) (*stream, error) {
	nc, err := f.dialFrom(ctx, w, peer)
	if w.from.prefix.IsValid() && errors.Is(err, syscall.EADDRNOTAVAIL) {
		return f.dialFrom(ctx, wire{to: w.to}, peer)
	}
	return nc, err
}

func (f *Fabric) dialFrom(ctx context.Context, w wire, peer *address) (*stream, error) {
	d := net.Dialer{Timeout: f.opts.DialTimeout, KeepAlive: -1}
	limit, bound := f.limitTo(peer), false
	if w.from.prefix.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.from.prefix.Addr(), 0))
		bound = f.ambiguous(w.from)
	}
	if bound || limit > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				if bound {
					bindDevice(int(fd), w.from.name)
				}
				limitSegment(int(fd), segments[limit])
			})
		}
	}
	nc, err := d.DialContext(ctx, "tcp", w.to.addrPort().String())
	if err != nil {
		return nil, err
	}
	s := f.client(nc.(*net.TCPConn), peer)
	s.limit = limit
	return s, nil
}

// shake does the handshake of a connection that this side has dialled. If it fails, the connection
// is closed.
func (p *pair) shake(ctx context.Context, nc *stream, kind byte, broken nonce) (g greeting, err error) {
	f := p.f
	ctx, cancel := context.WithTimeout(ctx, f.opts.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	if p.key.accept {
		kind |= helloReversed
	}
	h := makeHello(kind, &f.self.id, &p.peer.id, p.currentEpoch(), broken)
	*h.limit() = nc.limit
	g, err = dialHandshake(nc, h, f.self, p.peer)
	f.limit(p.peer, g.limit)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return g, err
	}
	p.reached.Store(true)
	return g, nil
}

// ambiguous reports whether another interface of this process is in the same subnet. Then the
// address of the source does not decide which one is taken.
func (f *Fabric) ambiguous(e endpoint) bool {
	return slices.ContainsFunc(f.self.endpoints, func(other endpoint) bool {
		return other.device != e.device && other.neighbour(e)
	})
}

func (p *pair) currentEpoch() epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// keepDevice makes the socket of a connection from or to another host answer by the interface that
// it was accepted at, where routes would not.
func (f *Fabric) keepDevice(fd int, local net.Addr, peer *address) {
	tcp, ok := local.(*net.TCPAddr)
	if !ok || peer.host == f.self.host {
		return
	}
	ip := tcp.AddrPort().Addr().Unmap()
	for _, e := range f.self.endpoints {
		if e.prefix.Addr() == ip && f.ambiguous(e) {
			bindDevice(fd, e.name)
		}
	}
}

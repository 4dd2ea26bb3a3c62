package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"time"
)

// The handshake, before any frame:
//
//	dialer → acceptor   magic, version, dialer's id, acceptor's id, nonce
//	acceptor → dialer   nonce, proof "accept"
//	dialer → acceptor   proof "dial"
//
// A proof is an HMAC over its label, the hello and the acceptor's nonce, under a key derived from
// both secrets.
const (
	helloMagic = "gocclTCP"
	helloBytes = len(helloMagic) + 1 + 16 + 16 + 32
	replyBytes = 32 + 32
)

// hello is the first message of the handshake.
type hello [helloBytes]byte

func makeHello(dialer, acceptor *[16]byte) *hello {
	h := &hello{}
	at := copy(h[:], helloMagic)
	h[at] = protocol
	at++
	at += copy(h[at:], dialer[:])
	at += copy(h[at:], acceptor[:])
	rand.Read(h[at:])
	return h
}

func (h *hello) valid() bool {
	return string(h[:len(helloMagic)]) == helloMagic && h[len(helloMagic)] == protocol
}

func (h *hello) dialer() (id [16]byte)   { copy(id[:], h[len(helloMagic)+1:]); return id }
func (h *hello) acceptor() (id [16]byte) { copy(id[:], h[len(helloMagic)+1+16:]); return id }

// prove returns the proof of one side or, with the label "binding", the value that binds sessions
// to the connection.
func prove(label string, dialer, acceptor *address, h *hello, nonce []byte) (proof [32]byte) {
	key := hmac.New(sha256.New, append(dialer.secret[:len(dialer.secret):len(dialer.secret)], acceptor.secret[:]...))
	io.WriteString(key, "goccl tcp key 1")
	mac := hmac.New(sha256.New, key.Sum(nil))
	io.WriteString(mac, label)
	mac.Write([]byte{0})
	mac.Write(h[:])
	mac.Write(nonce)
	mac.Sum(proof[:0])
	return proof
}

var errStranger = errors.New(
	"it does not prove that it is the peer; something else listens there, or its address is outdated")

// dialHandshake proves this process to the acceptor, and the acceptor to this process.
func dialHandshake(nc net.Conn, self, peer *address) (binding [32]byte, err error) {
	h := makeHello(&self.id, &peer.id)
	if _, err = nc.Write(h[:]); err != nil {
		return binding, err
	}
	var reply [replyBytes]byte
	if _, err = io.ReadFull(nc, reply[:]); err != nil {
		return binding, err
	}
	nonce := reply[:32]
	want := prove("accept", self, peer, h, nonce)
	if !hmac.Equal(want[:], reply[32:]) {
		return binding, errStranger
	}
	proof := prove("dial", self, peer, h, nonce)
	_, err = nc.Write(proof[:])
	return prove("binding", self, peer, h, nonce), err
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

// acceptHandshake is the acceptor's side of dialHandshake, after the hello.
func acceptHandshake(nc net.Conn, h *hello, peer, self *address) (binding [32]byte, err error) {
	var reply [replyBytes]byte
	nonce := reply[:32]
	rand.Read(nonce)
	proof := prove("accept", peer, self, h, nonce)
	copy(reply[32:], proof[:])
	if _, err = nc.Write(reply[:]); err != nil {
		return binding, err
	}
	var got [32]byte
	if _, err = io.ReadFull(nc, got[:]); err != nil {
		return binding, err
	}
	want := prove("dial", peer, self, h, nonce)
	if !hmac.Equal(want[:], got[:]) {
		return binding, errStranger
	}
	return prove("binding", peer, self, h, nonce), nil
}

// dialOne tries one address of a peer, including the handshake.
func (p *pair) dialOne(ctx context.Context, to endpoint) (*conn, error) {
	f := p.f
	d := net.Dialer{Timeout: f.opts.DialTimeout, KeepAlive: -1}
	nc, err := d.DialContext(ctx, "tcp", to.addrPort().String())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.opts.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	binding, err := dialHandshake(nc, f.self, p.peer)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return f.newConn(nc.(*net.TCPConn), p, binding)
}

package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/outbox"
)

// The kinds of frames on a control socket.
const (
	controlText  = 1
	controlHeard = 2
)

const (
	controlBytes = 20       // of a header
	controlBatch = 16 << 10 // bytes that are written at once, about
)

// The pauses between attempts to make a control socket, and how many of those differ in length.
const (
	leastPause = time.Millisecond // the peer may not have attached the connection yet
	againPause = 20 * time.Millisecond
	mostPause  = time.Second
	attempts   = 9
)

// controlHeader is the decoded head of a frame on a control socket; doc.go describes its layout.
type controlHeader struct {
	kind    byte
	length  uint16
	session uint32
	number  uint64
	sum     uint32
}

func (h *controlHeader) get(b []byte) {
	le := binary.LittleEndian
	_ = b[controlBytes-1]
	h.kind, h.length, h.session = b[0], le.Uint16(b[2:]), le.Uint32(b[4:])
	h.number, h.sum = le.Uint64(b[8:]), le.Uint32(b[16:])
}

// appendControl appends a frame, with a checksum if there are checksums.
func appendControl(b []byte, h controlHeader, text []byte, checksum bool) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint16(append(b, h.kind, 0), uint16(len(text)))
	b = le.AppendUint64(le.AppendUint32(b, h.session), h.number)
	b = append(le.AppendUint32(b, 0), text...)
	if checksum {
		le.PutUint32(b[at+controlBytes-4:], controlSum(b[at:], text))
	}
	return b
}

// controlSum returns the checksum of a frame. It is never 0, which stands for no checksum.
func controlSum(head, text []byte) uint32 {
	return max(crc32.Update(crc32.Checksum(head[:controlBytes-4], castagnoli), castagnoli, text), 1)
}

// controls is what a pair knows of control messages, guarded by its mu.
type controls struct {
	socket *controlSocket         // of the live connection, nil if there is none now
	told   outbox.Queue[*session] // messages of this side
	waits  bool                   // counted in background: told is not empty
	heard  uint64                 // messages of the peer that have arrived
	hears  map[uint32]*session    // by the peer's index: those that both sides have opened
}

// controlSocket is the control socket of a connection. One goroutine reads it and calls handlers,
// another one writes it. All that they change is guarded by the pair's mu, and changes only while
// this is the pair's control socket.
type controlSocket struct {
	conn  *conn
	nc    *stream
	fd    int
	poke  chan struct{} // wakes the goroutine that writes
	over  chan struct{} // closed at its end
	end   sync.Once
	begun bool // the peer has said what has arrived there
	due   bool // the peer is to be told what has arrived here
}

// errOver ends the reading of a control socket that has been closed.
var errOver = errors.New("the control socket was closed")

// keepControl makes a control socket for a connection that this side has dialled, and another one
// where that ends, while the connection lives. w is the wire of the main socket.
func (c *conn) keepControl(w wire) {
	wires := append([]wire{w}, c.pair.known()...)
	for round, pause := 0, leastPause; !c.down.Load(); round++ {
		if nc := c.dialControl(wires[round%len(wires)], round); nc != nil && c.serveControl(nc) {
			round, pause = -1, againPause
		}
		select {
		case <-c.gone:
		case <-time.After(pause):
		}
		pause = min(2*pause, mostPause)
	}
}

// dialControl dials a control socket by one wire. It returns nil where that fails: perhaps the peer
// has not attached the connection yet.
func (c *conn) dialControl(w wire, round int) *stream {
	p := c.pair
	ctx, cancel := context.WithTimeout(p.f.ctx, p.attempt(round%attempts))
	defer cancel()
	nc, err := p.f.dial(ctx, w, p.peer)
	if err == nil {
		_, err = p.shake(ctx, nc, helloControl, c.nonce)
	}
	if err != nil {
		return nil
	}
	return nc
}

// serveControl uses nc as the control socket of c until it ends, and reports whether the peer has
// used it, too.
func (c *conn) serveControl(nc *stream) bool {
	f, p := c.f, c.pair
	if err := tune(nc.TCPConn, &f.opts); err != nil {
		nc.Close()
		return false
	}
	k := &controlSocket{conn: c, nc: nc, fd: descriptor(nc.TCPConn),
		poke: make(chan struct{}, 1), over: make(chan struct{})}
	f.keepDevice(k.fd, nc.LocalAddr(), p.peer)
	f.opts.Track(k.fd, true)
	defer k.close()
	if !p.beginControl(k) || !f.task(k.write) {
		return false
	}
	err := k.read(nc)
	used, last := p.endControl(k)
	switch {
	case !last: // it was replaced, or its connection has ended
	case errors.Is(err, errCorrupt) || !mends(err):
		c.fail(err)
	default:
		f.task(c.doubt)
	}
	return used
}

// doubt has the fabric's goroutine read the main sockets for a while: the end of the control socket
// may be the first sign that the peer has died.
func (c *conn) doubt() {
	c.pair.background.Add(1)
	defer c.pair.background.Add(-1)
	c.rearm()
	select {
	case <-c.gone:
	case <-time.After(c.f.opts.silence()):
	}
}

func (k *controlSocket) close() {
	k.end.Do(func() {
		close(k.over)
		k.conn.f.opts.Track(k.fd, false)
		k.nc.Close()
	})
}

// beginControl makes k the control socket of the pair, unless its connection is not the live one.
func (p *pair) beginControl(k *controlSocket) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live.Load() != k.conn || k.conn.down.Load() {
		return false
	}
	if old := p.control.socket; old != nil {
		old.close()
	}
	p.control.socket = k
	p.control.told.Again()
	k.due = true
	return true
}

// endControl takes back beginControl. used is whether the peer has used the control socket, and
// last whether it was still the pair's.
func (p *pair) endControl(k *controlSocket) (used, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last = p.control.socket == k; last {
		p.control.socket = nil
	}
	return k.begun, last
}

// write sends what there is to send, until the end.
func (k *controlSocket) write() {
	for frames := []byte(nil); ; {
		var over bool
		if frames, over = k.frames(frames[:0]); over {
			return
		}
		if len(frames) == 0 {
			select {
			case <-k.poke:
			case <-k.over:
			}
			continue
		}
		if _, err := k.nc.Write(frames); err != nil {
			k.close()
			return
		}
	}
}

// frames appends what there is to send now.
func (k *controlSocket) frames(b []byte) (frames []byte, over bool) {
	c, p := k.conn, k.conn.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control.socket != k {
		return nil, true
	}
	if k.due {
		k.due = false
		b = appendControl(b, controlHeader{kind: controlHeard, number: p.control.heard}, nil, c.f.opts.Checksum)
	}
	for k.begun && !c.unresumed.Load() && len(b) < controlBatch {
		s, text, number, ok := p.control.told.Next((*session).speaks)
		if !ok {
			break
		}
		h := controlHeader{kind: controlText, session: s.index, number: number}
		b = appendControl(b, h, text, c.f.opts.Checksum)
	}
	return b, false
}

// read takes the peer's frames until the end.
func (k *controlSocket) read(from io.Reader) error {
	var head [controlBytes]byte
	var h controlHeader
	var text []byte
	for {
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return err
		}
		h.get(head[:])
		n := int(h.length)
		if n > transport.MaxControl {
			return protocolErrorf("control message of %d bytes", n)
		}
		if n > len(text) {
			text = make([]byte, n)
		}
		if _, err := io.ReadFull(from, text[:n]); err != nil {
			return err
		}
		if h.sum != 0 && h.sum != controlSum(head[:], text[:n]) {
			return errCorrupt
		}
		if err := k.frame(&h, text[:n:n]); err != nil {
			return err
		}
	}
}

func (k *controlSocket) frame(h *controlHeader, text []byte) error {
	switch {
	case h.kind == controlText:
		return k.hear(h, text)
	case h.kind != controlHeard:
		return protocolErrorf("unknown kind of frame on a control socket, %d", h.kind)
	case len(text) > 0:
		return protocolErrorf("acknowledgement of %d bytes", len(text))
	}
	return k.acknowledged(h.number)
}

// acknowledged handles what the peer says of the messages that have arrived there.
func (k *controlSocket) acknowledged(number uint64) error {
	p := k.conn.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control.socket != k {
		return errOver
	}
	if !p.control.told.Acknowledge(number) {
		return protocolErrorf("%d control messages that were not sent have arrived", number)
	}
	k.begun = true
	p.tells()
	return nil
}

// hear handles a message of the peer. One handler of a pair runs at a time, even if its control
// socket has been replaced.
func (k *controlSocket) hear(h *controlHeader, text []byte) error {
	p := k.conn.pair
	p.hearing.Lock()
	defer p.hearing.Unlock()
	s, err := k.take(h)
	if err != nil {
		return err
	}
	if s != nil && !s.closing.Load() {
		s.spec.Control(text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k.nudge()
	return nil
}

// take counts a message of the peer, and returns its session, nil if nobody listens. It waits until
// the peer's open, which may come later by the main socket, has arrived.
func (k *controlSocket) take(h *controlHeader) (*session, error) {
	p := k.conn.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	for h.session >= p.opens {
		changed := p.changed
		p.mu.Unlock()
		over := k.await(changed)
		p.mu.Lock()
		if over {
			return nil, errOver
		}
	}
	if p.control.socket != k {
		return nil, errOver
	}
	if h.number != p.control.heard+1 {
		return nil, protocolErrorf("control message %d comes after %d", h.number, p.control.heard)
	}
	p.control.heard++
	k.due = true
	return p.control.hears[h.session], nil
}

// await waits for a change of the pair, for which the fabric's goroutine reads the main sockets, or
// for the end of the control socket.
func (k *controlSocket) await(changed <-chan struct{}) (over bool) {
	c := k.conn
	c.pair.background.Add(1)
	defer c.pair.background.Add(-1)
	c.rearm()
	select {
	case <-changed:
		return false
	case <-k.over:
		return true
	}
}

// nudge wakes the goroutine that writes.
func (k *controlSocket) nudge() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Tell implements transport.Link. The first message makes the path, as a fragment does.
func (s *session) Tell(message []byte) bool {
	p := s.pair
	p.mu.Lock()
	told := !s.ended() && !s.removed.Load() && p.control.told.Add(s, message)
	if told {
		s.spoke.Store(true)
		p.tells()
	}
	p.mu.Unlock()
	if told && p.live.Load() == nil {
		p.want()
	}
	return told
}

// speaks reports whether control messages may be sent for a session. The pair's mu is held.
func (s *session) speaks() bool { return s.ready.Load() && s.openSent }

// tells follows a change of the messages that wait, or of what they wait for. While there are some,
// the fabric's goroutine reads and writes where no thread polls: they may wait for an open frame of
// either side. p.mu is held.
func (p *pair) tells() {
	if waits := !p.control.told.Empty(); waits != p.control.waits {
		p.control.waits = waits
		if !waits {
			p.background.Add(-1)
			return
		}
		p.background.Add(1)
		if c := p.live.Load(); c != nil {
			c.rearm()
		}
	}
	if k := p.control.socket; k != nil && p.control.waits {
		k.nudge()
	}
}

// untell drops messages that will never be sent. p.mu is held.
func (p *pair) untell(which func(*session) bool) {
	if !p.control.told.Empty() {
		p.control.told.Remove(which)
		p.tells()
	}
}

// owesControl reports whether messages wait for a peer that has not left. p.mu is held.
func (p *pair) owesControl() bool {
	return p.control.told.Any(func(s *session) bool { return s.err.Load() == nil })
}

package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"runtime"
	"syscall"
	"time"

	"github.com/goccl/goccl/transport"
)

const (
	stagingBytes = 16 << 10
	readBudget   = 64 << 10 // bytes after which progress stops: a long fragment, which is used while the cache has it
)

// reader parses the peer's byte stream. It needs no lookahead: every byte goes into a header, into
// its place in a channel, or is skipped.
type reader struct {
	staging []byte
	head    [headerBytes]byte
	have    int    // bytes of head received so far
	h       header // of the frame whose payload is being read
	rest    []byte // where the rest of the payload goes
	skip    int    // payload bytes to skip: of a session that was closed here, or of a duplicate
	into    *inQueue
	body    [transport.MaxWhy]byte
	arrived map[uint32][]uint32 // from the peer's resumption: by index and channel
	told    bool                // something arrived that a sleeper may wait for
	iov     scatter
}

// receive reads until the socket is empty or its budget is used up. It reports whether anything
// happened.
func (k *socket) receive() bool {
	if k.over.Load() {
		return false
	}
	if k.secure != nil {
		return k.decrypt()
	}
	r := &k.reader
	total := 0
	for total < readBudget {
		rest := r.rest
		n, room, errno := receiveInto(k.fd, rest, r.staging, &r.iov)
		if errno != 0 {
			if again(errno) {
				break
			}
			k.conn.fail(errno)
			return true
		}
		if n == 0 {
			k.ended()
			return true
		}
		total += n
		if err := k.received(n); err != nil {
			k.conn.fail(err)
			return true
		}
		if n < room {
			break // the socket is empty
		}
	}
	k.tell()
	return total > 0
}

// decrypt is receive with TLS. It reads until nothing is left, since the kernel does not tell of
// what was read from the socket already.
func (k *socket) decrypt() bool {
	r := &k.reader
	for any := false; ; any = true {
		to := r.rest
		if len(to) == 0 {
			to = r.staging
		}
		n, err := k.secure.read(to)
		switch {
		case errors.Is(err, io.EOF):
			k.ended()
			return true
		case err == nil && n == 0:
			k.tell()
			return any
		case err == nil:
			err = k.received(n)
		}
		if err != nil {
			k.conn.fail(err)
			return true
		}
	}
}

// received handles n bytes that were read into rest first, and the remainder into staging.
func (k *socket) received(n int) error {
	r := &k.reader
	if direct := min(n, len(r.rest)); direct > 0 {
		n -= direct
		if r.rest = r.rest[direct:]; len(r.rest) == 0 {
			if err := k.frameDone(); err != nil {
				return err
			}
		}
	}
	return k.consume(r.staging[:n])
}

// tell wakes those who wait for what has arrived.
func (k *socket) tell() {
	if k.reader.told {
		k.reader.told = false
		k.conn.f.doorbell.Ring()
	}
}

// ended handles the end of the stream. Sessions that the peer has closed before keep their own
// reason.
func (k *socket) ended() {
	c := k.conn
	if errno := k.writer.failed.Load(); errno != 0 {
		c.fail(syscall.Errno(errno))
		return
	}
	if k == c.main {
		// What left by the other sockets before has arrived there.
		for _, other := range c.others() {
			for !c.down.Load() && other.receive() {
			}
		}
		// The peer has ended its own direction only, and may wait for the answer to its goodbye,
		// which another thread has read.
		for c.flush(); c.writing.Load(); {
			runtime.Gosched()
		}
		c.fail(io.EOF)
		return
	}
	k.over.Store(true)
	c.f.poller.remove(k)
	if k.carried.Load() || k.reader.h.kind != 0 {
		// The end of the main socket follows, with what the peer says there before; or else
		// something is lost.
		time.AfterFunc(drainTime, func() { c.fail(io.EOF) })
	}
}

// consume parses bytes of the stream.
func (k *socket) consume(p []byte) error {
	r := &k.reader
	for len(p) > 0 {
		switch {
		case len(r.rest) > 0:
			n := copy(r.rest, p)
			p, r.rest = p[n:], r.rest[n:]
			if len(r.rest) == 0 {
				if err := k.frameDone(); err != nil {
					return err
				}
			}
		case r.skip > 0:
			n := min(r.skip, len(p))
			p, r.skip = p[n:], r.skip-n
		default:
			n := copy(r.head[r.have:], p)
			p, r.have = p[n:], r.have+n
			if r.have == headerBytes {
				r.have = 0
				if err := k.frameBegins(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// frameBegins handles a complete header and finds the place of the payload.
func (k *socket) frameBegins() error {
	r, p := &k.reader, k.conn.pair
	h := &r.h
	h.get(r.head[:])
	if h.check != 0 && h.check != headCheck(r.head[:]) {
		return errCorrupt
	}
	if k != k.conn.main {
		if h.kind != kindData && h.kind != kindCredit {
			return protocolErrorf("frame of kind %d over a further socket", h.kind)
		}
	} else if resuming := h.kind == kindArrived || h.kind == kindResume; resuming != k.conn.unresumed.Load() {
		return protocolErrorf("frame of kind %d, before or after the resumption", h.kind)
	}
	switch h.kind {
	case kindArrived, kindResume, kindOpen:
		return k.bodyBegins()
	case kindGone:
		if h.length != 0 {
			return protocolErrorf("answer of %d bytes", h.length)
		}
		p.gone(h.session)
		return nil
	}
	in := p.incoming[h.session]
	if in == nil && h.session >= p.opens {
		return protocolErrorf("frame of kind %d for session index %d, which is not open", h.kind, h.session)
	}
	if h.kind == kindGoodbye {
		if h.length > transport.MaxWhy {
			return protocolErrorf("goodbye frame of %d bytes", h.length)
		}
		if r.rest = r.body[:h.length]; h.length == 0 {
			return k.frameDone()
		}
		return nil
	}
	if in == nil && k.conn.several() && h.length <= maxPayload {
		r.skip = int(h.length) // the goodbye has overtaken it, on another socket
		return nil
	}
	if in == nil {
		return protocolErrorf("frame of kind %d for session index %d, which was closed", h.kind, h.session)
	}
	s := in.session.Load()
	if s == nil {
		return protocolErrorf("frame of kind %d for a session that is not open on both sides", h.kind)
	}
	if int(h.channel) >= len(s.channels) {
		return protocolErrorf("frame for channel %d of %d", h.channel, len(s.channels))
	}
	if !s.known.Load() {
		s.known.Store(true)
	}
	ch := &s.channels[h.channel]
	k.conn.encrypted.Load() // TLS has read what the credit frees
	if !ch.out.credit(h.credit, k.conn.several()) {
		return protocolErrorf("credit for fragments that were not sent")
	}
	r.told = true
	switch h.kind {
	case kindCredit:
		if h.length != 0 {
			return protocolErrorf("credit frame of %d bytes", h.length)
		}
		return ch.out.grant(h.number)
	case kindData:
		return k.dataBegins(s, ch)
	}
	return protocolErrorf("unknown kind of frame, %d", h.kind)
}

// goodbye handles the peer's goodbye, once the given number of fragments has arrived: some may
// still be on their way over other sockets. in is nil if it has come before.
func (k *socket) goodbye(index uint32, in *incoming, fragments uint32) error {
	p := k.conn.pair
	if in != nil {
		if in.parting {
			in.parting = false
			p.parting--
		}
		if !in.complete(fragments) {
			in.parting, in.fragments = true, fragments
			p.parting++
			return nil
		}
	}
	delete(p.incoming, index)
	k.reader.told = true
	return p.left(index, in)
}

// parts handles a goodbye that came before a fragment which has now arrived.
func (k *socket) parts(index uint32) error {
	p := k.conn.pair
	if p.parting == 0 {
		return nil
	}
	if in := p.incoming[index]; in != nil && in.parting && in.complete(in.fragments) {
		return k.goodbye(index, in, in.fragments)
	}
	return nil
}

// complete reports whether nothing more is to come than the given number of fragments.
func (in *incoming) complete(fragments uint32) bool {
	s := in.session.Load()
	if s == nil || s.closing.Load() {
		return true
	}
	for i := range s.channels {
		fragments -= s.channels[i].in.arrived.Load()
	}
	return fragments == 0
}

// bodyBegins handles the header of a frame whose payload is for the pair.
func (k *socket) bodyBegins() error {
	r := &k.reader
	n := int(r.h.length)
	switch h := &r.h; {
	case h.kind == kindOpen && n != openBytes:
		return protocolErrorf("open frame of %d bytes", n)
	case h.kind == kindArrived && (n%4 != 0 || n > 4*transport.MaxChannels || len(r.arrived) == maxSessions):
		return protocolErrorf("frame of %d bytes about a session of %d", n, len(r.arrived))
	case h.kind == kindResume && n != 0:
		return protocolErrorf("resumption of %d bytes", n)
	}
	if r.rest = r.body[:n]; n == 0 {
		return k.frameDone()
	}
	return nil
}

func (k *socket) dataBegins(s *session, ch *channel) error {
	r := &k.reader
	n := int(r.h.length)
	if r.h.length > maxPayload {
		return protocolErrorf("fragment of %d bytes", r.h.length)
	}
	if s.closing.Load() {
		r.skip = n
		return k.parts(r.h.session)
	}
	switch ch.in.begin(r.h.number, n, &r.h.meta) {
	case refused:
		return protocolErrorf("fragment %d of %d bytes without credit on channel %d", r.h.number, n, ch.index)
	case duplicate:
		r.skip = n
		return nil
	}
	if n > shortPayload {
		k.conn.widen(ch)
	}
	r.into, r.rest = &ch.in, ch.in.payload(r.h.number)
	if n == 0 {
		return k.frameDone()
	}
	return nil
}

// frameDone handles a frame whose payload has arrived completely.
func (k *socket) frameDone() error {
	r, p := &k.reader, k.conn.pair
	r.rest = nil
	r.told = true
	h := &r.h
	if h.kind == kindData {
		q := r.into
		r.into = nil
		if h.check != 0 && h.sum != crc32.Checksum(q.payload(h.number), castagnoli) {
			return errCorrupt
		}
		q.done(h.number)
		return k.parts(h.session)
	}
	body := r.body[:h.length]
	if h.check != 0 && h.sum != crc32.Checksum(body, castagnoli) {
		return errCorrupt
	}
	switch h.kind {
	case kindGoodbye:
		in := p.incoming[h.session]
		if in != nil {
			in.why = bytes.Clone(body)
		}
		return k.goodbye(h.session, in, h.number)
	case kindArrived:
		counts := make([]uint32, len(body)/4)
		for i := range counts {
			counts[i] = binary.LittleEndian.Uint32(body[4*i:])
		}
		if r.arrived == nil {
			r.arrived = map[uint32][]uint32{}
		}
		r.arrived[h.session] = counts
		return nil
	case kindResume:
		arrived := r.arrived
		r.arrived = nil
		return p.resume(k.conn, h.number, h.session, arrived)
	}
	if h.session < p.opens {
		if p.incoming[h.session] == nil {
			return protocolErrorf("session index %d used again", h.session)
		}
		return nil // it has come before
	}
	if len(p.incoming) == maxSessions {
		return protocolErrorf("more than %d sessions", maxSessions)
	}
	in := &incoming{index: h.session}
	in.opening.get(body)
	if o := &in.opening; o.from == o.to || o.from > 1<<30 || o.to > 1<<30 {
		return protocolErrorf("session between ranks %d and %d", o.from, o.to)
	}
	if h.session+1 == 0 {
		return protocolErrorf("session index %d", h.session)
	}
	p.incoming[h.session] = in
	p.announce(in)
	return nil
}

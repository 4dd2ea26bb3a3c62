package tcp

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"syscall"

	"github.com/goccl/goccl/transport"
)

const (
	stagingBytes = 16 << 10
	readBudget   = 1 << 20 // bytes that one call of progress reads at most
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
	body    [openBytes]byte
	arrived map[uint32][]uint32 // from the peer's resumption: by index and channel
	told    bool                // something arrived that a sleeper may wait for
	iov     scatter
}

// receive reads until the socket is empty or its budget is used up. It reports whether anything
// happened.
func (c *conn) receive() bool {
	if c.secure != nil {
		return c.decrypt()
	}
	r := &c.reader
	total := 0
	for total < readBudget {
		rest := r.rest
		n, room, errno := receiveInto(c.fd, rest, r.staging, &r.iov)
		if errno != 0 {
			if again(errno) {
				break
			}
			c.fail(errno)
			return true
		}
		if n == 0 {
			c.ended()
			return true
		}
		total += n
		if err := c.received(n); err != nil {
			c.fail(err)
			return true
		}
		if n < room {
			break // the socket is empty
		}
	}
	c.tell()
	return total > 0
}

// decrypt is receive with TLS. It reads until nothing is left, since the kernel does not tell of
// what was read from the socket already.
func (c *conn) decrypt() bool {
	r := &c.reader
	for any := false; ; any = true {
		to := r.rest
		if len(to) == 0 {
			to = r.staging
		}
		n, err := c.secure.read(to)
		switch {
		case errors.Is(err, io.EOF):
			c.ended()
			return true
		case err == nil && n == 0:
			c.tell()
			return any
		case err == nil:
			err = c.received(n)
		}
		if err != nil {
			c.fail(err)
			return true
		}
	}
}

// received handles n bytes that were read into rest first, and the remainder into staging.
func (c *conn) received(n int) error {
	r := &c.reader
	if direct := min(n, len(r.rest)); direct > 0 {
		n -= direct
		if r.rest = r.rest[direct:]; len(r.rest) == 0 {
			if err := c.frameDone(); err != nil {
				return err
			}
		}
	}
	return c.consume(r.staging[:n])
}

// tell wakes those who wait for what has arrived.
func (c *conn) tell() {
	if c.reader.told {
		c.reader.told = false
		c.f.doorbell.Ring()
	}
}

// ended handles the end of the stream. Sessions that the peer has closed before keep their own
// reason.
func (c *conn) ended() {
	if errno := c.writer.failed.Load(); errno != 0 {
		c.fail(syscall.Errno(errno))
		return
	}
	c.fail(io.EOF)
}

// consume parses bytes of the stream.
func (c *conn) consume(p []byte) error {
	r := &c.reader
	for len(p) > 0 {
		switch {
		case len(r.rest) > 0:
			n := copy(r.rest, p)
			p, r.rest = p[n:], r.rest[n:]
			if len(r.rest) == 0 {
				if err := c.frameDone(); err != nil {
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
				if err := c.frameBegins(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// frameBegins handles a complete header and finds the place of the payload.
func (c *conn) frameBegins() error {
	r, p := &c.reader, c.pair
	h := &r.h
	h.get(r.head[:])
	if h.check != 0 && h.check != headCheck(r.head[:]) {
		return errCorrupt
	}
	if resuming := h.kind == kindArrived || h.kind == kindResume; resuming != c.unresumed.Load() {
		return violates("frame of kind %d, before or after the resumption", h.kind)
	}
	switch h.kind {
	case kindArrived, kindResume, kindOpen:
		return c.bodyBegins()
	case kindGone:
		if h.length != 0 {
			return violates("answer of %d bytes", h.length)
		}
		p.gone(h.session)
		return nil
	}
	in := p.incoming[h.session]
	if in == nil && h.session >= p.opens {
		return violates("frame of kind %d for session index %d, which is not open", h.kind, h.session)
	}
	if h.kind == kindGoodbye {
		if h.length != 0 {
			return violates("goodbye frame of %d bytes", h.length)
		}
		delete(p.incoming, h.session)
		r.told = true
		return p.left(h.session, in)
	}
	if in == nil {
		return violates("frame of kind %d for session index %d, which was closed", h.kind, h.session)
	}
	s := in.session.Load()
	if s == nil {
		return violates("frame of kind %d for a session that is not open on both sides", h.kind)
	}
	if int(h.channel) >= len(s.channels) {
		return violates("frame for channel %d of %d", h.channel, len(s.channels))
	}
	ch := &s.channels[h.channel]
	if !ch.out.credit(h.credit) {
		return violates("credit for fragments that were not sent")
	}
	r.told = true
	switch h.kind {
	case kindCredit:
		if h.length != 0 {
			return violates("credit frame of %d bytes", h.length)
		}
		return ch.out.grant(h.number)
	case kindData:
		return c.dataBegins(s, ch)
	}
	return violates("unknown kind of frame, %d", h.kind)
}

// bodyBegins handles the header of a frame whose payload is for the pair.
func (c *conn) bodyBegins() error {
	r := &c.reader
	n := int(r.h.length)
	switch h := &r.h; {
	case h.kind == kindOpen && n != openBytes:
		return violates("open frame of %d bytes", n)
	case h.kind == kindArrived && (n%4 != 0 || n > 4*transport.MaxChannels || len(r.arrived) == maxSessions):
		return violates("frame of %d bytes about a session of %d", n, len(r.arrived))
	case h.kind == kindResume && n != 0:
		return violates("resumption of %d bytes", n)
	}
	if r.rest = r.body[:n]; n == 0 {
		return c.frameDone()
	}
	return nil
}

func (c *conn) dataBegins(s *session, ch *channel) error {
	r := &c.reader
	n := int(r.h.length)
	if r.h.length > maxPayload {
		return violates("fragment of %d bytes", r.h.length)
	}
	if s.closing.Load() {
		r.skip = n
		return nil
	}
	switch ch.in.begin(r.h.number, n, &r.h.meta) {
	case refused:
		return violates("fragment %d of %d bytes without credit on channel %d", r.h.number, n, ch.index)
	case duplicate:
		r.skip = n
		return nil
	}
	if n > shortPayload {
		c.widen(ch)
	}
	r.into, r.rest = &ch.in, ch.in.payload(r.h.number)
	if n == 0 {
		return c.frameDone()
	}
	return nil
}

// frameDone handles a frame whose payload has arrived completely.
func (c *conn) frameDone() error {
	r, p := &c.reader, c.pair
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
		return nil
	}
	body := r.body[:h.length]
	if h.check != 0 && h.sum != crc32.Checksum(body, castagnoli) {
		return errCorrupt
	}
	switch h.kind {
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
		return p.resume(c, h.number, arrived)
	}
	if h.session < p.opens {
		if p.incoming[h.session] == nil {
			return violates("session index %d used again", h.session)
		}
		return nil // it has come before
	}
	if len(p.incoming) == maxSessions {
		return violates("more than %d sessions", maxSessions)
	}
	in := &incoming{}
	in.opening.get(body)
	if o := &in.opening; o.from == o.to || o.from > 1<<30 || o.to > 1<<30 {
		return violates("session between ranks %d and %d", o.from, o.to)
	}
	p.opens = h.session + 1
	if p.opens == 0 {
		return violates("session index %d", h.session)
	}
	p.incoming[h.session] = in
	p.announce(in)
	return nil
}

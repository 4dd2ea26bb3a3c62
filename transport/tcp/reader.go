package tcp

import (
	"io"
	"syscall"
)

const (
	stagingBytes = 16 << 10
	readBudget   = 1 << 20 // bytes that one call of progress reads at most
)

// reader parses the peer's byte stream. It needs no lookahead: every byte goes into a header, into
// its place in a channel, or is skipped.
type reader struct {
	staging  []byte
	head     [headerBytes]byte
	have     int    // bytes of head received so far
	h        header // of the frame whose payload is being read
	rest     []byte // where the rest of the payload goes
	skip     int    // payload bytes to skip, of a session that was closed here
	into     *inQueue
	body     [openBytes]byte
	seq      uint64
	incoming []*incoming // by the peer's index
	told     bool        // something arrived that a sleeper may wait for
	iov      scatter
}

// receive reads until the socket is empty or its budget is used up. It reports whether anything
// happened.
func (c *conn) receive() bool {
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
		direct, err := min(n, len(rest)), error(nil)
		if direct > 0 {
			r.rest = rest[direct:]
			if len(r.rest) == 0 {
				err = c.frameDone()
			}
		}
		if err == nil {
			err = c.consume(r.staging[:n-direct])
		}
		if err != nil {
			c.fail(err)
			return true
		}
		if n < room {
			break // the socket is empty
		}
	}
	if r.told {
		r.told = false
		c.f.doorbell.Ring()
	}
	return total > 0
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
	r := &c.reader
	h := &r.h
	h.get(r.head[:])
	if h.seq != r.seq {
		return violates("frame %d arrived in place of frame %d", h.seq, r.seq)
	}
	r.seq++
	if h.zero != 0 || h.session >= maxSessions {
		return violates("malformed header, session index %d", h.session)
	}
	if h.kind == kindOpen {
		if h.length != openBytes {
			return violates("open frame of %d bytes", h.length)
		}
		r.rest = r.body[:]
		return nil
	}
	if int(h.session) >= len(r.incoming) || r.incoming[h.session] == nil {
		return violates("frame of kind %d for session index %d, which is not open", h.kind, h.session)
	}
	in := r.incoming[h.session]
	if h.kind == kindGoodbye {
		if h.length != 0 {
			return violates("goodbye frame of %d bytes", h.length)
		}
		r.incoming[h.session] = nil
		c.left(in)
		r.told = true
		return nil
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
		return nil
	case kindData:
		return c.dataBegins(s, ch)
	}
	return violates("unknown kind of frame, %d", h.kind)
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
	if !ch.in.begin(n, r.h.meta) {
		return violates("fragment of %d bytes without credit on channel %d", n, ch.index)
	}
	r.into, r.rest = &ch.in, ch.in.rest()
	if n == 0 {
		return c.frameDone()
	}
	return nil
}

// frameDone publishes a payload that has arrived completely.
func (c *conn) frameDone() error {
	r := &c.reader
	r.rest = nil
	r.told = true
	if r.h.kind == kindData {
		r.into.arrived.Store(r.into.begun)
		r.into = nil
		return nil
	}
	in := &incoming{}
	in.opening.get(r.body[:])
	for len(r.incoming) <= int(r.h.session) {
		r.incoming = append(r.incoming, nil)
	}
	if r.incoming[r.h.session] != nil {
		return violates("session index %d opened twice", r.h.session)
	}
	if o := &in.opening; o.from == o.to || o.from > 1<<30 || o.to > 1<<30 {
		return violates("session between ranks %d and %d", o.from, o.to)
	}
	r.incoming[r.h.session] = in
	c.announced(in)
	return nil
}

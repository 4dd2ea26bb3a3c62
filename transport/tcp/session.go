package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// sessionKey identifies the session that an open frame of the peer belongs to, with the ranks as
// seen from this side.
type sessionKey struct {
	id         [16]byte
	rank, peer int
}

// session is the transport.Link of one session with a peer process.
type session struct {
	node      node
	pair      *pair
	spec      transport.Session
	index     uint32 // in the frames of this side, once openSent; each is used for one session
	channels  []channel
	err       atomic.Pointer[fault.Error] // why it ended; the first reason stays
	closing   atomic.Bool                 // Close was called
	counted   atomic.Bool                 // in pair.background: its goodbye is to be sent
	removed   atomic.Bool                 // from the tables: nothing more is sent
	opened    chan struct{}               // closed when the peer's open has arrived, even if it does not match
	announced bool                        // guarded by pair.mu: opened is closed
	ready     atomic.Bool                 // the peer's open has arrived and fits: data may leave
	known     atomic.Bool                 // the peer has sent data or credit: this side's open has arrived there
	spoke     atomic.Bool                 // control messages were told
	expecting atomic.Bool                 // counted in pair.background: fragments wait for the peer's open
	theirs    uint32                      // guarded by pair.mu: the peer's index, once it is announced
	why       atomic.Pointer[[]byte]      // what the goodbye says; nil for nothing
	answered  bool                        // guarded by pair.mu: the peer knows that this side has left
	spent     [2]int64                    // guarded by pair.mu: bytes of room beyond the first, in and out
	openSent  bool                        // writer, under pair.mu: it has an index
	byeSent   bool                        // writer
}

var errLinkClosed = fault.New(fault.Closed, "tcp: the link was closed on this side")

func newSession(p *pair, spec transport.Session) *session {
	s := &session{pair: p, spec: spec, opened: make(chan struct{}),
		channels: make([]channel, spec.Channels)}
	s.node.session = s
	for i := range s.channels {
		ch := &s.channels[i]
		ch.session, ch.index, ch.node.channel = s, byte(i), ch
	}
	return s
}

func (s *session) key() sessionKey { return sessionKey{s.spec.ID, s.spec.Rank, s.spec.Peer} }

// standing returns what recovery.go decides by. pair.mu is held.
func (s *session) standing() standing {
	return standing{announced: s.announced, openSent: s.openSent, onUse: s.spec.OnUse, closing: s.closing.Load(),
		ended: s.err.Load() != nil, unsent: s.unsent()}
}

// Channel implements transport.Link.
func (s *session) Channel(i int) transport.Channel { return &s.channels[i] }

// Err implements transport.Link.
func (s *session) Err() error {
	if e := s.err.Load(); e != nil {
		return e
	}
	if s.closing.Load() {
		return errLinkClosed
	}
	return nil
}

func (s *session) ended() bool { return s.err.Load() != nil || s.closing.Load() }

// Close implements transport.Link. Committed fragments lie within the peer's credit, so they need
// only the socket to leave.
func (s *session) Close() error { return s.Leave(nil) }

// Leave implements transport.Link.
func (s *session) Leave(why []byte) error {
	if len(why) > 0 {
		said := bytes.Clone(why[:min(len(why), transport.MaxWhy)])
		s.why.CompareAndSwap(nil, &said)
	}
	if !s.closing.Swap(true) && s.pair.close(s) {
		s.pair.enqueue(&s.node)
	}
	return nil
}

// State implements transport.Link.
func (s *session) State() transport.LinkState {
	state := transport.LinkState{Network: true}
	p := s.pair
	p.mu.Lock()
	h := p.healing
	p.mu.Unlock()
	c := p.live.Load()
	if c != nil {
		state.From, state.To = c.main.from, c.main.remote
		state.RoundTrip, state.Silent = c.look()
	}
	if h != nil {
		state.Silent = h.silent()
	}
	return state
}

// pending notes whether a goodbye is to be sent. Until it has been written, the fabric's goroutine
// writes where no thread polls.
func (s *session) pending(on bool) {
	if s.counted.Swap(on) == on {
		return
	}
	if on {
		s.pair.background.Add(1)
	} else {
		s.pair.background.Add(-1)
	}
}

// Flushed implements transport.Link: it reports whether the socket has taken everything.
func (s *session) Flushed() bool {
	if s.err.Load() != nil {
		return true
	}
	c := s.pair.live.Load()
	if c == nil && s.drained() && !s.pair.heals() {
		return true
	}
	if c == nil || c.unresumed.Load() || !c.writing.CompareAndSwap(false, true) {
		return s.err.Load() != nil
	}
	flushed := s.drained()
	for _, k := range c.all() {
		flushed = flushed && (len(k.writer.rest) == 0 || k.writer.of != s) &&
			(k.secure == nil || !k.secure.unsent.Load())
	}
	c.writing.Store(false)
	c.flush() // for frames that other threads have queued meanwhile
	return flushed
}

// fail records why the session ended, unless it has ended before.
func (s *session) fail(e *fault.Error) { s.err.CompareAndSwap(nil, e) }

// drained reports whether all fragments have been written or are being written. The writing lock
// is held.
func (s *session) drained() bool {
	for i := range s.channels {
		if q := &s.channels[i].out; q.started.Load() != q.committed.Load() {
			return false
		}
	}
	return true
}

// started returns how many fragments have been written, or are being written. The writing lock is
// held.
func (s *session) started() (fragments uint32) {
	for i := range s.channels {
		fragments += s.channels[i].out.started.Load()
	}
	return fragments
}

// refused reports whether the session ended before any data could leave.
func (s *session) refused() bool { return !s.ready.Load() && s.err.Load() != nil }

// opening is the payload of an open frame.
type opening struct {
	id       [16]byte
	from, to uint32
	channels uint32
	proof    [32]byte
}

func (o *opening) put(b []byte) {
	le := binary.LittleEndian
	copy(b, o.id[:])
	le.PutUint32(b[16:], o.from)
	le.PutUint32(b[20:], o.to)
	le.PutUint32(b[24:], o.channels)
	copy(b[28:openBytes], o.proof[:])
}

func (o *opening) get(b []byte) {
	le := binary.LittleEndian
	copy(o.id[:], b)
	o.from, o.to, o.channels = le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:])
	copy(o.proof[:], b[28:openBytes])
}

// prove fills in the proof of knowing the session's key, which is valid between these processes in
// this direction only.
func (o *opening) prove(key [32]byte, binding [32]byte, byDialer bool) {
	var text [1 + 32 + openBytes]byte
	if byDialer {
		text[0] = 1
	}
	copy(text[1:], binding[:])
	o.proof = [32]byte{}
	o.put(text[33:])
	mac := hmac.New(sha256.New, key[:])
	mac.Write(text[:])
	mac.Sum(o.proof[:0])
}

// opening returns the announcement of this side.
func (s *session) opening() opening {
	o := opening{id: s.spec.ID, from: uint32(s.spec.Rank), to: uint32(s.spec.Peer), channels: uint32(s.spec.Channels)}
	o.prove(s.spec.Key, s.pair.binding, !s.pair.key.accept)
	return o
}

// check compares the peer's announcement with this side's session.
func (s *session) check(o *opening) *fault.Error {
	want := opening{id: s.spec.ID, from: uint32(s.spec.Peer), to: uint32(s.spec.Rank), channels: o.channels}
	want.prove(s.spec.Key, s.pair.binding, s.pair.key.accept)
	if !hmac.Equal(want.proof[:], o.proof[:]) {
		return fault.Peer(fault.Mismatch, s.spec.Peer,
			"tcp: %s does not know the key of this group; do all ranks of it use the same store?", s.pair.where())
	}
	if int(o.channels) != s.spec.Channels {
		return fault.Peer(fault.Mismatch, s.spec.Peer,
			"tcp: %d channels here, and %d at %s; all ranks need the same options", s.spec.Channels, o.channels, s.pair.where())
	}
	return nil
}

func checkSpec(s *transport.Session) error {
	const limit = 1 << 30
	switch {
	case s.Channels < 1 || s.Channels > transport.MaxChannels:
		return fault.New(fault.Invalid, "tcp: %d channels, allowed are 1 to %d", s.Channels, transport.MaxChannels)
	case s.Rank < 0 || s.Peer < 0 || s.Rank > limit || s.Peer > limit || s.Rank == s.Peer:
		return fault.New(fault.Invalid, "tcp: rank %d cannot be linked with rank %d", s.Rank, s.Peer)
	}
	return nil
}

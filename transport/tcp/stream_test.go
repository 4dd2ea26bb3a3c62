package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

// deaf returns a connection without a socket, over which session 0 with two channels is open. The
// peer has the ranks swapped.
func deaf() (*conn, *session) {
	f := &Fabric{doorbell: park.NewDoorbell(), self: sample(1, "10.0.0.2/24")}
	f.opts.Warn = func(string, ...any) {}
	p := newPair(f, pairKey{}, sample(2, "10.0.0.1/24"))
	c := newConn(p, -1, nil)
	c.main.remote = "10.0.0.1:4000"
	s, err := p.start(transport.Session{ID: [16]byte{5}, Rank: 0, Peer: 1, Channels: 2})
	if err != nil {
		panic(err)
	}
	in := &incoming{opening: announcement(p, transport.Session{ID: [16]byte{5}, Rank: 1, Peer: 0, Channels: 2})}
	p.incoming[0], p.opens = in, 1
	p.announce(in)
	s.openSent = true
	s.channels[0].out.started.Store(3) // so that credit can be returned
	p.live.Store(c)
	return c, s
}

// announcement returns the peer's announcement of a session to p.
func announcement(p *pair, s transport.Session) opening {
	o := opening{id: s.ID, from: uint32(s.Rank), to: uint32(s.Peer), channels: uint32(s.Channels)}
	o.prove(s.Key, p.binding, p.key.accept)
	return o
}

func frameOf(h header, payload []byte) []byte {
	b := make([]byte, headerBytes+len(payload))
	h.length = uint32(len(payload))
	h.put(b)
	copy(b[headerBytes:], payload)
	return b
}

// renumber gives the fragments in b the numbers in which they come, as far as their lengths make
// sense.
func renumber(b []byte) []byte {
	b = bytes.Clone(b)
	next := map[[5]byte]uint32{} // by session and channel
	for at := 0; at+headerBytes <= len(b); {
		if b[at] == kindData {
			key := [5]byte(append(b[at+4:at+8:at+8], b[at+1]))
			binary.LittleEndian.PutUint32(b[at+16:], next[key])
			next[key]++
		}
		at += headerBytes + int(binary.LittleEndian.Uint32(b[at+8:]))
	}
	return b
}

// outcome describes what a stream has led to: the fragments that arrived and the errors.
func outcome(t *testing.T, c *conn, s *session, err error) string {
	var b bytes.Buffer
	for i := range s.channels {
		ch := &s.channels[i]
		if q := &ch.out; q.freed.Load() > q.started.Load() {
			t.Fatalf("channel %d: credit for %d of %d fragments", i, q.freed.Load(), q.started.Load())
		}
		most := maxFragments << ch.in.scale.Load()
		if m := &ch.in.memory; m.long.made > most/2 || m.short.made > most {
			t.Fatalf("channel %d: %d and %d buffers", i, m.long.made, m.short.made)
		}
		for n := 0; ; n++ {
			p, m, ok := ch.Peek()
			if !ok {
				break
			}
			if len(p) > maxPayload || n == most {
				t.Fatalf("channel %d: fragment %d has %d bytes", i, n, len(p))
			}
			b.WriteString("|")
			b.Write(p)
			b.WriteByte(byte(m[0]))
			ch.in.released.Add(1)
		}
	}
	if err != nil {
		var v *protocolError
		var told *fault.Error
		switch {
		case errors.As(err, &v), errors.Is(err, errCorrupt):
		case errors.As(err, &told) && told.Code == fault.Internal && strings.Contains(told.Text, "given up the path"):
		default:
			t.Fatalf("error %v is no protocol error", err)
		}
		b.WriteString(err.Error())
	}
	if e := s.err.Load(); e != nil {
		b.WriteString(e.Error())
	}
	return b.String()
}

// streams returns seeds for the fuzzer: seven valid streams, one of a peer that gives up the path,
// and four invalid ones.
func streams() [][]byte {
	c, _ := deaf()
	o := announcement(c.pair, transport.Session{ID: [16]byte{6}, Rank: 1, Peer: 0, Channels: 1})
	body := make([]byte, openBytes)
	o.put(body)
	data := func(session uint32, channel byte, n int) []byte {
		return frameOf(header{kind: kindData, session: session, channel: channel, meta: transport.Meta{7}},
			bytes.Repeat([]byte{'d'}, n))
	}
	open := frameOf(header{kind: kindOpen, session: 1}, body)
	bye := func(session uint32) []byte { return frameOf(header{kind: kindGoodbye, session: session}, nil) }
	credit := func(n uint32) []byte { return frameOf(header{kind: kindCredit, credit: n}, nil) }
	var tooMany [][]byte
	for range maxFragments + 1 {
		tooMany = append(tooMany, data(0, 1, 1))
	}
	var all [][]byte
	for _, frames := range [][][]byte{
		{data(0, 0, 0), data(0, 1, 1), data(0, 1, 300), credit(2), data(0, 1, 3), bye(0)},
		{open, bye(1), bye(0), bye(1)},
		{frameOf(header{kind: kindArrived}, []byte{2, 0, 0, 0, 0, 0, 0, 0}),
			frameOf(header{kind: kindResume, number: 1}, nil), data(0, 0, 9), credit(1)},
		{frameOf(header{kind: kindResume}, nil), data(0, 0, 9), frameOf(header{kind: kindGone}, nil)},
		{frameOf(header{kind: kindResume, session: 3}, nil), data(0, 0, 9)},
		{credit(3), data(0, 1, 20)},
		append([][]byte{frameOf(header{kind: kindCredit, number: 1<<8 | 2}, nil)}, tooMany...),
		{frameOf(header{kind: kindGoodbye}, []byte(`{"code":4,"ranks":[1],"from":1,"text":"it died"}`))},
		{data(1, 0, 1)},
		{open, data(1, 0, 1)},
		tooMany,
		{credit(4)},
	} {
		all = append(all, renumber(bytes.Join(frames, nil)))
	}
	return all
}

func FuzzStream(f *testing.F) {
	for _, s := range streams() {
		f.Add(s, uint16(17))
		f.Add(s, uint16(19))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		if cut&1 == 1 {
			stream = renumber(stream)
		}
		start := func() (*conn, *session) {
			c, s := deaf()
			c.unresumed.Store(cut&2 == 2)
			return c, s
		}
		c, s := start()
		whole := outcome(t, c, s, c.main.consume(stream))
		c, s = start()
		var err error
		for step := 1 + int(cut)%100; len(stream) > 0 && err == nil; {
			n := min(step, len(stream))
			err = c.main.consume(stream[:n])
			stream = stream[n:]
		}
		if parts := outcome(t, c, s, err); parts != whole {
			t.Fatalf("in one piece:\n%q\nin small ones:\n%q", whole, parts)
		}
	})
}

// TestLastByteRings has a fragment arrive in two pieces: the second piece must wake the sleepers,
// too.
func TestLastByteRings(t *testing.T) {
	c, s := deaf()
	frame := frameOf(header{kind: kindData}, []byte("payload"))
	require.NoError(t, c.main.consume(frame[:headerBytes+3]))
	_, _, ok := s.channels[0].Peek()
	require.False(t, ok)
	c.main.reader.told = false
	require.NoError(t, c.main.consume(frame[headerBytes+3:]))
	require.True(t, c.main.reader.told)
	payload, _, ok := s.channels[0].Peek()
	require.True(t, ok)
	require.Equal(t, "payload", string(payload))
}

// script is a connection that sends what Reader contains and ignores what is written to it.
type script struct {
	net.Conn
	io.Reader
}

func (s script) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s script) Write(b []byte) (int, error) { return len(b), nil }

func FuzzHandshake(f *testing.F) {
	self, peer := sample(1, "127.0.0.1/8"), sample(2, "127.0.0.1/8")
	h := makeHello(helloFirst, &peer.id, &self.id, epoch{}, nonce{})
	f.Add(append(h[:], make([]byte, 32)...))
	control := makeHello(helloControl, &peer.id, &self.id, epoch{}, nonce{1})
	f.Add(append(control[:], make([]byte, 32)...))
	f.Add(append(control[:], appendControl(nil, controlHeader{kind: controlHeard}, nil, true)...))
	f.Add(append(h[:], bytes.Repeat([]byte{0xff}, 64)...))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		dialer := script{Reader: bytes.NewReader(said)}
		if h, err := readHello(dialer, self); err == nil {
			if _, err := acceptHandshake(dialer, h, peer, self, epoch{}, 0); err == nil {
				t.Fatalf("a stranger was accepted as dialer: %x", said)
			}
		}
		h := makeHello(helloFirst, &self.id, &peer.id, epoch{}, nonce{})
		if _, err := dialHandshake(script{Reader: bytes.NewReader(said)}, h, self, peer); err == nil {
			t.Fatalf("a stranger was accepted as acceptor: %x", said)
		}
	})
}

// TestLongestPayload checks that a frame of the longest fragment fills whole segments, as many as
// are passed on at once.
func TestLongestPayload(t *testing.T) {
	for _, test := range []struct {
		segment int
		secure  bool
		want    uint32
	}{
		{1448, false, 65088}, // 45 segments of Ethernet: 65160 bytes with the header
		{1448, true, 65024},
		{8948, false, 62528},       // 7 of jumbo frames
		{32741, false, maxPayload}, // loopback
		{65483, false, 65408},
		{0, false, maxPayload},
		{1 << 20, false, maxPayload},
		{40000, false, 39936},
		{100, true, 65024},
	} {
		got := longestPayload(test.segment, test.secure)
		require.Equal(t, test.want, got, "%+v", test)
		require.Zero(t, got%64)
	}
}

package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

// controlSocketOf returns the control socket of a link, once the peer has said what has arrived
// there.
func controlSocketOf(s *session) *controlSocket {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	if k := s.pair.control.socket; k != nil && k.begun {
		return k
	}
	return nil
}

// awaitControl waits for the control sockets of links.
func awaitControl(t testing.TB, links ...*session) {
	t.Helper()
	for _, l := range links {
		require.Eventually(t, func() bool { return controlSocketOf(l) != nil }, hang, time.Millisecond)
	}
}

// joinHearing is joinVia with handlers that pass on what they hear.
func joinHearing(
	t testing.TB, a, b *Fabric, addressA, addressB []byte, n byte,
) (la, lb *session, heardA, heardB chan string) {
	t.Helper()
	heardA, heardB = make(chan string, 1000), make(chan string, 1000)
	sa := transport.Session{ID: [16]byte{n}, Rank: 0, Peer: 1, Channels: 1}
	sb := sa
	sb.Rank, sb.Peer = 1, 0
	sa.Control = func(message []byte) { heardA <- string(message) }
	sb.Control = func(message []byte) { heardB <- string(message) }
	la, lb = joinAs(t, a, b, addressA, addressB, sa, sb)
	return la, lb, heardA, heardB
}

func hears(t testing.TB, heard chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		require.Equal(t, want, got)
	case <-time.After(hang):
		t.Fatalf("hangs: %q does not arrive", want)
	}
}

// TestControlSocketBreaks breaks control sockets only, now on one side and then on the other:
// others take their place, and the connection is not affected. Nobody polls.
func TestControlSocketBreaks(t *testing.T) {
	var told warnings
	a, b, _, _ := ordered(t, func(o *Options) { o.Warn = told.warn })
	la, lb, heardA, heardB := joinHearing(t, a, b, a.Address(), b.Address(), 1)
	c := la.pair.live.Load()
	for i := range 20 {
		awaitControl(t, la, lb)
		k := controlSocketOf([]*session{la, lb}[i%2])
		for n := range 5 {
			require.True(t, la.Tell(fmt.Append(nil, i, n)))
			require.True(t, lb.Tell(fmt.Append(nil, -i, n)))
			if k != nil && n == i%5 {
				if i%3 == 0 {
					k.nc.SetLinger(0)
				}
				k.nc.TCPConn.CloseWrite()
				k.nc.Close()
			}
		}
		for n := range 5 {
			hears(t, heardB, string(fmt.Append(nil, i, n)))
			hears(t, heardA, string(fmt.Append(nil, -i, n)))
		}
	}
	require.Same(t, c, la.pair.live.Load())
	n, text := told.get()
	require.Zero(t, n, text)
}

// TestControlHidden looks for control messages on the wire.
func TestControlHidden(t *testing.T) {
	for _, hides := range []bool{false, true} {
		a, b, _, _ := ordered(t, func(o *Options) { o.TLS = hides })
		path, address := newRelay(t, b)
		seen := path.watch("the plain text")
		la, _, _, heardB := joinHearing(t, a, b, a.Address(), address, 1)
		require.True(t, la.Tell([]byte("the plain text")))
		hears(t, heardB, "the plain text")
		require.Equal(t, !hides, seen(), "TLS: %v", hides)
	}
}

// TestControlEpoch has one side give up the pair while messages wait: those of the next session
// arrive, and none of the old one.
func TestControlEpoch(t *testing.T) {
	for _, side := range []string{"dialer", "acceptor"} {
		a, b, _, _ := ordered(t, nil)
		la, lb, heardA, heardB := joinHearing(t, a, b, a.Address(), b.Address(), 1)
		require.True(t, la.Tell([]byte("one")))
		require.True(t, lb.Tell([]byte("two")))
		hears(t, heardB, "one")
		hears(t, heardA, "two")
		one := la
		if side == "acceptor" {
			one = lb
		}
		one.pair.live.Load().fail(protocolErrorf("nonsense"))
		require.False(t, one.Tell([]byte("lost")), "the link has ended")
		require.Eventually(t, func() bool { return la.Err() != nil && lb.Err() != nil }, hang, time.Millisecond)
		for range 3 {
			ka, kb, heardA, heardB := joinHearing(t, a, b, a.Address(), b.Address(), 2)
			for i := range 10 {
				require.True(t, ka.Tell([]byte{byte(i)}))
				require.True(t, kb.Tell([]byte{byte(-i)}))
			}
			for i := range 10 {
				hears(t, heardB, string([]byte{byte(i)}))
				hears(t, heardA, string([]byte{byte(-i)}))
			}
			ka.Close()
			kb.Close()
		}
		require.Empty(t, heardA)
		require.Empty(t, heardB)
		require.EqualValues(t, 30, la.pair.control.heard)
	}
}

// TestControlAfterSessions closes links with messages that have not arrived, and breaks the
// connection: although no session needs one, another one brings them.
func TestControlAfterSessions(t *testing.T) {
	a, b, _, _ := ordered(t, nil)
	viaA, addressA := newRelay(t, a)
	viaB, addressB := newRelay(t, b)
	la, lb, _, heardB := joinHearing(t, a, b, addressA, addressB, 1)
	awaitControl(t, la, lb)
	// The peer takes nothing for a while, so that nothing is acknowledged.
	lb.pair.hearing.Lock()
	for i := range 10 {
		require.True(t, la.Tell([]byte{byte(i)}))
	}
	require.NoError(t, la.Close())
	require.Eventually(t, func() bool {
		a.Poll()
		b.Poll()
		return lb.Err() != nil && la.pair.open() == 0
	}, hang, time.Millisecond, "the goodbye is answered")
	viaA.reset()
	viaB.reset()
	lb.pair.hearing.Unlock()
	for i := range 10 {
		hears(t, heardB, string([]byte{byte(i)}))
	}
	require.Eventually(t, func() bool { return la.pair.background.Load() == 0 }, hang, time.Millisecond)
}

// TestControlLingers closes a fabric while a handler of the peer makes messages wait: Close waits
// for them.
func TestControlLingers(t *testing.T) {
	a, b, _, _ := ordered(t, nil)
	begun, wait := make(chan bool, 1), make(chan bool)
	var count atomic.Int32
	sa := transport.Session{ID: [16]byte{1}, Rank: 0, Peer: 1, Channels: 1}
	sb := sa
	sb.Rank, sb.Peer = 1, 0
	sb.Control = func([]byte) {
		if count.Add(1) == 1 {
			begun <- true
			<-wait
		}
	}
	la, _ := joinAs(t, a, b, a.Address(), b.Address(), sa, sb)
	told := int32(0)
	for la.Tell(make([]byte, transport.MaxControl)) {
		told++
	}
	<-begun
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	<-a.stopping
	wait <- true
	require.NoError(t, <-closed)
	require.Eventually(t, func() bool { return count.Load() == told }, hang, time.Millisecond)
}

// TestControlWaitsForOpen has a message arrive before the open frame of its session.
func TestControlWaitsForOpen(t *testing.T) {
	other, _ := loopback(t, nil)
	k, _, _ := deafControl(other)
	p := k.conn.pair
	heard := make(chan string, 1)
	spec := transport.Session{ID: [16]byte{6}, Rank: 0, Peer: 1, Channels: 1,
		Control: func(message []byte) { heard <- string(message) }}
	_, err := p.start(spec)
	require.NoError(t, err)
	done := make(chan error, 1)
	frame := appendControl(nil, controlHeader{kind: controlText, session: 7, number: 1}, []byte("early"), true)
	go func() { done <- k.read(bytes.NewReader(frame)) }()
	require.Eventually(t, func() bool { return p.background.Load() > 0 }, hang, time.Millisecond, "somebody reads")
	require.Empty(t, heard)
	spec.Rank, spec.Peer = 1, 0
	p.announce(&incoming{opening: announcement(p, spec), index: 7})
	hears(t, heard, "early")
	require.ErrorIs(t, <-done, io.EOF)
	require.Zero(t, p.background.Load())
}

// TestControlDamage flips each bit of frames with checksums: none of them is taken for another one.
func TestControlDamage(t *testing.T) {
	frames := appendControl(nil, controlHeader{kind: controlText, number: 1}, []byte("text"), true)
	frames = appendControl(frames, controlHeader{kind: controlHeard}, nil, true)
	other, _ := loopback(t, nil)
	for i := range 8 * len(frames) {
		k, heard, _ := deafControl(other)
		damaged := append(bytes.Clone(frames), make([]byte, 1<<16)...)
		damaged[i/8] ^= 1 << (i % 8)
		err := k.read(bytes.NewReader(damaged))
		var v *protocolError
		require.True(t, errors.Is(err, errCorrupt) || errors.As(err, &v), "bit %d: %v", i, err)
		require.LessOrEqual(t, len(*heard), 1)
		for _, text := range *heard {
			require.Equal(t, "text", text)
		}
	}
}

// controlPeer is a process without a fabric that is linked with b, and has a control socket.
type controlPeer struct {
	self address
	main nonce
	l    transport.Link
}

func newControlPeer(t *testing.T, b *Fabric, other *Fabric, heard chan string) *controlPeer {
	t.Helper()
	peer := &controlPeer{self: *other.self}
	peer.self.id = [16]byte{} // the smallest id, which dials
	spec := transport.Session{ID: [16]byte{1}, Rank: 0, Peer: 1, Channels: 1}
	if heard != nil {
		spec.Control = func(message []byte) { heard <- string(message) }
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		l, err := b.Connect(ctx, peer.self.encode(), spec)
		peer.l = l
		done <- err
	}()
	nc := dialRaw(t, b)
	g, err := dialHandshake(nc, makeHello(helloFirst, &peer.self.id, &b.self.id, epoch{}, nonce{}), &peer.self, b.self)
	require.NoError(t, err)
	peer.main = g.nonce
	spec.Rank, spec.Peer = 1, 0
	o := announcement(newPair(b, pairKey{b.self.id, true}, &peer.self), spec)
	body := make([]byte, openBytes)
	o.put(body)
	go io.Copy(io.Discard, nc)
	_, err = nc.Write(append(frameOf(header{kind: kindResume}, nil), frameOf(header{kind: kindOpen}, body)...))
	require.NoError(t, err)
	require.NoError(t, <-done)
	return peer
}

// TestControlViolations has an authenticated peer break the rules of control sockets.
func TestControlViolations(t *testing.T) {
	text := func(number uint64) []byte {
		return appendControl(nil, controlHeader{kind: controlText, number: number}, []byte("text"), false)
	}
	acknowledge := func(number uint64) []byte {
		return appendControl(nil, controlHeader{kind: controlHeard, number: number}, nil, false)
	}
	long := text(1)
	binary.LittleEndian.PutUint16(long[2:], transport.MaxControl+1)
	for _, tt := range []struct {
		name, says string
		frames     [][]byte
	}{
		{"unknown kind", "unknown kind of frame on a control socket, 9",
			[][]byte{appendControl(nil, controlHeader{kind: 9}, nil, false)}},
		{"too long", "control message of 4097 bytes", [][]byte{long}},
		{"a gap", "control message 2 comes after 0", [][]byte{text(2)}},
		{"twice", "control message 1 comes after 1", [][]byte{text(1), text(1)}},
		{"nothing was sent", "1 control messages that were not sent", [][]byte{acknowledge(0), acknowledge(1)}},
		{"long acknowledgement", "acknowledgement of 1 bytes",
			[][]byte{appendControl(nil, controlHeader{kind: controlHeard}, []byte{1}, false)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, _ := loopback(t, nil)
			other, _ := loopback(t, nil)
			peer := newControlPeer(t, b, other, nil)
			nc := dialRaw(t, b)
			_, err := dialHandshake(nc, makeHello(helloControl, &peer.self.id, &b.self.id, epoch{}, peer.main),
				&peer.self, b.self)
			require.NoError(t, err)
			nc.Write(bytes.Join(tt.frames, nil)) // the connection may be cut meanwhile
			require.Eventually(t, func() bool { return peer.l.Err() != nil }, hang, time.Millisecond)
			requireFault(t, peer.l.Err(), fault.Internal, 1)
			require.ErrorContains(t, peer.l.Err(), tt.says)
		})
	}
}

// TestControlStrangers has processes ask for a control socket that must not have one; and a peer
// ask for a second one, which takes the place of the first.
func TestControlStrangers(t *testing.T) {
	b, _ := loopback(t, nil)
	other, _ := loopback(t, nil)
	heard := make(chan string, 10)
	peer := newControlPeer(t, b, other, heard)
	liar := peer.self
	liar.secret[0] ^= 1
	text := func(number uint64, what string) []byte {
		return appendControl(nil, controlHeader{kind: controlText, number: number}, []byte(what), false)
	}
	for name, tt := range map[string]struct {
		self *address
		main nonce
	}{
		"no secret":          {&liar, peer.main},
		"another connection": {&peer.self, nonce{1}},
	} {
		nc := dialRaw(t, b)
		h := makeHello(helloControl, &tt.self.id, &b.self.id, epoch{}, tt.main)
		nc.Write(h[:])
		var reply [replyBytes]byte
		_, err := io.ReadFull(nc, reply[:])
		require.NoError(t, err, name)
		proof := prove("dial", tt.self, b.self, h, reply[:nonceBytes])
		nc.Write(append(proof[:], text(1, "a stranger's")...))
		requireEnd(t, nc)
	}
	join := func() io.ReadWriter {
		nc := dialRaw(t, b)
		_, err := dialHandshake(nc, makeHello(helloControl, &peer.self.id, &b.self.id, epoch{}, peer.main),
			&peer.self, b.self)
		require.NoError(t, err)
		return nc
	}
	says := func(from io.Reader, number uint64) {
		t.Helper()
		want := appendControl(nil, controlHeader{kind: controlHeard, number: number}, nil, false)
		got := make([]byte, len(want))
		_, err := io.ReadFull(from, got)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	first := join()
	says(first, 0)
	first.Write(text(1, "first"))
	hears(t, heard, "first")
	says(first, 1)
	second := join()
	says(second, 1)
	_, err := first.Read(make([]byte, 1))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Error(t, err)
	second.Write(text(2, "second"))
	hears(t, heard, "second")
	require.NoError(t, peer.l.Err())
	require.Empty(t, heard)
}

// TestDeathUnattended kills a process while nobody polls on this side: the link ends all the same.
// What had arrived can be read.
func TestDeathUnattended(t *testing.T) {
	if *parentAddress != "" {
		doomed(t, *parentAddress)
		return
	}
	f, _ := loopback(t, nil)
	child, peer := startDoomed(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	heard := make(chan string, 1)
	l, err := f.Connect(ctx, peer, transport.Session{Rank: 0, Peer: 1, Channels: 1,
		Control: func(message []byte) { heard <- string(message) }})
	require.NoError(t, err)
	hears(t, heard, "said")
	require.NoError(t, child.Process.Kill())
	killed := time.Now()
	require.Eventually(t, func() bool { return l.Err() != nil }, hang, time.Millisecond)
	require.Less(t, time.Since(killed), f.opts.silence()/2, "not because attend has looked")
	requireFault(t, l.Err(), fault.PeerLost, 1)
	require.False(t, l.(*session).Tell([]byte("hello?")))
	text, _, ok := l.Channel(0).Peek()
	require.True(t, ok)
	require.Equal(t, "last words", string(text))
}

// deafControl returns a control socket of deaf's connection, which is none, and what its session
// has heard. The poller of another fabric watches nothing for it.
func deafControl(other *Fabric) (k *controlSocket, heard *[]string, s *session) {
	c, s := deaf()
	c.f.poller = other.poller
	k = &controlSocket{conn: c, poke: make(chan struct{}, 1), over: make(chan struct{})}
	c.pair.control.socket = k
	k.begun = true
	heard = &[]string{}
	s.spec.Control = func(message []byte) { *heard = append(*heard, string(message)) }
	c.pair.control.hears[0] = s
	return k, heard, s
}

// FuzzControl feeds what a peer may send over a control socket to a side that has sent two of three
// messages.
func FuzzControl(f *testing.F) {
	text := func(session uint32, number uint64, n int, sum bool) []byte {
		h := controlHeader{kind: controlText, session: session, number: number}
		return appendControl(nil, h, bytes.Repeat([]byte{'t'}, n), sum)
	}
	acknowledge := func(number uint64) []byte {
		return appendControl(nil, controlHeader{kind: controlHeard, number: number}, nil, false)
	}
	for _, frames := range [][][]byte{
		{acknowledge(0), text(0, 1, 10, false), text(0, 2, 0, true), acknowledge(2),
			text(0, 3, transport.MaxControl, true)},
		{text(0, 1, 1, true), text(1, 2, 1, true)},
		{text(0, 2, 1, true)},
		{acknowledge(3)},
		{text(0, 1, transport.MaxControl+1, false)},
		{text(0, 1, 3, true)[:controlBytes+2]},
	} {
		f.Add(bytes.Join(frames, nil))
	}
	other, _ := loopback(f, nil)
	f.Fuzz(func(t *testing.T, stream []byte) {
		outcome := func(from io.Reader) string {
			k, heard, s := deafControl(other)
			close(k.over) // nothing that does not come by the stream will come
			for range 3 {
				s.Tell([]byte("ours"))
			}
			for range 2 {
				k.conn.pair.control.told.Next((*session).speaks)
			}
			err := k.read(from)
			require.Error(t, err)
			total := 0
			for _, text := range *heard {
				require.LessOrEqual(t, len(text), transport.MaxControl)
				total += len(text)
			}
			require.LessOrEqual(t, total+controlBytes*len(*heard), len(stream))
			require.EqualValues(t, len(*heard), k.conn.pair.control.heard)
			return fmt.Sprintf("%x %v %d", *heard, err, k.conn.pair.control.told.Sent())
		}
		whole := outcome(bytes.NewReader(stream))
		if parts := outcome(iotest.OneByteReader(bytes.NewReader(stream))); parts != whole {
			t.Fatalf("in one piece:\n%s\nin small ones:\n%s", whole, parts)
		}
	})
}

// chatter sends numbered control messages over a link until over, and checks those that arrive.
type chatter struct {
	heard, told atomic.Int64
	wrong       atomic.Bool
}

func (c *chatter) hear(message []byte) {
	n := c.heard.Add(1) - 1
	if len(message) != 8+int(n%300) || binary.LittleEndian.Uint64(message) != uint64(n) {
		c.wrong.Store(true)
	}
}

func (c *chatter) tell(l *session, over *atomic.Bool) {
	for !over.Load() {
		n := c.told.Load()
		message := append(binary.LittleEndian.AppendUint64(nil, uint64(n)), make([]byte, n%300)...)
		if l.Tell(message) {
			c.told.Add(1)
		}
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	}
}

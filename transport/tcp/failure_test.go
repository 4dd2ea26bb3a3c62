package tcp

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

const hang = 20 * time.Second

// join links rank 0 of a with rank 1 of b for session n.
func join(t testing.TB, a, b *Fabric, n byte, channels int) (la, lb *session) {
	t.Helper()
	return joinAt(t, a, b, b.Address(), n, channels)
}

// joinAt is join with a different address of b for a.
func joinAt(t testing.TB, a, b *Fabric, address []byte, n byte, channels int) (la, lb *session) {
	t.Helper()
	return joinVia(t, a, b, a.Address(), address, n, channels)
}

// joinVia is join with different addresses of both.
func joinVia(t testing.TB, a, b *Fabric, addressA, addressB []byte, n byte, channels int) (la, lb *session) {
	t.Helper()
	sa := transport.Session{ID: [16]byte{n}, Key: [32]byte{n}, Rank: 0, Peer: 1, Channels: channels}
	sb := sa
	sb.Rank, sb.Peer = 1, 0
	return joinAs(t, a, b, addressA, addressB, sa, sb)
}

// joinAs links two fabrics for a session as either side sees it.
func joinAs(
	t testing.TB, a, b *Fabric, addressA, addressB []byte, sa, sb transport.Session,
) (la, lb *session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		l, err := a.Connect(ctx, addressB, sa)
		if err == nil {
			la = l.(*session)
		}
		done <- err
	}()
	l, err := b.Connect(ctx, addressA, sb)
	require.NoError(t, <-done)
	require.NoError(t, err)
	return la, l.(*session)
}

func commit(t testing.TB, ch transport.Channel, text string) {
	t.Helper()
	space := ch.Reserve(len(text))
	require.Len(t, space, len(text))
	copy(space, text)
	ch.Commit(len(text), &transport.Meta{})
}

// await only sleeps on the doorbell between two checks.
func await(t testing.TB, f *Fabric, doorbell *park.Doorbell, what string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); ; {
		ticket := doorbell.Prepare()
		f.Arm()
		f.Poll()
		if look() {
			doorbell.Cancel()
			return
		}
		require.True(t, time.Now().Before(deadline), "hangs: %s", what)
		doorbell.Sleep(ticket, time.Second)
	}
}

func receive(t testing.TB, f *Fabric, doorbell *park.Doorbell, ch transport.Channel) (text string) {
	t.Helper()
	await(t, f, doorbell, "a fragment arrives", func() bool {
		p, _, ok := ch.Peek()
		text = string(p)
		return ok
	})
	ch.Release()
	return text
}

func requireFault(t testing.TB, err error, code fault.Code, peer int) {
	t.Helper()
	var e *fault.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	require.Equal(t, peer, e.Peer, "%v", err)
}

// ordered makes two fabrics of which the first one dials.
func ordered(
	t testing.TB, change func(*Options),
) (dialer, acceptor *Fabric, dialerDoorbell, acceptorDoorbell *park.Doorbell) {
	t.Helper()
	a, doorbellA := loopback(t, change)
	b, doorbellB := loopback(t, change)
	if keyOf(a.self, b.self, &transport.Session{}).accept {
		return b, a, doorbellB, doorbellA
	}
	return a, b, doorbellA, doorbellB
}

// TestGoodbyeAndEndAtOnce closes a fabric before its peer reads anything: the goodbye and the end
// of the connection arrive together. The answer leaves all the same, and no connection is made
// anew.
func TestGoodbyeAndEndAtOnce(t *testing.T) {
	for range 10 {
		var told warnings
		a, b, _, doorbellB := ordered(t, func(o *Options) { o.Warn = told.warn })
		la, lb := join(t, a, b, 1, 1)
		main := la.pair.live.Load().main
		closed := make(chan struct{})
		go func() { a.Close(); close(closed) }()
		require.Eventually(t, main.writer.finished.Load, hang, time.Millisecond)
		await(t, b, doorbellB, "the goodbye", func() bool { return lb.Err() != nil })
		<-closed
		require.ErrorIs(t, lb.Err(), fault.PeerLeft)
		n, text := told.get()
		require.Zero(t, n, text)
		require.NoError(t, b.Close())
	}
}

func TestOneConnectionForAllSessions(t *testing.T) {
	a, b, _, doorbellB := ordered(t, nil)
	var as, bs []*session
	for i := range 64 {
		la, lb := join(t, a, b, byte(i), 2)
		as, bs = append(as, la), append(bs, lb)
	}
	require.EqualValues(t, 1, a.live.Load())
	require.EqualValues(t, 1, b.live.Load())
	for i := range as {
		commit(t, as[i].Channel(1), fmt.Sprint("session ", i))
	}
	for i := range bs {
		require.Equal(t, fmt.Sprint("session ", i), receive(t, b, doorbellB, bs[i].Channel(1)))
	}
	for i := range as {
		require.NoError(t, as[i].Close())
		require.NoError(t, bs[i].Close())
	}
	// The connection and its indices serve later sessions.
	la, lb := join(t, a, b, 0, 1)
	require.EqualValues(t, 1, b.live.Load())
	commit(t, la.Channel(0), "later")
	require.Equal(t, "later", receive(t, b, doorbellB, lb.Channel(0)))
	await(t, b, doorbellB, "goodbyes are answered", func() bool {
		a.Poll()
		return bs[0].pair.open() == 1 && la.pair.open() == 1
	})
}

// TestManyPeers has more connections than Poll tries one by one.
func TestManyPeers(t *testing.T) {
	hub, doorbell := loopback(t, nil)
	const peers = scanAbove + 4
	var spokes []*Fabric
	var doorbells []*park.Doorbell
	var here, there []*session
	for i := range peers {
		f, b := loopback(t, nil)
		la, lb := join(t, f, hub, byte(i), 1)
		spokes, doorbells, there, here = append(spokes, f), append(doorbells, b), append(there, la), append(here, lb)
	}
	require.EqualValues(t, peers, hub.live.Load())
	for range 3 {
		for i := range peers {
			commit(t, there[i].Channel(0), fmt.Sprint("from ", i))
		}
		for i := range peers {
			require.Equal(t, fmt.Sprint("from ", i), receive(t, hub, doorbell, here[i].Channel(0)))
			commit(t, here[i].Channel(0), fmt.Sprint("to ", i))
		}
		for i := range peers {
			require.Equal(t, fmt.Sprint("to ", i), receive(t, spokes[i], doorbells[i], there[i].Channel(0)))
		}
	}
	// A peer that leaves does not disturb the others.
	require.NoError(t, spokes[2].Close())
	await(t, hub, doorbell, "the end of one peer", func() bool { return here[2].Err() != nil })
	requireFault(t, here[2].Err(), fault.PeerLeft, 0)
	commit(t, there[0].Channel(0), "still there")
	require.Equal(t, "still there", receive(t, hub, doorbell, here[0].Channel(0)))
}

// TestNextAddress has a peer whose nearest addresses do not answer, or belong to another process.
func TestNextAddress(t *testing.T) {
	a, b, doorbellA, _ := ordered(t, nil)
	stranger, _ := loopback(t, nil)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	address := *b.self
	real := address.endpoints[0]
	address.endpoints = []endpoint{
		{prefix: real.prefix, port: uint16(closed.Addr().(*net.TCPAddr).Port)}, stranger.self.endpoints[0], real}
	la, lb := joinAt(t, a, b, address.encode(), 1, 1)
	commit(t, lb.Channel(0), "found")
	require.Equal(t, "found", receive(t, a, doorbellA, la.Channel(0)))
}

// TestConnectSaysWhy checks that the error names an address that refuses, at once.
func TestConnectSaysWhy(t *testing.T) {
	a, b, _, _ := ordered(t, nil)
	address, port := b.Address(), fmt.Sprint(b.self.endpoints[0].port)
	require.NoError(t, b.Close())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := a.Connect(ctx, address, transport.Session{Rank: 0, Peer: 1, Channels: 1})
	requireFault(t, err, fault.PeerLost, 1)
	require.ErrorContains(t, err, port)
	require.ErrorContains(t, err, "refused")
	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	_, err = a.Connect(ctx, address, transport.Session{Rank: 0, Peer: 1, Channels: 1})
	requireFault(t, err, fault.Aborted, 1)
	require.NoError(t, a.Close())
	_, err = a.Connect(context.Background(), address, transport.Session{Rank: 0, Peer: 1, Channels: 1})
	require.ErrorIs(t, err, fault.Closed)
}

// TestCloseEndsConnect closes fabrics whose Connects would wait for ever.
func TestCloseEndsConnect(t *testing.T) {
	a, b, _, _ := ordered(t, nil)
	done := make(chan error, 2)
	for _, f := range []*Fabric{a, b} {
		other := a
		if f == a {
			other = b
		}
		go func() {
			_, err := f.Connect(context.Background(), other.Address(),
				transport.Session{ID: [16]byte{byte(f.self.pid)}, Rank: 0, Peer: 1, Channels: 1})
			done <- err
		}()
	}
	time.AfterFunc(30*time.Millisecond, func() { a.Close(); b.Close() })
	for range 2 {
		select {
		case err := <-done:
			require.True(t, errors.Is(err, fault.Closed) || errors.Is(err, fault.PeerLeft), "%v", err)
		case <-time.After(hang):
			t.Fatal("Connect outlives its fabric")
		}
	}
}

// TestChannelsDiffer checks that two ranks with different options both get an error.
func TestChannelsDiffer(t *testing.T) {
	a, b, _, _ := ordered(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := a.Connect(ctx, b.Address(), transport.Session{Rank: 0, Peer: 1, Channels: 1})
		done <- err
	}()
	_, err := b.Connect(ctx, a.Address(), transport.Session{Rank: 1, Peer: 0, Channels: 2})
	requireFault(t, err, fault.Mismatch, 0)
	requireFault(t, <-done, fault.Mismatch, 1)
	require.ErrorContains(t, err, "2 channels here, and 1 at")
}

// TestCloseInBackground closes a link before the socket has taken all its data, and then polls no
// more: the data must leave all the same.
func TestCloseInBackground(t *testing.T) {
	a, b, _, doorbellB := ordered(t, nil)
	la, lb := join(t, a, b, 1, transport.MaxChannels)
	text := string(make([]byte, maxPayload))
	total := 0
	for c := range transport.MaxChannels {
		for range maxLong {
			commit(t, la.Channel(c), text)
			total += len(text)
		}
	}
	require.NoError(t, la.Close())
	require.Nil(t, la.Channel(0).Reserve(1))
	require.ErrorIs(t, la.Err(), fault.Closed)
	got := 0
	await(t, b, doorbellB, "all of it and the goodbye", func() bool {
		for c := range transport.MaxChannels {
			for {
				p, _, ok := lb.Channel(c).Peek()
				if !ok {
					break
				}
				got += len(p)
				lb.Channel(c).Release()
			}
		}
		return got == total && lb.Err() != nil
	})
	requireFault(t, lb.Err(), fault.PeerLeft, 0)
}

// TestFlushed commits more than the sockets take, on two links over one connection.
func TestFlushed(t *testing.T) {
	a, b, doorbellA, doorbellB := ordered(t, nil)
	la, lb := join(t, a, b, 1, transport.MaxChannels)
	other, _ := join(t, a, b, 2, 1)
	await(t, a, doorbellA, "what opens the links leaves", func() bool { return la.Flushed() && other.Flushed() })
	// With the default limit the socket may take everything.
	fd := la.pair.live.Load().main.fd
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 64<<10))
	text := string(make([]byte, maxPayload))
	for c := range transport.MaxChannels {
		for range maxLong {
			commit(t, la.Channel(c), text)
		}
	}
	commit(t, other.Channel(0), text)
	require.False(t, la.Flushed())
	require.False(t, other.Flushed())
	go func() {
		for !la.Flushed() || !other.Flushed() {
			a.Poll()
		}
		doorbellB.Ring()
	}()
	await(t, b, doorbellB, "the rest leaves", func() bool { return la.Flushed() && other.Flushed() })
	for c := range transport.MaxChannels {
		for range maxLong {
			receive(t, b, doorbellB, lb.Channel(c))
		}
	}
	require.NoError(t, b.Close())
	await(t, a, doorbellA, "the peer is gone", func() bool { return la.Err() != nil })
	require.True(t, la.Flushed(), "nothing more will leave")
}

// TestTrack counts the sockets that a forked child would have to close.
func TestTrack(t *testing.T) {
	var mu sync.Mutex
	open := map[int]int{}
	a, b, _, _ := ordered(t, func(o *Options) {
		o.Track = func(fd int, now bool) {
			mu.Lock()
			defer mu.Unlock()
			if now {
				open[fd]++
			} else if open[fd]--; open[fd] == 0 {
				delete(open, fd)
			}
		}
	})
	la, lb := join(t, a, b, 1, 1)
	awaitControl(t, la, lb)
	mu.Lock()
	n := len(open)
	mu.Unlock()
	require.Equal(t, len(a.listeners)+len(b.listeners)+2*2, n)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Empty(t, open)
}

// TestPeerIsGone connects to a process of this host that has ended. Connect fails long before its
// timeout, also on the side that waits to be dialled.
func TestPeerIsGone(t *testing.T) {
	for _, dead := range []int{0, 1} {
		a, b, _, _ := ordered(t, nil)
		f := []*Fabric{a, b}
		require.NoError(t, f[dead].Close())
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		began := time.Now()
		_, err := f[1-dead].Connect(ctx, f[dead].Address(),
			transport.Session{Rank: 1 - dead, Peer: dead, Channels: 1})
		requireFault(t, err, fault.PeerLost, dead)
		require.Less(t, time.Since(began), time.Second)
	}
}

// TestDefaultInterfaces listens on the interfaces that the machine has.
func TestDefaultInterfaces(t *testing.T) {
	a, b, doorbellA, _ := ordered(t, func(o *Options) { o.Interfaces = "" })
	require.True(t, a.Reaches(b.Address()))
	la, lb := join(t, a, b, 1, 1)
	commit(t, lb.Channel(0), "hello")
	require.Equal(t, "hello", receive(t, a, doorbellA, la.Channel(0)))
	for _, e := range a.self.endpoints {
		require.Equal(t, a.self.endpoints[0].port, e.port, "one port for all addresses")
	}
}

var parentAddress = flag.String("parent", "",
	"this process is the child of startDoomed: the address of its parent, in hex")

// TestPeerKilled kills a process. The link must end with an error that names it, and the fragments
// it had sent must be readable.
func TestPeerKilled(t *testing.T) {
	if *parentAddress != "" {
		doomed(t, *parentAddress)
		return
	}
	f, doorbell := loopback(t, nil)
	child, peer := startDoomed(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	l, err := f.Connect(ctx, peer, transport.Session{Rank: 0, Peer: 1, Channels: 1})
	require.NoError(t, err)
	ch := l.Channel(0)
	await(t, f, doorbell, "the child's fragment", func() bool { _, _, ok := ch.Peek(); return ok })
	require.NoError(t, l.Err())
	require.NoError(t, child.Process.Kill())
	await(t, f, doorbell, "the child is lost", func() bool { return l.Err() != nil })
	requireFault(t, l.Err(), fault.PeerLost, 1)
	require.ErrorContains(t, l.Err(), fmt.Sprint("pid ", child.Process.Pid))
	require.Equal(t, "last words", receive(t, f, doorbell, ch))
}

// startDoomed runs the test once more in a child process, which calls doomed, and returns the
// child and its address. The child ends with the test.
func startDoomed(t *testing.T, f *Fabric) (child *exec.Cmd, address []byte) {
	t.Helper()
	child = exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", fmt.Sprintf("-parent=%x", f.Address()))
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		child.Process.Kill()
		child.Wait()
	})
	var line string
	_, err = fmt.Fscanln(stdout, &line)
	require.NoError(t, err)
	address, err = hex.DecodeString(line)
	require.NoError(t, err)
	return child, address
}

func doomed(t *testing.T, parent string) {
	f, doorbell := loopback(t, nil)
	fmt.Printf("%x\n", f.Address())
	peer, err := hex.DecodeString(parent)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	l, err := f.Connect(ctx, peer, transport.Session{Rank: 1, Peer: 0, Channels: 1})
	require.NoError(t, err)
	commit(t, l.Channel(0), "last words")
	s := l.(*session)
	await(t, f, doorbell, "the parent's host, this one, has them", func() bool {
		c := s.pair.live.Load()
		if !c.writing.CompareAndSwap(false, true) {
			return false
		}
		defer c.writing.Store(false)
		return s.drained() && len(c.main.writer.rest) == 0
	})
	require.True(t, s.Tell([]byte("said")))
	await(t, f, doorbell, "the parent ends", func() bool { return s.Err() != nil })
}

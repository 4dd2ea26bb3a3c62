package shm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/require"
)

// span is the time after which a test counts as hanging.
const span = 10 * time.Second

func newFabric(t *testing.T) *Fabric {
	f, err := New(Options{PoolBytes: 4 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, b := newFabric(t), newFabric(t)
		return transporttest.Pair{A: a, B: b, DoorbellA: a.Doorbell(), DoorbellB: b.Doorbell()}
	}, transporttest.Options{})
}

func session(number, rank, peer, channels int) transport.Session {
	return transport.Session{ID: [16]byte{byte(number), byte(number >> 8)}, Rank: rank, Peer: peer,
		Channels: channels, Key: [32]byte{42}}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	t.Cleanup(cancel)
	return ctx
}

// both opens a session from both sides, each with its own Session.
func both(t *testing.T, a, b *Fabric, sa, sb transport.Session) (la, lb transport.Link, ea, eb error) {
	done := make(chan struct{})
	ctx := within(t)
	go func() {
		lb, eb = b.Connect(ctx, a.Address(), sb)
		close(done)
	}()
	la, ea = a.Connect(ctx, b.Address(), sa)
	<-done
	return la, lb, ea, eb
}

func connect(t *testing.T, a, b *Fabric, number, channels int) (transport.Link, transport.Link) {
	t.Helper()
	la, lb, ea, eb := both(t, a, b, session(number, 0, 1, channels), session(number, 1, 0, channels))
	require.NoError(t, ea)
	require.NoError(t, eb)
	return la, lb
}

func send(t *testing.T, c transport.Channel, n int, fill byte) {
	t.Helper()
	space := c.Reserve(n)
	require.Len(t, space, n)
	for i := range space {
		space[i] = fill
	}
	m := transport.Meta{uint64(n)}
	c.Commit(n, &m)
}

func receive(t *testing.T, c transport.Channel, n int, fill byte) {
	t.Helper()
	p, m, ok := c.Peek()
	require.True(t, ok)
	require.Equal(t, transport.Meta{uint64(n)}, m)
	require.True(t, bytes.Equal(bytes.Repeat([]byte{fill}, n), p), "payload of %d bytes is not as it was sent", n)
	c.Release()
}

func eventually(t *testing.T, what string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(span); !look(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("hangs: %s", what)
		}
	}
}

// holdings counts the descriptors and shared mappings of this process.
type holdings struct{ descriptors, doorbells, pools, rings int }

func holdingsNow(t *testing.T) (h holdings) {
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	count := func(name string) int { return strings.Count(string(maps), "memfd:"+name) }
	return holdings{len(fds), count("goccl-doorbell"), count("goccl-pool"), count("goccl-ring")}
}

// within reports whether nothing is left beyond what there was before. Descriptors of earlier tests
// may have been closed meanwhile.
func (h holdings) within(before holdings) bool {
	if h.descriptors < before.descriptors {
		h.descriptors = before.descriptors
	}
	return h == before
}

// TestNothingStays opens 64 sessions with unread fragments, closes them and checks that nothing is
// left; then it closes the fabrics.
func TestNothingStays(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	la, lb := connect(t, a, b, 0, 1) // makes the connection and the pools
	before, used := holdingsNow(t), mem.InUse()
	require.Equal(t, 4, before.rings, "two rings, each mapped by both ends")
	for round := range 2 {
		var links []transport.Link
		for i := range 64 {
			x, y := connect(t, a, b, 1+i, 2)
			for _, n := range []int{10, 1000, 60000} {
				if space := x.Channel(1).Reserve(n); len(space) == n {
					x.Channel(1).Commit(n, &transport.Meta{})
				}
			}
			links = append(links, x, y)
		}
		require.LessOrEqual(t, holdingsNow(t).descriptors, before.descriptors,
			"segments' descriptors are closed once they are mapped")
		for i := range links {
			// In one round A closes first, in the other B.
			require.NoError(t, links[i^round].Close())
		}
		eventually(t, "mappings or descriptors of closed sessions stay",
			func() bool { return holdingsNow(t).within(before) && mem.InUse() == used })
		a.mu.Lock()
		require.Equal(t, 4<<20/ring.LeaseBytes, a.pool.Free())
		a.mu.Unlock()
	}
	require.NoError(t, la.Close())
	require.NoError(t, lb.Close())
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.NoError(t, a.Close())
	after := holdingsNow(t)
	require.Zero(t, after.rings+after.pools, "%+v", after)
	a.Doorbell().Ring() // still mapped
}

// TestUnreadSlotsAreKept closes a link with large fragments unread, and has other links use the
// pool meanwhile.
func TestUnreadSlotsAreKept(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	la, lb := connect(t, a, b, 1, 1)
	for i := range 5 {
		send(t, la.Channel(0), ring.LeaseBytes, byte(i))
	}
	require.NoError(t, la.Close())
	xa, xb := connect(t, a, b, 2, 1)
	for i := range 200 {
		send(t, xa.Channel(0), ring.LeaseBytes, byte(100+i))
		receive(t, xb.Channel(0), ring.LeaseBytes, byte(100+i))
	}
	for i := range 5 {
		receive(t, lb.Channel(0), ring.LeaseBytes, byte(i))
	}
	require.NoError(t, lb.Close())
	xa.Channel(0).Reserve(1 << 20)
	require.NoError(t, xa.Close())
	eventually(t, "slots do not come back", func() bool { return a.pool.Free() == 4<<20/ring.LeaseBytes })
}

func TestDifferentCalls(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	_, _, ea, eb := both(t, a, b, session(1, 0, 1, 2), session(1, 1, 0, 3))
	require.ErrorIs(t, ea, fault.Mismatch)
	require.ErrorIs(t, eb, fault.Mismatch)

	other := session(2, 1, 0, 1)
	other.Key[0]++
	began := time.Now()
	_, _, ea, eb = both(t, a, b, session(2, 0, 1, 1), other)
	for _, err := range []error{ea, eb} {
		require.ErrorIs(t, err, fault.Invalid)
		require.ErrorContains(t, err, "another key")
	}
	require.Less(t, time.Since(began), span/2)

	for _, s := range []transport.Session{
		session(3, 0, 1, 0), session(3, 0, 1, 9), session(3, 1, 1, 1), session(3, -1, 1, 1)} {
		_, err := a.Connect(within(t), b.Address(), s)
		require.ErrorIs(t, err, fault.Invalid)
	}
	_, err := a.Connect(within(t), a.Address(), session(3, 0, 1, 1))
	require.ErrorIs(t, err, fault.NotSupported)
	connect(t, a, b, 1, 1) // the session works once both sides ask for the same
}

// TestConnectAgain has one Connect time out; then both sides call Connect for the same session.
func TestConnectAgain(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	connect(t, a, b, 0, 1)
	for _, f := range [][2]*Fabric{{a, b}, {b, a}} {
		brief, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := f[0].Connect(brief, f[1].Address(), session(1, 0, 1, 1))
		cancel()
		require.ErrorIs(t, err, fault.Timeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "is connected, but has not come to make this group yet")
		x, y := connect(t, f[0], f[1], 1, 1)
		send(t, x.Channel(0), 100, 1)
		receive(t, y.Channel(0), 100, 1)
		require.NoError(t, errors.Join(x.Close(), y.Close()))
	}
}

// TestSecondConnect calls Connect twice for one session of one side.
func TestSecondConnect(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	connect(t, a, b, 0, 1)
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() {
		_, err := a.Connect(ctx, b.Address(), session(1, 0, 1, 1))
		first <- err
	}()
	eventually(t, "Connect does not begin", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.processes[b.self.ID].openings) == 1
	})
	_, err := a.Connect(within(t), b.Address(), session(1, 0, 1, 1))
	require.ErrorIs(t, err, fault.Invalid)
	cancel()
	require.ErrorIs(t, <-first, fault.Aborted)
}

// TestPeerIsGone connects to the address of a process that has ended. Connect fails before its
// timeout, whichever side would dial.
func TestPeerIsGone(t *testing.T) {
	for range 4 {
		a, b := newFabric(t), newFabric(t)
		require.NoError(t, b.Close())
		_, err := a.Connect(within(t), b.Address(), session(1, 0, 1, 1))
		require.ErrorIs(t, err, fault.PeerLost)
		_, err = b.Connect(within(t), a.Address(), session(1, 0, 1, 1))
		require.ErrorIs(t, err, fault.Closed)
	}
}

// TestDamagedPeer has the peer write nonsense into its own memory.
func TestDamagedPeer(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	la, lb := connect(t, a, b, 1, 1)
	xa, xb := connect(t, a, b, 2, 1)
	memory := lb.(*link).own.Bytes()
	for i := 128; i < 128+64; i++ {
		memory[i] = 0xff
	}
	memory[132], memory[133], memory[134], memory[135] = 1, 0, 0, 0 // the number of the first fragment
	_, _, ok := la.Channel(0).Peek()
	require.False(t, ok)
	var e *fault.Error
	require.ErrorAs(t, la.Err(), &e)
	require.Equal(t, fault.Internal, e.Code)
	require.Equal(t, 1, e.Peer)
	require.ErrorContains(t, e, "process")
	require.NoError(t, la.Close())
	send(t, xb.Channel(0), 100, 1)
	receive(t, xa.Channel(0), 100, 1)
}

// TestSmallRings opens so many sessions between two fabrics that later ones get the smallest rings,
// and checks that those keep the contract.
func TestSmallRings(t *testing.T) {
	ringOf := func(l transport.Link) int { return len(l.(*link).own.Bytes()) }
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, b := newFabric(t), newFabric(t)
		for i := range fullSessions {
			la, lb := connect(t, a, b, 1000+i, 2)
			require.Equal(t, 2*ring.ChannelBytes, ringOf(la))
			require.Equal(t, 2*ring.ChannelBytes, ringOf(lb))
		}
		la, lb := connect(t, a, b, 999, 2)
		require.Equal(t, 2*ring.AreaBytes(ring.LeastSlot), ringOf(la))
		require.Equal(t, 2*ring.AreaBytes(ring.LeastSlot), ringOf(lb))
		return transporttest.Pair{A: a, B: b, DoorbellA: a.Doorbell(), DoorbellB: b.Doorbell()}
	}, transporttest.Options{})
}

// TestSlotsThatCannotBe has a peer announce private slots of sizes that are not allowed.
func TestSlotsThatCannotBe(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	connect(t, a, b, 0, 1)
	for i, slot := range []uint32{0, 1, 100, ring.LeastSlot / 2, 2 * ring.SlotBytes, 1 << 31} {
		b.mu.Lock()
		p := b.processes[a.self.ID]
		b.mu.Unlock()
		s := session(1+i, 1, 0, 1)
		memory, err := mem.NewSegment("goccl-ring", ring.ChannelBytes)
		require.NoError(t, err)
		o := &open{Serial: uint64(100 + i), Session: s.ID, Rank: 1, Peer: 0, Channels: 1, Slot: slot}
		o.MAC = o.seal(s.Key, p.mine, p.theirs)
		p.send(o, memory.FD())
		_, err = a.Connect(within(t), b.Address(), session(1+i, 0, 1, 1))
		require.ErrorIs(t, err, fault.Internal, slot)
		require.ErrorContains(t, err, "the slots of process")
		require.NoError(t, memory.Free())
	}
}

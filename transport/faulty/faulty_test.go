package faulty

import (
	"context"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
	"github.com/goccl/goccl/transport/shm"
	"github.com/goccl/goccl/transport/tcp"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/require"
)

func wrapped(t *testing.T, n *Network) (transport.Fabric, *park.Doorbell) {
	t.Helper()
	doorbell := park.NewDoorbell()
	f, err := tcp.New(tcp.Options{Doorbell: doorbell, Interfaces: "lo"})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return n.Wrap(f, doorbell), doorbell
}

func TestConformancePassThrough(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		n := NewNetwork()
		a, doorbellA := wrapped(t, n)
		b, doorbellB := wrapped(t, n)
		return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
	}, transporttest.Options{})
}

// TestConformanceOfMemory wraps a fabric that wakes no thread before Flush.
func TestConformanceOfMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		doorbell := park.NewDoorbell()
		f := NewNetwork().Wrap(inproc.New(doorbell), doorbell)
		return transporttest.Pair{A: f, B: f, DoorbellA: doorbell, DoorbellB: doorbell}
	}, transporttest.Options{})
}

// TestConformanceDisturbed puts faults on every link that the contract allows: late fragments and
// little space are not errors.
func TestConformanceDisturbed(t *testing.T) {
	pairs := map[string]func(t *testing.T, n *Network) transporttest.Pair{
		"tcp": func(t *testing.T, n *Network) transporttest.Pair {
			a, doorbellA := wrapped(t, n)
			b, doorbellB := wrapped(t, n)
			return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
		},
		"inproc": func(t *testing.T, n *Network) transporttest.Pair {
			doorbell := park.NewDoorbell()
			f := n.Wrap(inproc.New(doorbell), doorbell)
			return transporttest.Pair{A: f, B: f, DoorbellA: doorbell, DoorbellB: doorbell}
		},
		"shm": func(t *testing.T, n *Network) transporttest.Pair {
			sharing := func() *shm.Fabric {
				f, err := shm.New(shm.Options{PoolBytes: 2 << 20})
				if err != nil {
					t.Skipf("shared memory cannot be used here: %v", err)
				}
				return f
			}
			a, b := sharing(), sharing()
			return transporttest.Pair{A: n.Wrap(a, a.Doorbell()), B: n.Wrap(b, b.Doorbell()),
				DoorbellA: a.Doorbell(), DoorbellB: b.Doorbell()}
		},
	}
	all := Fault{From: Any, To: Any, Channel: Any, Fragment: Any, OneIn: 200}
	first, some, late, short, hungry, lingers, wakes, control := all, all, all, all, all, all, all, all
	first.Channel, first.Fragment, first.OneIn, first.Delay = 0, 1, 0, 5*time.Millisecond
	some.From, some.Fragment, some.OneIn, some.Delay = 3, 0, 0, time.Millisecond
	late.Jitter = time.Millisecond
	// The suite assumes that an empty channel has at least that much space.
	short.OneIn, short.Short = 4, 1024
	hungry.Starve = 500 * time.Microsecond
	lingers.OneIn, lingers.Linger = 4, time.Millisecond
	wakes.Channel, wakes.OneIn, wakes.Jitter = Wakes, 2, time.Millisecond
	control.Channel, control.OneIn, control.Jitter = Control, 20, time.Millisecond
	for name, pair := range pairs {
		if testing.Short() && name != "shm" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) transporttest.Pair {
				return pair(t, NewNetwork(first, some, late, short, hungry, lingers, wakes, control))
			}, transporttest.Options{Allocates: true})
		})
	}
}

// join links rank 0 of a with rank 1 of b.
func join(t *testing.T, a, b transport.Fabric) (la, lb transport.Link) {
	t.Helper()
	return joinHearing(t, a, b, nil)
}

// joinHearing is join with a handler of rank 1.
func joinHearing(t *testing.T, a, b transport.Fabric, handler func([]byte)) (la, lb transport.Link) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	sa := transport.Session{ID: [16]byte{7}, Rank: 0, Peer: 1, Channels: 2}
	sb := sa
	sb.Rank, sb.Peer, sb.Control = 1, 0, handler
	done := make(chan error, 1)
	go func() {
		var err error
		la, err = a.Connect(ctx, b.Address(), sa)
		done <- err
	}()
	lb, err := b.Connect(ctx, a.Address(), sb)
	require.NoError(t, err)
	require.NoError(t, <-done)
	return la, lb
}

func send(t *testing.T, ch transport.Channel, text string) {
	t.Helper()
	space := ch.Reserve(len(text))
	require.Len(t, space, len(text))
	copy(space, text)
	ch.Commit(len(text), &transport.Meta{1})
}

// await only sleeps on the doorbell, so that a fault that does not ring shows as a hang.
func await(t *testing.T, f transport.Fabric, doorbell *park.Doorbell, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		ticket := doorbell.Prepare()
		if p, ok := f.(transport.Poller); ok {
			p.Arm()
			p.Poll()
		}
		if look() {
			doorbell.Cancel()
			return
		}
		require.True(t, time.Now().Before(deadline), "hangs")
		doorbell.Sleep(ticket, time.Second)
	}
}

func receive(t *testing.T, f transport.Fabric, doorbell *park.Doorbell, ch transport.Channel) string {
	t.Helper()
	var text string
	await(t, f, doorbell, func() bool {
		p, _, ok := ch.Peek()
		text = string(p)
		return ok
	})
	again, _, ok := ch.Peek()
	require.True(t, ok)
	require.Equal(t, text, string(again), "Peek changes its mind")
	ch.Release()
	return text
}

func TestCorrupt(t *testing.T) {
	n := NewNetwork(Fault{From: 0, To: 1, Channel: 1, Fragment: 1, Corrupt: 'a' ^ 'X', Byte: 6})
	a, _ := wrapped(t, n)
	b, doorbell := wrapped(t, n)
	la, lb := join(t, a, b)
	for _, want := range []string{"aaaa", "aaXa", "aaaa"} {
		send(t, la.Channel(1), "aaaa")
		require.Equal(t, want, receive(t, b, doorbell, lb.Channel(1)))
		send(t, la.Channel(0), "aaaa")
		require.Equal(t, "aaaa", receive(t, b, doorbell, lb.Channel(0)), "the other channel is left alone")
	}
}

func TestDelay(t *testing.T) {
	const delay = 50 * time.Millisecond
	n := NewNetwork(Fault{From: 0, To: Any, Channel: 0, Fragment: 0, Delay: delay})
	a, _ := wrapped(t, n)
	b, doorbell := wrapped(t, n)
	la, lb := join(t, a, b)
	begin := time.Now()
	send(t, la.Channel(0), "late")
	send(t, la.Channel(0), "after it")
	send(t, la.Channel(1), "in time")
	require.Equal(t, "in time", receive(t, b, doorbell, lb.Channel(1)))
	require.Equal(t, "late", receive(t, b, doorbell, lb.Channel(0)))
	require.GreaterOrEqual(t, time.Since(begin), delay)
	require.Equal(t, "after it", receive(t, b, doorbell, lb.Channel(0)))
}

// TestCredit checks that the sender gets less space than there is, or none until its doorbell
// rings.
func TestCredit(t *testing.T) {
	const hunger = 30 * time.Millisecond
	n := NewNetwork(Fault{From: 0, To: 1, Channel: 1, Fragment: 1, Short: 128},
		Fault{From: 0, To: 1, Channel: 1, Fragment: 3, Starve: hunger})
	a, doorbellA := wrapped(t, n)
	b, doorbellB := wrapped(t, n)
	la, lb := join(t, a, b)
	ch, begin := la.Channel(1), time.Now()
	for i, want := range []int{1000, 128, 1000, 1000} {
		var space []byte
		await(t, a, doorbellA, func() bool { space = ch.Reserve(1000); return space != nil })
		require.Len(t, space, want, "fragment %d", i)
		ch.Commit(len(space), &transport.Meta{})
		require.Len(t, receive(t, b, doorbellB, lb.Channel(1)), want)
		require.Equal(t, i == 3, time.Since(begin) >= hunger)
		require.Len(t, la.Channel(0).Reserve(1000), 1000, "the other channel is left alone")
	}
	require.Len(t, lb.Channel(1).Reserve(1000), 1000, "so is the other direction")
}

// TestState checks that a link says that its peer is far, and that fragments linger.
func TestState(t *testing.T) {
	const linger, trip = 30 * time.Millisecond, time.Millisecond
	doorbell := park.NewDoorbell()
	n := NewNetwork(Fault{From: 0, To: 1, Channel: State, RoundTrip: trip},
		Fault{From: 0, To: 1, Channel: 1, Fragment: 1, Linger: linger})
	f := n.Wrap(inproc.New(doorbell), doorbell)
	defer f.Close()
	la, lb := join(t, f, f)
	require.Equal(t, transport.LinkState{RoundTrip: trip}, la.State())
	require.Zero(t, lb.State(), "the other direction is left alone")
	for _, lingers := range []bool{false, true, false} {
		begin := time.Now()
		send(t, la.Channel(1), "a fragment")
		require.Equal(t, "a fragment", receive(t, f, doorbell, lb.Channel(1)), "it has arrived all the same")
		require.Eventually(t, la.Flushed, 10*time.Second, time.Millisecond)
		require.Equal(t, lingers, time.Since(begin) >= linger)
	}
	require.True(t, lb.Flushed())
	send(t, lb.Channel(1), "the other direction")
	require.True(t, lb.Flushed())
}

// TestLateWakes checks that the sleeper wakes when the delay is over and is not left asleep.
func TestLateWakes(t *testing.T) {
	const delay = 30 * time.Millisecond
	doorbell := park.NewDoorbell()
	n := NewNetwork(Fault{From: 0, To: 1, Channel: Wakes, Fragment: 1, Delay: delay})
	f := n.Wrap(inproc.New(doorbell), doorbell)
	defer f.Close()
	la, lb := join(t, f, f)
	slept := func(l transport.Link) time.Duration {
		begin, ticket := time.Now(), doorbell.Prepare()
		l.(transport.Lender).Notify()
		doorbell.Sleep(ticket, 10*time.Second)
		return time.Since(begin)
	}
	require.Less(t, slept(la), 5*time.Second)
	late := slept(la)
	require.GreaterOrEqual(t, late, delay)
	require.Less(t, late, 5*time.Second)
	require.Less(t, slept(lb), 5*time.Second)
}

// TestDraw checks that the same seed draws the same faults, and that they hit as often as they
// should.
func TestDraw(t *testing.T) {
	f := Fault{From: Any, To: Any, Channel: Any, Fragment: Any, OneIn: 4, Delay: 10, Jitter: 5}
	drawn := func(seed uint64, channel int) (hits []int, delays []time.Duration) {
		n := NewNetwork(f)
		n.Seed = seed
		lots := n.faultsOf(0, 1, channel, (*Fault).late)
		require.Len(t, lots, 1)
		for i := range 4000 {
			if lots[0].hits(i) {
				hits, delays = append(hits, i), append(delays, lots[0].delay(i))
			}
		}
		return hits, delays
	}
	hits, delays := drawn(1, 0)
	require.InDelta(t, 1000, len(hits), 150)
	for _, d := range []time.Duration{10, 12, 14} {
		require.Contains(t, delays, d)
	}
	require.NotContains(t, delays, time.Duration(15))
	again, _ := drawn(1, 0)
	require.Equal(t, hits, again)
	for _, other := range []struct {
		seed    uint64
		channel int
	}{{2, 0}, {1, 1}} {
		differently, _ := drawn(other.seed, other.channel)
		require.NotEqual(t, hits, differently)
	}
	require.Empty(t, NewNetwork(f).faultsOf(0, 1, Wakes, (*Fault).late), "Any is no wake-up")
}

func TestCut(t *testing.T) {
	n := NewNetwork(Fault{From: 0, To: 1, Channel: 0, Fragment: 2, Cut: true})
	a, doorbellA := wrapped(t, n)
	b, doorbellB := wrapped(t, n)
	la, lb := join(t, a, b)
	for _, text := range []string{"one", "two", "three"} {
		send(t, la.Channel(0), text)
	}
	require.Equal(t, "one", receive(t, b, doorbellB, lb.Channel(0)))
	require.Equal(t, "two", receive(t, b, doorbellB, lb.Channel(0)))
	require.NoError(t, lb.Err())
	await(t, b, doorbellB, func() bool {
		_, _, ok := lb.Channel(0).Peek()
		require.False(t, ok)
		return lb.Err() != nil
	})
	await(t, a, doorbellA, func() bool { return la.Err() != nil })
	for peer, l := range []transport.Link{lb, la} {
		var e *fault.Error
		require.ErrorAs(t, l.Err(), &e)
		require.Equal(t, fault.PeerLost, e.Code)
		require.Equal(t, peer, e.Peer)
		require.Nil(t, l.Channel(0).Reserve(1))
	}
}

// TestControl delays a control message, and those behind it, and then cuts the link instead of
// delivering one. Neither fault acts on fragments.
func TestControl(t *testing.T) {
	const delay = 30 * time.Millisecond
	n := NewNetwork(Fault{From: 0, To: 1, Channel: Control, Fragment: 1, Delay: delay},
		Fault{From: 0, To: 1, Channel: Control, Fragment: 3, Cut: true})
	doorbell := park.NewDoorbell()
	f := n.Wrap(inproc.New(doorbell), doorbell)
	defer f.Close()
	heard := make(chan string, 10)
	la, lb := joinHearing(t, f, f, func(message []byte) { heard <- string(message) })
	begin := time.Now()
	for _, text := range []string{"one", "two", "three"} {
		require.True(t, la.Tell([]byte(text)))
	}
	send(t, la.Channel(0), "a fragment")
	require.Equal(t, "a fragment", receive(t, f, doorbell, lb.Channel(0)))
	require.Equal(t, "one", <-heard)
	require.Equal(t, "two", <-heard)
	require.GreaterOrEqual(t, time.Since(begin), delay)
	require.Equal(t, "three", <-heard)
	require.NoError(t, lb.Err())
	require.True(t, la.Tell([]byte("four")))
	la.Tell([]byte("five")) // the link may have been cut by now
	await(t, f, doorbell, func() bool { return la.Err() != nil && lb.Err() != nil })
	require.ErrorIs(t, lb.Err(), fault.PeerLost)
	require.False(t, la.Tell([]byte("six")))
	require.NoError(t, f.Close())
	require.Empty(t, heard)
}

func TestCutNow(t *testing.T) {
	n := NewNetwork()
	a, doorbellA := wrapped(t, n)
	b, _ := wrapped(t, n)
	la, lb := join(t, a, b)
	n.Cut(0, 2)
	require.NoError(t, la.Err())
	time.AfterFunc(5*time.Millisecond, func() { n.Cut(1, 0) })
	await(t, a, doorbellA, func() bool { return la.Err() != nil })
	require.ErrorIs(t, lb.Err(), fault.PeerLost)
}

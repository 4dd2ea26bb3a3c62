package tcp

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/stretchr/testify/require"
)

func several(o *Options) { o.Streams = 3 }

// shuffle has frames overtake each other.
func shuffle(sockets []*socket) []*socket {
	mixed := slices.Clone(sockets)
	rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return mixed
}

// last tries the sockets that have joined last first.
func last(sockets []*socket) []*socket {
	mixed := slices.Clone(sockets)
	slices.Reverse(mixed)
	return mixed
}

// joinSeveral links two fabrics, and waits until both sides have all sockets and use them, the last
// one first.
func joinSeveral(t *testing.T) (a, b *Fabric, la, lb *session) {
	t.Helper()
	a, b, doorbellA, doorbellB := ordered(t, several)
	a.shuffle, b.shuffle = last, last
	la, lb = join(t, a, b, 1, 1)
	await(t, a, doorbellA, "all sockets", func() bool { b.Poll(); return a.live.Load() == 3 && b.live.Load() == 3 })
	commit(t, la.Channel(0), "there")
	require.Equal(t, "there", receive(t, b, doorbellB, lb.Channel(0)))
	commit(t, lb.Channel(0), "back")
	require.Equal(t, "back", receive(t, a, doorbellA, la.Channel(0)))
	require.True(t, la.known.Load())
	return a, b, la, lb
}

// TestFurtherSockets sends over a further socket: fragments arrive in order, and a link that is
// closed meanwhile ends after all of them.
func TestFurtherSockets(t *testing.T) {
	_, b, la, lb := joinSeveral(t)
	text := string(make([]byte, maxPayload))
	for range maxLong {
		commit(t, la.Channel(0), text)
	}
	require.True(t, la.pair.live.Load().all()[2].carried.Load())
	// The goodbye leaves by the main socket, which has nothing else to send.
	require.NoError(t, la.Close())
	for range maxLong {
		require.Len(t, receive(t, b, b.doorbell, lb.Channel(0)), maxPayload)
	}
	await(t, b, b.doorbell, "the end", func() bool { return lb.Err() != nil })
	requireFault(t, lb.Err(), fault.PeerLeft, 0)
	require.Zero(t, lb.pair.parting)
}

// TestNothingIsStranded queues fragments that only the main socket may take while another thread
// has tried that one, and tries the others: one of the two threads sends them.
func TestNothingIsStranded(t *testing.T) {
	a, b, la, lb := joinSeveral(t)
	a.shuffle = func(sockets []*socket) []*socket {
		return append(sockets[:1:1], slices.Repeat(sockets[1:], 1000)...)
	}
	c, ch := la.pair.live.Load(), la.Channel(0).(*channel)
	for range 300 {
		la.known.Store(false)
		var other sync.WaitGroup
		var over atomic.Bool
		other.Go(func() {
			c.backlog.Store(true)
			c.flush()
			over.Store(true)
		})
		for !c.writing.Load() && !over.Load() {
			runtime.Gosched()
		}
		commit(t, ch, "text")
		other.Wait()
		require.Equal(t, ch.out.committed.Load(), ch.out.started.Load())
		require.Equal(t, "text", receive(t, b, b.doorbell, lb.Channel(0)))
		for end := time.Now().Add(hang); ch.out.freed.Load()+creditStep < ch.out.committed.Load(); a.Poll() {
			require.True(t, time.Now().Before(end), "hangs: no credit")
		}
	}
}

// TestGoodbyeOvertakes has the goodbye of a session arrive before its last fragments.
func TestGoodbyeOvertakes(t *testing.T) {
	c, s := deaf()
	k := newSocket(c, -1, nil)
	c.sockets.Store(&[]*socket{c.main, k})
	fragment := func(number uint32) []byte {
		return frameOf(header{kind: kindData, number: number}, []byte{byte(number)})
	}
	require.NoError(t, c.main.consume(fragment(1)))
	require.NoError(t, c.main.consume(frameOf(header{kind: kindGoodbye, number: 3}, nil)))
	require.NoError(t, s.Err())
	require.NoError(t, k.consume(fragment(0)))
	require.NoError(t, s.Err())
	require.NoError(t, k.consume(fragment(2)))
	requireFault(t, s.Err(), fault.PeerLeft, 1)
	for i := range 3 {
		p, _, ok := s.channels[0].Peek()
		require.True(t, ok)
		require.Equal(t, []byte{byte(i)}, p)
		s.channels[0].Release()
	}
	require.NoError(t, k.consume(frameOf(header{kind: kindCredit}, nil)), "credit that was overtaken")
	for _, kind := range []byte{kindOpen, kindGoodbye, kindGone, kindResume, kindArrived} {
		require.ErrorContains(t, k.consume(frameOf(header{kind: kind}, nil)), "over a further socket")
	}
}

// TestFurtherSocketBreaks breaks a further socket: the connection heals, and nothing is lost. One
// that has carried nothing is not missed.
func TestFurtherSocketBreaks(t *testing.T) {
	for _, at := range []int{1, 2} {
		a, b, la, lb := joinSeveral(t)
		c := la.pair.live.Load()
		ends := c.all()[at]
		commit(t, la.Channel(0), "before")
		require.Equal(t, at == 2, ends.carried.Load())
		for _, k := range lb.pair.live.Load().all() {
			if k.remote == ends.local {
				shutdown(k.fd, true)
			}
		}
		await(t, a, a.doorbell, "the end of the socket", func() bool {
			b.Poll()
			return ends.over.Load() || c.down.Load()
		})
		for end := time.Now().Add(2 * drainTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
			a.Poll()
			b.Poll()
		}
		if at == 2 {
			require.True(t, c.down.Load())
		}
		commit(t, la.Channel(0), "later")
		require.Equal(t, "before", receive(t, b, b.doorbell, lb.Channel(0)))
		require.Equal(t, "later", receive(t, b, b.doorbell, lb.Channel(0)))
		require.NoError(t, la.Err())
		require.NoError(t, lb.Err())
	}
}

// TestPaths chooses the wires that carry sockets by what a probe has found.
func TestPaths(t *testing.T) {
	self := sample(1, "10.0.0.1/24", "10.0.1.1/24", "10.0.2.1/24")
	peer := sample(2, "10.0.0.2/24", "10.0.1.2/24", "10.0.2.2/24")
	for i := range self.endpoints {
		self.endpoints[i].name = string(rune('a' + i))
		self.endpoints[i].device, peer.endpoints[i].device = byte(i), byte(i)
	}
	ms := time.Millisecond
	for name, c := range map[string]struct {
		took    []time.Duration
		streams int
		want    []string
	}{
		"alike":          {[]time.Duration{20 * ms, 25 * ms, 30 * ms}, 0, []string{"a", "b", "c"}},
		"one slower":     {[]time.Duration{200 * ms, 20 * ms, 30 * ms}, 0, []string{"b", "c"}},
		"asked for":      {[]time.Duration{200 * ms, 20 * ms, 30 * ms}, 4, []string{"b", "c", "a"}},
		"all very short": {[]time.Duration{ms, ms / 4, ms / 3}, 0, []string{"b", "c", "a"}},
		"one unanswered": {[]time.Duration{20 * ms, 25 * ms, 1<<63 - 1}, 8, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &order{found: make(chan struct{}), took: c.took, perm: []int{0, 1, 2}}
			slices.SortStableFunc(o.perm, func(x, y int) int { return int(c.took[x] - c.took[y]) })
			close(o.found)
			f := &Fabric{self: self, orders: map[string]*order{peer.network(): o}}
			f.opts.Streams = c.streams
			var got []string
			for _, w := range (&pair{f: f, peer: peer}).paths() {
				got = append(got, w.from.name)
			}
			require.Equal(t, c.want, got)
		})
	}
}

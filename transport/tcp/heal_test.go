package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// open returns the number of sessions that are not forgotten yet.
func (p *pair) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// warnings counts the warnings of a fabric, and keeps the last one.
type warnings struct {
	mu   sync.Mutex
	n    int
	last string
}

func (w *warnings) warn(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	w.last = fmt.Sprintf(format, args...)
}

func (w *warnings) get() (int, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n, w.last
}

// TestReset breaks the connection while fragments are on their way and others wait to be read: both
// sides make a new one and lose nothing.
func TestReset(t *testing.T) {
	var told warnings
	a, b, doorbellA, doorbellB := ordered(t, func(o *Options) { o.Warn = told.warn })
	path, address := newRelay(t, b)
	la, lb := joinAt(t, a, b, address, 1, 2)
	ka, kb := joinAt(t, a, b, address, 2, 1)
	commit(t, la.Channel(0), "first")
	require.Equal(t, "first", receive(t, b, doorbellB, lb.Channel(0)))
	commit(t, la.Channel(0), "second")
	await(t, b, doorbellB, "the second fragment", func() bool { _, _, ok := lb.Channel(0).Peek(); return ok })
	path.hold(time.Hour)
	commit(t, la.Channel(0), "third")
	commit(t, lb.Channel(1), "back")
	path.reset()
	path.hold(0)
	require.Equal(t, "back", receive(t, a, doorbellA, la.Channel(1)))
	require.Equal(t, "second", receive(t, b, doorbellB, lb.Channel(0)))
	require.Equal(t, "third", receive(t, b, doorbellB, lb.Channel(0)))
	commit(t, kb.Channel(0), "the other link")
	require.Equal(t, "the other link", receive(t, a, doorbellA, ka.Channel(0)))
	for _, l := range []*session{la, lb, ka, kb} {
		require.NoError(t, l.Err())
	}
	await(t, a, doorbellA, "a warning", func() bool { b.Poll(); n, _ := told.get(); return n > 0 })
	n, text := told.get()
	// One of each side that has noticed before the new connection came; and more where both sides
	// have dialled, and one sees the end of a connection that is replaced.
	require.LessOrEqual(t, n, 8)
	require.Contains(t, text, "127.0.0.1")
	require.Contains(t, text, "fragments were sent again")
	require.EqualValues(t, 1, a.live.Load())
	require.EqualValues(t, 1, b.live.Load())
}

// TestStalledAttempts has the first connections that are to replace a broken one lead nowhere, as
// where a path goes silent again during the handshake: they are given up for new ones.
func TestStalledAttempts(t *testing.T) {
	a, b, doorbellA, doorbellB := ordered(t, func(o *Options) {
		o.DialTimeout, o.HandshakeTimeout, o.PeerTimeout = 2*hang, 2*hang, 4*hang
	})
	viaA, addressA := newRelay(t, a)
	viaB, addressB := newRelay(t, b)
	la, lb := joinVia(t, a, b, addressA, addressB, 1, 1)
	for _, via := range []*relay{viaA, viaB} {
		via.swallow.Store(3)
	}
	viaB.reset()
	commit(t, la.Channel(0), "later")
	require.Equal(t, "later", receive(t, b, doorbellB, lb.Channel(0)))
	commit(t, lb.Channel(0), "and back")
	require.Equal(t, "and back", receive(t, a, doorbellA, la.Channel(0)))
}

// TestAttempt checks how long attempts to redial are.
func TestAttempt(t *testing.T) {
	f, _ := loopback(t, nil)
	for _, tt := range []struct {
		trip   time.Duration
		limits []time.Duration // ms
	}{
		{0, []time.Duration{125, 250, 500, 250, 500, 1000, 500, 1000, 2000}},
		{10 * time.Millisecond, []time.Duration{125, 250, 500}},
		{50 * time.Millisecond, []time.Duration{400, 800, 1600, 800, 1600, 3200, 1600, 3200, 6400, 3200, 6400, 7000}},
		{time.Second, []time.Duration{7000, 7000}}, // a path that is longer than the options allow for
	} {
		p := &pair{f: f, trip: tt.trip}
		for round, limit := range tt.limits {
			require.Equal(t, limit*time.Millisecond, p.attempt(round), "round %d, %v", round, tt.trip)
		}
	}
}

// TestHalfOpen has one side lose a connection that the other side believes to be alive.
func TestHalfOpen(t *testing.T) {
	for _, side := range []string{"dialer", "acceptor"} {
		t.Run(side, func(t *testing.T) {
			a, b, doorbellA, doorbellB := ordered(t, nil)
			la, lb := join(t, a, b, 1, 1)
			l := la
			if side == "acceptor" {
				l = lb
			}
			for i := range 3 {
				commit(t, la.Channel(0), "there")
				commit(t, lb.Channel(0), "back")
				c := l.pair.live.Load()
				c.fail(syscall.ECONNABORTED)
				await(t, a, doorbellA, "a new connection", func() bool {
					b.Poll()
					now := l.pair.live.Load()
					return now != nil && now != c
				})
				require.Equal(t, "there", receive(t, b, doorbellB, lb.Channel(0)), "time %d", i)
				require.Equal(t, "back", receive(t, a, doorbellA, la.Channel(0)))
				require.NoError(t, la.Err())
				require.NoError(t, lb.Err())
			}
		})
	}
}

// TestRefused has the peer's process end without a goodbye: no connection is possible any more.
func TestRefused(t *testing.T) {
	a, b, doorbellA, _ := ordered(t, nil)
	viaA, addressA := newRelay(t, a)
	viaB, addressB := newRelay(t, b)
	la, _ := joinVia(t, a, b, addressA, addressB, 1, 1)
	viaA.listener.Close()
	viaB.listener.Close()
	began := time.Now()
	viaB.reset()
	await(t, a, doorbellA, "the peer is lost", func() bool { return la.Err() != nil })
	requireFault(t, la.Err(), fault.PeerLost, 1)
	require.ErrorContains(t, la.Err(), fmt.Sprint("pid ", os.Getpid()))
	require.ErrorContains(t, la.Err(), "it refuses new connections")
	require.Less(t, time.Since(began), a.opts.PeerTimeout/2, "not after a timeout")
}

// TestGivenUp has one side give up what the other side wants to heal: the latter is told.
func TestGivenUp(t *testing.T) {
	for _, side := range []string{"dialer", "acceptor"} {
		t.Run(side, func(t *testing.T) {
			a, b, doorbellA, doorbellB := ordered(t, nil)
			la, lb := join(t, a, b, 1, 1)
			one, other, f, doorbell := la, lb, b, doorbellB
			if side == "acceptor" {
				one, other, f, doorbell = lb, la, a, doorbellA
			}
			one.pair.live.Load().fail(protocolErrorf("nonsense"))
			requireFault(t, one.Err(), fault.Internal, one.spec.Peer)
			await(t, f, doorbell, "the other side is told", func() bool { return other.Err() != nil })
			requireFault(t, other.Err(), fault.PeerLost, other.spec.Peer)
			require.Nil(t, other.Channel(0).Reserve(1))
			// Later groups connect anew.
			ka, kb := join(t, a, b, 2, 1)
			commit(t, kb.Channel(0), "again")
			require.Equal(t, "again", receive(t, a, doorbellA, ka.Channel(0)))
			la.Close()
			lb.Close()
			require.Equal(t, 1, ka.pair.open())
			require.Equal(t, 1, kb.pair.open())
		})
	}
}

// TestSilent cuts the path without a word: the peer is lost after PeerTimeout.
func TestSilent(t *testing.T) {
	a, b, doorbellA, _ := ordered(t, func(o *Options) {
		o.PeerTimeout, o.DialTimeout = LeastPeerTimeout, time.Second/4
	})
	path, address := newRelay(t, b)
	la, _ := joinAt(t, a, b, address, 1, 1)
	// b does not notice, and so does not dial a.
	path.hold(time.Hour)
	began := time.Now()
	la.pair.live.Load().fail(syscall.ETIMEDOUT)
	await(t, a, doorbellA, "the peer is lost", func() bool { return la.Err() != nil })
	requireFault(t, la.Err(), fault.PeerLost, 1)
	require.ErrorContains(t, la.Err(), "did not answer for 2s")
	require.Less(t, time.Since(began), 2*a.opts.PeerTimeout)
}

// TestDamage changes bytes on the way. With checksums what is damaged is sent again. Once a day
// that may happen for ever; the third time within a minute the path is named and given up, by both
// sides.
func TestDamage(t *testing.T) {
	var told warnings
	a, b, doorbellA, doorbellB := ordered(t, func(o *Options) { o.Checksum = true })
	b.opts.Warn = told.warn
	var clock atomic.Int64
	b.now = func() time.Time { return time.Unix(clock.Load(), 0) }
	viaA, addressA := newRelay(t, a)
	viaB, addressB := newRelay(t, b)
	la, lb := joinVia(t, a, b, addressA, addressB, 1, 1)
	text := string(make([]byte, 10_000))
	flip := func(at int64) { // a byte from a to b, whichever side has dialled
		viaA.flipFrom.Store(at)
		viaB.flipTo.Store(at)
	}
	damage := func(i int, at int64) {
		awaitControl(t, la, lb) // its bytes count, too
		made := viaA.count() + viaB.count()
		flip(at)
		commit(t, la.Channel(0), text)
		await(t, b, doorbellB, "the damage is noticed", func() bool { return viaA.count()+viaB.count() > made })
		flip(0)
		require.Equal(t, text, receive(t, b, doorbellB, lb.Channel(0)), "time %d", i)
		require.NoError(t, lb.Err())
	}
	for i := range 5 {
		damage(i, []int64{headerBytes + 5000, 20}[i%2]) // in the payload, and in the header
		clock.Add(24 * 60 * 60)
	}
	_, last := told.get()
	require.Contains(t, last, "a fragment arrived with a wrong checksum, number 5 in 96h0m0s, 1.0 a day")
	damage(5, headerBytes+1)
	clock.Add(10)
	damage(6, headerBytes+1)
	awaitControl(t, la, lb)
	clock.Add(10)
	made := viaA.count() + viaB.count()
	flip(headerBytes + 1)
	commit(t, la.Channel(0), text)
	await(t, b, doorbellB, "the damage is noticed", func() bool { return viaA.count()+viaB.count() > made })
	flip(0)
	await(t, b, doorbellB, "the path is given up", func() bool { return lb.Err() != nil })
	requireFault(t, lb.Err(), fault.Internal, 0)
	require.ErrorContains(t, lb.Err(), "8 fragments")
	require.ErrorContains(t, lb.Err(), "3 of them within 20s")
	require.ErrorContains(t, lb.Err(), "127.0.0.1")
	await(t, a, doorbellA, "the peer is told", func() bool { return la.Err() != nil })
	requireFault(t, la.Err(), fault.Internal, 1)
	require.ErrorContains(t, la.Err(), "8 fragments of this process arrived with a wrong checksum")
	require.ErrorContains(t, la.Err(), "changes data")
}

// TestOutOfOrder delivers fragments as several connections may: later ones first, and some twice.
func TestOutOfOrder(t *testing.T) {
	c, s := deaf()
	data := func(number int) []byte {
		return frameOf(header{kind: kindData, number: uint32(number)}, fmt.Append(nil, number))
	}
	var got []int
	next := 0
	for round := range 40 { // the numbers go several times round the ring
		order := rand.Perm(maxFragments)
		for _, i := range order {
			require.NoError(t, c.main.consume(data(round*maxFragments+i)))
			if i%3 == 0 {
				require.NoError(t, c.main.consume(data(round*maxFragments+i)), "a duplicate")
			}
			for {
				p, _, ok := s.channels[0].Peek()
				if !ok {
					break
				}
				require.Equal(t, fmt.Sprint(next), string(p))
				got = append(got, next)
				next++
				s.channels[0].in.released.Add(1)
			}
		}
	}
	require.Len(t, got, 40*maxFragments)
	require.NoError(t, c.main.consume(data(0)), "a duplicate from long ago")
	require.ErrorContains(t, c.main.consume(data(next+maxFragments)), "without credit")
}

// behind is a fabric whose peers reach it through a relay.
type behind struct {
	*Fabric
	blob []byte
}

func (f *behind) Address() []byte { return f.blob }

// TestConformanceUnderCuts runs the suite while the connections are reset again and again.
func TestConformanceUnderCuts(t *testing.T) {
	for _, onUse := range []bool{false, true} {
		if testing.Short() && onUse {
			continue
		}
		t.Run(fmt.Sprintf("OnUse=%v", onUse), func(t *testing.T) { underCuts(t, onUse) })
	}
}

func underCuts(t *testing.T, onUse bool) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		patient := func(o *Options) {
			o.PeerTimeout = 2 * hang
			if onUse {
				several(o)
			}
		}
		a, doorbellA := loopback(t, patient)
		b, doorbellB := loopback(t, patient)
		a.shuffle, b.shuffle = shuffle, shuffle
		viaA, addressA := newRelay(t, a)
		viaB, addressB := newRelay(t, b)
		stop := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(50+rand.IntN(150)) * time.Millisecond):
					viaA.reset()
					viaB.reset()
				}
			}
		})
		t.Cleanup(func() { close(stop); group.Wait() })
		return transporttest.Pair{A: &behind{a, addressA}, B: &behind{b, addressB},
			DoorbellA: doorbellA, DoorbellB: doorbellB}
	}, transporttest.Options{Allocates: true, OnUse: onUse, Proxied: true})
}

// TestManyCuts sends fragments and control messages both ways over several links while the path is
// reset, silent and damaged: all arrive, once and in order.
func TestManyCuts(t *testing.T) {
	t.Run("near", func(t *testing.T) { manyCuts(t, pathTrips, 1) })
	t.Run("distant", func(t *testing.T) { manyCuts(t, longPath, 1) })
	t.Run("several", func(t *testing.T) { manyCuts(t, longPath, 3) })
}

func manyCuts(t *testing.T, trips func(int, *pathInfo) (shortest, smoothed time.Duration), streams int) {
	const links, channels, cuts = 3, 2, 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	before := descriptors(t)
	routines := runtime.NumGoroutine()
	var told warnings
	change := func(o *Options) { o.Checksum, o.Warn, o.Streams = true, told.warn, streams }
	a, doorbellA := loopback(t, change)
	b, doorbellB := loopback(t, change)
	for _, f := range []*Fabric{a, b} {
		f.trips, f.shuffle = trips, shuffle
	}
	viaA, addressA := newRelay(t, a)
	viaB, addressB := newRelay(t, b)
	ctx, cancel := context.WithTimeout(context.Background(), 2*hang)
	defer cancel()
	ends := [2][]transport.Link{make([]transport.Link, links), make([]transport.Link, links)}
	var chat [2][links]chatter // by the side that tells
	var group sync.WaitGroup
	for side, f := range []*Fabric{a, b} {
		for i := range links {
			group.Go(func() {
				l, err := f.Connect(ctx, [][]byte{addressB, addressA}[side], transport.Session{ID: [16]byte{byte(i)},
					Rank: side, Peer: 1 - side, Channels: channels, Control: chat[1-side][i].hear})
				if err == nil {
					ends[side][i] = l
				}
			})
		}
	}
	group.Wait()
	var over atomic.Bool
	for side, f := range []*Fabric{a, b} {
		require.NotContains(t, ends[side], nil)
		group.Go(func() { exchange(t, f, []*park.Doorbell{doorbellA, doorbellB}[side], ends[side], channels, &over) })
		for i, l := range ends[side] {
			group.Go(func() { chat[side][i].tell(l.(*session), &over) })
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range cuts {
		time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
		via := []*relay{viaA, viaB}[r.IntN(2)]
		switch r.IntN(4) {
		case 0:
			via.hold(time.Duration(r.IntN(100)) * time.Millisecond)
		case 1:
			via.resetOne()
		default:
			viaA.reset()
			viaB.reset()
		}
	}
	over.Store(true)
	group.Wait()
	n, _ := told.get()
	t.Logf("%d warnings, %d and %d connections", n, viaA.count(), viaB.count())
	require.NotZero(t, n)
	for side := range chat {
		for i := range chat[side] {
			c := &chat[side][i]
			require.Eventually(t, func() bool { return c.heard.Load() == c.told.Load() }, hang, time.Millisecond,
				"all control messages arrive")
			require.False(t, c.wrong.Load(), "control messages arrive once and in order")
			require.NotZero(t, c.told.Load())
		}
	}
	all := append(ends[0], ends[1]...)
	for _, l := range all {
		assert.NoError(t, l.Err())
	}
	for _, l := range all {
		require.NoError(t, l.Close())
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	for _, via := range []*relay{viaA, viaB} {
		via.listener.Close()
		via.reset()
	}
	require.Eventually(t, func() bool { return descriptors(t) == before && runtime.NumGoroutine() <= routines+1 },
		hang, 10*time.Millisecond, "sockets and goroutines as before")
}

// exchange sends fragments over all links until over, and receives those of the other side, which
// says with an empty fragment that it has sent its last.
func exchange(
	t *testing.T, f *Fabric, doorbell *park.Doorbell, links []transport.Link, channels int, over *atomic.Bool,
) {
	type state struct {
		ch             transport.Channel
		sent, received int
		ended, ends    bool
	}
	var all []*state
	for _, l := range links {
		for i := range channels {
			all = append(all, &state{ch: l.Channel(i)})
		}
	}
	size := func(number int) int { return 1 + number*7919%40_000 }
	for deadline := time.Now().Add(2 * hang); ; {
		if !time.Now().Before(deadline) {
			t.Error("HANG")
			return
		}
		ticket := doorbell.Prepare()
		f.Arm()
		moved, open := f.Poll(), false
		for _, s := range all {
			open = open || !s.ended || !s.ends
			for !s.ended {
				n := size(s.sent)
				last := over.Load()
				if last {
					n = 0
				}
				space := s.ch.Reserve(n)
				if len(space) < n || space == nil {
					break
				}
				for i := range space {
					space[i] = byte(s.sent + i)
				}
				s.ch.Commit(n, &transport.Meta{uint64(s.sent)})
				s.sent++
				s.ended, moved = last, true
			}
			for {
				p, m, ok := s.ch.Peek()
				if !ok {
					break
				}
				if m[0] != uint64(s.received) || len(p) != 0 && len(p) != size(s.received) {
					t.Errorf("fragment %d of %d bytes, want %d", m[0], len(p), s.received)
					return
				}
				for i := range p {
					if p[i] != byte(s.received+i) {
						t.Errorf("fragment %d differs at byte %d", s.received, i)
						return
					}
				}
				s.ends = len(p) == 0
				s.received++
				s.ch.Release()
				moved = true
			}
		}
		if !open {
			doorbell.Cancel()
			return
		}
		if moved {
			doorbell.Cancel()
			continue
		}
		doorbell.Sleep(ticket, time.Second)
	}
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	// The first socket of a process makes Go's runtime open descriptors of its own.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no list of descriptors: %v", err)
	}
	return len(all)
}

// TestBusyPeer sends more than the sockets take to a process that does not read for longer than a
// socket may be silent: it computes, and its host answers. The connection stays.
func TestBusyPeer(t *testing.T) {
	var told warnings
	a, b, _, doorbellB := ordered(t, func(o *Options) { o.PeerTimeout, o.Warn = 3*LeastPeerTimeout, told.warn })
	la, lb := join(t, a, b, 1, transport.MaxChannels)
	fd := lb.pair.live.Load().main.fd
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10))
	text := string(make([]byte, maxPayload))
	for c := range transport.MaxChannels {
		for range maxLong {
			commit(t, la.Channel(c), text)
		}
	}
	for end := time.Now().Add(2 * a.opts.silence()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		a.Poll()
	}
	n, text := told.get()
	require.Zero(t, n, text)
	require.NoError(t, la.Err())
	for c := range transport.MaxChannels {
		for range maxLong {
			require.Len(t, receive(t, b, doorbellB, lb.Channel(c)), maxPayload)
		}
	}
}

// TestStalls makes a connection in place of one that had broken, and the peer has got nothing of
// what was sent over the former one.
func TestStalls(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cause error
		since time.Duration // that the peer lacks the fragment
		limit uint8
		want  uint8
		says  string
	}{
		{"segments become smaller", syscall.ETIMEDOUT, time.Second, 0, 1, "segments have 1200 bytes from now on"},
		{"and smaller", syscall.ETIMEDOUT, time.Second, 1, 2, "segments have 536 bytes from now on"},
		{"but not for ever", syscall.ETIMEDOUT, time.Second, 2, 2, ""},
		{"a reset says nothing of packets", syscall.ECONNRESET, time.Second, 0, 0, ""},
		{"the path is given up", syscall.ECONNRESET, 10 * time.Second, 0, 0, "nothing that was sent has arrived there for 10s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b, _, _ := ordered(t, nil)
			la, _ := join(t, a, b, 1, 1)
			p, c, q := la.pair, la.pair.live.Load(), &la.channels[0].out
			now := time.Now()
			a.now = func() time.Time { return now }
			a.limit(p.peer, tt.limit)
			commit(t, la.Channel(0), "text")
			require.Eventually(t, func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				q.stuck = stuck{lacks: true, since: now.Add(-tt.since)}
				return la.openSent && q.started.Load() == 1
			}, hang, time.Millisecond)
			c.healed = &healing{cause: tt.cause}
			lacks := map[uint32][]uint32{la.index: {0}}
			err := p.stalls(c, lacks)
			require.Equal(t, tt.want, a.limitTo(p.peer))
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, errors.Is(err, fault.PeerLost), !mends(err))
			require.NoError(t, p.stalls(c, map[uint32][]uint32{la.index: {1}}), "it has arrived")
			q.stuck.resumed(0, 1, now)
			require.Equal(t, stuck{lacks: true, since: now.Add(-tt.since)}, q.stuck, "the time goes on")
			q.stuck.resumed(1, 1, now)
			require.Equal(t, stuck{lacks: true, next: 1, since: now}, q.stuck)
			q.stuck.resumed(1, 0, now)
			require.False(t, q.stuck.lacks)
		})
	}
}

// TestSmallerSegments has the side that is dialled want smaller segments: the other one dials again
// with these, and both remember it.
func TestSmallerSegments(t *testing.T) {
	a, b, doorbellA, _ := ordered(t, nil)
	b.limit(a.self, 1)
	la, lb := join(t, a, b, 1, 1)
	require.EqualValues(t, 1, a.limitTo(b.self))
	for _, s := range []*session{la, lb} {
		require.LessOrEqual(t, segment(s.pair.live.Load().main.fd), segments[1])
	}
	commit(t, lb.Channel(0), "small")
	require.Equal(t, "small", receive(t, a, doorbellA, la.Channel(0)))
}

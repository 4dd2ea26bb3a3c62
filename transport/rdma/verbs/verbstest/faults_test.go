package verbstest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// two makes a network of two hosts with a bench on it.
func two(t *testing.T, o Options) (*Network, *bench) {
	n := newNetwork(t, o)
	return n, newBench(t, n.Host(0), n.Host(1))
}

// TestCut: who sends into the void is told, after a time; the other side notices nothing.
func TestCut(t *testing.T) {
	n, b := two(t, Options{Seed: 1, Patience: 10 * time.Millisecond})
	pa, pb := b.connected()
	b.b.receive(3)
	n.Cut(0, 1)
	b.a.post(pa, b.a.tell(b.b, 0, 100, 1), b.a.write(b.b, 100, 100))
	got := b.a.poll(2)
	b.a.ended(got[0], pa, 0, verbs.RetriesExceeded)
	b.a.ended(got[1], pa, 100, verbs.Flushed)
	b.b.quiet()
	require.False(t, b.b.readable(b.b.c.Events(), 0))
	n.Heal(0, 1)
	b.b.post(pb, b.b.write(b.a, 0, 10)) // its peer has failed
	b.b.ended(b.b.poll(1)[0], pb, 0, verbs.RetriesExceeded)
}

// TestHeal: what is sent meanwhile arrives, once and in order.
func TestHeal(t *testing.T) {
	for seed := range uint64(8) {
		n, b := two(t, Options{Seed: seed, Patience: patience})
		pa := b.a.pair()
		pb := b.b.pair()
		long := b.a.connection(pa, b.b, pb)
		long.Timing.Timeout = 0
		b.a.must(pa.Connect(long))
		b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
		b.b.receive(40)
		for i := range uint32(20) {
			switch i {
			case 5:
				n.CutOneWay(1, 0)
			case 7:
				n.Cut(0, 1)
			case 18:
				n.Heal(0, 1)
			}
			b.a.post(pa, b.a.tell(b.b, 100*int(i), 100, i))
		}
		for i, c := range b.b.poll(20) {
			b.b.arrived(c, pb, uint32(i), 100)
		}
		for i, c := range b.a.poll(20) {
			b.a.ended(c, pa, uint64(100*i), verbs.Success)
		}
		b.b.quiet()
	}
}

// TestCutOneWay: what has arrived can yet fail.
func TestCutOneWay(t *testing.T) {
	n, b := two(t, Options{Seed: 1, Patience: 20 * time.Millisecond})
	pa, pb := b.connected()
	b.b.receive(2)
	n.CutOneWay(1, 0)
	want := b.a.fill(1, 0, 100)
	b.a.post(pa, b.a.tell(b.b, 0, 100, 1), b.a.tell(b.b, 0, 100, 2))
	for i, c := range b.b.poll(2) {
		b.b.arrived(c, pb, uint32(i+1), 100)
	}
	b.b.holds(0, want)
	got := b.a.poll(2)
	b.a.ended(got[0], pa, 0, verbs.RetriesExceeded)
	b.a.ended(got[1], pa, 0, verbs.Flushed)
}

// TestNotReady gives up when the peer has no entry, unless it waits for ever.
func TestNotReady(t *testing.T) {
	_, b := two(t, Options{Seed: 1, Patience: 10 * time.Millisecond})
	for _, tries := range []uint8{0, 3} {
		pa, pb := b.a.pair(), b.b.pair()
		own := b.a.connection(pa, b.b, pb)
		own.Timing.NotReady = tries
		b.a.must(pa.Connect(own))
		b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
		b.a.post(pa, b.a.write(b.b, 0, 10), b.a.tell(b.b, 10, 10, 1), b.a.write(b.b, 20, 10))
		got := b.a.poll(3)
		b.a.ended(got[0], pa, 0, verbs.Success)
		b.a.ended(got[1], pa, 10, verbs.NotReady)
		b.a.ended(got[2], pa, 20, verbs.Flushed)
	}
}

// TestRefuse lets calls fail, the nth or all of them, with the error that the test wants.
func TestRefuse(t *testing.T) {
	n, b := two(t, Options{Seed: 1})
	e := b.a
	pa, pb := b.connected()
	own := e.connection(pa, b.b, pb)
	fresh := e.pair()
	calls := map[string]func() error{
		"Devices":        func() error { _, err := n.Host(0).Devices(); return err },
		"Open":           func() error { return closed(n.Host(0).Open("fake_0")) },
		"Device":         func() error { _, err := e.c.Device(); return err },
		"Event":          func() error { _, _, err := e.c.Event(); return err },
		"Register":       func() error { return closed(e.c.Register(make([]byte, 10), true)) },
		"NewCompletions": func() error { return closed(e.c.NewCompletions(1)) },
		"NewReceives":    func() error { return closed(e.c.NewReceives(1)) },
		"NewPair": func() error {
			return closed(e.c.NewPair(verbs.PairOptions{Completions: e.q, Receives: e.r, Posted: 1}))
		},
		"Receives.Post": func() error { return e.r.Post(1) },
		"Poll":          func() error { _, err := e.q.Poll(nil); return err },
		"Arm":           func() error { return e.q.Arm() },
		"Take":          func() error { return e.q.Take() },
		"Pair.Post":     func() error { _, err := pa.Post(nil); return err },
		"Fail":          func() error { return e.pair().Fail() },
		"Connect":       func() error { return e.pair().Connect(own) },
		"Pair.Close": func() error {
			p, err := e.c.NewPair(verbs.PairOptions{Completions: e.q, Receives: e.r, Posted: 1})
			e.must(err)
			err = p.Close()
			if err != nil {
				e.must(p.Close())
			}
			return err
		},
	}
	wrong := errors.New("wrong")
	for name, call := range calls {
		require.NoError(t, call(), name)
		n.Refuse(0, name, 2, wrong)
		require.NoError(t, call(), name)
		require.ErrorIs(t, call(), wrong, name)
		require.NoError(t, call(), name)
		if name == "Pair.Close" {
			continue
		}
		n.Refuse(0, name, 0, nil)
		for range 3 {
			require.ErrorIs(t, call(), fault.System, name)
		}
		n.Permit(0)
		require.NoError(t, call(), name)
	}
	require.NoError(t, fresh.Connect(own))
}

// closed closes what was made.
func closed[T interface{ Close() error }](made T, err error) error {
	if err != nil {
		return err
	}
	return made.Close()
}

// TestComplete lets the nth write end with each status, and the nth arrival.
func TestComplete(t *testing.T) {
	n, b := two(t, Options{Seed: 1, Patience: time.Millisecond})
	for _, status := range []verbs.Status{verbs.LocalLength, verbs.LocalOperation, verbs.LocalProtection, verbs.Flushed,
		verbs.BadResponse, verbs.LocalAccess, verbs.RemoteInvalid, verbs.RemoteAccess, verbs.RemoteOperation,
		verbs.RetriesExceeded, verbs.NotReady, verbs.RemoteAborted, verbs.Fatal, verbs.ResponseTimeout, verbs.General} {
		pa, pb := b.connected()
		n.Complete(0, Writes, 3, status)
		for i := range 4 {
			b.a.post(pa, b.a.write(b.b, 100*i, 100))
		}
		got := b.a.poll(4)
		b.a.ended(got[1], pa, 100, verbs.Success)
		b.a.ended(got[2], pa, 200, status)
		b.a.ended(got[3], pa, 300, verbs.Flushed)
		require.NotZero(t, got[2].Vendor)

		pa, pb = b.connected()
		n.Complete(1, Arrivals, 2, status)
		b.b.receive(2)
		b.a.post(pa, b.a.tell(b.b, 0, 10, 1), b.a.tell(b.b, 0, 10, 2))
		got = b.b.poll(2)
		b.b.arrived(got[0], pb, 1, 10)
		b.b.ended(got[1], pb, verbs.NoCookie, status)
		require.Equal(t, verbs.Event{Kind: verbs.PairFatal, Pair: pb.Number()}, b.b.event())
		b.a.poll(2)
	}
}

// event waits for one.
func (e *end) event() verbs.Event {
	e.t.Helper()
	require.True(e.t, e.readable(e.c.Events(), patience), "hangs: no event comes")
	event, ok, err := e.c.Event()
	e.must(err)
	require.True(e.t, ok)
	return event
}

// TestRemoteAccess tells the host whose memory it was.
func TestRemoteAccess(t *testing.T) {
	_, b := two(t, Options{Seed: 1})
	pa, pb := b.connected()
	w := b.a.write(b.b, 0, 10)
	w.Key++
	b.a.post(pa, w)
	b.a.ended(b.a.poll(1)[0], pa, 0, verbs.RemoteAccess)
	require.Equal(t, verbs.Event{Kind: verbs.PairAccess, Pair: pb.Number()}, b.b.event())
	require.False(t, b.b.readable(b.b.c.Events(), 0))
	b.b.post(pb, b.b.write(b.a, 0, 10))
	b.b.ended(b.b.poll(1)[0], pb, 0, verbs.Flushed)
}

// TestNotices: late ones, two for one, and lost ones.
func TestNotices(t *testing.T) {
	n, b := two(t, Options{Seed: 1})
	pa, _ := b.connected()
	descriptor := b.a.q.Descriptor()
	once := func() {
		b.a.must(b.a.q.Arm())
		b.a.post(pa, b.a.write(b.b, 0, 10))
		b.a.poll(1)
	}
	n.Notices(0, Notices{Late: 20 * time.Millisecond, Twice: true})
	began := time.Now()
	once()
	require.True(t, b.a.readable(descriptor, patience))
	require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond)
	n.Notices(0, Notices{Lost: 1})
	b.a.must(b.a.q.Take())
	once()
	require.False(t, b.a.readable(descriptor, moment))
	once()
	require.True(t, b.a.readable(descriptor, patience))
	b.a.must(b.a.q.Take())
}

// TestPort takes a port down and up again.
func TestPort(t *testing.T) {
	n, b := two(t, Options{Seed: 1, Patience: patience})
	pa := b.a.pair()
	pb := b.b.pair()
	long := b.a.connection(pa, b.b, pb)
	long.Timing.Timeout = 0
	b.a.must(pa.Connect(long))
	b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
	n.SetPort(1, 0, 1, false)
	require.Equal(t, verbs.Event{Kind: verbs.PortError, Port: 1}, b.b.event())
	d, err := b.b.c.Device()
	b.b.must(err)
	require.False(t, d.Ports[0].Active)
	require.Equal(t, "down", d.Ports[0].State)
	b.a.post(pa, b.a.write(b.b, 0, 10))
	b.a.quiet()
	n.SetPort(1, 0, 1, true)
	require.Equal(t, verbs.Event{Kind: verbs.PortActive, Port: 1}, b.b.event())
	b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Success)
	n.Raise(0, 0, verbs.Event{Kind: verbs.GIDChange, Port: 1})
	require.Equal(t, verbs.Event{Kind: verbs.GIDChange, Port: 1}, b.a.event())
}

// TestCutPort: a port loses all packets, and tells nobody; the other one does not.
func TestCutPort(t *testing.T) {
	n, b := two(t, Options{Seed: 1, Ports: 2, Patience: 10 * time.Millisecond})
	pairs := func(port int) (pa, pb verbs.Pair) {
		pa, pb = b.a.pair(), b.b.pair()
		for _, e := range []*end{b.a, b.b} {
			e.port = n.hosts[0].adapters[0].ports[port-1]
			if e == b.b {
				e.port = n.hosts[1].adapters[0].ports[port-1]
			}
			e.gid = bestGID(e.port)
		}
		b.a.must(pa.Connect(b.a.connection(pa, b.b, pb)))
		b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
		return pa, pb
	}
	first, _ := pairs(1)
	second, _ := pairs(2)
	for _, host := range []int{1, 0} {
		n.CutPort(host, 0, 2)
		b.a.post(first, b.a.write(b.b, 0, 10))
		b.a.ended(b.a.poll(1)[0], first, 0, verbs.Success)
		b.a.post(second, b.a.write(b.b, 0, 10))
		b.a.ended(b.a.poll(1)[0], second, 0, verbs.RetriesExceeded)
		require.False(t, b.b.readable(b.b.c.Events(), 0))
		n.HealPort(host, 0, 2)
		second, _ = pairs(2)
	}
	b.a.post(second, b.a.write(b.b, 0, 100))
	b.a.ended(b.a.poll(1)[0], second, 0, verbs.Success)
	require.Equal(t, Traffic{2, 20}, n.Carried(0, 0, 1))
	require.Equal(t, Traffic{1, 100}, n.Carried(0, 0, 2))
	require.Zero(t, n.Carried(1, 0, 1))
}

// TestFatal: an adapter fails.
func TestFatal(t *testing.T) {
	n, b := two(t, Options{Seed: 1, Patience: 10 * time.Millisecond})
	pa, pb := b.connected()
	b.a.post(pa, b.a.tell(b.b, 0, 10, 1)) // waits for an entry
	n.Fatal(0, 0)
	require.Equal(t, verbs.Event{Kind: verbs.DeviceFatal}, b.a.event())
	b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Flushed)
	_, err := b.a.c.Register(make([]byte, 10), false)
	require.ErrorIs(t, err, fault.System)
	b.b.post(pb, b.b.write(b.a, 0, 10))
	b.b.ended(b.b.poll(1)[0], pb, 0, verbs.RetriesExceeded)
}

// TestKill: a process dies, and its peer is told as soon as it writes.
func TestKill(t *testing.T) {
	n := newNetwork(t, Options{Seed: 1, Patience: 10 * time.Millisecond})
	n.Kill(1)
	_, err := n.Host(1).Open("fake_0")
	require.ErrorIs(t, err, fault.Closed)

	n = newNetwork(t, Options{Seed: 1, Patience: 10 * time.Millisecond})
	a := newEnd(t, n.Host(0))
	c, err := n.Host(1).Open("fake_0")
	require.NoError(t, err)
	q, err := c.NewCompletions(10)
	require.NoError(t, err)
	r, err := c.NewReceives(10)
	require.NoError(t, err)
	memory := make([]byte, benchBytes)
	region, err := c.Register(memory, true)
	require.NoError(t, err)
	pb, err := c.NewPair(verbs.PairOptions{Completions: q, Receives: r, Posted: 10})
	require.NoError(t, err)
	d, err := c.Device()
	require.NoError(t, err)
	b := &end{t: t, port: d.Ports[0], gid: bestGID(d.Ports[0]), memory: memory, region: region}
	pa := a.pair()
	a.must(pa.Connect(a.connection(pa, b, pb)))
	a.must(pb.Connect(b.connection(pb, a, pa)))
	a.post(pa, a.write(b, 0, 10))
	a.ended(a.poll(1)[0], pa, 0, verbs.Success)
	n.Kill(1)
	a.quiet()
	a.post(pa, a.write(b, 0, 10))
	a.ended(a.poll(1)[0], pa, 0, verbs.RetriesExceeded)
	for name, call := range map[string]func() error{
		"Poll": func() error { _, err := q.Poll(nil); return err }, "Arm": q.Arm,
		"Post":   func() error { return r.Post(1) },
		"Device": func() error { _, err := c.Device(); return err }, "Fail": pb.Fail, "Close": region.Close,
	} {
		require.ErrorIs(t, call(), fault.Closed, name)
	}
	require.Contains(t, q.Arm().Error(), "killed")
}

// TestGone: what is in the queue of a pair that is closed stays there, or goes.
func TestGone(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(16) {
		_, b := two(t, Options{Seed: seed, Delay: -1})
		pa := b.a.pair()
		pb, err := b.b.c.NewPair(verbs.PairOptions{Completions: b.b.q, Receives: b.b.r, Posted: 1})
		b.b.must(err)
		b.a.must(pa.Connect(b.a.connection(pa, b.b, pb)))
		b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
		b.b.receive(benchEntries / 2)
		b.a.post(pa, b.a.tell(b.b, 0, 8, 1), b.a.tell(b.b, 0, 8, 2))
		b.a.poll(2)
		b.b.must(pb.Close())
		var into [3]verbs.Completion
		k, err := b.b.q.Poll(into[:])
		b.b.must(err)
		seen[k] = true
		b.b.receive(2) // there is room again in both cases
	}
	require.Equal(t, map[int]bool{0: true, 2: true}, seen)
}

// TestLimits: each is an error that names it.
func TestLimits(t *testing.T) {
	n := newNetwork(t, Options{Seed: 1, Locked: benchBytes + 8192, Pairs: 1, Regions: 3, Message: 1 << 20, Inline: 64})
	e := newEnd(t, n.Host(0))
	_, err := e.c.Register(make([]byte, 8193), false)
	require.ErrorContains(t, err, "ulimit -l")
	first, err := e.c.Register(make([]byte, 8192), false)
	require.NoError(t, err)
	_, err = e.c.Register(make([]byte, 1), false)
	require.ErrorContains(t, err, "locked")
	require.NoError(t, first.Close())
	e.register(make([]byte, 1), false)
	e.register(make([]byte, 1), false)
	_, err = e.c.Register(make([]byte, 1), false)
	require.ErrorContains(t, err, "3 regions")
	e.pair()
	o := verbs.PairOptions{Completions: e.q, Receives: e.r, Posted: 1}
	_, err = e.c.NewPair(o)
	require.ErrorContains(t, err, "1 pairs")
	o.Inline = 65
	_, err = e.c.NewPair(o)
	require.ErrorContains(t, err, "64 bytes inline")
	require.ErrorContains(t, e.r.Post(1000), "256 entries")
}

// TestLongest: a write longer than a message fails at home.
func TestLongest(t *testing.T) {
	n := newNetwork(t, Options{Seed: 1, Message: 1000})
	b := newBench(t, n.Host(0), n.Host(1))
	pa, _ := b.connected()
	b.a.post(pa, b.a.write(b.b, 0, 1000), b.a.write(b.b, 0, 1001))
	got := b.a.poll(2)
	b.a.ended(got[0], pa, 0, verbs.Success)
	b.a.ended(got[1], pa, 0, verbs.LocalLength)
}

// TestStrangers: packets of pairs that do not agree on each other, or on a number, are lost.
func TestStrangers(t *testing.T) {
	_, b := two(t, Options{Seed: 1, Patience: 5 * time.Millisecond})
	for name, change := range map[string]func(c *verbs.Connection){
		"pair":       func(c *verbs.Connection) { c.Remote.Pair++ },
		"sequence":   func(c *verbs.Connection) { c.Sequence++ },
		"its own":    func(c *verbs.Connection) { c.Remote.Sequence++ },
		"address":    func(c *verbs.Connection) { c.Remote.GID[15]++ },
		"kind":       func(c *verbs.Connection) { c.GID = 4 },
		"packets":    func(c *verbs.Connection) { c.MTU = 1024 },
		"never done": func(c *verbs.Connection) { c.Remote.Pair = 0xabcdef },
	} {
		pa, pb := b.a.pair(), b.b.pair()
		own := b.a.connection(pa, b.b, pb)
		change(&own)
		b.a.must(pa.Connect(own))
		b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
		b.a.post(pa, b.a.write(b.b, 0, 10))
		if got := b.a.poll(1)[0]; got.Status != verbs.RetriesExceeded {
			t.Errorf("%s: %s", name, got.Status)
		}
	}
}

// TestNoAdapters: a host without any.
func TestNoAdapters(t *testing.T) {
	n := newNetwork(t, Options{Adapters: -1})
	all, err := n.Host(0).Devices()
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = n.Host(0).Open("fake_0")
	require.ErrorIs(t, err, fault.System)
}

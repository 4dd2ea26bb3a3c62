package verbstest

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// reported checks that there is one report, which has all of the texts and the place, and forgets
// it.
func reported(t *testing.T, n *Network, texts ...string) {
	t.Helper()
	all := n.Reports()
	require.Len(t, all, 1)
	for _, text := range texts {
		require.Contains(t, all[0], text)
	}
	n.Forget()
}

// TestAfterClose: everything that is used after its Close is a report, with the place.
func TestAfterClose(t *testing.T) {
	n := newNetwork(t, Options{Seed: 1})
	c, err := n.Host(0).Open("fake_0")
	require.NoError(t, err)
	q, err := c.NewCompletions(1)
	require.NoError(t, err)
	r, err := c.NewReceives(1)
	require.NoError(t, err)
	region, err := c.Register(make([]byte, 10), false)
	require.NoError(t, err)
	o := verbs.PairOptions{Completions: q, Receives: r, Posted: 1}
	p, err := c.NewPair(o)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.NoError(t, q.Close())
	require.NoError(t, r.Close())
	require.NoError(t, region.Close())
	type call struct {
		name string
		run  func() error
	}
	misused := func(calls []call) {
		for _, call := range calls {
			require.ErrorIs(t, call.run(), fault.Closed, call.name)
			reported(t, n, "Close", "fake_0", "at verbstest/mistakes_test.go:")
		}
	}
	misused([]call{
		{"Close of the pair", p.Close}, {"Close of completions", q.Close}, {"Close of receives", r.Close},
		{"Close of a region", region.Close}, {"Fail", p.Fail}, {"Arm", q.Arm}, {"Take", q.Take},
		{"Poll", func() error { _, err := q.Poll(nil); return err }},
		{"Post", func() error { _, err := p.Post(nil); return err }},
		{"Connect", func() error { return p.Connect(verbs.Connection{}) }},
		{"Receives.Post", func() error { return r.Post(1) }},
	})
	_, err = c.NewPair(o)
	require.ErrorIs(t, err, fault.Closed)
	reported(t, n, "queues of others, or that are closed")
	require.NoError(t, c.Close())
	misused([]call{
		{"Close", c.Close}, {"Device", func() error { _, err := c.Device(); return err }},
		{"Event", func() error { _, _, err := c.Event(); return err }},
		{"Register", func() error { _, err := c.Register(make([]byte, 1), true); return err }},
	})
}

// TestTooEarly: what is closed before what was made from it.
func TestTooEarly(t *testing.T) {
	n, b := two(t, Options{Seed: 1})
	b.a.pair()
	require.ErrorIs(t, b.a.q.Close(), fault.System)
	reported(t, n, "completion queue of 512 before that of host 0: fake_0: pair")
	require.ErrorIs(t, b.a.r.Close(), fault.System)
	reported(t, n, "receive queue of 256 before that of")
	require.ErrorIs(t, b.a.c.Close(), fault.System)
	reported(t, n, "host 0: fake_0: Close before that of 4 others")
	require.Len(t, n.Leaks(), 9) // two adapters, each with a region and its queues, and a pair
	require.Contains(t, strings.Join(n.Leaks(), "\n"), "host 1: fake_0: receive queue of 256")
}

// TestSource: memory that changes before the write has completed, of one that makes no completion
// too, and a region that is closed too early.
func TestSource(t *testing.T) {
	n, b := two(t, Options{Seed: 1, Delay: -1})
	pa, _ := b.connected()
	n.Cut(0, 1)
	first := b.a.write(b.b, 0, 100)
	first.Complete = false
	b.a.post(pa, first, b.a.write(b.b, 200, 100))
	b.a.memory[50]++ // while nothing is read
	n.Heal(0, 1)
	b.a.poll(1)
	reported(t, n, "the source of a write changed", "cookie 0")

	early, err := b.a.c.Register(b.a.memory[:100], false)
	b.a.must(err)
	n.Cut(0, 1)
	w := b.a.write(b.b, 0, 100)
	w.From[0].Key = early.Local()
	b.a.post(pa, w)
	b.a.must(early.Close())
	n.Heal(0, 1)
	b.a.ended(b.a.poll(1)[0], pa, 0, verbs.LocalProtection)
	require.Len(t, n.Reports(), 2)
	require.Contains(t, n.Reports()[0], "which a posted write of host 0: fake_0: pair 17 reads")
	require.Contains(t, n.Reports()[1], "the source of a write changed, or went")
	n.Forget()
}

// TestOverflow: a completion queue has room for what was asked for. What is more is the end of it.
func TestOverflow(t *testing.T) {
	n, b := two(t, Options{Seed: 1})
	q := b.a.completions(3)
	o := verbs.PairOptions{Completions: q, Receives: b.a.r, Posted: 10}
	pa, err := b.a.c.NewPair(o)
	b.a.must(err)
	defer pa.Close()
	pb := b.b.pair()
	b.a.must(pa.Connect(b.a.connection(pa, b.b, pb)))
	b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
	for range 4 {
		b.a.post(pa, b.a.write(b.b, 0, 10))
	}
	require.Equal(t, verbs.Event{Kind: verbs.CompletionsFailed}, b.a.event())
	reported(t, n, "completion queue of 3 has overflowed")
	_, err = q.Poll(nil)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "overflowed")
}

// TestTwoThreads: a second thread in a queue is a report.
func TestTwoThreads(t *testing.T) {
	n, b := two(t, Options{Seed: 1})
	q, r := b.a.q.(*completions), b.a.r.(*receives)
	q.using.Store(true) // as a thread in Poll does
	_, err := q.Poll(nil)
	require.NoError(t, err)
	reported(t, n, "Poll while another thread uses it")
	r.using.Store(true)
	require.NoError(t, r.Post(1))
	reported(t, n, "Post while another thread uses it")
}

// TestCheck fails a test that has reports, and says the seed.
func TestCheck(t *testing.T) {
	n := New(Options{Seed: 77})
	defer n.Close()
	var told recorder
	n.Check(&told)
	require.Empty(t, told)
	c, err := n.Host(0).Open("fake_0")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	for range 3 { // the same mistake in the same place
		c.Close()
	}
	n.Check(&told)
	require.Equal(t, recorder{"%s (seed %d)"}, told)
}

// recorder is a test that has failed.
type recorder []string

func (*recorder) Helper()                          {}
func (r *recorder) Errorf(format string, _ ...any) { *r = append(*r, format) }

// TestNothingLeft: neither goroutines nor descriptors stay.
func TestNothingLeft(t *testing.T) {
	count := func() int {
		all, err := os.ReadDir("/dev/fd")
		require.NoError(t, err)
		return len(all)
	}
	goroutines, descriptors := runtime.NumGoroutine(), count()
	for range 10 {
		n := New(Options{})
		for i := range 2 {
			c, err := n.Host(i).Open("fake_0")
			require.NoError(t, err)
			_, err = c.NewCompletions(10)
			require.NoError(t, err)
		}
		n.Kill(1)
		n.Close()
	}
	require.Equal(t, descriptors, count())
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		require.False(t, time.Now().After(deadline), "a goroutine stays")
	}
}

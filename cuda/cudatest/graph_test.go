package cudatest_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// captured makes a graph of what record enqueues.
func (b *bench) captured(s cuda.Stream, record func()) *cudatest.Graph {
	b.t.Helper()
	b.d.BeginCapture(s)
	record()
	g, err := b.d.EndCapture(s)
	b.must(err)
	return g
}

// fork has a stream join what another one captures.
func (b *bench) fork(from, to cuda.Stream) {
	b.t.Helper()
	e := b.event()
	b.must(e.Record(from))
	b.must(to.Wait(e))
	b.must(e.Destroy())
}

// clear writes 0 to a flag.
func (b *bench) clear(s cuda.Stream, r cuda.Registered, at int) {
	b.t.Helper()
	b.write(s, r, at, 0)
}

// twoStreams is a program of two streams, or of two graphs that are launched in them, which pass
// bytes on by flags: one brings them, and the other takes them and says that it has done so.
func twoStreams(b *bench, rounds int, graphs bool) (ended bool) {
	b.t.Helper()
	const n, full, empty = 1000, 0, 64
	host, data, back, words := b.register(n), b.alloc(n), b.register(n), b.register(128)
	give, take := b.stream(), b.stream()
	given := func() {
		b.wait(give, words, empty, 1)
		b.clear(give, words, empty)
		b.must(give.Copy(data.Ptr(), host.Ptr(), n))
		b.write(give, words, full, 1)
	}
	taken := func() {
		b.wait(take, words, full, 1)
		b.must(take.Copy(back.Ptr(), data.Ptr(), n))
		b.clear(take, words, full)
		b.write(take, words, empty, 1)
	}
	if graphs {
		first, second := b.captured(give, given), b.captured(take, taken)
		given = func() { b.must(first.Launch(give)) }
		taken = func() { b.must(second.Launch(take)) }
	}
	words.Store(empty, 1)
	for range rounds {
		given()
		taken()
	}
	return b.comes(func() bool {
		first, err := give.Done()
		b.must(err)
		second, err := take.Done()
		b.must(err)
		return first && second
	})
}

// TestFlags: neither the order of a seed nor a replay makes a mistake of flags that are right.
func TestFlags(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for _, graphs := range []bool{false, true} {
		for seed := range seeds {
			b := newBench(t, cudatest.Options{Seed: seed, Delay: -1})
			twoStreams(b, 20, graphs)
			b.d.Check(t)
			if t.Failed() {
				t.Fatalf("graphs: %v", graphs)
			}
		}
	}
}

// TestLeaveOutFlags leaves out each wait for a flag, each write and each write of 0, but for those
// that nobody needs: the first wait, and in the last round the writes of 0 and the last one.
func TestLeaveOutFlags(t *testing.T) {
	const rounds = 3
	for _, graphs := range []bool{false, true} {
		b := newBench(t, cudatest.Options{})
		twoStreams(b, rounds, graphs)
		count := b.d.Orderings()
		if count != 6*rounds+1 {
			t.Fatalf("the program has %d ordering calls, want %d", count, 6*rounds+1)
		}
		for n := range count {
			if n == 1 || n == count-5 || n == count-2 || n == count-1 {
				continue
			}
			for seed := range uint64(3) {
				leave, left := cudatest.Nth(n)
				b := newBench(t, cudatest.Options{Seed: seed, LeaveOut: leave, Stuck: 30 * time.Millisecond})
				twoStreams(b, rounds, graphs)
				b.d.Settle()
				if o, ok := left(); !ok || len(b.d.Reports()) == 0 {
					t.Errorf("graphs %v, seed %d: nobody misses %s", graphs, seed, o)
				}
			}
		}
	}
}

// TestRetain: functions are called once, when a graph is gone and has ended.
func TestRetain(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	data, s := b.alloc(100), b.stream()
	var called atomic.Int32
	g := b.captured(s, func() {
		b.must(s.Retain(func() { called.Add(1) }))
		b.must(s.Copy(data.Ptr(), data.Ptr()+50, 50))
	})
	b.must(g.Launch(s))
	b.ends(s)
	b.d.Hold(s)
	b.must(g.Launch(s))
	b.must(g.Destroy())
	b.d.Settle()
	if n := called.Load(); n != 0 {
		t.Errorf("called %d times before the last launch has ended", n)
	}
	b.d.Release(s)
	b.ends(s)
	b.must(g.Destroy())
	b.d.Settle()
	if n := called.Load(); n != 1 {
		t.Errorf("called %d times, want once", n)
	}
	b.d.Check(t)
}

// TestDeadlockInGraph names the lanes.
func TestDeadlockInGraph(t *testing.T) {
	b := newBench(t, cudatest.Options{Stuck: soon})
	words, s, u := b.register(8), b.stream(), b.stream()
	g := b.captured(s, func() {
		b.fork(s, u)
		b.wait(u, words, 0, 1)
		b.fork(u, s)
	})
	b.must(g.Launch(s))
	b.stuck()
	b.reported(cudatest.Deadlock,
		"graph 1, lane 2, operation 2 (words: wait for 1 in allocation 1 bytes 0..8), enqueued at cudatest/",
		"graph 1, lane 1, operation 3 (wait for event 2", "waits for event 2, recorded in graph 1, lane 2, operation 3",
		"waits for the end of graph 1, recorded in graph 1, lane 1, operation 4")
	if !strings.Contains(b.d.Blocked(), "lane 2") {
		t.Error(b.d.Blocked())
	}
	words.Store(0, 1)
	b.ends(s)
}

package conformance

import (
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// Graphs captures streams of a driver, as their owner does: the contract has only what a library
// has to do with it. The capture is relaxed.
type Graphs interface {
	Begin(cuda.Driver, cuda.Stream) error
	End(cuda.Driver, cuda.Stream) (Graph, error)
}

// Graph is what a capture has made, ready to be launched.
type Graph interface {
	Launch(cuda.Stream) error
	Destroy() error
}

// capture makes a graph of what record enqueues, and destroys it at the end.
func (b *bench) capture(s cuda.Stream, record func()) Graph {
	b.t.Helper()
	b.must(b.graphs.Begin(b.d, s))
	record()
	g, err := b.graphs.End(b.d, s)
	b.must(err)
	b.later(g.Destroy)
	return g
}

// order orders what is enqueued in a stream next behind what another one has.
func (b *bench) order(before, after cuda.Stream) {
	b.t.Helper()
	e := b.event()
	b.must(e.Record(before))
	b.must(after.Wait(e))
}

// tick adds one to a word.
func (b *bench) tick(f cuda.Function, s cuda.Stream, r cuda.Registered, at int) {
	b.t.Helper()
	a := kernel.Tick().Arguments(uint64(r.Ptr())+uint64(at), 1, 0)
	b.must(s.Launch(f, 1, 1, a.Bytes()))
}

// testTick counts a word: who sees it sees the bytes before it.
func testTick(b *bench) {
	const n, rounds = 100000, 30
	words, host, back, device, s := b.words(), b.register(n), b.register(n), b.alloc(n), b.stream()
	tick := b.function(b.module(), kernel.Tick().Name)
	words.Store(8, 100)
	for i := range uint64(rounds) {
		b.fill(host, 0, n, byte(i))
		b.copy(s, device.Ptr(), host.Ptr(), n)
		b.copy(s, back.Ptr(), device.Ptr(), n)
		b.tick(tick, s, words, 8)
		b.reaches("a word that is counted", words, 8, 101+i)
		b.check(back, 0, n, byte(i))
	}
	b.ends(s)
	if got := words.Load(8); got != 100+rounds {
		b.t.Errorf("the word is %d, want %d", got, 100+rounds)
	}
}

// testCaptureNumbers asks for the capture of streams.
func testCaptureNumbers(b *bench) {
	s, u := b.stream(), b.newStream(1)
	number := func(s cuda.Stream) uint64 {
		id, err := s.Capture()
		b.must(err)
		return id
	}
	seen := map[uint64]bool{0: true}
	for range 3 {
		b.capture(s, func() {
			first := number(s)
			if seen[first] {
				b.t.Errorf("another capture had the number %d, too", first)
			}
			seen[first] = true
			if id := number(u); id != 0 {
				b.t.Errorf("a stream that does not take part has capture %d", id)
			}
			b.order(s, u)
			if id := number(u); id != first {
				b.t.Errorf("a stream that has joined capture %d has number %d", first, id)
			}
			b.order(u, s)
		})
		if number(s) != 0 || number(u) != 0 {
			b.t.Error("a stream stays in capture")
		}
	}
}

// testReplay launches one graph many times, which copies, has words, a kernel of a second stream,
// and a tick.
func testReplay(b *bench) {
	const n, rounds = 100001, 100
	words, host, back, device := b.words(), b.register(n), b.register(n), b.alloc(2*n)
	s, u, m := b.stream(), b.newStream(1), b.module()
	copier, ticker := b.function(m, kernel.Copy().Name), b.function(m, kernel.Tick().Name)
	first, second := device.Ptr(), device.Ptr()+n
	g := b.capture(s, func() {
		b.enqueue(s, wait(words, 0, 1), write(words, 0, 0))
		b.copy(s, first, host.Ptr(), n)
		b.order(s, u)
		b.launchCopy(copier, u, second, first, n)
		b.order(u, s)
		b.copy(s, back.Ptr(), second, n)
		b.tick(ticker, s, words, 64)
	})
	for i := range uint64(rounds) {
		b.must(g.Launch(s))
		b.fill(host, 0, n, byte(i))
		words.Store(0, 1)
		b.reaches("the word that a graph counts", words, 64, i+1)
		b.check(back, 0, n, byte(i))
	}
	b.ends(s)
	if got := words.Load(64); got != rounds {
		b.t.Errorf("the word is %d after %d launches", got, rounds)
	}
}

// testGraphFlags has two graphs in two streams: each waits for what the other has done last.
func testGraphFlags(b *bench) {
	const n, rounds, full, empty, count = 20000, 50, 0, 64, 128
	words, host, back, device := b.words(), b.register(n), b.register(n), b.alloc(n)
	give, take := b.stream(), b.newStream(1)
	ticker := b.function(b.module(), kernel.Tick().Name)
	b.fill(host, 0, n, 7)
	given := b.capture(give, func() {
		b.enqueue(give, wait(words, empty, 1), write(words, empty, 0))
		b.copy(give, device.Ptr(), host.Ptr(), n)
		b.enqueue(give, write(words, full, 1))
	})
	taken := b.capture(take, func() {
		b.enqueue(take, wait(words, full, 1))
		b.copy(take, back.Ptr(), device.Ptr(), n)
		b.tick(ticker, take, words, count)
		b.enqueue(take, write(words, full, 0), write(words, empty, 1))
	})
	words.Store(empty, 1)
	for range rounds {
		b.must(given.Launch(give))
		b.must(taken.Launch(take))
	}
	b.ends(give)
	b.ends(take)
	b.check(back, 0, n, 7)
	if full, empty, count := words.Load(full), words.Load(empty), words.Load(count); full != 0 || empty != 1 ||
		count != rounds {
		b.t.Errorf("after %d launches the flags are %d and %d, the count is %d", rounds, full, empty, count)
	}
}

// testRetain has a function called once, when a graph is gone and what was launched has ended.
func testRetain(b *bench) {
	words, s := b.words(), b.stream()
	var called, other atomic.Int32
	g := b.capture(s, func() {
		b.must(s.Retain(func() { called.Add(1) }))
		b.enqueue(s, wait(words, 0, 1), write(words, 0, 0))
		b.must(s.Retain(func() { other.Add(1) }))
	})
	never := func(when string) {
		b.t.Helper()
		time.Sleep(5 * time.Millisecond)
		if n := called.Load() + other.Load(); n != 0 {
			b.t.Errorf("%s: %d functions were called", when, n)
		}
	}
	words.Store(0, 1)
	b.must(g.Launch(s))
	b.ends(s)
	never("a graph that can be launched again")
	b.must(g.Launch(s))
	b.must(g.Destroy())
	never("a launch that has not ended")
	words.Store(0, 1)
	b.ends(s)
	b.until("what a graph has retained", func() bool { return called.Load() > 0 && other.Load() > 0 })
	time.Sleep(5 * time.Millisecond)
	if called.Load() != 1 || other.Load() != 1 {
		b.t.Errorf("functions were called %d and %d times", called.Load(), other.Load())
	}
}

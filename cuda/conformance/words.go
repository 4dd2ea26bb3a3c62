package conformance

import (
	"math"
	"time"

	"github.com/goccl/goccl/cuda"
)

// testWordAfterData has a stream copy to the host and write a word: who sees the word sees the
// bytes.
func testWordAfterData(b *bench) {
	const n, rounds = 200000, 30
	words, host, back, device, s := b.words(), b.register(n), b.register(n), b.alloc(n), b.stream()
	for i := range uint64(rounds) {
		b.fill(host, 0, n, byte(i))
		b.copy(s, device.Ptr(), host.Ptr(), n)
		b.copy(s, back.Ptr(), device.Ptr(), n)
		b.enqueue(s, write(words, 0, i+1))
		b.reaches("a word of a stream", words, 0, i+1)
		b.check(back, 0, n, byte(i))
	}
	b.ends(s)
}

// testWordBeforeData has a stream wait for a word that the host stores behind its bytes.
func testWordBeforeData(b *bench) {
	const n, rounds = 200000, 30
	words, host, back, device, s := b.words(), b.register(n), b.register(n), b.alloc(n), b.stream()
	for i := range uint64(rounds) {
		b.enqueue(s, wait(words, 0, i+1))
		b.copy(s, device.Ptr(), host.Ptr(), n)
		b.copy(s, back.Ptr(), device.Ptr(), n)
		b.enqueue(s, write(words, 64, i+1))
		b.fill(host, 0, n, byte(i))
		words.Store(0, i+1)
		b.reaches("a word of a stream", words, 64, i+1)
		b.check(back, 0, n, byte(i))
	}
	b.ends(s)
}

// testWordBetweenStreams passes data from stream to stream by words.
func testWordBetweenStreams(b *bench) {
	const n, rounds = 50000, 50
	words, host, back, device := b.words(), b.register(n), b.register(n), b.alloc(n)
	first, second := b.stream(), b.newStream(1)
	b.fill(host, 0, n, 6)
	for i := range uint64(rounds) {
		b.copy(first, device.Ptr(), host.Ptr(), n)
		b.enqueue(first, write(words, 0, i+1))
		b.enqueue(second, wait(words, 0, i+1))
		b.copy(second, back.Ptr(), device.Ptr(), n)
		b.enqueue(second, write(words, 8, i+1))
		b.enqueue(first, wait(words, 8, i+1))
	}
	b.ends(first)
	b.ends(second)
	b.check(back, 0, n, 6)
}

const most = math.MaxUint64

// waits are values of words, and whether they end a wait for another value.
var waits = []struct {
	value, wanted uint64
	ends          bool
}{
	{0, 0, true}, {5, 4, true}, {4, 5, false}, {0, most, true}, {most, 0, false}, {3, most - 5, true},
	{most - 5, 3, false}, {1 << 63, 1, true}, {1 << 63, 1<<63 + 1, false}, {math.MaxInt64, 0, true},
	{1<<63 + 1, 1 << 63, true},
}

// testReached asks the host, also where the counter comes round.
func testReached(b *bench) {
	words, at := b.register(4096), 0
	for _, test := range waits {
		words.Store(at, test.value)
		if words.Reached(at, test.wanted) != test.ends || words.Load(at) != test.value {
			b.t.Errorf("the word is %d, want %d; reached %d: %v", words.Load(at), test.value, test.wanted, !test.ends)
		}
		at += 8
	}
	go words.Store(at, 3)
	b.reaches("a word of another goroutine", words, at, 2)
}

// testWordComesRound checks the comparison where the counter comes round.
func testWordComesRound(b *bench) {
	words, s, at := b.words(), b.stream(), 0
	for _, test := range waits {
		words.Store(at, test.value)
		b.enqueue(s, wait(words, at, test.wanted))
		if !test.ends {
			b.stays(s, "the word is before the value")
			words.Store(at, test.wanted)
		}
		b.ends(s)
		at += 8
	}
}

// testWordBatch waits for several words at once, which come in any order.
func testWordBatch(b *bench) {
	words, s := b.words(), b.stream()
	for round := range uint64(4) {
		value := round + 1
		var ops []cuda.WordOp
		for at := 0; at < 24; at += 8 {
			ops = append(ops, wait(words, at, value))
		}
		b.enqueue(s, append([]cuda.WordOp{write(words, 64, value), write(words, 72, value)}, ops...)...)
		b.enqueue(s, write(words, 80, value))
		b.reaches("the last write of a batch", words, 72, value)
		if words.Load(64) != value {
			b.t.Error("the second write of a batch is seen before the first")
		}
		for i := range 3 {
			if done, err := s.Done(); err != nil || done || words.Load(80) == value {
				b.t.Errorf("a batch of three waits ends after %d: %v", i, err)
			}
			words.Store(8*((i+int(round))%3), value)
		}
		b.reaches("the word behind a batch", words, 80, value)
	}
	b.ends(s)
}

// testWordBatchInOrder has writes before and behind the waits of a batch: each comes in its turn,
// and passes on what the waits before it have seen.
func testWordBatchInOrder(b *bench) {
	const n = 5000
	words, host, back, device := b.words(), b.register(n), b.register(n), b.alloc(n)
	s, u := b.stream(), b.newStream(1)
	b.fill(host, 0, n, 3)
	b.enqueue(u, wait(words, 16, 1))
	b.copy(u, device.Ptr(), host.Ptr(), n)
	b.copy(u, back.Ptr(), device.Ptr(), n)
	b.enqueue(u, write(words, 0, 1))
	b.enqueue(s, write(words, 64, 1), wait(words, 0, 1), write(words, 72, 1), wait(words, 8, 1), write(words, 80, 1))
	b.reaches("the write before the waits", words, 64, 1)
	b.stays(s, "nobody has stored the words")
	words.Store(8, 1) // which is not its turn
	b.stays(s, "nobody has stored the first word")
	if words.Reached(72, 1) || words.Reached(80, 1) {
		b.t.Error("the writes of a batch come before the wait in front of them")
	}
	words.Store(16, 1)
	b.reaches("the last write of a batch", words, 80, 1)
	if words.Load(72) != 1 {
		b.t.Error("the writes of a batch come in another order")
	}
	b.check(back, 0, n, 3)
	b.ends(s)
	b.ends(u)
}

// testEnqueueBehindWait enqueues much behind a wait: nothing of it may wait for the device.
func testEnqueueBehindWait(b *bench) {
	const n, most = 1000, 100
	words, host, back, device := b.words(), b.register(n), b.register(n), b.alloc(n)
	s, u, e := b.stream(), b.stream(), b.event()
	b.fill(host, 0, n, 2)
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() { // if it does wait, it must end
		defer close(stopped)
		select {
		case <-ended:
		case <-time.After(hang):
			b.t.Error("hangs: enqueuing behind a wait")
			words.Store(0, 1)
		}
	}()
	b.enqueue(s, wait(words, 0, 1))
	for i := range uint64(most) {
		b.copy(s, device.Ptr(), host.Ptr(), n)
		b.enqueue(s, write(words, 64, i+1))
		b.must(e.Record(s))
		b.must(u.Wait(e))
		b.copy(u, back.Ptr(), device.Ptr(), n)
		b.must(e.Record(u))
		b.must(s.Wait(e))
	}
	close(ended)
	<-stopped
	if words.Load(64) != 0 {
		b.t.Error("a stream goes on, though nobody has stored the word")
	}
	words.Store(0, 1)
	b.ends(s)
	b.ends(u)
	b.check(back, 0, n, 2)
}

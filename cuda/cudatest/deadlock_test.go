package cudatest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// stuck waits for the first report.
func (b *bench) stuck() {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(b.d.Reports()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("hangs: no deadlock is reported:\n%s", b.d.Blocked())
		}
	}
}

const soon = 30 * time.Millisecond

// TestDeadlock has three streams wait for each other, and for a word.
func TestDeadlock(t *testing.T) {
	b := newBench(t, cudatest.Options{Stuck: soon})
	words, s, u, v, e := b.register(128), b.stream(), b.stream(), b.stream(), b.event()
	words.Store(8, 3)
	b.wait(s, words, 8, 7)
	b.must(e.Record(s))
	b.must(u.Wait(e))
	b.write(u, words, 64, 1)
	b.must(v.Words([]cuda.WordOp{
		{At: words.Ptr(), Value: 0, Wait: true},
		{At: words.Ptr() + 64, Value: 1, Wait: true},
		{At: words.Ptr() + 72, Value: 2, Wait: true},
	}))
	b.stuck()
	b.reported(cudatest.Deadlock,
		"every stream that has work waits, for 30ms now",
		"stream 1 of context 0, operation 1 (words: wait for 7 in allocation 1 bytes 8..16), enqueued at",
		"waits for the word at allocation 1 bytes 8..16: it is 3, wanted 7; 3 was written last, by the host of context 0, time",
		"stream 2 of context 0, operation 1", "waits for event 1, recorded in stream 1 of context 0, operation 2",
		"bytes 64..72: it is 0, wanted 1; nobody in this process has written it, and for the word at allocation 1 bytes 72..80",
		"deadlock_test.go",
	)
	if text := b.d.Blocked(); !strings.Contains(text, "wanted 7") || strings.Count(text, "\n") != 2 {
		t.Errorf("Blocked says %s", text)
	}
	words.Store(8, 7)
	words.Store(72, 2)
	b.ends(s, u, v)
	if text := b.d.Blocked(); text != "" {
		t.Errorf("nothing is pending, but Blocked says %s", text)
	}
	b.wait(s, words, 8, 8) // again
	for n := 0; n < 2; n = len(b.d.Reports()) {
		time.Sleep(time.Millisecond)
	}
}

// TestNoDeadlock: neither a stream that is held nor an idle one is one.
func TestNoDeadlock(t *testing.T) {
	b := newBench(t, cudatest.Options{Stuck: soon})
	words, s, u, e := b.register(8), b.stream(), b.stream(), b.event()
	time.Sleep(2 * soon)
	b.d.Hold(s)
	b.must(e.Record(s))
	b.must(u.Wait(e))
	time.Sleep(2 * soon)
	if text := b.d.Blocked(); !strings.Contains(text, "is held by the test") {
		t.Errorf("Blocked says %s", text)
	}
	b.d.Release(s)
	b.ends(u)
	b.d.Check(t)

	b = newBench(t, cudatest.Options{Stuck: 400 * time.Millisecond})
	words, s = b.register(8), b.stream()
	b.wait(s, words, 0, 20)
	for i := range uint64(20) { // for longer than that in all, but with something that moves
		time.Sleep(25 * time.Millisecond)
		words.Store(0, i+1)
	}
	b.ends(s)
	b.d.Check(t)

	b = newBench(t, cudatest.Options{Stuck: -1})
	words, s = b.register(8), b.stream()
	b.wait(s, words, 0, 1)
	time.Sleep(2 * soon)
	b.d.Check(t)
}

// TestHold: calls return while a stream is held, and other streams go on.
func TestHold(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	data, other, s, u, e := b.alloc(1000), b.alloc(1000), b.stream(), b.stream(), b.event()
	b.d.Hold(s)
	b.must(s.Copy(data.Ptr(), data.Ptr()+500, 500))
	b.must(e.Record(s))
	b.must(u.Copy(other.Ptr(), other.Ptr()+500, 500))
	b.ends(u)
	b.d.Settle()
	if done, err := s.Done(); done || err != nil {
		t.Errorf("a stream that is held: done %v, %v", done, err)
	}
	if done, err := e.Done(); done || err != nil {
		t.Errorf("an event in a stream that is held: done %v, %v", done, err)
	}
	b.d.Release(s)
	b.ends(s)
	b.d.Check(t)
}

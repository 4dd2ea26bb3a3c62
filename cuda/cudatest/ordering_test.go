package cudatest_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/cuda/cudatest"
)

// staged is a device group's way of a buffer, some times: down to registered memory, the host's
// work, and up. It gives up at the first report, and reports whether the bytes are right.
func staged(b *bench, rounds uint64) (right bool) {
	b.t.Helper()
	const n = 10000
	data, stage, words, input := b.alloc(n), b.register(n), b.register(128), b.register(n)
	user, down, up := b.stream(), b.stream(), b.stream()
	before, after := b.event(), b.event()
	for i := range n {
		input.Host()[i] = byte(i)
	}
	b.writes(input, 0, n)
	b.must(user.Copy(data.Ptr(), input.Ptr(), n))
	for round := range rounds {
		b.must(before.Record(user))
		b.must(down.Wait(before))
		b.must(down.Copy(stage.Ptr(), data.Ptr(), n))
		b.write(down, words, 0, round+1)
		b.wait(up, words, 64, round+1)
		b.must(up.Copy(data.Ptr(), stage.Ptr(), n))
		b.must(after.Record(up))
		b.must(user.Wait(after))
		if !b.comes(func() bool { return int64(words.Load(0)-round-1) >= 0 }) {
			return false
		}
		b.writes(stage, 0, n)
		for i := range n {
			stage.Host()[i]++
		}
		b.writes(stage, 0, n)
		words.Store(64, round+1)
	}
	b.must(user.Copy(input.Ptr(), data.Ptr(), n))
	if !b.comes(func() bool {
		done, err := user.Done()
		b.must(err)
		return done
	}) {
		return false
	}
	b.reads(input, 0, n)
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i) + byte(rounds)
	}
	return bytes.Equal(input.Host()[:n], want)
}

// comes polls until something is so, and gives up at a report.
func (b *bench) comes(f func() bool) bool {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(20 * time.Microsecond) {
		if len(b.d.Reports()) > 0 {
			return false
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("hangs, without a report:\n%s", b.d.Blocked())
		}
	}
	return true
}

func TestStaged(t *testing.T) {
	for seed := range uint64(20) {
		b := newBench(t, cudatest.Options{Seed: seed})
		if !staged(b, 5) {
			t.Errorf("seed %d: wrong bytes", seed)
		}
		b.d.Check(t)
	}
}

// TestLeaveOut leaves out each ordering call in turn: each of them is missed, whatever the seed.
func TestLeaveOut(t *testing.T) {
	const rounds = 2
	b := newBench(t, cudatest.Options{})
	staged(b, rounds)
	count := b.d.Orderings()
	if want := 8 * rounds; count != want {
		t.Fatalf("the program has %d ordering calls, want %d", count, want)
	}
	kinds := map[cudatest.OrderingKind]int{}
	for n := range count {
		for seed := range uint64(3) {
			leave, left := cudatest.Nth(n)
			b := newBench(t, cudatest.Options{Seed: seed, LeaveOut: leave, Stuck: 30 * time.Millisecond})
			staged(b, rounds)
			b.d.Settle()
			o, ok := left()
			if !ok {
				t.Fatalf("seed %d: there is no ordering call %d", seed, n)
			}
			if len(b.d.Reports()) == 0 {
				t.Errorf("seed %d: nobody misses %s", seed, o)
			}
			if !strings.Contains(o.String(), "_test.go:") {
				t.Errorf("the text does not say where the call is: %s", o)
			}
			kinds[o.Kind]++
		}
	}
	if len(kinds) != 6 {
		t.Errorf("kinds of ordering calls: %v", kinds)
	}
}

// TestLeaveOutLoad checks that the first Load after a write was enqueued returns its value early.
func TestLeaveOutLoad(t *testing.T) {
	leave, left := cudatest.Nth(2) // after the two writes
	b := newBench(t, cudatest.Options{LeaveOut: leave})
	s, words := b.stream(), b.register(8)
	b.d.Hold(s)
	b.write(s, words, 0, 3)
	b.write(s, words, 0, 5)
	if got := words.Load(0); got != 5 {
		t.Errorf("the Load that is left out returns %d, want 5", got)
	}
	if got := words.Load(0); got != 0 {
		t.Errorf("the next Load returns %d, want 0", got)
	}
	b.d.Release(s)
	b.until(words, 0, 5)
	if o, ok := left(); !ok || o.Kind != cudatest.Load || b.d.Orderings() != 3 {
		t.Errorf("left out %v of %d ordering calls", o, b.d.Orderings())
	}
}

// TestLeaveOutRecord checks that an event without its first Record can be waited for.
func TestLeaveOutRecord(t *testing.T) {
	leave, _ := cudatest.Nth(0)
	b := newBench(t, cudatest.Options{LeaveOut: leave})
	s, u, e := b.stream(), b.stream(), b.event()
	b.d.Hold(s)
	b.must(e.Record(s))
	b.must(u.Wait(e))
	b.must(u.Synchronize())
	b.d.Check(t)
}

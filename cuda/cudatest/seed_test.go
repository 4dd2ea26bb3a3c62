package cudatest_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// order runs the same program with a seed, and returns in which order it was executed.
func order(t *testing.T, seed uint64) string {
	var lines []string
	b := newBench(t, cudatest.Options{Seed: seed, Trace: func(line string) { lines = append(lines, line) }})
	data := b.alloc(4096)
	var all []cuda.Stream
	for range 6 {
		all = append(all, b.stream())
		b.d.Hold(all[len(all)-1])
	}
	e := b.event()
	for i := range 40 {
		s := all[i%len(all)]
		at := data.Ptr() + cuda.Ptr(200*(i%len(all)))
		b.must(s.Copy(at, at+100, 100))
		if i%7 == 0 {
			b.must(e.Record(s))
		}
		if i%5 == 1 {
			b.must(s.Wait(e))
		}
	}
	b.d.Release(all...)
	b.ends(all...)
	b.d.Check(t)
	b.d.Close() // so that lines does not change
	return strings.Join(lines, "\n")
}

// TestSeeds: what is enqueued before anything is executed is executed in the order of the seed.
func TestSeeds(t *testing.T) {
	different := map[string]bool{}
	for seed := range uint64(10) {
		first := order(t, seed)
		if second := order(t, seed); first != second {
			t.Errorf("seed %d: first\n%s\nthen\n%s", seed, first, second)
		}
		if !strings.Contains(first, "stream 2 of context 0, operation 1: copy to allocation 1 bytes 200..300 from") {
			t.Fatalf("the trace says\n%s", first)
		}
		different[first] = true
	}
	if len(different) < 9 {
		t.Errorf("10 seeds make %d orders", len(different))
	}
}

// TestClose leaves no goroutine behind, and ends whoever waits.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	d := cudatest.New(cudatest.Options{Seed: 1})
	b := &bench{t: t, d: d}
	c, err := d.Retain(0)
	b.must(err)
	b.c = c
	b.must(c.Enter(false))
	words, s := b.register(8), b.stream()
	b.alloc(100000)
	b.wait(s, words, 0, 1)
	var group sync.WaitGroup
	group.Go(func() {
		b.must(c.Enter(false))
		defer c.Leave()
		isCode(t, s.Synchronize(), 4)
	})
	for d.Calls("cuStreamSynchronize") == 0 {
		runtime.Gosched()
	}
	d.Close()
	d.Close()
	group.Wait()
	c.Leave()
	_, err = d.Retain(0)
	isCode(t, err, 4)
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("goroutines stay after Close")
		}
	}
}

// TestLeaks lists what was not given back.
func TestLeaks(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	data, stage, s, e := b.alloc(100), b.register(100), b.stream(), b.event()
	other, err := b.d.Retain(0)
	b.must(err)
	want := []string{
		"allocation 1 (memory of device 0, 65536 bytes), made at cudatest/", "allocation 2 (registered memory, ",
		"stream 1 of context 0, made at", "event 1, made at", "context 0, retained at", "context 1, retained at",
		"an Enter of context 0",
	}
	left := b.d.Leaks()
	for _, text := range want {
		if !slices.ContainsFunc(left, func(line string) bool { return strings.HasPrefix(line, text) }) {
			t.Errorf("%q is not among %q", text, left)
		}
	}
	if len(left) != len(want) {
		t.Errorf("%d things are left, want %d: %q", len(left), len(want), left)
	}
	for _, free := range []func() error{data.Free, stage.Free, s.Destroy, e.Destroy, other.Release} {
		b.must(free())
	}
	b.c.Leave()
	b.must(b.c.Release())
	if left := b.d.Leaks(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	b.c = b.context(0) // for the end of the test, which leaves it
	b.must(b.c.Enter(false))
	b.c.Leave()
	b.d.Check(t)
}

// TestRanks has ranks as goroutines of one process, each with its own context of the same device or
// of two.
func TestRanks(t *testing.T) {
	for _, devices := range []int{1, 2} {
		const ranks = 4
		d := cudatest.New(cudatest.Options{Seed: 7, Devices: devices})
		var group, ready sync.WaitGroup
		ready.Add(ranks)
		for rank := range ranks {
			group.Go(func() {
				b := &bench{t: t, d: d}
				c, err := d.Retain(rank % devices)
				if err != nil {
					t.Error(err)
				}
				b.c = c
				b.must(c.Enter(rank%2 == 0))
				defer c.Leave()
				once := sync.OnceFunc(ready.Done)
				defer once()
				if !rankStaged(b, func() { once(); ready.Wait() }) {
					t.Error("wrong bytes")
				}
			})
		}
		group.Wait()
		d.Check(t)
		d.Close()
	}
}

// rankStaged moves a buffer down and up. No rank enqueues before all of them have what they need.
func rankStaged(b *bench, all func()) bool {
	const n, rounds = 20000, 10
	data, stage, words, out := b.alloc(n), b.register(n), b.register(128), b.register(n)
	user, down, up := b.stream(), b.stream(), b.stream()
	e := b.event()
	all()
	for i := range stage.Host() {
		stage.Host()[i] = byte(i)
	}
	b.writes(stage, 0, n)
	b.must(user.Copy(data.Ptr(), stage.Ptr(), n))
	for i := range uint64(rounds) {
		b.must(e.Record(user))
		b.must(down.Wait(e))
		b.must(down.Copy(stage.Ptr(), data.Ptr(), n))
		b.write(down, words, 0, i+1)
		b.wait(up, words, 64, i+1)
		b.must(up.Copy(data.Ptr(), stage.Ptr(), n))
		b.must(e.Record(up))
		b.must(user.Wait(e))
		b.until(words, 0, i+1)
		b.writes(stage, 0, n)
		for k := range stage.Host() {
			stage.Host()[k]++
		}
		b.writes(stage, 0, n)
		words.Store(64, i+1)
	}
	b.must(user.Copy(out.Ptr(), data.Ptr(), n))
	b.must(user.Synchronize())
	b.reads(out, 0, n)
	return out.Host()[n-1] == byte((n-1)%256)+rounds
}

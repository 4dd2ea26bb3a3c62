package cudatest_test

import (
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// whole is an access to the first bytes of memory.
func whole(m cuda.Memory, bytes int, write bool) []cudatest.Access {
	return []cudatest.Access{{At: m.Ptr(), Bytes: bytes, Write: write}}
}

// A kernel that the caller executes keeps its place in its stream, and everybody else waits.
func TestBegin(t *testing.T) {
	b := newBench(t, cudatest.Options{Delay: -1})
	data, other, s, u := b.alloc(4096), b.alloc(4096), b.stream(), b.stream()
	b.must(s.Copy(data.Ptr(), other.Ptr(), 100))
	end, err := b.d.Begin(s, "add", whole(data, 100, true))
	b.must(err)
	b.must(u.Copy(other.Ptr()+100, other.Ptr(), 100))
	for _, waiting := range []cuda.Stream{s, u} {
		done, err := waiting.Done()
		b.must(err)
		if done {
			t.Fatal("a stream went on while a kernel was executed")
		}
	}
	end()
	b.ends(s, u)
	b.d.Check(t)
}

// That the caller has executed a kernel orders nothing.
func TestBeginTellsTheHostNothing(t *testing.T) {
	b := newBench(t, cudatest.Options{Delay: -1})
	data, s, u := b.alloc(4096), b.stream(), b.stream()
	end, err := b.d.Begin(s, "add", whole(data, 100, true))
	b.must(err)
	end()
	b.must(b.d.Launch(u, "norm", whole(data, 8, false), func() {}))
	b.ends(s, u)
	b.reported(cudatest.Race, "allocation 1 bytes 0..8", "stream 1 of context 0 writes in add at",
		"stream 2 of context 0 reads in norm at", "kernel_test.go")
}

// A kernel of a lost device never begins.
func TestBeginLost(t *testing.T) {
	b := newBench(t, cudatest.Options{Delay: -1})
	data, s := b.alloc(4096), b.stream()
	b.d.Hold(s)
	lost := make(chan error)
	go func() {
		err := b.c.Enter(false)
		if err == nil {
			defer b.c.Leave()
			_, err = b.d.Begin(s, "add", whole(data, 8, true))
		}
		lost <- err
	}()
	for b.d.Blocked() == "" {
		b.d.Settle()
	}
	b.d.Lose(0)
	if err := <-lost; !cuda.Lost(err) {
		t.Fatalf("got %v", err)
	}
}

// A kernel that leaves its memory costs the device, as a copy does.
func TestKernelOutside(t *testing.T) {
	b := newBench(t, cudatest.Options{Delay: -1, Granularity: 4096})
	data, s := b.alloc(4096), b.stream()
	b.must(b.d.Launch(s, "add", whole(data, 4097, true), func() { t.Error("it was executed") }))
	b.reported(cudatest.Address, "add, which writes", "past its end")
}

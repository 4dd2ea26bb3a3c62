package cudatest_test

import (
	"testing"
	"time"

	"github.com/goccl/goccl/cuda/cudatest"
)

// TestFreeBlocks has a Free wait for a stream, and a query of another thread for the Free. What
// looks at memory of the host is no call to the driver. Another process goes on.
func TestFreeBlocks(t *testing.T) {
	b := newBench(t, cudatest.Options{FreeBlocks: true, Apart: true})
	words, s, memory := b.register(8), b.stream(), b.alloc(8)
	b.wait(s, words, 0, 1)
	steps := make(chan string, 2)
	each := func(step string, call func() error) {
		go func() {
			if err := b.c.Enter(true); err != nil {
				t.Error(err)
			}
			if err := call(); err != nil {
				t.Error(err)
			}
			steps <- step // before Leave, which may wait, too
			b.c.Leave()
		}()
	}
	each("free", memory.Free)
	for b.d.Freeing() == 0 {
		time.Sleep(time.Millisecond)
	}
	each("query", func() error {
		_, err := s.Done()
		if b.d.Freeing() > 0 {
			t.Error("the query ended before the Free")
		}
		return err
	})
	other, err := b.d.Retain(0)
	b.must(err)
	b.must(other.Enter(true))
	e, err := other.NewEvent()
	b.must(err)
	b.must(e.Destroy())
	other.Leave()
	b.must(other.Release())
	select {
	case step := <-steps:
		t.Fatalf("%s ended while the stream waits", step)
	case <-time.After(soon):
	}
	if words.Load(0) != 0 {
		t.Error("the word")
	}
	words.Store(0, 1)
	<-steps
	<-steps
	b.d.Check(t)
}

// TestFreeBlocksForEver has nothing end that a Free waits for, which is reported as any deadlock.
func TestFreeBlocksForEver(t *testing.T) {
	b := newBench(t, cudatest.Options{FreeBlocks: true, Stuck: soon})
	words, s, memory := b.register(8), b.stream(), b.alloc(8)
	b.wait(s, words, 0, 1)
	b.must(memory.Free())
	b.reported(cudatest.Deadlock, "waits for the word at allocation 1 bytes 0..8: it is 0, wanted 1")
}

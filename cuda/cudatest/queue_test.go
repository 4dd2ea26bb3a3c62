package cudatest_test

import (
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// TestQueues has some streams wait for a word that the last one writes. It can if it has a hardware
// queue in which none of them waits: that of the first stream after as many as there are queues. An
// urgent stream has none of its own.
func TestQueues(t *testing.T) {
	for _, test := range []struct {
		queues, waiting int
		deadlock        bool
	}{{1, 1, true}, {2, 1, false}, {2, 2, true}, {3, 2, false}, {3, 3, true}, {3, 5, true}, {0, 40, false}} {
		o := cudatest.Options{Queues: test.queues}
		if test.deadlock {
			o.Stuck = soon
		}
		b := newBench(t, o)
		words := b.register(8)
		var all []cuda.Stream
		for range test.waiting {
			all = append(all, b.stream())
			b.wait(all[len(all)-1], words, 0, 1)
		}
		last, err := b.c.NewStream(3)
		b.must(err)
		b.write(last, words, 0, 1)
		if test.deadlock {
			b.stuck()
			b.reported(cudatest.Deadlock, "operation 1 (words: write 1 to allocation 1 bytes 0..8), enqueued at",
				"is behind stream", "of context 0, operation 1 in queue")
			continue
		}
		b.ends(append(all, last)...)
		b.d.Check(t)
	}
}

// TestQueueInOrder has what waits hold up what was enqueued behind it, and nothing before it: a
// wait for an event, and what is behind work of its own stream.
func TestQueueInOrder(t *testing.T) {
	b := newBench(t, cudatest.Options{Queues: 1, Delay: -1})
	words, s, u, v, e := b.register(128), b.stream(), b.stream(), b.stream(), b.event()
	b.write(s, words, 64, 1)
	b.d.Hold(u)
	b.must(e.Record(u))
	b.must(v.Wait(e))
	b.write(s, words, 64, 2)
	b.d.Settle()
	if value := words.Load(64); value != 1 {
		t.Errorf("in front of and behind a stream that is held: %d", value)
	}
	b.d.Release(u)
	b.ends(s, u, v)
	if value := words.Load(64); value != 2 {
		t.Errorf("at the end: %d", value)
	}
	b.d.Check(t)
}

// TestQueuesApart: contexts that stand for processes have queues of their own.
func TestQueuesApart(t *testing.T) {
	for _, apart := range []bool{true, false} {
		o := cudatest.Options{Queues: 1, Apart: apart}
		if !apart {
			o.Stuck = soon
		}
		b := newBench(t, o)
		words, s := b.register(8), b.stream()
		b.wait(s, words, 0, 1)
		b.c = b.context(0)
		u := b.stream()
		b.write(u, words, 0, 1)
		if !apart {
			b.stuck()
			b.reported(cudatest.Deadlock, "is behind stream 1 of context 0, operation 1 in queue 0 of device 0")
			continue
		}
		b.ends(s, u)
		b.d.Check(t)
	}
}

package cudatest_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// TestCapture records what is enqueued, in two streams, and executes nothing.
func TestCapture(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	data, words, s, u, e := b.alloc(100), b.register(8), b.stream(), b.stream(), b.event()
	capturing := func(s cuda.Stream) bool {
		id, err := s.Capture()
		b.must(err)
		return id != 0
	}
	b.function(sumName)
	b.d.BeginCapture(s)
	if !capturing(s) || capturing(u) {
		t.Error("the wrong stream is in capture")
	}
	b.must(s.Copy(data.Ptr(), data.Ptr()+50, 50))
	b.must(e.Record(s))
	b.must(u.Wait(e))
	if !capturing(u) {
		t.Error("a stream that waits for an event of the capture has not joined it")
	}
	b.sum(u, 2, data.Ptr(), data.Ptr()+8, data.Ptr()+16)
	b.write(u, words, 0, 1)
	b.must(e.Record(u))
	b.must(s.Wait(e))
	g, err := b.d.EndCapture(s)
	b.must(err)
	recorded := g.Recorded()
	if capturing(s) || capturing(u) {
		t.Error("a stream stays in capture")
	}
	for i, text := range []string{"copy to allocation 1", "record event 1", "wait for event 1",
		"goccl_reduce_sum_f32, which writes allocation 1 bytes 0..8, which reads allocation 1 bytes 8..16, which reads",
		"words: write 1"} {
		if len(recorded) != 7 || !strings.HasPrefix(recorded[i], text) {
			t.Fatalf("recorded: %q", recorded)
		}
	}
	b.ends(s, u)
	if words.Load(0) != 0 {
		t.Error("a word was written during capture")
	}
	if b.d.Orderings() != 0 {
		t.Error("calls in capture count as ordering")
	}
	isCode(t, u.Wait(e), 907)
	_, err = e.Done()
	isCode(t, err, 907)
	b.d.Check(t)
}

// TestCaptureForbids: queries end a capture, unless their thread is relaxed.
func TestCaptureForbids(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	data, s, u, e, f := b.alloc(100), b.stream(), b.stream(), b.event(), b.event()
	b.must(e.Record(u))
	calls := []struct {
		name string
		code int
		run  func() error
	}{
		{"Done", 900, func() error { _, err := u.Done(); return err }},
		{"Synchronize", 900, u.Synchronize},
		{"Event.Done", 900, func() error { _, err := e.Done(); return err }},
		{"Alloc", 900, func() error { m, err := b.c.Alloc(10); return freed(m, err) }},
		{"the default stream", 906, func() error { return f.Record(b.c.Adopt(0)) }},
		{"a copy in it", 906, func() error { return b.c.Adopt(0).Copy(data.Ptr(), data.Ptr()+50, 50) }},
	}
	for _, relaxed := range []bool{false, true} {
		for _, call := range calls {
			b.d.BeginCapture(s)
			var err error
			var group sync.WaitGroup
			group.Go(func() { // as it is with another thread
				b.must(b.c.Enter(relaxed))
				defer b.c.Leave()
				err = call.run()
			})
			group.Wait()
			_, ending := b.d.EndCapture(s)
			if relaxed {
				if err != nil || ending != nil {
					t.Errorf("%s, relaxed: %v, and the capture ends with %v", call.name, err, ending)
				}
				continue
			}
			isCode(t, err, call.code)
			isCode(t, ending, 901)
		}
	}
	b.must(b.c.Enter(true))
	defer b.c.Leave()
	b.d.BeginCapture(s)
	_, err := s.Done() // of the stream itself
	isCode(t, err, 900)
	isCode(t, s.Wait(e), 905) // for what is not in the capture
	g, err := b.d.EndCapture(s)
	isCode(t, err, 901)
	if g != nil {
		t.Errorf("recorded: %q", g.Recorded())
	}
	b.d.Check(t)
}

func freed(m cuda.Memory, err error) error {
	if err != nil {
		return err
	}
	return m.Free()
}

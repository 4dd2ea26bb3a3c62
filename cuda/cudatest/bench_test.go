package cudatest_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/internal/mem"
)

// bench is a machine with one entered context, for programs that are a few lines long.
type bench struct {
	t *testing.T
	d *cudatest.Driver
	c cuda.Context

	kernels map[string]cuda.Function // those that a test has asked for
}

// newBench makes a machine. The test must look at its reports.
func newBench(t *testing.T, o cudatest.Options) *bench {
	t.Helper()
	b := &bench{t: t, d: cudatest.New(o)}
	t.Cleanup(b.d.Close)
	b.c = b.context(0)
	return b
}

// context retains a context and enters it until the end of the test.
func (b *bench) context(device int) cuda.Context {
	b.t.Helper()
	c, err := b.d.Retain(device)
	b.must(err)
	b.must(c.Enter(false))
	b.t.Cleanup(c.Leave)
	return c
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) stream() cuda.Stream {
	b.t.Helper()
	s, err := b.c.NewStream(0)
	b.must(err)
	return s
}

func (b *bench) event() cuda.Event {
	b.t.Helper()
	e, err := b.c.NewEvent()
	b.must(err)
	return e
}

func (b *bench) alloc(bytes int) cuda.Memory {
	b.t.Helper()
	m, err := b.c.Alloc(bytes)
	b.must(err)
	return m
}

// register makes memory of the host and registers it.
func (b *bench) register(bytes int) cuda.Registered {
	b.t.Helper()
	bytes = (bytes + os.Getpagesize() - 1) / os.Getpagesize() * os.Getpagesize()
	block, err := mem.Alloc(bytes)
	b.must(err)
	b.t.Cleanup(func() {
		b.d.Close() // streams may still wait for words in it
		block.Free()
	})
	r, err := b.c.Register(block.Bytes())
	b.must(err)
	return r
}

// reported checks that there is a report of a kind that has all of the texts, and no other one.
func (b *bench) reported(kind cudatest.Kind, texts ...string) {
	b.t.Helper()
	b.d.Settle()
	all := b.d.Reports()
	if len(all) != 1 || all[0].Kind != kind {
		b.t.Fatalf("got %d reports %v, want one of kind %s", len(all), all, kind)
	}
	for _, text := range texts {
		if !strings.Contains(all[0].Text, text) {
			b.t.Errorf("%q is not in the report: %s", text, all[0])
		}
	}
}

// write enqueues the write of a word.
func (b *bench) write(s cuda.Stream, r cuda.Registered, at int, value uint64) {
	b.t.Helper()
	b.must(s.Words([]cuda.WordOp{{At: r.Ptr() + cuda.Ptr(at), Value: value}}))
}

// wait enqueues a wait for a word.
func (b *bench) wait(s cuda.Stream, r cuda.Registered, at int, value uint64) {
	b.t.Helper()
	b.must(s.Words([]cuda.WordOp{{At: r.Ptr() + cuda.Ptr(at), Value: value, Wait: true}}))
}

// until waits for a word as a host does.
func (b *bench) until(r cuda.Registered, at int, value uint64) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); int64(r.Load(at)-value) < 0; {
		if time.Now().After(deadline) {
			b.t.Fatalf("hangs: the word is %d, want %d\n%s", r.Load(at), value, b.d.Blocked())
		}
		time.Sleep(20 * time.Microsecond)
	}
}

func (b *bench) reads(r cuda.Registered, at, bytes int) {
	b.c.(cuda.Observer).HostAccess(r.Ptr()+cuda.Ptr(at), bytes, false)()
}

func (b *bench) writes(r cuda.Registered, at, bytes int) {
	b.c.(cuda.Observer).HostAccess(r.Ptr()+cuda.Ptr(at), bytes, true)()
}

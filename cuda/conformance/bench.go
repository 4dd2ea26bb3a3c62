package conformance

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/internal/mem"
)

// hang is the time after which a wait counts as a hang.
const hang = 20 * time.Second

// bench is an entered context and all that a test has made in it, which it gives back.
type bench struct {
	t      *testing.T
	d      cuda.Driver
	device int
	info   cuda.Info
	c      cuda.Context
	graphs Graphs

	mu       sync.Mutex
	waited   []func() // ends what streams may still wait for
	streams  []cuda.Stream
	cleanups []func() error
}

func newBench(t *testing.T, d cuda.Driver, device int) *bench {
	t.Helper()
	b := &bench{t: t, d: d, device: device}
	b.c = b.retain()
	b.info = b.c.Info()
	b.must(b.c.Enter(false))
	t.Cleanup(b.close)
	return b
}

func (b *bench) retain() cuda.Context {
	b.t.Helper()
	c, err := b.d.Retain(b.device)
	b.must(err)
	return c
}

// close frees everything: nothing may be freed while work is pending.
func (b *bench) close() {
	if b.t.Failed() {
		for _, end := range b.waited {
			end()
		}
	}
	for _, s := range b.streams {
		b.ends(s)
	}
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		if err := b.cleanups[i](); err != nil {
			b.t.Error(err)
		}
	}
	b.c.Leave()
	if err := b.c.Release(); err != nil {
		b.t.Error(err)
	}
}

// later has a function called at the end.
func (b *bench) later(f func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// isClass checks the class of an error.
func (b *bench) isClass(err error, class fault.Code, what string) {
	b.t.Helper()
	if b.isFault(err, what); !errors.Is(err, class) {
		b.t.Errorf("%s: the error is not of class %v: %v", what, class, err)
	}
}

// isFault checks that an error is one as the contract says.
func (b *bench) isFault(err error, what string) {
	b.t.Helper()
	var f *fault.Error
	switch {
	case err == nil:
		b.t.Errorf("%s is no error", what)
	case !errors.As(err, &f):
		b.t.Errorf("%s: the error is no fault.Error: %v", what, err)
	case errors.Is(err, fault.NotSupported) || cuda.Lost(err):
		b.t.Errorf("%s: an error of the wrong class: %v", what, err)
	}
}

func (b *bench) stream() cuda.Stream { b.t.Helper(); return b.newStream(0) }

func (b *bench) newStream(urgency int) cuda.Stream {
	b.t.Helper()
	s, err := b.c.NewStream(urgency)
	b.must(err)
	b.later(s.Destroy)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams = append(b.streams, s)
	return s
}

func (b *bench) event() cuda.Event {
	b.t.Helper()
	e, err := b.c.NewEvent()
	b.must(err)
	b.later(e.Destroy)
	return e
}

func (b *bench) alloc(bytes int) cuda.Memory {
	b.t.Helper()
	m, err := b.c.Alloc(bytes)
	b.must(err)
	b.later(m.Free)
	return m
}

// pages makes memory of the host for Register.
func (b *bench) pages(bytes int) []byte {
	b.t.Helper()
	page := os.Getpagesize()
	block, err := mem.Alloc((bytes + page - 1) / page * page)
	b.must(err)
	b.later(block.Free)
	return block.Bytes()
}

func (b *bench) register(bytes int) cuda.Registered {
	b.t.Helper()
	r, err := b.c.Register(b.pages(bytes))
	b.must(err)
	b.later(r.Free)
	return r
}

// words registers a page of words, for which streams will wait.
func (b *bench) words() cuda.Registered {
	b.t.Helper()
	r := b.register(os.Getpagesize())
	b.waited = append(b.waited, func() {
		for at := 0; at < 128; at += 8 {
			r.Store(at, r.Load(at)+1<<62)
		}
	})
	return r
}

// access tells the driver what the host does until it calls ended.
func access(c cuda.Context, r cuda.Registered, at, bytes int, write bool) (ended func()) {
	if o, ok := c.(cuda.Observer); ok {
		return o.HostAccess(r.Ptr()+cuda.Ptr(at), bytes, write)
	}
	return func() {}
}

// fill writes a pattern into registered memory.
func fill(c cuda.Context, r cuda.Registered, at, n int, seed byte) {
	defer access(c, r, at, n, true)()
	pattern(r.Host()[at:at+n], seed)
}

func (b *bench) fill(r cuda.Registered, at, n int, seed byte) { fill(b.c, r, at, n, seed) }

// check compares registered memory with the pattern.
func (b *bench) check(r cuda.Registered, at, n int, seed byte) {
	b.t.Helper()
	defer access(b.c, r, at, n, false)()
	want := make([]byte, n)
	pattern(want, seed)
	if got := r.Host()[at : at+n]; !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				b.t.Fatalf("byte %d of %d is %#x, want %#x", i, n, got[i], want[i])
			}
		}
	}
}

func pattern(p []byte, seed byte) {
	for i := range p {
		p[i] = byte(i*7+i>>8) ^ seed
	}
}

func (b *bench) copy(s cuda.Stream, to, from cuda.Ptr, n int) {
	b.t.Helper()
	b.must(s.Copy(to, from, n))
}

func write(r cuda.Registered, at int, value uint64) cuda.WordOp {
	return cuda.WordOp{At: r.Ptr() + cuda.Ptr(at), Value: value}
}

func wait(r cuda.Registered, at int, value uint64) cuda.WordOp {
	return cuda.WordOp{At: r.Ptr() + cuda.Ptr(at), Value: value, Wait: true}
}

func (b *bench) enqueue(s cuda.Stream, ops ...cuda.WordOp) {
	b.t.Helper()
	b.must(s.Words(ops))
}

// until polls; what says what for.
func (b *bench) until(what string, f func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(hang); !f(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(deadline) {
			b.t.Fatal("hangs: " + what)
		}
	}
}

// reaches waits for a word as a host does.
func (b *bench) reaches(what string, r cuda.Registered, at int, value uint64) {
	b.t.Helper()
	b.until(what, func() bool { return r.Reached(at, value) })
}

// ends waits until a stream has no work, without blocking in the driver.
func (b *bench) ends(s cuda.Stream) {
	b.t.Helper()
	for deadline := time.Now().Add(hang); ; time.Sleep(20 * time.Microsecond) {
		done, err := s.Done()
		if err != nil {
			b.t.Error(err)
			return
		}
		if done {
			return
		}
		if time.Now().After(deadline) {
			b.t.Error("hangs: the work of a stream")
			return
		}
	}
}

// stays checks for a while that a stream does not end.
func (b *bench) stays(s cuda.Stream, why string) {
	b.t.Helper()
	for range 20 {
		done, err := s.Done()
		b.must(err)
		if done {
			b.t.Fatal("a stream goes on, though " + why)
		}
		time.Sleep(time.Millisecond)
	}
}

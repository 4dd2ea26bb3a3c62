package driver

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

const (
	modeGlobal      = 0
	modeThreadLocal = 1
	modeRelaxed     = 2
	modeUnchanged   = -1
)

func TestEnter(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	outer, inner := f.enter(d, 0), must(d.Retain(1))(t) // entered once
	defer func() {
		if err := inner.Release(); err != nil {
			t.Error(err)
		}
	}()
	state := func(when string, depth int, mode int32) {
		t.Helper()
		if f.depth() != depth || f.mode(modeUnchanged) != mode {
			t.Errorf("%s: depth %d and mode %d, want %d and %d", when, f.depth(), f.mode(modeUnchanged), depth, mode)
		}
	}
	enter := func(c cuda.Context, relaxed bool) {
		t.Helper()
		if err := c.Enter(relaxed); err != nil {
			t.Fatal(err)
		}
	}
	state("entered", 1, modeGlobal)
	enter(inner, false)
	f.arguments("cuCtxPushCurrent_v2", uint64(inner.(*context).handle))
	state("twice", 2, modeGlobal)
	f.mode(modeThreadLocal) // by somebody else
	enter(outer, true)
	state("relaxed", 3, modeRelaxed)
	enter(inner, false)
	state("not relaxed, within", 4, modeRelaxed)
	enter(outer, true)
	state("relaxed, within", 5, modeRelaxed)
	outer.Leave()
	state("left relaxed, within", 4, modeRelaxed)
	inner.Leave()
	state("left not relaxed, within", 3, modeRelaxed)
	outer.Leave()
	state("left relaxed", 2, modeThreadLocal)
	f.mode(modeGlobal)
	inner.Leave()
	state("left", 1, modeGlobal)
	if n := len(outer.modes.entered); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

func TestEnterFails(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	c := f.enter(d, 0)
	f.fail("cuCtxPushCurrent_v2", 1, 201)
	refused(t, c.Enter(false), fault.System, "cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT (201)")
	f.fail("cuThreadExchangeStreamCaptureMode", 1, 1)
	refused(t, c.Enter(true), fault.System, "cuThreadExchangeStreamCaptureMode: CUDA_ERROR_INVALID_VALUE (1)")
	if f.depth() != 1 || f.mode(modeUnchanged) != modeGlobal || len(c.modes.entered) != 0 {
		t.Errorf("depth %d, mode %d, records %v", f.depth(), f.mode(modeUnchanged), c.modes.entered)
	}
}

// TestManyEnter has many goroutines enter two contexts at once. Each must find its own context and
// mode on its thread.
func TestManyEnter(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	contexts := []cuda.Context{must(d.Retain(0))(t), must(d.Retain(1))(t)}
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for n := range 100 {
				c, relaxed := contexts[(g+n)%2], (g+n)%3 == 0
				if err := c.Enter(relaxed); err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched() // others run, and on this thread if it could be taken
				// There is nothing of theirs on it.
				want := int32(modeGlobal)
				if relaxed {
					want = modeRelaxed
				}
				if depth, mode := f.depth(), f.mode(modeUnchanged); depth != 1 || mode != want {
					t.Errorf("goroutine %d: depth %d, mode %d, want 1, %d", g, depth, mode, want)
				}
				if s, err := c.NewStream(g % 2); err != nil {
					t.Error(err)
				} else if err := s.Destroy(); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
				c.Leave()
			}
		})
	}
	all.Wait()
	if n := len(contexts[0].(*context).modes.entered); n != 0 {
		t.Errorf("%d records are left", n)
	}
	for _, c := range contexts {
		if err := c.Release(); err != nil {
			t.Error(err)
		}
	}
	if n := f.live(); n != 0 {
		t.Errorf("%d objects were not given back", n)
	}
}

// TestRelaxed says that queries are legal while another thread captures, for a goroutine that has
// entered relaxed.
func TestRelaxed(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	s := must(c.NewStream(0))(t)
	defer destroy(t, s)
	f.set("capture", 1)
	_, err := s.Done()
	refused(t, err, fault.System, "cuStreamQuery: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)")
	if err := c.Enter(true); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Done(); !done || err != nil {
		t.Errorf("done %t, %v", done, err)
	}
	c.Leave()
	if _, err = s.Done(); err == nil {
		t.Error("the mode was not put back")
	}
	f.set("capture", 0)
}

func TestReaches(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	first, second := f.enter(d, 0), must(d.Retain(1))(t)
	for _, each := range []struct {
		from cuda.Context
		to   int
		want bool
	}{{first, 0, true}, {first, 1, true}, {second, 1, true}, {second, 0, false}} {
		if got := must(each.from.Reaches(each.to))(t); got != each.want {
			t.Errorf("device %d reaches %d: %t", each.from.Info().Index, each.to, got)
		}
	}
	_, err := first.Reaches(2)
	refused(t, err, fault.System, "CUDA_ERROR_INVALID_DEVICE")
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}

func TestRelease(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	one, other := must(d.Retain(1))(t), must(d.Retain(1))(t)
	if err := one.Release(); err != nil {
		t.Error(err)
	}
	f.arguments("cuDevicePrimaryCtxRelease_v2", 8)
	refused(t, one.Release(), fault.Closed, "device 1")
	if err := other.Enter(false); err != nil { // which is still there
		t.Fatal(err)
	}
	other.Leave()
	if err := other.Release(); err != nil {
		t.Error(err)
	}
	if f.live() != 0 {
		t.Error("the context is still retained")
	}
}

// TestSticky says that work that failed is reported by later calls, and that the error says so.
func TestSticky(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	c := must(d.Retain(0))(t)
	if err := c.Enter(false); err != nil {
		t.Fatal(err)
	}
	defer c.Leave()
	s := must(c.NewStream(0))(t)
	if err := s.Copy(1<<40, 1<<41, 8); err != nil { // enqueues only
		t.Error(err)
	}
	for range 2 {
		_, err := s.Done()
		refused(t, err, fault.System, "cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
		if !cuda.Lost(err) {
			t.Errorf("%v: not lost", err)
		}
	}
	_, err := c.NewEvent()
	var cause *cuda.Error
	want := cuda.Error{Call: "cuEventCreate", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS"}
	if !errors.As(err, &cause) || *cause != want {
		t.Errorf("%v has the cause %+v", err, cause)
	}
}

package driver

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

func TestStreams(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	ordinary := must(c.NewStream(0))(t)
	f.arguments("cuStreamCreateWithPriority", any64, streamNonBlocking, 0)
	for urgency, priority := range map[int]int64{-1: 0, 2: -2, 5: -5, 6: -5, math.MaxInt: -5} { // of 0..-5
		destroy(t, must(c.NewStream(urgency))(t))
		f.arguments("cuStreamCreateWithPriority", any64, streamNonBlocking, uint64(priority))
	}
	urgent := must(c.NewStream(1))(t)
	f.arguments("cuStreamCreateWithPriority", any64, streamNonBlocking, ^uint64(0)) // -1
	adopted, standard := c.Adopt(urgent.Native()), c.Adopt(0)
	if adopted.Native() != urgent.Native() || standard.Native() != 0 || ordinary.Native() == urgent.Native() {
		t.Errorf("handles %#x, %#x, %#x, %#x", ordinary.Native(), urgent.Native(), adopted.Native(), standard.Native())
	}
	destroy(t, adopted, adopted, standard)
	before := f.calls("cuStreamCreateWithPriority") - 2
	if n := f.calls("cuStreamDestroy_v2"); n != before {
		t.Error("an adopted stream was destroyed")
	}
	for _, s := range []cuda.Stream{ordinary, urgent, adopted, standard} {
		if done, err := s.Done(); !done || err != nil {
			t.Errorf("done %t, %v", done, err)
		}
		f.arguments("cuStreamQuery", uint64(s.Native()))
		if err := s.Synchronize(); err != nil {
			t.Error(err)
		}
		f.arguments("cuStreamSynchronize", uint64(s.Native()))
		for status, want := range []uint64{0, 0x1234, math.MaxUint64} {
			f.set("status", status)
			if got, err := s.Capture(); got != want || err != nil {
				t.Errorf("status %d: capture %#x, %v", status, got, err)
			}
		}
		f.arguments("cuStreamGetCaptureInfo_v2", uint64(s.Native()))
	}
	destroy(t, ordinary, urgent, urgent)
	f.arguments("cuStreamDestroy_v2", uint64(urgent.Native()))
	if n := f.calls("cuStreamDestroy_v2") - before; n != 2 {
		t.Errorf("%d streams were destroyed", n)
	}
	e := must(c.NewEvent())(t)
	_, errDone := ordinary.Done()
	_, errCapture := ordinary.Capture()
	for _, err := range []error{ordinary.Copy(1, 2, 3), ordinary.Words([]cuda.WordOp{{}}), ordinary.Wait(e),
		ordinary.Synchronize(), e.Record(ordinary), errDone, errCapture, ordinary.Retain(func() {})} {
		refused(t, err, fault.Closed)
	}
	destroy(t, e)
}

func TestCopy(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	s := must(c.NewStream(0))(t)
	r := must(c.Register(pages(t, 1)))(t)
	if err := s.Copy(r.Ptr()+8, r.Ptr(), 5); err != nil {
		t.Error(err)
	}
	f.arguments("cuMemcpyAsync", uint64(r.Ptr()+8), uint64(r.Ptr()), 5, uint64(s.Native()))
	if err := s.Copy(1, 2, 0); err != nil {
		t.Error(err)
	}
	refused(t, s.Copy(1, 2, -1), fault.Invalid)
	if n := f.calls("cuMemcpyAsync"); n != 1 {
		t.Errorf("%d copies", n)
	}
	free(t, r)
	destroy(t, s)
}

// TestWords has one stream wait for words of another and of the host. Nothing that enqueues waits.
func TestWords(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	waiting, other := must(c.NewStream(0))(t), must(c.NewStream(1))(t)
	r := must(c.Register(pages(t, 1)))(t)
	at := func(word int) cuda.Ptr { return r.Ptr() + cuda.Ptr(8*word) }
	words := func(s cuda.Stream, ops ...cuda.WordOp) {
		t.Helper()
		if err := s.Words(ops); err != nil {
			t.Error(err)
		}
		if len(ops) > 0 {
			f.arguments("cuStreamBatchMemOp_v2", uint64(s.Native()), uint64(len(ops)), any64, 0)
		}
	}
	state := func(s cuda.Stream, want bool) {
		t.Helper()
		if done, err := s.Done(); done != want || err != nil {
			t.Errorf("done %t, %v, want %t", done, err, want)
		}
	}
	// A counter that comes round: 5 is after 2⁶⁴-1.
	r.Store(8, 1<<64-6)
	words(waiting, cuda.WordOp{At: at(0), Value: 7, Wait: true}, cuda.WordOp{At: at(1), Value: 1<<64 - 5, Wait: true},
		cuda.WordOp{At: at(2), Value: 9})
	state(waiting, false)
	words(other, cuda.WordOp{At: at(0), Value: 6})
	state(other, true)
	state(waiting, false)
	words(other, cuda.WordOp{At: at(0), Value: 7})
	state(waiting, false)
	r.Store(8, 5)
	state(waiting, true)
	if r.Load(16) != 9 {
		t.Errorf("word %d, want 9", r.Load(16))
	}
	words(waiting)

	// More than fit into one call, in their order.
	many := make([]cuda.WordOp, 600)
	for index := range many {
		many[index] = cuda.WordOp{At: at(index % 300), Value: uint64(1000 + index)}
	}
	if err := waiting.Words(many); err != nil {
		t.Error(err)
	}
	f.arguments("cuStreamBatchMemOp_v2", uint64(waiting.Native()), 600-2*mostOps, any64, 0)
	for word := range 300 {
		if got := binary.NativeEndian.Uint64(r.Host()[8*word:]); got != uint64(1300+word) {
			t.Fatalf("word %d is %d, want %d", word, got, 1300+word)
		}
	}
	refused(t, waiting.Words([]cuda.WordOp{{At: at(0)}, {At: at(0) + 4}}), fault.Invalid, "not aligned")
	free(t, r)
	destroy(t, waiting, other)
}

func TestEvents(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	first, second := must(c.NewStream(0))(t), must(c.NewStream(0))(t)
	r := must(c.Register(pages(t, 1)))(t)
	e := must(c.NewEvent())(t)
	f.arguments("cuEventCreate", any64, eventWithoutTime)
	refused(t, second.Wait(e), fault.Invalid, "never recorded")
	if n := f.calls("cuStreamWaitEvent"); n != 0 {
		t.Error("the driver was asked")
	}
	f.fail("cuEventRecord", 1, 1)
	refused(t, e.Record(first), fault.System, "cuEventRecord")
	refused(t, second.Wait(e), fault.Invalid, "never recorded")

	check := func(what string, done bool, err error, want bool) {
		t.Helper()
		if done != want || err != nil {
			t.Errorf("%s: done %t, %v, want %t", what, done, err, want)
		}
	}
	for _, err := range []error{
		first.Words([]cuda.WordOp{{At: r.Ptr(), Value: 1, Wait: true}}),
		e.Record(first),
		second.Wait(e),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	handle := f.argument("cuEventRecord", 0)
	f.arguments("cuEventRecord", handle, uint64(first.Native()))
	f.arguments("cuStreamWaitEvent", uint64(second.Native()), handle, 0)
	done, err := e.Done()
	check("event", done, err, false)
	f.arguments("cuEventQuery", handle)
	done, err = second.Done()
	check("stream", done, err, false)
	r.Store(0, 1)
	done, err = second.Done()
	check("stream", done, err, true)
	done, err = e.Done()
	check("event", done, err, true)

	// What comes from elsewhere is refused.
	strange := must(newFake(t, latest).open().Retain(0))(t).Adopt(0)
	refused(t, strange.Wait(e), fault.Invalid, "another driver")
	refused(t, e.Record(strange), fault.Invalid, "another driver")
	refused(t, first.Wait(nil), fault.Invalid, "another driver")

	destroy(t, e, e)
	f.arguments("cuEventDestroy_v2", handle)
	_, err = e.Done()
	for _, err := range []error{first.Wait(e), e.Record(first), err} {
		refused(t, err, fault.Closed)
	}
	free(t, r)
	destroy(t, first, second)
}

// TestRetain has a thread of the library call what graphs have retained, once for each.
func TestRetain(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	s := must(c.NewStream(0))(t)
	var called [5]atomic.Int32
	retain := func(which int) error { return s.Retain(func() { called[which].Add(1) }) }
	for status := range 3 {
		if f.set("status", status); status != captureActive {
			refused(t, retain(0), fault.Invalid, "capture")
		}
	}
	f.set("status", captureActive)
	f.fail("cuUserObjectCreate", 1, 2)
	refused(t, retain(1), fault.System, "cuUserObjectCreate")
	f.fail("cuGraphRetainUserObject", 1, 1)
	refused(t, retain(2), fault.System, "cuGraphRetainUserObject")
	if n := f.calls("cuUserObjectRelease"); n != 1 {
		t.Errorf("%d objects were released, want the one that the graph does not have", n)
	}
	for which := 3; which < 5; which++ {
		if err := retain(which); err != nil {
			t.Fatal(err)
		}
		f.arguments("cuUserObjectCreate", any64, any64, uint64(onRelease()), 1, objectUnordered)
		f.arguments("cuGraphRetainUserObject", any64, any64, 1, graphTakesObject)
	}
	for drops := range 3 {
		for which := range called {
			want := int32(0)
			if which >= 3 {
				want = min(int32(drops), 1)
			}
			if n := called[which].Load(); n != want {
				t.Errorf("%d drops: function %d was called %d times, want %d", drops, which, n, want)
			}
		}
		f.drop()
	}
	destroy(t, s)
}

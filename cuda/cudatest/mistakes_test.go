package cudatest_test

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/kernel"
)

func closeDescriptor(fd int) { syscall.Close(fd) }

// isCode checks the number that the driver gives.
func isCode(t *testing.T, err error, code int) {
	t.Helper()
	var e *cuda.Error
	var f *fault.Error
	if !errors.As(err, &e) || !errors.As(err, &f) || e.Code != code || e.Name == "" || e.Call == "" {
		t.Errorf("got error %v, want one with code %d", err, code)
	}
}

// mistakes are programs with one wrong call, which is left out or another one if right.
var mistakes = []struct {
	name string
	kind cudatest.Kind
	text string // of the report
	run  func(b *bench, right bool)
}{
	{"PastTheEnd", cudatest.Address, "past its end", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(100), b.stream()
		n := data.Bytes() + 1
		if right {
			n--
		}
		b.must(s.Copy(data.Ptr(), other.Ptr(), n))
		b.lost(s, right, 700)
	}},
	{"PointerOfTheHost", cudatest.Address, "where there is no memory", func(b *bench, right bool) {
		data, stage, s := b.alloc(100), b.register(100), b.stream()
		p := cuda.Ptr(uintptr(unsafe.Pointer(&stage.Host()[0])))
		if right {
			p = stage.Ptr()
		}
		b.must(s.Copy(data.Ptr(), p, 100))
		b.lost(s, right, 700)
	}},
	{"AfterFree", cudatest.Address, "where there is no memory", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(100), b.stream()
		if !right {
			b.must(other.Free())
		}
		b.must(s.Copy(data.Ptr(), other.Ptr(), 100))
		b.lost(s, right, 700)
	}},
	{"FreeOfUsed", cudatest.Misuse, "Free of allocation 2", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(100), b.stream()
		b.d.Hold(s)
		b.must(s.Copy(data.Ptr(), data.Ptr()+200, 100))
		if !right {
			b.must(s.Copy(data.Ptr()+100, other.Ptr(), 100))
		}
		b.must(other.Free())
	}},
	{"CopyToItself", cudatest.Misuse, "a copy to itself", func(b *bench, right bool) {
		data, s := b.alloc(1000), b.stream()
		to := data.Ptr() + 99
		if right {
			to++
		}
		b.must(s.Copy(to, data.Ptr(), 100))
		b.ends(s)
	}},
	{"KernelPastTheEnd", cudatest.Address, "past its end", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(1000000), b.stream()
		n := data.Bytes()/4 + 1
		if right {
			n--
		}
		b.sum(s, n, other.Ptr()+400, other.Ptr()+400, data.Ptr())
		b.lost(s, right, 700)
	}},
	{"KernelAfterFree", cudatest.Address, "where there is no memory", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(100), b.stream()
		if !right {
			b.must(data.Free())
		}
		b.sum(s, 1, data.Ptr(), other.Ptr())
		b.lost(s, right, 700)
	}},
	{"KernelNotAligned", cudatest.Address, "is not aligned to 4 bytes", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(100), b.stream()
		at := other.Ptr() + 2
		if right {
			at += 2
		}
		b.sum(s, 1, data.Ptr(), other.Ptr(), at)
		b.lost(s, right, 716)
	}},
	{"KernelCovers", cudatest.Misuse, "covers a part of the source", func(b *bench, right bool) {
		data, s := b.alloc(1000), b.stream()
		to := data.Ptr() + 15
		if right {
			to++
		}
		a := kernel.Copy().Arguments(uint64(to), 16, 0, uint64(data.Ptr()))
		err := s.Launch(b.function("goccl_copy"), 1, 1, a.Bytes())
		if right != (err == nil) || !right && !errors.Is(err, fault.Invalid) {
			b.t.Error(err)
		}
		b.ends(s)
	}},
	{"KernelCoversImported", cudatest.Misuse, "the destination covers a part of a source", func(b *bench, right bool) {
		data, s := b.alloc(1000), b.stream()
		again := b.imported(data)
		n := 3
		if right {
			n = 2
		}
		b.sum(s, n, again.Ptr()+8, data.Ptr(), again.Ptr()+8)
		b.ends(s)
	}},
	{"FreeUnderKernel", cudatest.Misuse, "Free of allocation 2", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(100), b.stream()
		b.d.Hold(s)
		b.sum(s, 1, data.Ptr(), data.Ptr()+8)
		if !right {
			b.sum(s, 1, data.Ptr(), other.Ptr())
		}
		b.must(other.Free())
	}},
	{"WrongArguments", cudatest.Misuse, "95 bytes of arguments", func(b *bench, right bool) {
		data, s, f := b.alloc(100), b.stream(), b.function(kernel.Copy().Name)
		a := kernel.Copy().Arguments(uint64(data.Ptr()), 16, 0, uint64(data.Ptr())+16)
		args := a.Bytes()
		if !right {
			args = args[:95]
		}
		if err := s.Launch(f, 1, 1, args); right != (err == nil) || !right && !errors.Is(err, fault.Invalid) {
			b.t.Error(err)
		}
		b.ends(s)
	}},
	{"UnloadOfUsed", cudatest.Misuse, "Unload of module 1, which stream 1 of context 0, operation 1 uses: goccl_copy",
		func(b *bench, right bool) {
			data, s := b.alloc(100), b.stream()
			m := b.module()
			f, err := m.Function("goccl_copy")
			b.must(err)
			b.d.Hold(s)
			a := kernel.Copy().Arguments(uint64(data.Ptr()), 16, 0, uint64(data.Ptr())+16)
			b.must(s.Launch(f, 1, 1, a.Bytes()))
			if right {
				b.d.Release(s)
				b.ends(s)
			}
			b.must(m.Unload())
		}},
	{"SecondUnload", cudatest.Misuse, "a second Unload of module 1", func(b *bench, right bool) {
		m := b.module()
		b.must(m.Unload())
		if !right && !errors.Is(m.Unload(), fault.Closed) {
			b.t.Error("a second Unload does not say so")
		}
	}},
	{"LaunchAfterUnload", cudatest.Misuse, "cuLaunchKernelEx of goccl_copy after Unload of module 1",
		func(b *bench, right bool) {
			data, s, m := b.alloc(100), b.stream(), b.module()
			f, err := m.Function("goccl_copy")
			b.must(err)
			a := kernel.Copy().Arguments(uint64(data.Ptr()), 16, 0, uint64(data.Ptr())+16)
			if !right {
				b.must(m.Unload())
			}
			if err := s.Launch(f, 1, 1, a.Bytes()); right != (err == nil) || !right && !errors.Is(err, fault.Closed) {
				b.t.Error(err)
			}
			b.ends(s)
		}},
	{"FunctionAfterUnload", cudatest.Misuse, "cuModuleGetFunction of module 1 after its Unload",
		func(b *bench, right bool) {
			m := b.module()
			if !right {
				b.must(m.Unload())
			}
			if _, err := m.Function("goccl_copy"); right != (err == nil) || !right && !errors.Is(err, fault.Closed) {
				b.t.Error(err)
			}
		}},
	{"FunctionOfAnotherDevice", cudatest.Misuse, "in a stream of another device", func(b *bench, right bool) {
		data, s := b.alloc(100), b.stream()
		c := b.c
		if !right {
			c = b.context(1)
		}
		m, err := c.Load(machineCode)
		b.must(err)
		f, err := m.Function("goccl_copy")
		b.must(err)
		b.must(b.c.Enter(false))
		defer b.c.Leave()
		a := kernel.Copy().Arguments(uint64(data.Ptr()), 16, 0, uint64(data.Ptr())+16)
		if err := s.Launch(f, 1, 1, a.Bytes()); right {
			b.must(err)
		} else {
			isCode(b.t, err, 400)
		}
		b.ends(s)
	}},
	{"ReleaseBeforeUnload", cudatest.Misuse, "Release of context 1 before its module 1", func(b *bench, right bool) {
		other := b.context(0)
		m, err := other.Load(machineCode)
		b.must(err)
		if right {
			b.must(m.Unload())
		}
		b.must(other.Release())
	}},
	{"LoadWhileWaiting", cudatest.Misuse, "cuModuleLoadData, which may wait for all streams, while stream 1 of context 0",
		func(b *bench, right bool) {
			words, s := b.register(8), b.stream()
			if !right {
				b.wait(s, words, 0, 1)
			}
			b.module()
			words.Store(0, 1)
		}},
	{"AllocWhileWaiting", cudatest.Misuse, "cuMemCreate, which may wait for all streams, while stream 1 of context 0",
		func(b *bench, right bool) {
			words, s := b.register(8), b.stream()
			b.wait(s, words, 0, 1)
			if right {
				words.Store(0, 1)
				b.ends(s)
			}
			b.alloc(100)
			words.Store(0, 1)
		}},
	{"RegisterWhileWaiting", cudatest.Misuse, "cuMemHostRegister, which may wait", func(b *bench, right bool) {
		words, s := b.register(8), b.stream()
		if !right {
			b.wait(s, words, 0, 1)
		}
		b.register(100)
		words.Store(0, 1)
	}},
	{"DestroyedStream", cudatest.Misuse, "which does not exist", func(b *bench, right bool) {
		data, s := b.alloc(100), b.stream()
		adopted := b.c.Adopt(s.Native())
		if right {
			b.must(adopted.Destroy())
		} else {
			b.must(s.Destroy())
		}
		if err := adopted.Copy(data.Ptr(), data.Ptr()+50, 50); (err == nil) != right {
			b.t.Errorf("a copy in a destroyed stream returns %v", err)
		}
	}},
	{"UnknownStream", cudatest.Misuse, "cuStreamQuery of stream 0x123", func(b *bench, right bool) {
		s := b.c.Adopt(0x123)
		if !right {
			_, err := s.Done()
			isCode(b.t, err, 400)
		}
	}},
	{"DestroyedEvent", cudatest.Misuse, "cuStreamWaitEvent for event 1 after its Destroy", func(b *bench, right bool) {
		s, e := b.stream(), b.event()
		b.must(e.Record(s))
		if right {
			b.must(s.Wait(e))
		}
		b.must(e.Destroy())
		b.must(e.Destroy())
		if !right && !errors.Is(s.Wait(e), fault.Closed) {
			b.t.Error("a wait for a destroyed event does not say so")
		}
	}},
	{"UnalignedWord", cudatest.Misuse, "not aligned", func(b *bench, right bool) {
		words, s := b.register(64), b.stream()
		at := cuda.Ptr(4)
		if right {
			at = 8
		}
		err := s.Words([]cuda.WordOp{{At: words.Ptr() + at, Value: 1}})
		if right != (err == nil) {
			b.t.Error(err)
		}
	}},
	{"WordOfTheDevice", cudatest.Misuse, "no registered memory", func(b *bench, right bool) {
		words, data, s := b.register(64), b.alloc(64), b.stream()
		p := data.Ptr()
		if right {
			p = words.Ptr()
		}
		b.must(s.Words([]cuda.WordOp{{At: p, Value: 1}}))
		b.ends(s)
	}},
	{"NoWord", cudatest.Misuse, "there is no word at byte 4096", func(b *bench, right bool) {
		words := b.register(4096)
		at := words.Bytes()
		if right {
			at -= 8
		}
		words.Store(at, 1)
	}},
	{"WordGoesBack", cudatest.Misuse, "a word goes back from 5 to 4", func(b *bench, right bool) {
		words := b.register(64)
		words.Store(0, 5)
		if right {
			words.Store(0, 6)
		} else {
			words.Store(0, 4)
		}
	}},
	{"FlagGoesBackToOne", cudatest.Misuse, "a word goes back from 2 to 1", func(b *bench, right bool) {
		words, s := b.register(64), b.stream()
		for range 2 {
			b.write(s, words, 0, 2)
			if right {
				b.clear(s, words, 0)
			} else {
				b.write(s, words, 0, 1)
			}
		}
		b.ends(s)
	}},
	{"TickOfTheDevice", cudatest.Misuse, "a tick in allocation 2", func(b *bench, right bool) {
		words, data, s := b.register(64), b.alloc(64), b.stream()
		p := data.Ptr()
		if right {
			p = words.Ptr()
		}
		b.tick(s, p)
		b.ends(s)
	}},
	{"TickNotAligned", cudatest.Address, "is not aligned to 8 bytes", func(b *bench, right bool) {
		words, s := b.register(64), b.stream()
		at := words.Ptr() + 4
		if right {
			at += 4
		}
		b.tick(s, at)
		b.lost(s, right, 716)
	}},
	{"GraphAfterFree", cudatest.Address, "where there is no memory", func(b *bench, right bool) {
		data, other, s := b.alloc(100), b.alloc(100), b.stream()
		g := b.captured(s, func() { b.must(s.Copy(data.Ptr(), other.Ptr(), 100)) })
		b.must(g.Launch(s))
		b.ends(s)
		if !right {
			b.must(other.Free())
		}
		b.must(g.Launch(s))
		b.lost(s, right, 700)
	}},
	{"WordsOfGraphAfterFree", cudatest.Address, "where there is no memory", func(b *bench, right bool) {
		words, s := b.register(100), b.stream()
		b.function(kernel.Tick().Name)
		g := b.captured(s, func() { b.write(s, words, 0, 1); b.tick(s, words.Ptr()) })
		if !right {
			b.must(words.Free())
		}
		b.must(g.Launch(s))
		b.lost(s, right, 700)
	}},
	{"GraphAfterUnload", cudatest.Misuse, "cuGraphLaunch of graph 1 after Unload of module 1", func(b *bench, right bool) {
		data, s := b.alloc(100), b.stream()
		m := b.module()
		f, err := m.Function(kernel.Copy().Name)
		b.must(err)
		a := kernel.Copy().Arguments(uint64(data.Ptr()), 16, 0, uint64(data.Ptr())+16)
		g := b.captured(s, func() { b.must(s.Launch(f, 1, 1, a.Bytes())) })
		if !right {
			b.must(m.Unload())
		}
		if err := g.Launch(s); right != (err == nil) || !right && !errors.Is(err, fault.Closed) {
			b.t.Error(err)
		}
		b.ends(s)
	}},
	{"GraphAfterDestroy", cudatest.Misuse, "cuGraphLaunch of graph 1 after its Destroy", func(b *bench, right bool) {
		data, s := b.alloc(100), b.stream()
		g := b.captured(s, func() { b.must(s.Copy(data.Ptr(), data.Ptr()+50, 50)) })
		if !right {
			b.must(g.Destroy())
		}
		if err := g.Launch(s); right != (err == nil) || !right && !errors.Is(err, fault.Closed) {
			b.t.Error(err)
		}
		b.ends(s)
	}},
	{"GraphOfAnotherDevice", cudatest.Misuse, "cuGraphLaunch of graph 1 in a stream of another device",
		func(b *bench, right bool) {
			data, s := b.alloc(100), b.stream()
			g := b.captured(s, func() { b.must(s.Copy(data.Ptr(), data.Ptr()+50, 50)) })
			if right {
				b.must(g.Launch(s))
				b.ends(s)
				return
			}
			u, err := b.context(1).NewStream(0)
			b.must(err)
			isCode(b.t, g.Launch(u), 400)
		}},
	{"RetainOutsideOfCapture", cudatest.Misuse, "Retain of stream 1 of context 0, which is not in capture",
		func(b *bench, right bool) {
			s := b.stream()
			if right {
				b.captured(s, func() { b.must(s.Retain(func() {})) })
			} else if err := s.Retain(func() { b.t.Error("called") }); !errors.Is(err, fault.Invalid) {
				b.t.Error(err)
			}
		}},
	{"ReleaseBeforeGraph", cudatest.Misuse, "Release of context 1 before its graph 1", func(b *bench, right bool) {
		other := b.context(0)
		s, err := other.NewStream(0)
		b.must(err)
		g := b.captured(s, func() {})
		b.must(s.Destroy())
		if right {
			b.must(g.Destroy())
		}
		b.must(other.Release())
	}},
	{"OutsideOfEnter", cudatest.Misuse, "cuStreamCreateWithPriority outside of Enter", func(b *bench, right bool) {
		var group sync.WaitGroup
		group.Go(func() {
			if right {
				b.must(b.c.Enter(false))
				defer b.c.Leave()
			}
			if _, err := b.c.NewStream(0); !right {
				isCode(b.t, err, 201)
			}
		})
		group.Wait()
	}},
	{"LeaveWithoutEnter", cudatest.Misuse, "Leave of context 0 without Enter", func(b *bench, right bool) {
		var group sync.WaitGroup
		group.Go(func() {
			if right {
				b.must(b.c.Enter(false))
			}
			b.c.Leave()
		})
		group.Wait()
	}},
	{"LeaveOfAnother", cudatest.Misuse, "Leave of context 0, but this goroutine has entered context 1",
		func(b *bench, right bool) {
			other, err := b.d.Retain(0)
			b.must(err)
			b.must(other.Enter(false))
			if !right {
				b.c.Leave()
			}
			other.Leave()
		}},
	{"ReleaseTooEarly", cudatest.Misuse, "Release of context 1 before its event 1", func(b *bench, right bool) {
		other := b.context(0)
		e, err := other.NewEvent()
		b.must(err)
		if right {
			b.must(e.Destroy())
		}
		b.must(other.Release())
	}},
	{"AfterRelease", cudatest.Misuse, "after Release of context 1", func(b *bench, right bool) {
		other := b.context(0)
		if right {
			b.must(other.Release())
			return
		}
		b.must(other.Release())
		if _, err := other.NewEvent(); !errors.Is(err, fault.Closed) {
			b.t.Error(err)
		}
	}},
	{"SecondFree", cudatest.Misuse, "a second Free", func(b *bench, right bool) {
		data := b.alloc(10)
		b.must(data.Free())
		if !right && !errors.Is(data.Free(), fault.Closed) {
			b.t.Error("a second Free does not say so")
		}
	}},
	{"HostAccessElsewhere", cudatest.Address, "the host of context 0 accesses bytes 4000..5000",
		func(b *bench, right bool) {
			stage := b.register(4096)
			n := 1000
			if right {
				n = 96
			}
			b.reads(stage, 4000, n)
		}},
}

// lost ends a stream, with an error that stays if a copy was wrong.
func (b *bench) lost(s cuda.Stream, right bool, code int) {
	b.t.Helper()
	err := s.Synchronize()
	if right {
		b.must(err)
		return
	}
	isCode(b.t, err, code)
	if _, err := b.c.Alloc(100); !cuda.Lost(err) {
		b.t.Errorf("an error that should stay has gone: %v", err)
	}
}

func TestMistakes(t *testing.T) {
	for _, test := range mistakes {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, cudatest.Options{Stuck: -1})
			test.run(b, true)
			b.d.Check(t)
			b = newBench(t, cudatest.Options{Stuck: -1, Devices: 2})
			test.run(b, false)
			b.reported(test.kind, test.text)
		})
	}
}

// TestPending permits what may deadlock on a GPU.
func TestPending(t *testing.T) {
	b := newBench(t, cudatest.Options{Pending: true})
	words, s := b.register(8), b.stream()
	b.wait(s, words, 0, 1)
	b.must(b.alloc(100).Free())
	words.Store(0, 1)
	b.d.Check(t)
}

// TestRegisterTwice: CUDA refuses memory that the process has registered already.
func TestRegisterTwice(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	stage := b.register(8192)
	_, err := b.c.Register(stage.Host()[:4096])
	isCode(t, err, 712)
	b.must(stage.Free())
	stage, err = b.c.Register(stage.Host())
	b.must(err)
	b.must(stage.Free())
	b.d.Check(t)
}

// TestExpose uses memory that somebody else has allocated.
func TestExpose(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	tensor := make([]byte, 1000)
	data, s := b.alloc(1000), b.stream()
	p := b.d.Expose(tensor)
	if p != cuda.Ptr(uintptr(unsafe.Pointer(&tensor[0]))) {
		t.Error("exposed memory has another address")
	}
	b.must(s.Copy(p, data.Ptr(), 1000))
	b.ends(s)
	if tensor[999] != 0xa5 {
		t.Error("the bytes are not there")
	}
	b.d.Check(t)
	b.d.Hide(p)
	b.must(s.Copy(p, data.Ptr(), 1000))
	isCode(t, s.Synchronize(), 700)
	b.reported(cudatest.Address)
}

package conformance

import (
	"errors"
	"os"
	"runtime"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

func testDevices(b *bench) {
	if b.d.Version() < 1000 {
		b.t.Errorf("the version is %d", b.d.Version())
	}
	all, err := b.d.Devices()
	b.must(err)
	for i, info := range all {
		if info.Index != i || info.Name == "" || info.Bytes <= 0 || info.Processors <= 0 {
			b.t.Errorf("device %d is described as %+v", i, info)
		}
	}
	if b.device >= len(all) || all[b.device] != b.info {
		b.t.Errorf("the context of device %d says %+v, the driver %+v", b.device, b.info, all)
	}
	for _, index := range []int{-1, len(all), len(all) + 100} {
		_, err := b.d.Retain(index)
		var f *fault.Error
		if !errors.As(err, &f) {
			b.t.Errorf("Retain of device %d of %d returns %v", index, len(all), err)
		}
	}
	reaches, err := b.c.Reaches(b.device)
	if b.must(err); !reaches {
		b.t.Error("a device does not reach itself")
	}
	_, err = b.c.Reaches(len(all))
	b.isFault(err, "Reaches of a device that does not exist")
}

// testOutside calls from a goroutine that has entered nothing what may be called there.
func testOutside(b *bench) {
	r, m, s := b.register(8), b.alloc(8), b.stream()
	var group sync.WaitGroup
	group.Go(func() {
		other, err := b.d.Retain(b.device)
		if err != nil {
			b.t.Error(err)
			return
		}
		if info := other.Info(); info != b.info {
			b.t.Errorf("the same device is %+v and %+v", b.info, info)
		}
		if other.Adopt(s.Native()).Native() != s.Native() {
			b.t.Error("an adopted stream has another handle")
		}
		if err := other.Release(); err != nil {
			b.t.Error(err)
		}
		if r.Ptr() == 0 || m.Ptr() == 0 || m.Bytes() < 8 || len(r.Host()) != r.Bytes() {
			b.t.Error("memory has lost its description")
		}
		r.Store(0, 7)
		if r.Load(0) != 7 || !r.Reached(0, 6) {
			b.t.Errorf("the word is %d, want 7", r.Load(0))
		}
	})
	group.Wait()
}

// testGivenBack uses what was given back, and gives it back again.
func testGivenBack(b *bench) {
	device, other := b.alloc(100), b.retain()
	b.must(other.Enter(false))
	s, err := other.NewStream(0)
	b.must(err)
	e, err := other.NewEvent()
	b.must(err)
	m, err := other.Alloc(100)
	b.must(err)
	var r cuda.Registered
	if b.info.Registers {
		r, err = other.Register(b.pages(100))
		b.must(err)
	}
	b.must(e.Record(s))
	b.must(s.Synchronize())
	live, liveEvent := b.stream(), b.event()
	closed := func(what string, err error) { b.t.Helper(); b.isClass(err, fault.Closed, what) }

	for range 2 {
		b.must(e.Destroy())
	}
	_, err = e.Done()
	closed("Done of a destroyed event", err)
	closed("Record of a destroyed event", e.Record(live))
	closed("a wait for a destroyed event", live.Wait(e))

	for range 2 {
		b.must(s.Destroy())
	}
	_, err = s.Done()
	closed("Done of a destroyed stream", err)
	_, err = s.Capture()
	closed("Capture of a destroyed stream", err)
	b.must(liveEvent.Record(live))
	closed("Copy in a destroyed stream", s.Copy(device.Ptr(), device.Ptr()+50, 50))
	closed("Words of a destroyed stream", s.Words([]cuda.WordOp{{At: device.Ptr()}}))
	closed("Wait of a destroyed stream", s.Wait(liveEvent))
	closed("Synchronize of a destroyed stream", s.Synchronize())
	closed("Record in a destroyed stream", liveEvent.Record(s))

	b.must(m.Free())
	closed("a second Free", m.Free())
	_, err = m.Descriptor()
	closed("Descriptor of freed memory", err)
	if r != nil {
		b.must(r.Free())
		closed("a second Free of registered memory", r.Free())
	}

	other.Leave()
	b.must(other.Release())
	closed("a second Release", other.Release())
	closed("Enter after Release", other.Enter(false))
	_, err = other.NewStream(0)
	closed("NewStream after Release", err)
	_, err = other.NewEvent()
	closed("NewEvent after Release", err)
	_, err = other.Alloc(100)
	closed("Alloc after Release", err)
	_, err = other.Register(b.pages(100))
	closed("Register after Release", err)
	_, err = other.Load([]byte("// code"))
	closed("Load after Release", err)
	_, err = other.Reaches(b.device)
	closed("Reaches after Release", err)
	_, err = other.Range(device.Ptr())
	closed("Range after Release", err)
	_, err = other.DMABuf(0, os.Getpagesize())
	closed("DMABuf after Release", err)
	b.must(live.Synchronize()) // what is left still works
}

// testContexts retains the context a second time: both have the same memory and streams.
func testContexts(b *bench) {
	const n = 5000
	host, back, device := b.register(n), b.register(n), b.alloc(n)
	s := b.stream()
	other := b.retain()
	b.must(other.Enter(false))
	if b.info != other.Info() {
		b.t.Errorf("the same device is %+v and %+v", b.info, other.Info())
	}
	b.fill(host, 0, n, 1)
	b.copy(s, device.Ptr(), host.Ptr(), n)
	b.must(s.Synchronize())
	u, err := other.NewStream(0)
	b.must(err)
	e := b.event()
	b.must(e.Record(s))
	b.must(u.Wait(e))
	b.copy(u, back.Ptr(), device.Ptr(), n)
	b.must(u.Synchronize())
	b.must(u.Destroy())
	other.Leave()
	b.must(other.Release())
	b.check(back, 0, n, 1)

	b.fill(host, 0, n, 2)
	b.roundTrip(s, host, back, device, n) // after the other is released
	b.check(back, 0, n, 2)
	third := b.retain() // and a new one can be had
	b.must(third.Release())
}

// testEnterNests enters a context again, and leaves it.
func testEnterNests(b *bench) {
	const n = 100
	host, back, device := b.register(n), b.register(n), b.alloc(n)
	s := b.stream()
	for depth := range 5 {
		b.must(b.c.Enter(depth%2 == 0))
		runtime.Gosched()
		b.fill(host, 0, n, byte(depth))
		b.roundTrip(s, host, back, device, n)
		b.check(back, 0, n, byte(depth))
	}
	for depth := range 5 {
		b.c.Leave()
		b.fill(host, 0, n, byte(depth+10))
		b.roundTrip(s, host, back, device, n)
		b.check(back, 0, n, byte(depth+10))
	}
}

// testRelaxed queries while a thread is relaxed, which must make no difference without a capture.
func testRelaxed(b *bench) {
	const n = 100
	host, back, device := b.register(n), b.register(n), b.alloc(n)
	s, e := b.stream(), b.event()
	var group sync.WaitGroup
	group.Go(func() {
		if err := b.c.Enter(true); err != nil {
			b.t.Error(err)
			return
		}
		defer b.c.Leave()
		b.fill(host, 0, n, 3)
		for _, err := range []error{
			s.Copy(device.Ptr(), host.Ptr(), n), s.Copy(back.Ptr(), device.Ptr(), n), e.Record(s), s.Synchronize(),
		} {
			if err != nil {
				b.t.Error(err)
			}
		}
		if done, err := e.Done(); err != nil || !done {
			b.t.Errorf("an event before which everything has ended: %v, %v", done, err)
		}
	})
	group.Wait()
	b.check(back, 0, n, 3)
}

// testThreads has many goroutines use one context at once, each with its own stream.
func testThreads(b *bench) {
	const n, threads, rounds = 3000, 24, 10
	host, back, device := b.register(threads*4096), b.register(threads*4096), b.alloc(threads*4096)
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			if err := b.c.Enter(i%2 == 0); err != nil {
				b.t.Error(err)
				return
			}
			defer b.c.Leave()
			s, err := b.c.NewStream(i % 3)
			if err != nil {
				b.t.Error(err)
				return
			}
			at := i * 4096
			for round := range rounds {
				b.fill(host, at, n, byte(i+round))
				err := errors.Join(
					s.Copy(device.Ptr()+ptr(at), host.Ptr()+ptr(at), n),
					s.Copy(back.Ptr()+ptr(at), device.Ptr()+ptr(at), n), s.Synchronize())
				if err != nil {
					b.t.Error(err)
					return
				}
				ended := access(b.c, back, at, n, false)
				err = expect(back.Host()[at:at+n], byte(i+round))
				if ended(); err != nil {
					b.t.Errorf("thread %d, round %d: %v", i, round, err)
					return
				}
			}
			if err := s.Destroy(); err != nil {
				b.t.Error(err)
			}
		})
	}
	group.Wait()
}

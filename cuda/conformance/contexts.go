package conformance

import (
	"errors"
	"runtime"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
)

func testDevices(b *bench) {
	if b.d.Version() < 1000 {
		b.t.Errorf("the version is %d", b.d.Version())
	}
	all, err := b.d.Devices()
	b.must(err)
	for i, info := range all {
		if info.Index != i || info.Name == "" || info.Bytes <= 0 {
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
				accessed(b.c, host, at, n, true)
				pattern(host.Host()[at:at+n], byte(i+round))
				err := errors.Join(
					s.Copy(device.Ptr()+ptr(at), host.Ptr()+ptr(at), n),
					s.Copy(back.Ptr()+ptr(at), device.Ptr()+ptr(at), n), s.Synchronize())
				if err != nil {
					b.t.Error(err)
					return
				}
				accessed(b.c, back, at, n, false)
				for k := range n {
					if back.Host()[at+k] != host.Host()[at+k] {
						b.t.Errorf("thread %d, round %d: byte %d differs", i, round, k)
						return
					}
				}
			}
			if err := s.Destroy(); err != nil {
				b.t.Error(err)
			}
		})
	}
	group.Wait()
}

package conformance

import (
	"errors"
	"os"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

func ptr(at int) cuda.Ptr { return cuda.Ptr(at) }

// roundTrip copies to the device and back.
func (b *bench) roundTrip(s cuda.Stream, host, back cuda.Registered, device cuda.Memory, n int) {
	b.t.Helper()
	b.copy(s, device.Ptr(), host.Ptr(), n)
	b.copy(s, back.Ptr(), device.Ptr(), n)
	b.must(s.Synchronize())
}

// testAllocSizes uses the first and the last bytes of allocations.
func testAllocSizes(b *bench) {
	const most = 3<<20 + 1
	host, back := b.register(most), b.register(most)
	s := b.stream()
	for i, n := range []int{1, 2, 4095, 4096, 4097, 1 << 20, most} {
		device := b.alloc(n)
		if device.Bytes() < n || device.Ptr() == 0 {
			b.t.Errorf("an allocation of %d bytes has %d at %#x", n, device.Bytes(), uint64(device.Ptr()))
		}
		b.fill(host, 0, n, byte(i))
		b.roundTrip(s, host, back, device, n)
		b.check(back, 0, n, byte(i))
		last := device.Ptr() + ptr(device.Bytes()-1)
		b.copy(s, last, host.Ptr(), 1)
		b.copy(s, back.Ptr(), last, 1)
		b.must(s.Synchronize())
		b.check(back, 0, 1, byte(i))
	}
}

// testCopySizes copies all small sizes between all small alignments, and some large ones.
func testCopySizes(b *bench) {
	const room = 1<<20 + 64
	host, back, device, second := b.register(room), b.register(room), b.alloc(room), b.alloc(room)
	s := b.stream()
	try := func(n, from, over, to int) {
		b.t.Helper()
		b.fill(host, from, n, byte(n))
		b.copy(s, device.Ptr()+ptr(over), host.Ptr()+ptr(from), n)
		b.copy(s, second.Ptr()+ptr(from), device.Ptr()+ptr(over), n)
		b.copy(s, back.Ptr()+ptr(to), second.Ptr()+ptr(from), n)
		b.must(s.Synchronize())
		b.check(back, to, n, byte(n))
	}
	b.copy(s, device.Ptr(), host.Ptr(), 0)
	for n := 1; n < 20; n++ {
		try(n, n%7, n%5, n%3)
	}
	for at := range 17 {
		try(33, at, 16-at, at/2)
	}
	for _, n := range []int{255, 4095, 4096, 65537, 1 << 20} {
		try(n, 0, 0, 0)
		try(n, 1, 8, 3)
	}
}

// testRegistered checks that host and device have the same bytes, in both directions.
func testRegistered(b *bench) {
	const n = 100000
	pages := b.pages(n)
	pattern(pages[:n], 1)
	r, err := b.c.Register(pages)
	b.must(err)
	b.later(r.Free)
	if &r.Host()[0] != &pages[0] || r.Bytes() != len(pages) || len(r.Host()) != len(pages) {
		b.t.Error("registered memory is not the memory that was registered")
	}
	b.check(r, 0, n, 1) // it keeps its bytes
	other, device, s := b.register(n), b.alloc(n), b.stream()
	b.copy(s, device.Ptr(), r.Ptr(), n)
	b.copy(s, other.Ptr(), device.Ptr(), n)
	b.must(s.Synchronize())
	b.check(other, 0, n, 1)
	b.fill(other, 0, n, 2)
	b.copy(s, r.Ptr(), other.Ptr(), n) // from host to host
	b.must(s.Synchronize())
	b.check(r, 0, n, 2)
}

// testRegisterAgain registers memory after it was freed.
func testRegisterAgain(b *bench) {
	const n = 9000
	pages := b.pages(n)
	back, device, s := b.register(n), b.alloc(n), b.stream()
	for i := range 3 {
		r, err := b.c.Register(pages)
		b.must(err)
		b.fill(r, 0, n, byte(i))
		b.roundTrip(s, r, back, device, n)
		b.check(back, 0, n, byte(i))
		b.must(r.Free())
		want := make([]byte, n)
		pattern(want, byte(i))
		if string(want) != string(pages[:n]) {
			b.t.Error("memory has lost its bytes when it was freed")
		}
	}
}

// testArguments passes what is wrong.
func testArguments(b *bench) {
	s := b.stream()
	device := b.alloc(100)
	null, err := os.Open(os.DevNull)
	b.must(err)
	defer null.Close()
	page := os.Getpagesize()
	pages := b.pages(3 * page)
	alloc := func(bytes int) error { _, err := b.c.Alloc(bytes); return err }
	register := func(host []byte) error { _, err := b.c.Register(host); return err }
	importing := func(fd, bytes int) error { _, err := b.c.Import(fd, bytes); return err }
	for what, err := range map[string]error{
		"Alloc of 0 bytes":           alloc(0),
		"Alloc of -1 bytes":          alloc(-1),
		"a Copy of -1 bytes":         s.Copy(device.Ptr(), device.Ptr()+50, -1),
		"Register of nil":            register(nil),
		"Register of a half page":    register(pages[:page/2]),
		"Register behind the page":   register(pages[8 : page+8]),
		"Register of one and a half": register(pages[:page+page/2]),
	} {
		if !b.info.Registers && errors.Is(err, fault.NotSupported) {
			continue
		}
		b.isClass(err, fault.Invalid, what)
	}
	if b.info.Shares {
		b.isFault(importing(-1, 4096), "Import of descriptor -1")
		b.isFault(importing(int(null.Fd()), 4096), "Import of /dev/null")
	}
	done, err := s.Done()
	if b.must(err); !done { // it still works
		b.ends(s)
	}
}

// testDescriptor maps memory twice in one process. Either mapping may be freed first.
func testDescriptor(b *bench) {
	const n = 70000
	host, back, s := b.register(n), b.register(n), b.stream()
	for _, second := range []bool{false, true} {
		own, err := b.c.Alloc(n)
		b.must(err)
		fd, err := own.Descriptor()
		b.must(err)
		again, err := own.Descriptor()
		b.must(err)
		if fd == again || fd < 0 || again < 0 {
			b.t.Fatalf("descriptors %d and %d", fd, again)
		}
		b.must(syscall.Close(again))
		other, err := b.c.Import(fd, own.Bytes())
		b.must(err)
		b.must(syscall.Close(fd)) // Import has not closed it
		if other.Bytes() != own.Bytes() || other.Ptr() == own.Ptr() {
			b.t.Errorf("imported: %d bytes at %#x, of %d at %#x",
				other.Bytes(), uint64(other.Ptr()), own.Bytes(), uint64(own.Ptr()))
		}
		b.fill(host, 0, n, 1)
		b.copy(s, own.Ptr(), host.Ptr(), n)
		b.copy(s, back.Ptr(), other.Ptr(), n)
		b.must(s.Synchronize())
		b.check(back, 0, n, 1)
		b.fill(host, 0, n, 2)
		b.copy(s, other.Ptr(), host.Ptr(), n)
		b.must(s.Synchronize())
		first, left := other, own
		if second {
			first, left = own, other
		}
		b.must(first.Free())
		b.copy(s, back.Ptr(), left.Ptr(), n)
		b.must(s.Synchronize())
		b.check(back, 0, n, 2)
		b.must(left.Free())
	}
}

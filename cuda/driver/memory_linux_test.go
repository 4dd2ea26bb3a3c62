package driver

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

const unit = 2 << 20 // of what the fake allocates

func TestAlloc(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	c := f.enter(d, 1)
	m := must(c.Alloc(unit + 1))(t)
	f.arguments("cuMemCreate", any64, 2*unit, any64, 0, handleDescriptor, 8, 1)
	f.arguments("cuMemAddressReserve", any64, 2*unit, 0, 0, 0)
	f.arguments("cuMemMap", uint64(m.Ptr()), 2*unit, 0, 0x5000, 0)
	f.arguments("cuMemSetAccess", uint64(m.Ptr()), 2*unit, any64, 1, 8)
	if m.Bytes() != 2*unit {
		t.Errorf("%d bytes", m.Bytes())
	}
	for _, bytes := range []int{0, -1} {
		_, err := c.Alloc(bytes)
		refused(t, err, fault.Invalid)
		_, err = c.Import(0, bytes)
		refused(t, err, fault.Invalid)
	}
	free(t, m)
	f.arguments("cuMemUnmap", uint64(m.Ptr()), 2*unit)
	f.arguments("cuMemAddressFree", uint64(m.Ptr()), 2*unit)
	f.arguments("cuMemRelease", 0x5000)
	refused(t, m.Free(), fault.Closed)
	_, err := m.Descriptor()
	refused(t, err, fault.Closed)
}

// TestAllocFails has each call fail once. Everything must be given back.
func TestAllocFails(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	for _, call := range []string{"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve", "cuMemMap",
		"cuMemSetAccess"} {
		f.fail(call, 1, 2)
		_, err := c.Alloc(1)
		refused(t, err, fault.System, call+": CUDA_ERROR_OUT_OF_MEMORY (2)")
		if n := f.live(); n != 1 { // the context
			t.Errorf("after %s failed, %d objects", call, n)
		}
	}
	for _, call := range []string{"cuMemUnmap", "cuMemRelease"} {
		m := must(c.Alloc(1))(t)
		calls := f.calls("cuMemAddressFree")
		f.fail(call, 1, 1)
		refused(t, m.Free(), fault.System, call+": CUDA_ERROR_INVALID_VALUE (1)")
		if f.calls("cuMemAddressFree") == calls {
			t.Errorf("after %s failed, nothing else was given back", call)
		}
		m.(*memory).freed.Store(false)
		_ = m.Free() // the rest
	}
}

func TestImport(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	exported := must(c.Alloc(100))(t)
	descriptor := must(exported.Descriptor())(t)
	f.arguments("cuMemExportToShareableHandle", any64, 0x5000, handleDescriptor, 0)
	if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(descriptor), syscall.F_GETFD, 0); errno != 0 ||
		flags&syscall.FD_CLOEXEC == 0 {
		t.Errorf("descriptor %d: flags %#x, %v: a child process would inherit it", descriptor, flags, errno)
	}
	imported := must(c.Import(descriptor, 100))(t)
	f.arguments("cuMemImportFromShareableHandle", any64, uint64(descriptor), handleDescriptor)
	if imported.Bytes() != unit || imported.Ptr() == exported.Ptr() {
		t.Errorf("%d bytes at %#x; exported at %#x", imported.Bytes(), imported.Ptr(), exported.Ptr())
	}
	if err := syscall.Close(descriptor); err != nil {
		t.Error(err) // closed by Import
	}
	r := must(c.Register(pages(t, 2)))(t)
	s := must(c.NewStream(0))(t)
	copy(r.Host(), "over there")
	page := cuda.Ptr(os.Getpagesize())
	for _, err := range []error{s.Copy(exported.Ptr()+50, r.Ptr(), 10), s.Copy(r.Ptr()+page, imported.Ptr()+50, 10),
		s.Synchronize()} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := r.Host()[page:][:10]; !bytes.Equal(got, []byte("over there")) {
		t.Errorf("%q came over", got)
	}
	destroy(t, s)
	free(t, r, imported, exported)
	_, err := c.Import(-1, 100)
	refused(t, err, fault.Invalid)
	_, err = c.Import(descriptor, 100)
	refused(t, err, fault.System, "cuMemImportFromShareableHandle")
}

func TestDeviceThatDoesNotShare(t *testing.T) {
	f := newFake(t, latest)
	f.set("without", descriptorsSupported)
	c := f.enter(f.open(), 0)
	m := must(c.Alloc(1))(t)
	defer free(t, m)
	f.arguments("cuMemCreate", any64, unit, any64, 0, handleNone, 7)
	_, err := m.Descriptor()
	refused(t, err, fault.NotSupported, "device 0 (Fake 0)")
}

func TestRegister(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	memory := pages(t, 3)
	page := os.Getpagesize()
	r := must(c.Register(memory[page:]))(t)
	f.arguments("cuMemHostRegister_v2", any64, uint64(2*page), hostPortable|hostMapped)
	address := f.argument("cuMemHostRegister_v2", 0)
	f.arguments("cuMemHostGetDevicePointer_v2", any64, address, 0)
	if r.Bytes() != 2*page || &r.Host()[0] != &memory[page] || uint64(r.Ptr()) != address|1<<60 {
		t.Errorf("%d bytes at %p, %#x", r.Bytes(), &r.Host()[0], r.Ptr())
	}
	_, err := r.Descriptor()
	refused(t, err, fault.NotSupported)
	_, err = c.Register(memory[page : 2*page])
	refused(t, err, fault.System, "cuMemHostRegister", "712")
	for _, wrong := range [][]byte{nil, memory[:0], memory[8 : page+8], memory[:page+8]} {
		_, err := c.Register(wrong)
		refused(t, err, fault.Invalid, "a page")
	}
	f.fail("cuMemHostGetDevicePointer_v2", 1, 1)
	_, err = c.Register(memory[:page])
	refused(t, err, fault.System, "cuMemHostGetDevicePointer")

	r.Store(page+8, 1<<63+5)
	if r.Load(page+8) != 1<<63+5 || memory[2*page+8] != 5 || r.Load(page) != 0 {
		t.Errorf("word %#x, bytes %x", r.Load(page+8), memory[2*page:][:16])
	}
	for _, at := range []int{4, -8, 2 * page} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("there is no word at %d", at)
				}
			}()
			r.Load(at)
		}()
	}
	free(t, r)
	f.arguments("cuMemHostUnregister", address)
	refused(t, r.Free(), fault.Closed)
}

// TestImportOfOtherDevice: the mapping is for the device that imports. In the fake, devices reach
// those behind them.
func TestImportOfOtherDevice(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	descriptors := make([]int, 2)
	for device := range descriptors {
		c := must(d.Retain(device))(t)
		if err := c.Enter(false); err != nil {
			t.Fatal(err)
		}
		m := must(c.Alloc(unit))(t)
		descriptors[device] = must(m.Descriptor())(t)
		defer syscall.Close(descriptors[device])
		free(t, m)
		c.Leave()
		if err := c.Release(); err != nil {
			t.Error(err)
		}
	}
	t.Run("Reached", func(t *testing.T) {
		f.t = t
		m := must(f.enter(d, 0).Import(descriptors[1], unit))(t)
		f.arguments("cuDeviceCanAccessPeer", any64, 7, 8)
		f.arguments("cuMemSetAccess", uint64(m.Ptr()), unit, any64, 1, 7)
		free(t, m)
	})
	t.Run("NotReached", func(t *testing.T) {
		f.t = t
		c, mapped := f.enter(d, 1), f.calls("cuMemMap")
		_, err := c.Import(descriptors[0], unit)
		refused(t, err, fault.NotSupported, "device 1 (Fake 1) does not reach the memory of another device")
		if f.calls("cuMemMap") != mapped {
			t.Error("the memory was mapped")
		}
	})
	t.Run("Hidden", func(t *testing.T) { // the driver decides
		f.t = t
		c := f.enter(d, 1)
		f.fail("cuDeviceCanAccessPeer", 1, 101)
		_, err := c.Import(descriptors[0], unit)
		refused(t, err, fault.NotSupported, "cuMemSetAccess")
	})
}

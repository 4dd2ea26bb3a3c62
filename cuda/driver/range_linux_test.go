package driver

import (
	"syscall"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
)

// TestRange: what is no memory of a device is Invalid, and all else that the driver says stays.
func TestRange(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 1)
	m, r := must(c.Alloc(3*unit))(t), must(c.Register(pages(t, 1)))(t)
	defer free(t, m, r)
	got := must(c.Range(m.Ptr() + unit))(t)
	f.arguments("cuMemGetAddressRange_v2", any64, any64, uint64(m.Ptr()+unit))
	f.arguments("cuPointerGetAttribute", any64, bufferID, uint64(m.Ptr()+unit))
	if got.Ptr != m.Ptr() || got.Bytes != 3*unit || got.ID == 0 {
		t.Errorf("%+v of %d bytes at %#x", got, m.Bytes(), m.Ptr())
	}
	_, err := c.Range(r.Ptr())
	refused(t, err, fault.Invalid, "no memory of a device at")
	_, err = c.Range(0)
	refused(t, err, fault.Invalid, "no memory of a device at 0x0", "cuPointerGetAttribute: CUDA_ERROR_INVALID_VALUE")
	f.fail("cuMemGetAddressRange_v2", 1, notFound)
	_, err = c.Range(m.Ptr())
	refused(t, err, fault.Invalid, "cuMemGetAddressRange: CUDA_ERROR_NOT_FOUND")
	f.fail("cuPointerGetAttribute", 2, 999)
	_, err = c.Range(m.Ptr())
	refused(t, err, fault.System, "cuPointerGetAttribute", "999")

	old := newFake(t, latest)
	old.hide("cuPointerGetAttribute")
	_, err = old.enter(old.open(), 0).Range(m.Ptr())
	refused(t, err, fault.NotSupported, "has no cuPointerGetAttribute")
}

func TestDMABuf(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	m := must(c.Alloc(2 * unit))(t)
	defer free(t, m)
	descriptor := must(c.DMABuf(m.Ptr()+unit, unit))(t)
	f.arguments("cuMemGetHandleForAddressRange", any64, uint64(m.Ptr()+unit), unit, rangeDMABuf, 0)
	if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(descriptor), syscall.F_GETFD, 0); errno != 0 ||
		flags&syscall.FD_CLOEXEC == 0 {
		t.Errorf("descriptor %d: flags %#x, %v: a child process would inherit it", descriptor, flags, errno)
	}
	if err := syscall.Close(descriptor); err != nil {
		t.Error(err)
	}
	f.fail("cuMemGetHandleForAddressRange", 1, 801)
	_, err := c.DMABuf(m.Ptr(), unit)
	refused(t, err, fault.NotSupported, "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED")
}

// TestWithoutDMABuf: a device without, and a driver that is older than they are. Neither is asked.
func TestWithoutDMABuf(t *testing.T) {
	without := newFake(t, latest)
	without.set("without", dmaBufSupported)
	for _, f := range []*fake{without, newFake(t, 11060)} {
		c := f.enter(f.open(), 0)
		m := must(c.Alloc(1))(t)
		_, err := c.DMABuf(m.Ptr(), unit)
		refused(t, err, fault.NotSupported, "device 0 (Fake 0) has no dma-bufs", "CUDA 11.7")
		if f.calls("cuMemGetHandleForAddressRange") != 0 || c.Info().DMABuf {
			t.Errorf("%+v", c.Info())
		}
		free(t, m)
	}
}

// TestNotForAdapters: a device that cannot allocate for adapters is not asked to.
func TestNotForAdapters(t *testing.T) {
	f := newFake(t, latest)
	f.set("without", adaptersSupported)
	free(t, must(f.enter(f.open(), 0).Alloc(1))(t))
	f.arguments("cuMemCreate", any64, unit, any64, 0, handleDescriptor, 7, 0)
}

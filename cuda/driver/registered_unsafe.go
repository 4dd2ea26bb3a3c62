package driver

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// registered implements cuda.Registered.
type registered struct {
	*library
	host  []byte
	ptr   cuda.Ptr
	freed atomic.Bool
}

func (c *context) Register(host []byte) (cuda.Registered, error) {
	if c.released.Load() {
		return nil, c.errReleased()
	}
	start := unsafe.SliceData(host)
	page := os.Getpagesize()
	if len(host) == 0 || len(host)%page != 0 || uintptr(unsafe.Pointer(start))%uintptr(page) != 0 {
		return nil, fault.New(fault.Invalid, "%d bytes at %p cannot be registered: they must begin and end at a page",
			len(host), start)
	}
	r := &registered{library: c.library, host: host}
	if err := c.cuMemHostRegister(start, uintptr(len(host)), hostPortable|hostMapped); err != nil {
		return nil, err
	}
	if err := c.cuMemHostGetDevicePointer(&r.ptr, start, 0); err != nil {
		_ = c.cuMemHostUnregister(start)
		return nil, err
	}
	return r, nil
}

func (r *registered) Ptr() cuda.Ptr { return r.ptr }

func (r *registered) Bytes() int { return len(r.host) }

func (r *registered) Host() []byte { return r.host }

func (r *registered) Descriptor() (int, error) {
	if r.freed.Load() {
		return -1, errFreed
	}
	return -1, fault.New(fault.NotSupported, "registered memory has no descriptor: share what it was made of")
}

func (r *registered) Free() error {
	if r.freed.Swap(true) {
		return errFreed
	}
	return r.cuMemHostUnregister(unsafe.SliceData(r.host))
}

func (r *registered) Load(at int) uint64 { return atomic.LoadUint64(r.word(at)) }

func (r *registered) Reached(at int, value uint64) bool { return int64(r.Load(at)-value) >= 0 }

func (r *registered) Store(at int, value uint64) { atomic.StoreUint64(r.word(at), value) }

func (r *registered) word(at int) *uint64 {
	if at%8 != 0 {
		panic(fmt.Sprintf("cuda/driver: a word at byte %d", at))
	}
	return (*uint64)(unsafe.Pointer(&r.host[at : at+8][0]))
}

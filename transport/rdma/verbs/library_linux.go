//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"runtime"
	"syscall"

	"github.com/ebitengine/purego"

	"github.com/goccl/goccl/ccl/fault"
)

// entry is the number of a function that the library exports.
type entry int

const (
	forkInit entry = iota
	getDeviceList
	freeDeviceList
	getDeviceName
	openDevice
	closeDevice
	queryDevice
	queryPort
	queryGID
	getAsyncEvent
	ackAsyncEvent
	allocPD
	deallocPD
	regMR
	deregMR
	createChannel
	destroyChannel
	createCQ
	destroyCQ
	getCQEvent
	ackCQEvents
	createSRQ
	destroySRQ
	createQP
	modifyQP
	destroyQP
	regDMABufMR // of rdma-core 34: may be missing
	numEntries
)

var entries = [numEntries]string{"ibv_fork_init", "ibv_get_device_list", "ibv_free_device_list",
	"ibv_get_device_name", "ibv_open_device", "ibv_close_device", "ibv_query_device", "ibv_query_port",
	"ibv_query_gid", "ibv_get_async_event", "ibv_ack_async_event", "ibv_alloc_pd", "ibv_dealloc_pd", "ibv_reg_mr",
	"ibv_dereg_mr", "ibv_create_comp_channel", "ibv_destroy_comp_channel", "ibv_create_cq", "ibv_destroy_cq",
	"ibv_get_cq_event", "ibv_ack_cq_events", "ibv_create_srq", "ibv_destroy_srq", "ibv_create_qp", "ibv_modify_qp",
	"ibv_destroy_qp", "ibv_reg_dmabuf_mr"}

// library is an open libibverbs.
type library struct {
	at    [numEntries]uintptr
	errno uintptr // the function of libc that says where a thread's errno is
	sysfs string
	// modules has a folder for each module of the kernel.
	modules string
	files   func(descriptor int32) string // what descriptors are of
}

// openLibrary opens a libibverbs and finds what it exports.
func openLibrary(path string) (*library, error) {
	// The loader keeps the text of an error for the thread that caused it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fault.Wrap(fault.NotSupported, err, "rdma: %s was not found: install libibverbs (package "+
			"libibverbs1 and ibverbs-providers, or rdma-core)", path)
	}
	l := &library{sysfs: "/sys/class/infiniband", modules: "/sys/module", files: fileOfProcess}
	for e, name := range entries {
		if l.at[e], err = purego.Dlsym(handle, name); err != nil && entry(e) != regDMABufMR {
			return nil, fault.Wrap(fault.NotSupported, err, "rdma: %s has no %s", path, name)
		}
	}
	if l.errno, err = purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location"); err != nil {
		return nil, fault.Wrap(fault.NotSupported, err, "rdma: the C library has no errno that can be read")
	}
	return l, nil
}

// call calls a function and returns its result and the errno that it set, 0 if none. What the
// arguments point to stays where it is until the end of the call; for that, a caller converts
// pointers in the call itself.
//
//go:uintptrescapes
func (l *library) call(e entry, args ...uintptr) (uintptr, syscall.Errno) {
	runtime.LockOSThread() // errno is the thread's
	defer runtime.UnlockOSThread()
	errno := l.threadErrno()
	*errno = 0
	result, _, _ := purego.SyscallN(l.at[e], args...)
	return result, syscall.Errno(*errno)
}

// threadErrno returns the errno of the thread, which the caller keeps.
func (l *library) threadErrno() *int32 {
	where, _, _ := purego.SyscallN(l.errno)
	return at[int32](where)
}

// arguments are where a queue keeps those of its calls: a call by them allocates nothing.
type arguments [4]uintptr

func (a *arguments) call(function uintptr, first, second, third uintptr) int32 {
	*a = arguments{first, second, third}
	result, _, _ := purego.SyscallN(function, a[:]...)
	return int32(result)
}

// refusal returns the errno of a call that returned a number: of those of libibverbs some return
// the errno, others -1 and set it.
func refusal(result uintptr, errno syscall.Errno) syscall.Errno {
	switch code := int32(result); {
	case code == 0:
		return 0
	case code > 0:
		return syscall.Errno(code)
	case errno != 0:
		return errno
	default:
		return syscall.EIO
	}
}

// status calls a function that returns a number, and returns why it refused.
//
//go:uintptrescapes
func (l *library) status(e entry, args ...uintptr) syscall.Errno { return refusal(l.call(e, args...)) }

// object calls a function that returns an object, and returns why it refused.
//
//go:uintptrescapes
func (l *library) object(e entry, args ...uintptr) (uintptr, syscall.Errno) {
	result, errno := l.call(e, args...)
	switch {
	case result != 0:
		return result, 0
	case errno != 0:
		return 0, errno
	default:
		return 0, syscall.EIO
	}
}

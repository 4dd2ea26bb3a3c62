package driver

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// entry is the number of an entry point.
type entry int

// entryPoint is one that the calls use.
type entryPoint struct {
	name    string
	version int // of CUDA, in which it got its present form
	needed  bool
}

// library is an open libcuda. Its methods are the calls (zcalls_unsafe.go).
type library struct {
	version int
	at      [numEntries]uintptr
}

// oldest is the version of the first driver that can be asked for versions of entry points.
const oldest = 11030

// openLibrary opens a libcuda and finds its entry points. It leaves the library uninitialised.
func openLibrary(path string) (*library, error) {
	// The loader keeps the text of an error for the thread that caused it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fault.Wrap(fault.NotSupported, err, "%s was not found: no NVIDIA driver on this machine "+
			"or in this container (docker: --gpus all)", path)
	}
	l := &library{}
	if l.version, err = versionOf(handle); err != nil {
		return nil, fault.Wrap(fault.NotSupported, err, "%s is not a CUDA driver", path)
	}
	find, err := purego.Dlsym(handle, "cuGetProcAddress_v2")
	if err != nil {
		find, err = purego.Dlsym(handle, "cuGetProcAddress")
	}
	if err != nil {
		return nil, fault.New(fault.NotSupported, "the NVIDIA driver offers CUDA %s, and goccl needs %s or later "+
			"(cuGetProcAddress): update the driver", readable(l.version), readable(oldest))
	}
	for e := range entries {
		l.at[e] = l.find(find, entry(e))
		if l.at[e] == 0 && entries[e].needed {
			return nil, l.missing(entry(e))
		}
	}
	return l, nil
}

// versionOf asks a libcuda for its version, which it says even uninitialised.
func versionOf(handle uintptr) (int, error) {
	at, err := purego.Dlsym(handle, "cuDriverGetVersion")
	if err != nil {
		return 0, err
	}
	var version int32
	if code := call(at, uintptr(unsafe.Pointer(&version)), 0, 0, 0, 0, 0); code != 0 {
		return 0, cuda.Failed("cuDriverGetVersion", int(code), unknownName)
	}
	return int(version), nil
}

// find returns the address of an entry point in the form that the table means, or 0. An older
// driver would answer with the form that it has.
func (l *library) find(getProcAddress uintptr, e entry) uintptr {
	if l.version < entries[e].version {
		return 0
	}
	name := append([]byte(entries[e].name), 0)
	var at uintptr
	// The last argument is that of the second form, which may be nil. The first form has four.
	if call(getProcAddress, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&at)),
		uintptr(entries[e].version), legacyStream, 0, 0) != 0 {
		return 0
	}
	return at
}

func (l *library) has(e entry) bool { return l.at[e] != 0 }

// missing returns the error of an entry point that the driver does not have.
func (l *library) missing(e entry) error {
	point := entries[e]
	if l.version < point.version {
		return fault.New(fault.NotSupported, "the NVIDIA driver offers CUDA %s, and %s needs %s or later: "+
			"update the driver", readable(l.version), point.name, readable(point.version))
	}
	return fault.New(fault.NotSupported, "the NVIDIA driver, which offers CUDA %s, has no %s",
		readable(l.version), point.name)
}

// blocks has arguments of calls. An array on the stack does not do: what SyscallN gets moves to the
// heap.
var blocks = sync.Pool{New: func() any { return new([6]uintptr) }}

// call calls a function of C, which may have fewer arguments. What they point to stays where it is
// until the end of the call; for that, a caller converts pointers in the call itself.
//
//go:uintptrescapes
func call(at, a, b, c, d, e, f uintptr) int32 {
	block := blocks.Get().(*[6]uintptr)
	*block = [6]uintptr{a, b, c, d, e, f}
	r, _, _ := purego.SyscallN(at, block[:]...)
	blocks.Put(block)
	return int32(r) // of the register, C sets no more
}

// call calls an entry point, as function call does.
//
//go:uintptrescapes
func (l *library) call(at entry, a, b, c, d, e, f uintptr) error {
	if !l.has(at) {
		return l.missing(at)
	}
	return l.result(at, call(l.at[at], a, b, c, d, e, f))
}

// errNotReady is the error of queries whose answer is no.
var errNotReady error = cuda.Failed("query", notReady, "CUDA_ERROR_NOT_READY")

// result returns the error of a call that returned code.
func (l *library) result(e entry, code int32) error {
	if code == 0 {
		return nil
	}
	if code == notReady && (e == entryStreamQuery || e == entryEventQuery) {
		return errNotReady
	}
	return cuda.Failed(entries[e].name, int(code), l.nameOf(code))
}

const unknownName = "unknown error"

// nameOf returns the driver's name of a result.
func (l *library) nameOf(code int32) string {
	var text *byte
	if at := l.at[entryGetErrorName]; at != 0 {
		call(at, uintptr(code), uintptr(unsafe.Pointer(&text)), 0, 0, 0, 0)
	}
	if text == nil {
		return unknownName
	}
	n := 0
	for n < 100 && *(*byte)(unsafe.Add(unsafe.Pointer(text), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(text, n))
}

// readable returns a version as people write it: 12.4 for 12040.
func readable(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

package driver

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// module implements cuda.Module.
type module struct {
	*library
	handle   uintptr
	unloaded atomic.Bool
}

// function implements cuda.Function.
type function struct {
	of      *module
	name    string
	handle  uintptr
	threads int32 // the most in a block
}

var errUnloaded error = fault.New(fault.Closed, "the module was unloaded before")

func (c *context) Load(code []byte) (cuda.Module, error) {
	switch {
	case c.released.Load():
		return nil, c.errReleased()
	case len(code) == 0:
		return nil, fault.New(fault.Invalid, "there is no code in 0 bytes")
	case !c.has(entryLaunchKernelEx):
		return nil, c.missing(entryLaunchKernelEx) // now, and not only when it is launched
	}
	m := &module{library: c.library}
	text := terminated(code) // PTX is a text of C, and machine code says itself where it ends
	if err := c.cuModuleLoadData(&m.handle, &text[0]); err != nil {
		return nil, err
	}
	return m, nil
}

// Function asks for an attribute, which Launch needs. Besides, it is sure to load the kernel: a
// driver that loads lazily (CUDA_MODULE_LOADING) may otherwise do so with the first launch, which
// can wait for all streams.
func (m *module) Function(name string) (cuda.Function, error) {
	if m.unloaded.Load() {
		return nil, errUnloaded
	}
	f := &function{of: m, name: name}
	text := terminated([]byte(name))
	if err := m.cuModuleGetFunction(&f.handle, m.handle, &text[0]); err != nil {
		return nil, err
	}
	if err := m.cuFuncGetAttribute(&f.threads, mostThreads, f.handle); err != nil {
		return nil, err
	}
	return f, nil
}

func (m *module) Unload() error {
	if m.unloaded.Swap(true) {
		return errUnloaded
	}
	return m.cuModuleUnload(m.handle)
}

func (f *function) Name() string { return f.name }

// terminated returns a text as C has it.
func terminated(text []byte) []byte { return append(text[:len(text):len(text)], 0) }

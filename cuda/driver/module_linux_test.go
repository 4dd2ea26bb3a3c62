package driver

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// machineCode is taken for code by the fake.
var machineCode = []byte("\x7fELF and more")

// arguments returns those of a kernel of the fake.
func arguments(to, from cuda.Ptr, bytes uint64) []byte {
	args := make([]byte, 288)
	binary.NativeEndian.PutUint64(args, uint64(to))
	binary.NativeEndian.PutUint64(args[8:], uint64(from))
	binary.NativeEndian.PutUint64(args[72:], bytes)
	return args
}

// unload gives a module back.
func unload(t testing.TB, m cuda.Module) {
	t.Helper()
	if err := m.Unload(); err != nil {
		t.Error(err)
	}
}

func TestModules(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	// What follows the code in memory is not part of it: PTX ends with a zero.
	memory := []byte("// PTX, and something else")
	text := must(c.Load(memory[:6]))(t)
	f.arguments("cuModuleLoadData", any64, any64, 6)
	if !bytes.Equal(memory, []byte("// PTX, and something else")) {
		t.Errorf("Load has changed the code: %q", memory)
	}
	unload(t, text)

	m := must(c.Load(machineCode))(t)
	function := must(m.Function("goccl_copy"))(t)
	handle := uint64(m.(*module).handle)
	f.arguments("cuModuleGetFunction", any64, handle, any64, 10)
	f.arguments("cuFuncGetAttribute", any64, mostThreads, any64)
	if function.Name() != "goccl_copy" {
		t.Errorf("the function is called %q", function.Name())
	}
	_, err := m.Function("other")
	refused(t, err, fault.NotSupported, "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)")
	f.fail("cuFuncGetAttribute", 1, 2)
	_, err = m.Function("goccl_copy")
	refused(t, err, fault.System, "cuFuncGetAttribute: CUDA_ERROR_OUT_OF_MEMORY (2)")

	_, err = c.Load([]byte("no code"))
	refused(t, err, fault.System, "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200)")
	f.fail("cuModuleLoadData", 1, 222) // the PTX is too new for the driver
	_, err = c.Load([]byte("// PTX"))
	refused(t, err, fault.NotSupported, "222")
	for _, nothing := range [][]byte{nil, {}} {
		_, err = c.Load(nothing)
		refused(t, err, fault.Invalid, "0 bytes")
	}
	f.fail("cuModuleUnload", 1, 1)
	refused(t, m.Unload(), fault.System, "cuModuleUnload: CUDA_ERROR_INVALID_VALUE (1)")
	refused(t, m.Unload(), fault.Closed) // whatever the first has returned
	m.(*module).unloaded.Store(false)
	unload(t, m)
	f.arguments("cuModuleUnload", handle)
	refused(t, m.Unload(), fault.Closed, "unloaded before")
	_, err = m.Function("goccl_copy")
	refused(t, err, fault.Closed, "unloaded before")

	released := must(f.open().Retain(0))(t)
	if err := released.Release(); err != nil {
		t.Error(err)
	}
	_, err = released.Load(machineCode)
	refused(t, err, fault.Closed, "device 0 was released")
}

// TestLaunch looks at what the driver gets, and when kernels are executed.
func TestLaunch(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	c := f.enter(d, 0)
	s := must(c.NewStream(0))(t)
	r := must(c.Register(pages(t, 1)))(t)
	m := must(c.Load(machineCode))(t)
	function, other := must(m.Function("goccl_copy"))(t), must(m.Function("goccl_other"))(t)
	words := func(ops ...cuda.WordOp) {
		t.Helper()
		if err := s.Words(ops); err != nil {
			t.Error(err)
		}
	}
	copy(r.Host()[64:], "over there")
	words(cuda.WordOp{At: r.Ptr(), Value: 1, Wait: true})
	args := arguments(r.Ptr()+128, r.Ptr()+64, 10)
	if err := s.Launch(function, 7, 512, args); err != nil {
		t.Error(err)
	}
	f.arguments("cuLaunchKernelEx", any64, 7, 512, uint64(s.Native()), any64, 0)
	clear(args) // which were copied
	words(cuda.WordOp{At: r.Ptr() + 8, Value: 1})
	if err := s.Launch(other, math.MaxInt32, 1, bytes.Repeat([]byte{7}, 288)); err != nil { // which does nothing
		t.Error(err)
	}
	f.arguments("cuLaunchKernelEx", any64, math.MaxInt32, 1)
	if f.executed() != 0 || r.Load(8) != 0 {
		t.Error("a kernel was executed before the wait in front of it has ended")
	}
	words(cuda.WordOp{At: r.Ptr() + 16, Value: 1, Wait: true})
	if err := s.Launch(function, 1, 1, arguments(r.Ptr()+256, r.Ptr()+128, 10)); err != nil {
		t.Error(err)
	}
	r.Store(0, 1)
	for r.Load(8) == 0 {
		if _, err := s.Done(); err != nil { // which has the fake look at the words
			t.Fatal(err)
		}
	}
	if got := r.Host()[128:138]; !bytes.Equal(got, []byte("over there")) {
		t.Errorf("the kernel has copied %q", got)
	}
	if n, word := f.executed(), f.parameter(80); n != 2 || word != 0x0707070707070707 {
		t.Errorf("%d kernels were executed, the last with %#x, want 2 and sevens", n, word)
	}
	r.Store(16, 1)
	if err := s.Synchronize(); err != nil {
		t.Error(err)
	}
	if got := r.Host()[256:266]; !bytes.Equal(got, []byte("over there")) {
		t.Errorf("the last kernel has copied %q", got)
	}
	for at, want := range map[int32]uint64{0: uint64(r.Ptr() + 256), 8: uint64(r.Ptr() + 128), 16: 0, 72: 10, 88: 0} {
		if got := f.parameter(at); got != want {
			t.Errorf("word %d of the parameter is %#x, want %#x", at, got, want)
		}
	}
	if err := c.Adopt(0).Launch(other, 1, 1, args); err != nil {
		t.Error(err)
	}
	f.arguments("cuLaunchKernelEx", any64, 1, 1, 0)

	calls := f.calls("cuLaunchKernelEx")
	for _, size := range [][2]int{{0, 1}, {1, 0}, {-1, 1}, {1, -1}, {1, 513}, {1 << 31, 1}, {1, math.MaxInt}} {
		refused(t, s.Launch(function, size[0], size[1], args), fault.Invalid, "goccl_copy has at most 512")
	}
	refused(t, s.Launch(function, 1, 1, nil), fault.Invalid, "without arguments")
	refused(t, s.Launch(nil, 1, 1, args), fault.Invalid, "another driver")
	strange := must(newFake(t, latest).open().Retain(0))(t).Adopt(0)
	refused(t, strange.Launch(function, 1, 1, args), fault.Invalid, "another driver")
	gone := must(c.NewStream(0))(t)
	destroy(t, gone)
	refused(t, gone.Launch(function, 1, 1, args), fault.Closed)
	unload(t, m)
	refused(t, s.Launch(function, 1, 1, args), fault.Closed, "unloaded")
	if n := f.calls("cuLaunchKernelEx"); n != calls {
		t.Errorf("the driver was asked %d times for what is wrong", n-calls)
	}
	free(t, r)
	destroy(t, s)
}

func TestLaunchFails(t *testing.T) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	s := must(c.NewStream(0))(t)
	defer destroy(t, s)
	m := must(c.Load(machineCode))(t)
	defer unload(t, m)
	function := must(m.Function("goccl_other"))(t)
	f.fail("cuLaunchKernelEx", 2, 1)
	for nth := range 3 {
		err := s.Launch(function, 1, 1, make([]byte, 288))
		if nth != 1 && err != nil {
			t.Error(err)
		} else if nth == 1 {
			refused(t, err, fault.System, "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (1)")
		}
	}
	if n := f.executed(); n != 2 {
		t.Errorf("%d kernels were executed, want 2", n)
	}
	f.fail("cuModuleLoadData", 1, 2)
	_, err := c.Load(machineCode)
	refused(t, err, fault.System, "cuModuleLoadData: CUDA_ERROR_OUT_OF_MEMORY (2)")
}

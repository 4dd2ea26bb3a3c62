package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/goccl/goccl/cuda"
)

// fake is a library of testdata/fakecuda.c that no other test has open.
type fake struct {
	t    testing.TB
	path string

	set       func(knob string, value int)
	fail      func(call string, nth int, code int32) // the nth call from now
	hide      func(name string)
	calls     func(call string) int
	argument  func(call string, index int32) uint64 // of the last call
	live      func() int                            // objects that have not been given back
	executed  func() int                            // kernels
	parameter func(at int32) uint64                 // a word of the last one's
	drop      func()                                // the graph that streams capture
	depth     func() int                            // of the thread's stack of contexts
	mode      func(set int32) int32                 // the thread's mode of capture; sets it unless negative
}

// latest is the version of the fake that most tests use.
const latest = 12040

var built struct {
	sync.Mutex
	versions map[int][]byte
}

// build returns the library that offers a version of CUDA.
func build(t testing.TB, version int) []byte {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if library := built.versions[version]; library != nil {
		return library
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler (cc), which the fake libcuda needs")
	}
	path := filepath.Join(t.TempDir(), "libcuda.so")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", fmt.Sprintf("-DVERSION=%d", version),
		"-o", path, filepath.Join("testdata", "fakecuda.c"), "-lpthread").CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	library, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if built.versions == nil {
		built.versions = map[int][]byte{}
	}
	built.versions[version] = library
	return library
}

// newFake makes a library of a test's own: the loader tells libraries apart by their files.
func newFake(t testing.TB, version int) *fake {
	t.Helper()
	f := &fake{t: t, path: filepath.Join(t.TempDir(), "libcuda.so.1")}
	if err := os.WriteFile(f.path, build(t, version), 0o755); err != nil {
		t.Fatal(err)
	}
	handle, err := purego.Dlopen(f.path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	for name, function := range map[string]any{"set": &f.set, "fail": &f.fail, "hide": &f.hide, "calls": &f.calls,
		"argument": &f.argument, "live": &f.live, "drop": &f.drop, "depth": &f.depth, "mode": &f.mode,
		"executed": &f.executed, "parameter": &f.parameter} {
		purego.RegisterLibFunc(function, handle, "fake_"+name)
	}
	return f
}

// open opens a driver with the library.
func (f *fake) open() cuda.Driver {
	f.t.Helper()
	return must(open(f.path))(f.t)
}

// enter retains a device and enters it until the end of the test. Then everything must have been
// given back.
func (f *fake) enter(d cuda.Driver, device int) *context {
	f.t.Helper()
	c := must(d.Retain(device))(f.t)
	if err := c.Enter(false); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		c.Leave()
		if err := c.Release(); err != nil {
			f.t.Error(err)
		}
		if n := f.live(); n != 0 && !f.t.Failed() {
			f.t.Errorf("%d objects were not given back", n)
		}
	})
	return c.(*context)
}

// arguments fails the test unless the last call got these arguments.
func (f *fake) arguments(call string, want ...uint64) {
	f.t.Helper()
	for index, value := range want {
		if got := f.argument(call, int32(index)); got != value && value != any64 {
			f.t.Errorf("%s got %#x as argument %d, want %#x", call, got, index, value)
		}
	}
}

// any64 stands for an argument that may be anything.
const any64 = 0xa5a5a5a5a5a5a5a5

// must returns what a call returned, or fails the test.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// pages returns zeroed memory that no garbage collector owns.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	memory, err := syscall.Mmap(-1, 0, n*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(memory) })
	return memory
}

// free gives memory back.
func free(t testing.TB, all ...interface{ Free() error }) {
	t.Helper()
	for _, m := range all {
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	}
}

// destroy gives streams and events back.
func destroy(t testing.TB, all ...interface{ Destroy() error }) {
	t.Helper()
	for _, each := range all {
		if err := each.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is the kernels as a compiler of the host makes them.
type library struct{ handle uintptr }

var built struct {
	sync.Once
	*library
	err error
}

// hostLibrary compiles the kernels, once in a process.
func hostLibrary(t testing.TB) *library {
	t.Helper()
	compiler := hostCompiler(t)
	built.Do(func() {
		dir, err := os.MkdirTemp("", "goccl-kernels")
		if err != nil {
			built.err = err
			return
		}
		defer os.RemoveAll(dir)
		level := "-Og"
		if *pairs > defaultPairs {
			level = "-O2"
		}
		built.library, built.err = compileKernels(compiler, level, dir, ".")
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.library
}

func hostCompiler(t testing.TB) string {
	for _, name := range []string{os.Getenv("CXX"), "g++", "c++"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no C++ compiler (g++), which makes the kernels for the processor")
	return ""
}

// compileKernels makes a library of the sources in a folder.
func compileKernels(compiler, level, dir, sources string) (*library, error) {
	path := filepath.Join(dir, "kernels.so")
	out, err := exec.Command(compiler, "-x", "c++", "-std=c++17", level, "-ffp-contract=off",
		"-fno-strict-aliasing", "-fPIC", "-shared", "-o", path, filepath.Join(sources, "kernels.cu")).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	return &library{handle}, err
}

// launch runs a kernel with a number of blocks and threads in a block, one thread after the other.
func (l *library) launch(name string, a *Arguments, blocks, threads int) {
	at, err := purego.Dlsym(l.handle, name)
	if err != nil {
		panic(err)
	}
	purego.SyscallN(at, uintptr(unsafe.Pointer(a)), uintptr(blocks), uintptr(threads))
}

func TestArgumentsAreLaidOutAlike(t *testing.T) {
	l := hostLibrary(t)
	at, err := purego.Dlsym(l.handle, "goccl_offsets")
	if err != nil {
		t.Fatal(err)
	}
	var got [6]uint64
	purego.SyscallN(at, uintptr(unsafe.Pointer(&got)))
	var a Arguments
	want := [6]uint64{uint64(unsafe.Sizeof(a)), uint64(unsafe.Offsetof(a.Dst)), uint64(unsafe.Offsetof(a.Src)),
		uint64(unsafe.Offsetof(a.N)), uint64(unsafe.Offsetof(a.Factor)), uint64(unsafe.Offsetof(a.Count))}
	if got != want {
		t.Errorf("in C++ size and offsets are %v, in Go %v", got, want)
	}
	a = Arguments{Dst: 1, Src: [8]uint64{2, 3, 4, 5, 6, 7, 8, 9}, N: 10, Factor: 11.5, Count: 12}
	if back := decode(a.Bytes()); back != a {
		t.Errorf("decoded %+v, want %+v", back, a)
	}
}

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
	l.call(name, unsafe.Pointer(a), blocks, threads)
}

// run executes a table, one block after the other.
func (l *library) run(name string, t *Table, blocks int) { l.call(name, unsafe.Pointer(t), blocks, 1) }

func (l *library) call(name string, parameter unsafe.Pointer, blocks, threads int) {
	at, err := purego.Dlsym(l.handle, name)
	if err != nil {
		panic(err)
	}
	purego.SyscallN(at, uintptr(parameter), uintptr(blocks), uintptr(threads))
}

func TestArgumentsAreLaidOutAlike(t *testing.T) {
	l := hostLibrary(t)
	at, err := purego.Dlsym(l.handle, "goccl_offsets")
	if err != nil {
		t.Fatal(err)
	}
	var got [16]uint64
	purego.SyscallN(at, uintptr(unsafe.Pointer(&got)))
	var a Arguments
	var step Step
	var table Table
	want := [16]uint64{
		uint64(unsafe.Sizeof(step)), uint64(unsafe.Offsetof(step.Dst)), uint64(unsafe.Offsetof(step.Src)),
		uint64(unsafe.Offsetof(step.N)), uint64(unsafe.Offsetof(step.Factor)), uint64(unsafe.Offsetof(step.Count)),
		uint64(unsafe.Offsetof(step.Kind)), uint64(unsafe.Sizeof(a)), uint64(unsafe.Offsetof(a.Indirect)),
		uint64(unsafe.Offsetof(a.Lent)), uint64(unsafe.Sizeof(table)), uint64(unsafe.Offsetof(table.Released)),
		uint64(unsafe.Offsetof(table.Awaited)), uint64(unsafe.Offsetof(table.Rank)),
		uint64(unsafe.Offsetof(table.Count)), uint64(unsafe.Offsetof(table.Steps))}
	if got != want {
		t.Errorf("in C++ sizes and offsets are %v, in Go %v", got, want)
	}
	step = Step{Dst: 1, Src: [8]uint64{2, 3, 4, 5, 6, 7, 8, 9}, N: 10, Factor: 11.5, Count: 12, Kind: 13}
	a = Arguments{Step: step, Indirect: 14}
	for k := range a.Lent {
		a.Lent[k] = Lent{uint64(3*k + 15), uint64(3*k + 16), uint64(3*k + 17)}
	}
	if back := decode(a.Bytes()); back != a {
		t.Errorf("decoded %+v, want %+v", back, a)
	}
}

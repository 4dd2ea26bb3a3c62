package cudatest_test

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/kernel"
)

// machineCode begins as such, which is all that the driver looks at.
var machineCode = []byte("\x7fELF")

func (b *bench) module() cuda.Module {
	b.t.Helper()
	m, err := b.c.Load(machineCode)
	b.must(err)
	return m
}

// function returns a kernel, which it loads when it is asked for it first.
func (b *bench) function(name string) cuda.Function {
	b.t.Helper()
	if b.kernels == nil {
		b.kernels = map[string]cuda.Function{}
	}
	if b.kernels[name] == nil {
		f, err := b.module().Function(name)
		b.must(err)
		b.kernels[name] = f
	}
	return b.kernels[name]
}

const sumName = "goccl_reduce_sum_f32"

// sum launches a sum of n numbers of type F32.
func (b *bench) sum(s cuda.Stream, n int, to cuda.Ptr, from ...cuda.Ptr) {
	b.t.Helper()
	c, _ := kernel.Reduce(dtype.F32, dtype.Sum)
	var src []uint64
	for _, p := range from {
		src = append(src, uint64(p))
	}
	a := c.Arguments(uint64(to), n, 0, src...)
	args := a.Bytes()
	b.must(s.Launch(b.function(c.Name), c.Blocks(n, b.c.Info().Processors), kernel.BlockSize, args))
	clear(args) // which were copied
}

// floats returns numbers in registered memory, and writes them there.
func (b *bench) floats(r cuda.Registered, at int, numbers ...float32) {
	b.t.Helper()
	for i, x := range numbers {
		binary.NativeEndian.PutUint32(r.Host()[at+4*i:], math.Float32bits(x))
	}
	b.writes(r, at, 4*len(numbers))
}

// TestLaunch executes kernels in the order of their stream, on memory of the device and of the
// host.
func TestLaunch(t *testing.T) {
	for seed := range uint64(20) {
		b := newBench(t, cudatest.Options{Seed: seed})
		data, stage, s := b.alloc(100), b.register(4096), b.stream()
		b.floats(stage, 0, 1, 2, 3)
		b.floats(stage, 100, 10, 20, 30)
		b.must(s.Copy(data.Ptr(), stage.Ptr(), 12))
		b.sum(s, 3, data.Ptr(), data.Ptr(), stage.Ptr()+100, data.Ptr()) // 12 24 36
		b.sum(s, 2, stage.Ptr()+200, data.Ptr()+4, stage.Ptr())          // 25 38
		b.sum(s, 0, data.Ptr(), 8)                                       // nothing is there
		b.must(s.Synchronize())
		b.reads(stage, 200, 8)
		for i, want := range []float32{25, 38, 0} {
			if got := math.Float32frombits(binary.NativeEndian.Uint32(stage.Host()[200+4*i:])); got != want {
				t.Errorf("sum %d is %v, want %v", i, got, want)
			}
		}
		b.d.Check(t)
	}
}

// TestIndirectSource: what a place leads to is read, and nothing else; the place is read, too.
func TestIndirectSource(t *testing.T) {
	for _, c := range []struct {
		lent, ordered, overwritten bool
		want                       float32
	}{{true, true, false, 7}, {false, true, false, 1}, {true, false, false, 0}, {true, true, true, 0},
		{false, true, true, 1}} {
		b := newBench(t, cudatest.Options{})
		data, stage, place := b.alloc(4096), b.register(4096), b.register(4096)
		s, writer, f := b.stream(), b.stream(), b.function(sumName)
		b.floats(stage, 0, 1, 7)
		b.must(s.Copy(data.Ptr(), stage.Ptr(), 8))
		b.fork(s, writer)
		b.must(writer.Words([]cuda.WordOp{{At: place.Ptr() + 8, Value: kernel.Place(1, c.lent, 4)}}))
		if c.ordered {
			b.fork(writer, s)
		} else {
			b.d.Settle()
		}
		sum, _ := kernel.Reduce(dtype.F32, dtype.Sum)
		a := sum.Arguments(uint64(data.Ptr())+16, 1, 0, uint64(data.Ptr()))
		a.Lend(0, kernel.Lent{Place: uint64(place.Ptr()) + 8, Base: uint64(data.Ptr()), Bytes: 8})
		b.must(s.Launch(f, 1, kernel.BlockSize, a.Bytes()))
		if c.overwritten {
			b.must(writer.Copy(data.Ptr()+4, stage.Ptr(), 4))
		}
		b.must(s.Copy(stage.Ptr()+100, data.Ptr()+16, 4))
		b.must(s.Synchronize())
		b.must(writer.Synchronize())
		if c.want == 0 {
			b.reported(cudatest.Race, sumName)
			continue
		}
		b.reads(stage, 100, 4)
		if got := math.Float32frombits(binary.NativeEndian.Uint32(stage.Host()[100:])); got != c.want {
			t.Errorf("%+v: the sum is %v", c, got)
		}
		b.d.Check(t)
	}
}

// TestLaunchReaches: a kernel reaches memory of another device only as a copy does.
func TestLaunchReaches(t *testing.T) {
	b := newBench(t, cudatest.Options{Devices: 2})
	data, s := b.alloc(100), b.stream()
	second := b.context(1)
	there, err := second.Alloc(100)
	b.must(err)
	far, err := there.Descriptor()
	b.must(err)
	defer closeDescriptor(far)
	b.must(b.c.Enter(false))
	defer b.c.Leave()
	imported, err := b.c.Import(far, 100)
	b.must(err)
	b.sum(s, 1, data.Ptr(), imported.Ptr())
	b.must(s.Synchronize())
	b.d.Check(t)
	b.sum(s, 1, data.Ptr(), data.Ptr()+8, there.Ptr())
	isCode(t, s.Synchronize(), 700)
	b.reported(cudatest.Address, "goccl_reduce_sum_f32", "device 0 has no access to allocation 2")
}

// TestModules: what is wrong is refused, what is not given back is told.
func TestModules(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	_, err := b.c.Load([]byte("no code"))
	isCode(t, err, 200)
	if _, err = b.c.Load(nil); !errors.Is(err, fault.Invalid) {
		t.Errorf("no code: %v", err)
	}
	m := b.module()
	left := func() bool {
		return strings.Contains(strings.Join(b.d.Leaks(), "\n"), "module 1, loaded at cudatest/launch_test.go")
	}
	if !left() {
		t.Errorf("left behind: %q", b.d.Leaks())
	}
	_, err = m.Function("goccl_reduce_sum_f31")
	if isCode(t, err, 500); !errors.Is(err, fault.NotSupported) {
		t.Errorf("an unknown function: %v", err)
	}
	for _, f := range kernel.Functions() {
		if found, err := m.Function(f.Name); err != nil || found.Name() != f.Name {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	b.must(m.Unload())
	if left() {
		t.Errorf("left behind: %q", b.d.Leaks())
	}
	b.d.Check(t)

	m = b.module()
	b.d.Lose(0)
	if err := m.Unload(); !cuda.Lost(err) {
		t.Errorf("Unload of a lost device: %v", err)
	}
	if strings.Contains(strings.Join(b.d.Leaks(), "\n"), "module") {
		t.Errorf("left behind: %q", b.d.Leaks())
	}
	b.d.Check(t)
}

package driver

import (
	"fmt"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// BenchmarkBandwidth measures on a GPU (-driver.gpu) the bytes that kernels read and write, beside
// a copy of the driver within the device's memory. The operands do not fit its cache.
func BenchmarkBandwidth(b *testing.B) {
	if *gpu < 0 {
		b.Skip("-driver.gpu names no GPU")
	}
	c := must(must(Open())(b).Retain(*gpu))(b)
	if err := c.Enter(false); err != nil { // this goroutine has a thread of its own
		b.Fatal(err)
	}
	info := c.Info()
	m := must(c.Load(must(kernel.Code(info.Major, info.Minor))(b)))(b)
	s := must(c.NewStream(0))(b)
	for _, size := range []int{64 << 20, 256 << 20} {
		memory := must(c.Alloc((kernel.MostSources + 1) * size))(b)
		at := func(k int) uint64 { return uint64(memory.Ptr()) + uint64(k*size) }
		run := func(name string, operands int, call func() error) {
			b.Run(fmt.Sprintf("%s/%dMiB", name, size>>20), func(b *testing.B) {
				if err := c.Enter(false); err != nil { // it has a thread of its own, too
					b.Fatal(err)
				}
				defer c.Leave()
				enqueue := func(n int) {
					for range n {
						if err := call(); err != nil {
							b.Fatal(err)
						}
					}
					if err := s.Synchronize(); err != nil {
						b.Fatal(err)
					}
				}
				enqueue(3)
				b.ResetTimer()
				enqueue(b.N)
				b.ReportMetric(float64(operands)*float64(size)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
		launch := func(name string, call kernel.Call, unit, sources int) {
			f := must(m.Function(call.Name))(b)
			var from []uint64
			for k := range sources {
				from = append(from, at(1+k))
			}
			n := size / unit
			a := call.Arguments(at(0), n, 0.5, from...)
			run(name, 1+sources, func() error {
				return s.Launch(f, call.Blocks(n, info.Processors), kernel.BlockSize, a.Bytes())
			})
		}
		run("driver", 2, func() error { return s.Copy(cuda.Ptr(at(0)), cuda.Ptr(at(1)), size) })
		launch("copy", kernel.Copy(), 1, 1)
		for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
			call, _ := kernel.Reduce(t, dtype.Sum)
			for _, sources := range []int{2, 4, 8} {
				launch(fmt.Sprintf("%v from %d", t, sources), call, t.Size(), sources)
			}
		}
		if err := memory.Free(); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Destroy(); err != nil {
		b.Fatal(err)
	}
	if err := m.Unload(); err != nil {
		b.Fatal(err)
	}
	c.Leave()
	if err := c.Release(); err != nil {
		b.Fatal(err)
	}
}

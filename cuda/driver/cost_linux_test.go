package driver

import (
	"testing"

	"github.com/goccl/goccl/cuda"
)

// hot returns what groups do for every operation, by name.
func hot(t testing.TB) (cuda.Context, map[string]func() error) {
	f := newFake(t, latest)
	c := f.enter(f.open(), 0)
	s, waiting := must(c.NewStream(0))(t), must(c.NewStream(0))(t)
	r := must(c.Register(pages(t, 1)))(t)
	e := must(c.NewEvent())(t)
	m := must(c.Load(machineCode))(t)
	kernel := must(m.Function("goccl_other"))(t)
	device := must(c.Alloc(1))(t)
	unready := must(c.NewEvent())(t)
	t.Cleanup(func() {
		r.Store(512, 1) // so that nothing waits any more
		if err := waiting.Synchronize(); err != nil {
			t.Error(err)
		}
		free(t, r, device)
		destroy(t, s, waiting, e, unready)
		unload(t, m)
	})
	for _, err := range []error{
		e.Record(s), waiting.Words([]cuda.WordOp{{At: r.Ptr() + 512, Value: 1, Wait: true}}), unready.Record(waiting),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ops := []cuda.WordOp{{At: r.Ptr(), Value: 1}, {At: r.Ptr() + 8, Value: 1}, {At: r.Ptr(), Value: 1, Wait: true}}
	args := make([]byte, 288)
	bracket := func(relaxed bool) func() error {
		return func() error {
			err := c.Enter(relaxed)
			if err == nil {
				c.Leave()
			}
			return err
		}
	}
	return c, map[string]func() error{
		"Range":        func() error { _, err := c.Range(device.Ptr() + 100); return err },
		"Copy":         func() error { return s.Copy(r.Ptr()+64, r.Ptr(), 64) },
		"Launch":       func() error { return s.Launch(kernel, 3, 512, args) },
		"Words":        func() error { return s.Words(ops) },
		"Wait":         func() error { return s.Wait(e) },
		"Record":       func() error { return e.Record(s) },
		"Done":         func() error { _, err := unready.Done(); return err },
		"Capture":      func() error { _, err := s.Capture(); return err },
		"Enter":        bracket(false),
		"EnterRelaxed": bracket(true),
	}
}

func BenchmarkCalls(b *testing.B) {
	c, calls := hot(b)
	for name, call := range calls {
		b.Run(name, func(b *testing.B) {
			if err := c.Enter(false); err != nil { // this goroutine has a thread of its own
				b.Fatal(err)
			}
			defer c.Leave()
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

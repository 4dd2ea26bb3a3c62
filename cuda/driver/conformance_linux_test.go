package driver

import (
	"flag"
	"os"
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/conformance"
)

// fakeOfParent names, in the environment of a second process, the library of the first.
const fakeOfParent = "GOCCL_TEST_FAKECUDA"

func TestMain(m *testing.M) {
	code, child := conformance.Child(func() (cuda.Driver, error) {
		if fake := os.Getenv(fakeOfParent); fake != "" {
			return open(fake)
		}
		return Open()
	})
	if child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

var gpu = flag.Int("driver.gpu", -1, "the GPU of this machine on which to run the suite, in place of the fake")

// TestConformance runs the suite with the fake library. It leaves nothing behind.
func TestConformance(t *testing.T) {
	if *gpu >= 0 {
		conformance.Run(t, func(t *testing.T) cuda.Driver { return must(Open())(t) },
			conformance.Options{Device: *gpu, Child: true, Kernels: true, Graphs: openGraphs(t)})
		return
	}
	for device, name := range []string{"First", "Second"} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) cuda.Driver {
				f := newFake(t, latest)
				t.Setenv(fakeOfParent, f.path)
				t.Cleanup(func() {
					if n := f.live(); n != 0 && !t.Failed() {
						t.Errorf("%d objects were not given back", n)
					}
				})
				return f.open()
			}, conformance.Options{Device: device, Child: true})
		})
	}
}

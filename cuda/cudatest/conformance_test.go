package cudatest_test

import (
	"os"
	"path"
	"slices"
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/conformance"
	"github.com/goccl/goccl/cuda/cudatest"
)

func TestMain(m *testing.M) {
	if code, child := conformance.Child(func() (cuda.Driver, error) {
		return cudatest.New(cudatest.Options{Devices: 2}), nil
	}); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// mistaken are the tests of the suite that make mistakes.
var mistaken = []string{"EventNeverRecorded", "GivenBack", "Strangers", "Unloaded"}

// graphs implements conformance.Graphs.
type graphs struct{}

func (graphs) Begin(d cuda.Driver, s cuda.Stream) error {
	d.(*cudatest.Driver).BeginCapture(s)
	return nil
}

func (graphs) End(d cuda.Driver, s cuda.Stream) (conformance.Graph, error) {
	return d.(*cudatest.Driver).EndCapture(s)
}

// TestConformance runs the suite on machines of several kinds. Other tests make no mistake, and
// none leaves anything behind.
func TestConformance(t *testing.T) {
	for _, machine := range []struct {
		name   string
		device int
		o      cudatest.Options
	}{
		{"Usual", 0, cudatest.Options{Seed: 1, Devices: 2}},
		{"EightQueues", 0, cudatest.Options{Seed: 2, Devices: 2, Queues: 8}},
		{"SecondDevice", 1, cudatest.Options{Seed: 3, Devices: 2, Queues: 32, Delay: -1}},
	} {
		if testing.Short() && machine.name != "Usual" {
			continue
		}
		t.Run(machine.name, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) cuda.Driver {
				d := cudatest.New(machine.o)
				t.Cleanup(func() {
					if slices.Contains(mistaken, path.Base(t.Name())) {
						d.Forget()
					}
					d.Check(t)
					for _, left := range d.Leaks() {
						t.Error("left behind: " + left)
					}
					d.Close()
				})
				return d
			}, conformance.Options{Device: machine.device, Child: true, Kernels: true, Graphs: graphs{}})
		})
	}
}

package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cuda/cudatest"
)

// overWindows are options of groups whose devices read each other's windows.
var overWindows = ccl.Options{CudaBuffSize: 256 << 10, CudaRoute: "windows"}

// machine makes a device group whose ranks share the device of one machine, as if they were
// processes: they have hardware queues enough for that.
func machine(t testing.TB, n int, device cudatest.Options, opts ccl.Options, memory int) []*rank {
	t.Helper()
	device.Queues = 1000
	driver := cudatest.New(device)
	t.Cleanup(driver.Close)
	drivers := make([]*cudatest.Driver, n)
	for i := range drivers {
		drivers[i] = driver
	}
	return ranksOn(t, drivers, opts, memory)
}

// Every collective has the bits that it has on the processor, over windows, too.
func TestWindowsMatrix(t *testing.T) {
	for ranks := 2; ranks <= 8; ranks++ {
		if testing.Short() && ranks > 3 {
			break
		}
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			w := machine(t, ranks, quick, overWindows, memory)
			everyCall(t, w)
			end(t, w)
		})
	}
}

func TestWindowsUnequalBlocks(t *testing.T) {
	unequalBlocks(t, machine(t, 3, quick, overWindows, memory))
}

func TestWindowsLengths(t *testing.T) { lengths(t, machine(t, 3, quick, overWindows, memory)) }

func TestWindowsOrder(t *testing.T) {
	inOrder(t, func(t *testing.T, n int, seed uint64) []*rank {
		return machine(t, n, cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond}, overWindows, 256<<10)
	})
}

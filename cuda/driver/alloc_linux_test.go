//go:build !race

package driver

import "testing"

// The race detector takes blocks out of the pools, so the test runs without it.
func TestNoAllocations(t *testing.T) {
	_, calls := hot(t)
	for name, call := range calls {
		var err error
		if n := testing.AllocsPerRun(200, func() { err = call() }); n != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, n, err)
		}
	}
}

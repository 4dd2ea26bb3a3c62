//go:build !race

package exec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
)

// The race detector allocates and drops pooled objects at random, so this is for plain builds.
func TestNoAllocations(t *testing.T) {
	for _, n := range []int{2, 100_000} {
		a, err := algo.Find(dtype.AllReduce, "ring")
		require.NoError(t, err)
		all := comms(t, 2, fixed{a})
		x, y := make([]float64, n), make([]float64, n)
		call := func(x []float64) *exec.Call {
			return &exec.Call{Coll: dtype.AllReduce, Type: dtype.F64, In: []exec.Block{block(x)}, Out: []exec.Block{block(x)}}
		}
		mine, theirs := call(x), call(y)
		const turns = 200
		go func() {
			for range turns + 1 { // AllocsPerRun adds one
				all[1].Run(theirs)
			}
		}()
		allocs := testing.AllocsPerRun(turns, func() { all[0].Run(mine) })
		require.Less(t, allocs, 1.0, "allocations an operation of %d elements", n)
	}
}

package group_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/group/route"
)

// The calls of a group of one rank do not go through the host: its device copies. So they can be
// part of a graph, like those of other groups.
func TestAlone(t *testing.T) {
	for _, captures := range []bool{false, true} {
		w := machine(t, 1, quick, auto, memory)
		require.Equal(t, route.Route{Name: "windows", Devices: 1}, w[0].Route())
		w[0].captures = captures
		length := func(_, _ int) int { return 100_000 } // would be in pieces if it were staged
		for _, op := range []ccl.Op{ccl.Sum, ccl.Avg, dtype.PremulSum} {
			for _, inPlace := range []bool{false, true} {
				call := ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: op, Factor: 0.3}
				same(t, w, call, inPlace, 1, length, length)
			}
		}
		same(t, w, ccl.Call{Coll: dtype.AllToAll, Type: dtype.U8}, false, 2, length, length)
		end(t, w)
	}
}

// A rank whose device does not come to the call says so, as in other groups.
func TestAloneIsLate(t *testing.T) {
	options := auto
	options.Timeout = 300 * time.Millisecond
	w := machine(t, 1, cudatest.Options{Delay: -1, Stuck: -1}, options, memory)
	w[0].driver.Hold(w[0].stream)
	op := w[0].begin(t, w[0].reduce(1000))
	_, err := op.Wait(hang)
	require.ErrorIs(t, err, fault.Timeout)
	require.ErrorContains(t, err, "the stream of this rank has not come to the call on device 0")
	w[0].driver.Release(w[0].stream)
	op.Free()
	bury(t, w)
}

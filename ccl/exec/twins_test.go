package exec_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
)

// TestLongBlocks runs collectives on long blocks, which are copied to the window and to Out in one
// pass: by new programs and by kept programs, in one piece and in several. Odd ranks store their
// results past the cache.
func TestLongBlocks(t *testing.T) {
	const ranks, slot = 2, 192 << 10
	window := catalogued("window")
	planner := plans{dtype.AllGather: window, dtype.Broadcast: window, dtype.AllToAll: window}
	comms := make([]*exec.Comm, ranks)
	for rank, m := range membersWith(t, "inproc", ranks, slot) {
		comms[rank] = m.comm(t, rank, planner)
	}
	sizes := []int{8_192, 8_193, 20_003, 100_001} // 32, 32, 80 and 400 KB
	each(t, ranks, func(rank int) error {
		for turn := range 4 * len(sizes) {
			for _, coll := range []dtype.Collective{dtype.AllGather, dtype.Broadcast, dtype.AllToAll} {
				if err := longBlocks(comms[rank], coll, sizes[turn%len(sizes)], turn); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for _, c := range comms {
		require.Equal(t, 9, exec.Programs(c), "three collectives of the three sizes that fit a slot")
	}
}

// longBlocks runs a collective on blocks of n elements: in half of the turns in place, if the
// collective can be.
func longBlocks(c *exec.Comm, coll dtype.Collective, n, turn int) error {
	ranks, rank, inPlace := c.Size(), c.Rank(), turn%8 > 3 && coll != dtype.AllToAll
	call := exec.Call{Coll: coll, Type: dtype.F32, Root: 1}
	in := make([][]float32, coll.InBlocks(ranks, rank, call.Root))
	out := make([][]float32, coll.OutBlocks(ranks, rank, call.Root))
	for i := range in {
		in[i] = vector(rank+2*i, n, turn)
	}
	for i := range out {
		out[i] = make([]float32, n)
	}
	if own := min(rank, len(out)-1); inPlace && len(in) > 0 {
		out[own] = slices.Clone(in[0])
		in[0] = out[own]
	}
	for _, x := range in {
		call.In = append(call.In, blockOf(x))
	}
	for _, x := range out {
		call.Out = append(call.Out, blockOf(x))
	}
	if err := c.Run(&call); err != nil {
		return err
	}
	for i, got := range out {
		want := map[dtype.Collective][]float32{
			dtype.AllGather: vector(i, n, turn),
			dtype.Broadcast: vector(call.Root, n, turn),
			dtype.AllToAll:  vector(i+2*rank, n, turn),
		}[coll]
		if !slices.Equal(want, got) {
			return fmt.Errorf("%v of %d elements, in place %v, turn %d: block %d is wrong", coll, n, inPlace, turn, i)
		}
	}
	return nil
}

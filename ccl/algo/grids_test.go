package algo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

func TestGrids(t *testing.T) {
	none := plan.Shape{}
	for name, want := range map[string][]plan.Shape{
		"ring":                        {none},
		"torus_2d":                    append([]plan.Shape{none}, algo.Shapes(12, 2)...),
		"hierarchical":                append([]plan.Shape{none}, append(algo.Shapes(12, 2), algo.Shapes(12, 3)...)...),
		"hierarchical.ring.ring":      algo.Shapes(12, 2),
		"hierarchical.ring.ring.ring": algo.Shapes(12, 3),
	} {
		a, err := algo.Find(dtype.AllReduce, name)
		require.NoError(t, err)
		require.Equal(t, want, a.Grids(12), name)
	}
	for _, s := range algo.Triples() {
		require.Contains(t, algo.Shapes(s[0]*s[1]*s[2], 3), s)
	}
}

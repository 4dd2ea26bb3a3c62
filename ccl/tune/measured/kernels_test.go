package measured

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
)

// Bounds are those of any machine: a test may share its core.
func TestKernels(t *testing.T) {
	table := cost.Usual()
	table.Copy, table.Reduce = cost.Work{Each: 1, Far: 2}, cost.Work{Each: 3, Far: 4}
	Kernels(table)
	require.Equal(t, []float64{1, 2, 3, 4},
		[]float64{table.Copy.Each, table.Copy.Far, table.Reduce.Each, table.Reduce.Far})
	for _, w := range []cost.Work{table.Copy, table.Reduce} {
		require.Positive(t, w.Byte)
		require.Less(t, w.Byte+w.Miss, 1e-8)
	}
}

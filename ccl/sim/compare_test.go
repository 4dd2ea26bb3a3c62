package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/sim"
)

func TestWinners(t *testing.T) {
	row := func(bytes int64, algorithm string, wins bool) sim.Row {
		return sim.Row{Bytes: bytes, Algorithm: algorithm, Wins: wins}
	}
	rows := []sim.Row{
		row(1, "a", true), row(1, "b", true), row(1, "c", false),
		row(2, "a", true), row(2, "b", true), row(2, "c", false),
		row(4, "b", true), row(4, "a", false), row(8, "c", true),
		row(9, "c", true), row(9, "a", true), row(10, "a", true),
	}
	want := []sim.Range{{1, 4, []string{"b"}}, {8, 9, []string{"c"}}, {10, 10, []string{"a"}}}
	require.Equal(t, want, sim.Winners(rows))
}

package statespace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrapped(t *testing.T) {
	for name, tt := range map[string]struct {
		states int
		ways   [][2]int32 // to, from
		goals  []int32
		want   int32
	}{
		"no state":          {0, nil, nil, -1},
		"a goal":            {1, nil, []int32{0}, -1},
		"no goal":           {2, [][2]int32{{1, 0}}, nil, 0},
		"a way":             {3, [][2]int32{{1, 0}, {2, 1}}, []int32{2}, -1},
		"a dead end":        {4, [][2]int32{{1, 0}, {2, 1}, {3, 1}}, []int32{2}, 3},
		"a circle":          {4, [][2]int32{{1, 0}, {2, 0}, {3, 2}, {2, 3}}, []int32{1}, 2},
		"a circle with end": {3, [][2]int32{{1, 0}, {0, 1}, {2, 1}}, []int32{2}, -1},
		"against the way":   {2, [][2]int32{{0, 1}}, []int32{1}, 0},
	} {
		require.Equal(t, tt.want, Trapped(tt.states, tt.ways, tt.goals), name)
	}
}

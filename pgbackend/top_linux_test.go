package pgbackend

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/internal/live"
)

// TestTop has rank 1 not make a call that rank 0 waits in, and asks as goccl top does.
func TestTop(t *testing.T) {
	groups := recorded(t, "GOCCL_RECORDER=16")
	groups[0].Describe("dp", []uint64{4, 5})
	barrier := ccl.Call{Coll: dtype.Barrier}
	for _, err := range each(t, groups, []int{0, 1}, func(g *Group) error { return g.Run(&barrier) }) {
		require.NoError(t, err)
	}
	work, err := groups[0].Start(&barrier)
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- work.Wait(context.Background()) }()
	defer work.Free()
	of := func(g *Group) (waits bool, text string) {
		told, err := live.Ask(os.Getpid())
		require.NoError(t, err)
		for _, each := range told.Groups {
			if each.Name != g.name {
				continue
			}
			require.Equal(t, []any{g.rank, 2, "1 by inproc"}, []any{each.Rank, each.Size, each.Routes})
			require.NotNil(t, each.Pace)
			if g == groups[0] {
				require.Equal(t, []any{"dp", 4}, []any{each.Description, each.JobRank})
				require.Less(t, each.For, forever.Seconds())
			}
			return len(each.Waits) == 1 && each.Waits[0] == 1-g.rank && each.Busy, fmt.Sprint(each.Op, " ", each.Seq)
		}
		t.Fatal("the group is missing")
		return false, ""
	}
	require.Eventually(t, func() bool {
		waits, text := of(groups[0])
		return waits && text == "barrier, seq 2 2"
	}, forever, time.Millisecond)
	waits, text := of(groups[1])
	require.False(t, waits)
	require.Equal(t, " 1", text, "it is in no call")
	require.NoError(t, groups[1].Run(&barrier))
	require.NoError(t, <-ended)
	waits, _ = of(groups[0])
	require.False(t, waits)
}

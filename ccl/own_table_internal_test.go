package ccl

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
)

// A user's table must be used, whatever its rows need.
func TestOwnTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.table")
	for _, rows := range []string{
		"all_reduce 2 any any any two_shot_window",
		"all_reduce 3 any any any two_shot_window",
		"all_reduce 2 any any any ring",
	} {
		if err := os.WriteFile(file, []byte("goccl tune table 2\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		node, comms, err := Local(ctx, 2, GroupOptions{Tune: file})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		x := [2][]float32{make([]float32, 1000), make([]float32, 1000)}
		for rank, c := range comms {
			x[rank][999] = float32(rank + 1)
			go func() { done <- AllReduce(ctx, c, x[rank], x[rank], Sum) }()
		}
		for range comms {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if x[0][999] != 3 || x[1][999] != 3 {
			t.Errorf("%s: the sum is %v and %v", rows, x[0][999], x[1][999])
		}
		node.Close()
	}
}

// The rows that the tables have for a group must run on the links that the group gets.
func TestTableRowsAreSupported(t *testing.T) {
	for _, row := range tune.DefaultTable().Rows() {
		for _, determinism := range []int{2, 4} {
			ranks := row.First
			for _, on := range []*topo.Group{topo.Spread(ranks, ranks), topo.Spread(ranks, 1)} {
				for _, on := range []*topo.Group{on, crowded(t, on)} {
					p := newPlanner(&GroupOptions{Determinism: determinism}, nil, on)
					channels, _ := p.needs()
					for _, slot := range []int{0, leastSlot} {
						p.group, p.last = on.WithSlot(slot), [dtype.Barrier + 1]choice{}
						size := min(row.Bytes, 1<<30)
						made, err := p.Make(p.Choose(row.Coll, size), plan.Spec{Coll: row.Coll, Ranks: ranks})
						if err != nil || made.Chans > channels || made.Needs&plan.Gets != 0 && !p.group.Windows() {
							t.Fatalf("%v at level %d: %v, %v", row, determinism, made, err)
						}
					}
				}
			}
		}
	}
}

// crowded returns a group like another one, whose ranks share one core.
func crowded(t *testing.T, group *topo.Group) *topo.Group {
	t.Helper()
	said := make([]topo.Rank, group.Size())
	for rank := range said {
		said[rank] = group.Rank(rank)
		said[rank].Cores, said[rank].Place.Network = "0", uint64(group.HostOf(rank))
		said[rank].Place.Machine = "one"
	}
	made, err := topo.Agree(said)
	require.NoError(t, err)
	require.Equal(t, group.Hosts(), made.Hosts())
	return made
}

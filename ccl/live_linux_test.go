package ccl_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/internal/live"
)

// TestTop asks as goccl top does: it is told of all groups of all Nodes but those that forbid it,
// oldest first, until they close.
func TestTop(t *testing.T) {
	shown := func() (names []string) {
		told, err := live.Ask(os.Getpid())
		require.NoError(t, err)
		require.Equal(t, []any{ccl.Version, os.Getpid()}, []any{told.Version, told.Pid})
		for _, g := range told.Groups {
			if slices.Contains([]string{"first", "second", "hidden"}, g.Name) && g.Rank == 1 {
				names = append(names, g.Name)
				require.Equal(t, []any{2, 1, "1 by inproc"}, []any{g.Size, g.JobRank, g.Routes})
			}
		}
		return names
	}
	_, err := live.Ask(os.Getpid())
	others := err == nil // Nodes of other tests
	var all []*ccl.Node
	open := func(name string, opts ccl.NodeOptions) []*ccl.Communicator {
		node := nodes(t, 1, opts)[0]
		all = append(all, node)
		return join(t, []*ccl.Node{node, node}, ccl.GroupOptions{}, name)
	}
	first := open("first", ccl.NodeOptions{})
	open("hidden", ccl.NodeOptions{NoTop: true})
	open("second", ccl.NodeOptions{})
	require.Equal(t, []string{"first", "second"}, shown())
	first[1].Describe("of a test", []uint64{3, 1})
	require.Equal(t, []string{"first", "second"}, shown())
	require.NoError(t, first[1].Close())
	require.Equal(t, []string{"second"}, shown())
	for _, node := range all { // the socket goes with the last
		require.NoError(t, node.Close())
	}
	_, err = live.Ask(os.Getpid())
	require.Equal(t, others, err == nil)
	open("first", ccl.NodeOptions{})
	require.Equal(t, []string{"first"}, shown())
}

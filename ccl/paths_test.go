package ccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

func TestApart(t *testing.T) {
	rank := func(process, machine string, network uint64, user uint32, transports ...string) topo.Rank {
		return topo.Rank{Process: process, Transports: transports,
			Place: topo.Place{Machine: machine, Network: network, User: user}}
	}
	said := []topo.Rank{
		rank("a", "here", 1, 1000, "shm", "tcp"),
		rank("b", "here", 1, 1000, "shm", "tcp"),
		rank("c", "here", 1, 1001, "shm", "tcp"),
		rank("d", "here", 2, 1000, "shm", "tcp"),
		rank("e", "here", 1, 1000, "tcp"),
		rank("f", "there", 1, 1000, "shm", "tcp"),
		rank("g", "here", 2, 1001, "shm", "tcp"),
		rank("a", "here", 1, 1000, "tcp"),
	}
	for i := range said {
		said[i].Number, said[i].Size = i, len(said)
	}
	group, err := topo.Agree(said)
	require.NoError(t, err)
	require.Equal(t, "ranks 3, 6: they are in another network namespace; "+
		"ranks 2: they belong to another user, or to one of another user namespace; "+
		"ranks 4: they have no shared memory", apart(group, 0, ""))
	require.Equal(t, "ranks 0, 1, 2, 3, 6, 7: without shm: a limit", apart(group, 4, "; without shm: a limit"))
	require.Empty(t, apart(group, 5, ""))
}

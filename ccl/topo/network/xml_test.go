package network

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// xmlFiles are such as tools write, each with its network beside it.
var xmlFiles = []string{"nvswitch", "nvlinks", "boards", "cloud", "hwloc1", "hwloc2", "hwloc3"}

func TestXML(t *testing.T) {
	for _, name := range xmlFiles {
		file, err := os.ReadFile("testdata/" + name + ".xml")
		require.NoError(t, err)
		topology, err := Read(strings.NewReader(string(file)))
		require.NoError(t, err, name)
		var text strings.Builder
		require.NoError(t, topology.WriteText(&text))
		golden(t, name+".topo", text.String())
		back, err := Read(strings.NewReader(text.String()))
		require.NoError(t, err)
		require.Equal(t, topology, back)
		reachable(t, topology)
	}
}

// reachable checks that all ranks reach each other.
func reachable(t *testing.T, topology *Topology) {
	router, err := NewRouter(topology)
	require.NoError(t, err)
	for from := range router.Ranks() {
		for to := range router.Ranks() {
			_, err := router.Route(nil, from, to)
			require.NoError(t, err, "%s: %d to %d", topology.Name, from, to)
		}
	}
}

package draw

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo/network"
)

// TestTopology draws networks that were found, and invented ones: the text is XML, the same each
// time, and has each node.
func TestTopology(t *testing.T) {
	var all []*network.Topology
	for _, name := range []string{"two_sockets", "bound", "bare"} {
		file, err := os.Open("../topo/network/testdata/" + name + ".topo")
		require.NoError(t, err)
		found, err := network.Read(file)
		file.Close()
		require.NoError(t, err)
		all = append(all, found)
	}
	for _, text := range []string{
		"nvlink:8", "pcie:8", "ring:8", "torus:4x4", "fattree:32", "dragonfly:3x2x2", "rail:4x8",
	} {
		invented, err := network.Parse(text, 8)
		require.NoError(t, err)
		all = append(all, invented)
	}
	for _, topology := range all {
		text, err := Topology(topology)
		require.NoError(t, err, topology.Name)
		again, err := Topology(topology)
		require.NoError(t, err)
		require.Equal(t, text, again)
		for _, n := range topology.Nodes {
			require.Contains(t, text, ">"+n.Name, topology.Name)
		}
		for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, topology.Name)
		}
	}
	large, err := network.Parse("uniform:4096", 0)
	require.NoError(t, err)
	_, err = Topology(large)
	require.ErrorContains(t, err, "too many to draw")
	_, err = Topology(&network.Topology{})
	require.Error(t, err)
}

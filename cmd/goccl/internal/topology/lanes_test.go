package topology

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

// gpus are those that a made-up library knows.
type gpus map[string]struct {
	links      map[string]int
	capability int
}

func (g gpus) Links(bus string) (map[string]int, error) {
	if _, known := g[bus]; !known {
		return nil, errors.New("unknown")
	}
	return g[bus].links, nil
}

func (g gpus) Capability(bus string) (int, error) {
	if g[bus].capability == 0 {
		return 0, errors.New("unknown")
	}
	return g[bus].capability, nil
}

func TestLanes(t *testing.T) {
	devices := []topo.Device{
		{Kind: topo.Interface, Name: "eth0", Bus: []string{"0000:01:00.0"}},
		{Kind: topo.GPU, Name: "gpu0", Bus: []string{"pci0000:00", "0000:01:00.0"}},
		{Kind: topo.GPU, Name: "gpu1", Bus: []string{"0000:02:00.0"}},
		{Kind: topo.GPU, Name: "hidden", Bus: []string{"0000:03:00.0"}},
		{Kind: topo.GPU, Name: "elsewhere"},
	}
	addLanes(devices, gpus{
		"0000:01:00.0": {map[string]int{"0000:ab:00.0": 2, "0000:02:00.0": 4}, 90},
		"0000:02:00.0": {map[string]int{"0000:01:00.0": 4}, 0},
	})
	require.Equal(t, []topo.Lane{{To: "0000:02:00.0", Count: 4, Rate: 82.4e9},
		{To: "0000:ab:00.0", Count: 2, Rate: 41.2e9}}, devices[1].Lanes)
	require.Equal(t, []topo.Lane{{To: "0000:01:00.0", Count: 4}}, devices[2].Lanes)
	for _, i := range []int{0, 3, 4} {
		require.Nil(t, devices[i].Lanes)
	}
}

package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport/tcp"
)

func TestCongestionFinding(t *testing.T) {
	system, short, err := tcp.Congestion("")
	require.NoError(t, err)
	found := congestionFinding("")
	require.Equal(t, topo.OK, found.State)
	require.Contains(t, found.Value, short)
	require.Equal(t, topo.Finding{Name: "congestion control", State: topo.OK, Value: system},
		congestionFinding(tcp.SystemCongestion))
	require.Contains(t, congestionFinding("reno").Value, "reno")
	found = congestionFinding("no-such")
	require.Equal(t, topo.Missing, found.State)
	require.Contains(t, found.Value, "GOCCL_SOCKET_CONGESTION=no-such: the system does not have it")
}

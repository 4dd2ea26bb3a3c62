package ccl

import (
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/stretchr/testify/require"
)

func TestServiceLinks(t *testing.T) {
	for _, line := range []string{
		"GOCCL_PORT=tcp://10.0.0.1:29400", "GOCCL_PORT=udp://[fd00::1]:53", "GOCCL_SERVICE_HOST=10.0.0.1",
		"GOCCL_SERVICE_PORT=29400",
		"GOCCL_SERVICE_PORT_RDZV=29400", "GOCCL_PORT_29400_TCP=tcp://10.0.0.1:29400", "GOCCL_PORT_29400_TCP_PROTO=tcp",
		"GOCCL_PORT_29400_TCP_PORT=29400", "GOCCL_PORT_29400_TCP_ADDR=10.0.0.1", "GOCCL_X_SERVICE_HOST=fd00::1",
		"GOCCL_X_Y_PORT=sctp://10.0.0.1:1", "GOCCL_X_PORT_80_UDP_ADDR=10.0.0.1", "GOCCL_SOCKET_PORT=tcp://10.0.0.1:1",
	} {
		o, err := ParseOptions(line)
		require.NoError(t, err, line)
		require.Len(t, o.serviceLinks, 1, line)
		require.Empty(t, o.String(), line)
	}
	for _, line := range []string{
		"GOCCL_PORT=tcp:29400", "GOCCL_PORT=10.0.0.1", "GOCCL_X_PORT=80", "GOCCL_X=tcp://10.0.0.1:1",
		"GOCCL_SERVICE_HOST=eth0!",
		"GOCCL_PORT_TCP=tcp://10.0.0.1:1", "GOCCL_TRANSPROT=tcp",
	} {
		_, err := ParseOptions(line)
		require.ErrorIs(t, err, fault.Invalid, line)
	}
	o, err := ParseOptions("GOCCL_PORT=tcp://10.0.0.1:29400\nGOCCL_PORT=29600-29700")
	require.NoError(t, err)
	require.Equal(t, "29600-29700", o.Port)
}

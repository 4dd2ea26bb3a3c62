package ccl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortOption(t *testing.T) {
	for text, want := range map[string][2]int{"": {}, "29600": {29600, 29600}, "29600-29700": {29600, 29700}} {
		o, err := ParseOptions("GOCCL_PORT=" + text)
		require.NoError(t, err)
		first, last, err := portsOf(o.Port)
		require.NoError(t, err)
		require.Equal(t, want, [2]int{first, last})
	}
	for _, text := range []string{"0", "-1", "70000", "29700-29600", "29600-", "a", "1-2-3", "29600-70000"} {
		_, err := ParseOptions("GOCCL_PORT=" + text)
		require.ErrorContains(t, err, "write 29600 or 29600-29700", text)
	}
}

func TestFamilyOption(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ipv4": "ipv4", "AF_INET": "ipv4", "AF_INET6": "ipv6", "IPv6": "ipv6"} {
		o, err := ParseOptions("GOCCL_SOCKET_FAMILY=" + text)
		require.NoError(t, err)
		require.Equal(t, want, o.SocketFamily)
	}
	_, err := ParseOptions("GOCCL_SOCKET_FAMILY=ipx")
	require.ErrorContains(t, err, "ipv4 or ipv6")
}

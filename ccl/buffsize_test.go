package ccl_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
)

func TestBuffSizeText(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "128K": 128 << 10, "131072": 128 << 10, "256kib": 256 << 10, "256kb": 256000, "2M": 2 << 20,
		"3mib": 3 << 20, "1.5M": 3 << 19, "200000": 200000, "200000B": 200000, "32M": 32 << 20,
	} {
		opts, err := ccl.ParseOptions("GOCCL_BUFFSIZE=" + text)
		require.NoError(t, err, text)
		require.Equal(t, want, opts.BuffSize, text)
		back, err := ccl.ParseOptions(opts.String())
		require.NoError(t, err)
		require.Equal(t, opts, back)
	}
	for text, why := range map[string]string{
		"0": "from 128K to 32M", "64K": "from 128K to 32M", "33M": "from 128K to 32M", "1G": "from 128K to 32M",
		"4G": "from 128K to 32M", "2T": "from 128K to 32M", "M": "want bytes", "-1": "want bytes",
		"2MM": "want bytes", "99999999999G": "want bytes",
	} {
		_, err := ccl.ParseOptions("GOCCL_BUFFSIZE=" + text)
		require.ErrorIs(t, err, fault.Invalid, text)
		require.ErrorContains(t, err, "GOCCL_BUFFSIZE="+text+": want ", text)
		require.ErrorContains(t, err, why, text)
	}
	require.ErrorIs(t, (&ccl.Options{GroupOptions: ccl.GroupOptions{BuffSize: 1}}).Validate(), fault.Invalid)
	require.ErrorIs(t, (&ccl.Options{GroupOptions: ccl.GroupOptions{BuffSize: -1}}).Validate(), fault.Invalid)
	var opts ccl.Options
	opts.EnsureDefaults()
	require.Equal(t, 2<<20, opts.BuffSize)
}

// The windows of a group must be as large as the options ask for, and collectives over them right:
// in many pieces where the windows are small.
func TestBuffSize(t *testing.T) {
	windows := func(transport string, buffSize int) int64 {
		before := mem.InUse()
		comms := group(t, transport, 3, ccl.GroupOptions{BuffSize: buffSize, Algo: overWindows})
		used := mem.InUse() - before
		each(t, 3, func(rank int) error { return oneOfEach(comms[rank], 30_000, 1) })
		return used
	}
	// Each rank maps its own window and, between processes, those of its peers.
	for transport, maps := range map[string]int64{"inproc": 3, "shm": 9} {
		usual := windows(transport, 0)
		sizes := []int{128 << 10}
		if !testing.Short() {
			sizes = append(sizes, 6<<20, 2<<20, 200_000&^127)
		}
		for _, bytes := range sizes {
			require.Equal(t, usual+maps*int64(bytes-2<<20), windows(transport, bytes), "%s, %d bytes", transport, bytes)
		}
	}
}

func TestBuffSizeIsAgreed(t *testing.T) {
	all := nodes(t, 2, ccl.NodeOptions{})
	var addresses [][]byte
	var endpoints []*ccl.Endpoint
	for rank, node := range all {
		e, err := node.Open(ccl.Config{Name: "test", Rank: rank, Size: 2,
			Options: ccl.GroupOptions{BuffSize: (rank + 1) << 20}})
		require.NoError(t, err)
		endpoints, addresses = append(endpoints, e), append(addresses, e.Address())
	}
	for _, e := range endpoints {
		_, err := e.Join(context.Background(), addresses)
		require.ErrorIs(t, err, fault.Mismatch)
		require.ErrorContains(t, err, "GOCCL_BUFFSIZE=1M")
		require.ErrorContains(t, err, "GOCCL_BUFFSIZE=2M")
	}
}

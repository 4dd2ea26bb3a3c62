package group_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda/cudatest"
)

// network makes a device group whose ranks are on several machines: those of a host share memory,
// and between hosts there is TCP. hosts says on which each rank is.
func network(t testing.TB, hosts []int, device cudatest.Options, opts ccl.GroupOptions, memory int) []*rank {
	t.Helper()
	devices := make([]cudatest.Options, slices.Max(hosts)+1)
	for host := range devices {
		devices[host] = device
		devices[host].Seed = device.Seed*100 + uint64(host)
	}
	ranks := networkWith(t, hosts, devices, opts, memory)
	opts.CudaRoute = ""
	for i, comm := range localOf(t, hosts, opts) {
		ranks[i].cpu = comm
	}
	return ranks
}

// networkWith is network with different machines, and without a group on the processor.
func networkWith(t testing.TB, hosts []int, devices []cudatest.Options, opts ccl.GroupOptions, memory int) []*rank {
	t.Helper()
	machines := make([]*cudatest.Driver, len(devices))
	for host := range machines {
		devices[host].Apart = true
		machines[host] = cudatest.New(devices[host])
		t.Cleanup(machines[host].Close)
	}
	var drivers []*cudatest.Driver
	for _, host := range hosts {
		drivers = append(drivers, machines[host])
	}
	return ranksOf(t, localOf(t, hosts, opts), drivers, max(1, devices[0].Devices), opts, memory)
}

// networkOf returns the hosts of ranks that follow each other.
func networkOf(each, hosts int) (of []int) {
	for rank := range each * hosts {
		of = append(of, rank/each)
	}
	return of
}

// localOf makes a group of ranks of this process that take themselves for ranks of the given hosts.
func localOf(t testing.TB, hosts []int, opts ccl.GroupOptions) []*ccl.Communicator {
	t.Helper()
	return joined(t, hosts, opts, nil)
}

// joined is localOf, or if there are windows, makes a group of ranks that take themselves for
// processes.
func joined(t testing.TB, hosts []int, opts ccl.GroupOptions, windows []*ccl.DeviceWindow) []*ccl.Communicator {
	t.Helper()
	if opts.Transport == "" {
		opts.Transport = "auto"
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	nodes := map[int]*ccl.Node{}
	endpoints, addresses := make([]*ccl.Endpoint, len(hosts)), make([][]byte, len(hosts))
	for rank, host := range hosts {
		config := ccl.Config{Name: "network", Rank: rank, Size: len(hosts), Options: opts}
		process := host
		if windows != nil {
			process, config.Share = rank, windows[rank].Descriptors()
		}
		var err error
		if nodes[process] == nil {
			nodes[process], err = ccl.NewNode(ccl.NodeOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { nodes[process].Close() })
		}
		endpoints[rank], err = nodes[process].Open(config)
		require.NoError(t, err)
		address := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal(endpoints[rank].Address(), &address))
		place := topo.Place{}
		require.NoError(t, json.Unmarshal(address["place"], &place))
		place.Network = uint64(host)
		address["place"], err = json.Marshal(place)
		require.NoError(t, err)
		addresses[rank], err = json.Marshal(address)
		require.NoError(t, err)
	}
	comms := make([]*ccl.Communicator, len(hosts))
	for _, err := range each(len(hosts), func(rank int) (err error) {
		comms[rank], err = endpoints[rank].Join(ctx, addresses)
		return err
	}) {
		require.NoError(t, err)
	}
	return comms
}

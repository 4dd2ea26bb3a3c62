package ccl_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// deadline detects a hang: no test here takes a tenth of it.
const deadline = 60 * time.Second

// group joins n ranks over one transport: "inproc" (one Node), "shm", "rdma" or "tcp" (one Node per
// rank, as if each were in a process of its own).
func group(t testing.TB, transport string, n int, opts ccl.GroupOptions) []*ccl.Communicator {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	if transport == "inproc" {
		node, comms, err := ccl.Local(ctx, n, opts)
		require.NoError(t, err)
		t.Cleanup(func() { node.Close() })
		return comms
	}
	opts.Transport = transport
	return join(t, nodesFor(t, n, transport), opts, "test")
}

// adapters has the next n Nodes find adapters: those of the machine, or else one each, with two
// ports, of a network in memory, which it returns.
func adapters(t testing.TB, n int) *verbstest.Network {
	if library, err := verbs.Open(); err == nil {
		if devices, err := library.Devices(); err == nil && len(devices) > 0 {
			return nil
		}
	}
	network := verbstest.New(verbstest.Options{Hosts: n, Ports: 2, Delay: -1})
	t.Cleanup(network.Close)
	var next atomic.Int32
	t.Cleanup(ccl.SetVerbs(func() (verbs.Library, error) { return network.Host(int(next.Add(1)-1) % n), nil }))
	return network
}

// nodesFor makes Nodes for groups over a transport: for "rdma" each has adapters.
func nodesFor(t testing.TB, n int, transport string) []*ccl.Node {
	if transport == "rdma" {
		adapters(t, n)
	}
	return nodes(t, n, ccl.NodeOptions{})
}

func nodes(t testing.TB, n int, opts ccl.NodeOptions) []*ccl.Node {
	all := make([]*ccl.Node, n)
	for i := range all {
		var err error
		all[i], err = ccl.NewNode(opts)
		require.NoError(t, err)
		t.Cleanup(func() { all[i].Close() })
	}
	return all
}

func join(t testing.TB, nodes []*ccl.Node, opts ccl.GroupOptions, name string) []*ccl.Communicator {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	endpoints := make([]*ccl.Endpoint, len(nodes))
	addresses := make([][]byte, len(nodes))
	for rank, node := range nodes {
		var err error
		endpoints[rank], err = node.Open(ccl.Config{Name: name, Rank: rank, Size: len(nodes), Timeout: deadline,
			Options: opts})
		require.NoError(t, err)
		addresses[rank] = endpoints[rank].Address()
	}
	comms := make([]*ccl.Communicator, len(nodes))
	each(t, len(nodes), func(rank int) error {
		var err error
		comms[rank], err = endpoints[rank].Join(ctx, addresses)
		return err
	})
	return comms
}

// each runs every rank in a goroutine and fails for the ranks that fail or do not return.
func each(t testing.TB, n int, run func(rank int) error) {
	t.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for rank := range n {
		group.Go(func() { errs[rank] = run(rank) })
	}
	back := make(chan struct{})
	go func() { group.Wait(); close(back) }()
	select {
	case <-back:
	case <-time.After(deadline):
		t.Fatal("HANG: not all ranks came back")
	}
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
	}
}

var allTransports = []string{"inproc", "shm", "rdma", "tcp"}

// noise is what input takes its elements from: small integers, so that sums are exact in every
// type. The length is prime, so that no two chunks are alike.
var noise = func() []float32 {
	r, x := rand.New(rand.NewPCG(1, 1)), make([]float32, 131_071)
	for i := range x {
		x[i] = float32(r.IntN(64) - 32)
	}
	return x
}()

// input returns the contribution of a rank to one part of a test. It copies its elements: under the
// race detector a loop takes long.
func input(rank, n, part int) []float32 {
	x := make([]float32, n)
	from := rand.NewPCG(uint64(rank), uint64(part)).Uint64() % uint64(len(noise))
	for done := copy(x, noise[from:]); done < n; {
		done += copy(x[done:], noise)
	}
	return x
}

// sums returns the sum of the inputs of some ranks. No other goroutine sees what it writes.
//
//go:norace
func sums(ranks, n, part int) []float32 {
	total := make([]float32, n)
	for r := range ranks {
		for i, v := range input(r, n, part) {
			total[i] += v
		}
	}
	return total
}

func same(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	if bytes.Equal(bytesOf(got), bytesOf(want)) {
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(got), got[i], want[i])
		}
	}
	return nil
}

func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

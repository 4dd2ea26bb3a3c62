package ccl_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

var (
	overLoopback = ccl.GroupOptions{Transport: "tcp"}
	onLoopback   = ccl.NodeOptions{SocketIfname: "lo"}
)

// BenchmarkJoin measures what a group over TCP costs a rank that has not used it: bytes of heap and
// processor time, for each peer. Of the others only those next to rank 0 in the ring join, too.
func BenchmarkJoin(b *testing.B) {
	for _, ranks := range []int{64, 256, 1024} {
		b.Run(fmt.Sprint(ranks), func(b *testing.B) {
			nodes := make([]*ccl.Node, ranks)
			for i := range nodes {
				var err error
				nodes[i], err = ccl.NewNode(onLoopback)
				require.NoError(b, err)
				defer nodes[i].Close()
			}
			var bytes, took float64
			for n := 0; b.Loop(); n++ {
				more, time := joinInto(b, nodes, fmt.Sprint("group ", n))
				bytes, took = bytes+more, took+time.Seconds()
			}
			b.ReportMetric(bytes/float64(b.N*ranks), "B/peer")
			b.ReportMetric(took*1e6/float64(b.N*ranks), "µs/peer")
		})
	}
}

// joinInto lets rank 0 join, and returns by how much the heap and the processor time of its process
// grew: a third of what they did for it and the two others.
func joinInto(b *testing.B, nodes []*ccl.Node, name string) (bytes float64, took time.Duration) {
	endpoints, addresses := make([]*ccl.Endpoint, len(nodes)), make([][]byte, len(nodes))
	for rank, node := range nodes {
		var err error
		endpoints[rank], err = node.Open(ccl.Config{
			Name: name, Rank: rank, Size: len(nodes), Timeout: time.Minute, Options: overLoopback})
		require.NoError(b, err)
		addresses[rank] = endpoints[rank].Address()
	}
	before, begun := heap(), processorTime(b)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for _, rank := range []int{1, len(nodes) - 1} {
		group.Go(func() {
			if comm, err := endpoints[rank].Join(ctx, addresses); err == nil { // its other neighbour is not there
				comm.Close()
			}
		})
	}
	comm, err := endpoints[0].Join(ctx, addresses)
	took = (processorTime(b) - begun) / 3
	require.NoError(b, err)
	bytes = (heap() - before) / 3
	cancel()
	group.Wait()
	comm.Close()
	return bytes, took
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

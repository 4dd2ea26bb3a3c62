//go:build !race

package rdma

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestNoAllocations sends fragments of all kinds.
func TestNoAllocations(t *testing.T) {
	for _, ports := range []int{1, 2} {
		t.Run(fmt.Sprintf("Ports=%d", ports), func(t *testing.T) { testNoAllocations(t, ports) })
	}
}

func testNoAllocations(t *testing.T, ports int) {
	n := network(t, verbstest.Options{Delay: -1, Ports: ports})
	ends := linked(t, n, nil, 1)
	settle(t, ends, preferred(ports))
	a, b, x, y := ends[0][0].f, ends[0][1].f, ends[0][0].link, ends[0][1].link
	defer x.Close()
	defer y.Close()
	from, to := x.Channel(0), y.Channel(0)
	m := &transport.Meta{1, 2, 3}
	memory, in := pinned(t, a.Fabric, 1<<16), from.(transport.Gatherer)
	inPlace := func() {
		for range 20 {
			for n := 0; n == 0; n, _ = in.Gather(memory, m) {
				a.Poll()
				runtime.Gosched()
			}
			for {
				if _, m := to.Look(); m != nil {
					to.Release()
					break
				}
				b.Poll()
				runtime.Gosched()
			}
			for !in.Sent() {
				a.Poll()
				runtime.Gosched()
			}
		}
	}
	inPlace()
	require.Zero(t, testing.AllocsPerRun(20, inPlace), "in place")
	for _, bytes := range []int{0, 8, 1000, 20000, 1 << 16} {
		trip := func() {
			for range 20 {
				for space := from.Reserve(bytes); ; space = from.Reserve(bytes) {
					if space != nil {
						from.Commit(len(space), m)
						break
					}
					a.Poll()
					runtime.Gosched()
				}
				for {
					if _, m := to.Look(); m != nil {
						to.Release()
						break
					}
					b.Poll()
					runtime.Gosched()
				}
			}
		}
		trip()
		require.Zero(t, testing.AllocsPerRun(20, trip), "%d bytes", bytes)
	}
	require.True(t, a.pairs[string(b.Address())].works())
}

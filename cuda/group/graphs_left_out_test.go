//go:build !race

package group_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Whatever orders something in a replay is needed, but for the words by which the host learns what
// the stream waits for: those that have positions, and the ticks. In a longer graph it is not: a
// rank that has signalled again has left its slot before.
func TestGraphsEachOrderingCounts(t *testing.T) {
	for coll, count := range map[dtype.Collective]int{dtype.AllReduce: 2000, dtype.Broadcast: 12_000} {
		t.Run(coll.String(), func(t *testing.T) { eachReplayedCounts(t, coll, count) })
	}
}

func eachReplayedCounts(t *testing.T, coll dtype.Collective, count int) {
	written := regexp.MustCompile(`write (\d+) to (.*), at `)
	told := map[string]bool{}
	total, _, found := lameReplays(t, coll, count, -1, func(o cudatest.Ordering) {
		if w := written.FindStringSubmatch(o.Text); w != nil {
			if value, _ := strconv.ParseUint(w[1], 10, 64); value >= 1<<32 {
				told[w[2]] = true
			}
		}
	})
	require.Empty(t, found)
	require.Len(t, told, 2, "one word of each rank")
	needed := 0
	for n := range total {
		_, left, found := lameReplays(t, coll, count, n, nil)
		w := written.FindStringSubmatch(left.Text)
		if w != nil && told[w[2]] || strings.Contains(left.Text, "goccl_tick") {
			continue
		}
		needed++
		require.NotEmpty(t, found, "ordering call %d of %d may be left out: %s", n, total, left)
	}
	require.Greater(t, needed, 15)
}

// lameReplays replays a graph of two ranks four times, the second time with one of the ordering
// calls left out.
func lameReplays(t *testing.T, coll dtype.Collective, count, leaveOut int,
	see func(cudatest.Ordering)) (total int, left cudatest.Ordering, found []cudatest.Report) {
	replay := 0
	device := cudatest.Options{Delay: -1, Stuck: 100 * time.Millisecond, LeaveOut: func(o cudatest.Ordering) bool {
		if replay != 2 || !strings.Contains(o.Text, "lane") {
			return false
		}
		if see != nil {
			see(o)
		}
		total++
		if total-1 == leaveOut {
			left = o
		}
		return total-1 == leaveOut
	}}
	opts := overWindows
	opts.CudaGraphs = 1
	w := machine(t, 2, device, opts, 1<<20)
	graph := graphs(t, w, func(r *rank) error {
		call := &ccl.Call{Coll: coll, Type: dtype.I32, Op: ccl.Sum, Root: 1, Out: r.part(0, count)}
		if coll == dtype.AllReduce || r.Rank() == 1 {
			call.In = call.Out
		}
		return r.enqueue(call)
	})
	w[0].driver.Hold(w[0].stream) // nothing begins before all is enqueued
	for replay = 1; replay <= 4; replay++ {
		for i, r := range w {
			data := random(uint64(10*replay+i), 4*count)
			at := replay * 200 << 10 // each in memory of the host of its own
			require.NoError(t, r.ctx.Enter(false))
			copy(r.host.Host()[at:], data)
			r.observe(at, len(data), true)
			require.NoError(t, r.stream.Copy(r.device.Ptr(), r.host.Ptr()+cuda.Ptr(at), len(data)))
			r.ctx.Leave()
		}
		launch(t, w, graph)
	}
	w[0].driver.Release(w[0].stream)
	begin := time.Now()
	for _, r := range w {
		require.NoError(t, r.ctx.Enter(false))
		for len(w[0].driver.Reports()) == 0 {
			done, err := r.stream.Done()
			require.NoError(t, err)
			if done {
				break
			}
			require.Less(t, time.Since(begin), hang, fmt.Sprint(left))
			time.Sleep(100 * time.Microsecond)
		}
		r.ctx.Leave()
	}
	found = w[0].driver.Reports()
	for _, r := range w {
		r.DeviceGroup.Close()
	}
	return total, left, found
}

package group_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// enqueueing are the calls to a driver that put something into streams.
var enqueueing = []string{"cuMemcpyAsync", "cuStreamBatchMemOp", "cuStreamWaitEvent", "cuEventRecord",
	"cuLaunchKernelEx"}

// enqueued counts those of all ranks.
func enqueued(w []*rank) (n int) {
	for _, r := range firstOfEach(w) {
		for _, call := range enqueueing {
			n += r.driver.Calls(call)
		}
	}
	return n
}

// A piece of a long call takes at most 9 calls of the driver, whatever the number of ranks: the
// copies into the window are one, and so are those out of the windows of the others.
func TestCallsOfAPiece(t *testing.T) {
	for _, ranks := range []int{2, 8} {
		for _, opts := range eitherWindows {
			t.Run(fmt.Sprint(ranks, " ranks, ", opts.CudaRoute), func(t *testing.T) {
				w := machine(t, ranks, quick, opts, memory)
				calls := func(bytes int) int {
					before := enqueued(w)
					for _, err := range each(ranks, func(i int) error { return w[i].issue(w[i].reduce(bytes / 4)) }) {
						require.NoError(t, err)
					}
					return enqueued(w) - before
				}
				const slot = 128 << 10
				one, some, more := calls(slot), calls(3*slot), calls(11*slot)
				t.Logf("one piece: %d calls a rank; each more: %d, then %.1f", one/ranks, (some-one)/2/ranks,
					float64(more-some)/8/float64(ranks))
				require.LessOrEqual(t, one, 20*ranks)
				require.LessOrEqual(t, more-some, 8*9*ranks)
				end(t, w)
			})
		}
	}
}

// No word is written that the same batch writes again, with no wait in between.
func TestNoWordIsOverwritten(t *testing.T) {
	var mu sync.Mutex
	last := map[string]map[string]string{} // by stream: what it has written since it waited or did something else
	var twice []string
	device := quick
	device.Trace = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		stream, what, _ := strings.Cut(line, ", operation ")
		_, what, _ = strings.Cut(what, ": ")
		words, isWord := strings.CutPrefix(what, "words: write ")
		if !isWord {
			last[stream] = nil
			return
		}
		_, at, _ := strings.Cut(words, " to ")
		if last[stream] == nil {
			last[stream] = map[string]string{}
		}
		if before := last[stream][at]; before != "" {
			twice = append(twice, before+"\n"+line)
		}
		last[stream][at] = line
	}
	w := machine(t, 3, device, overWindows, memory)
	mu.Lock()
	twice = nil // the ranks have joined
	mu.Unlock()
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.AllGather, dtype.AllToAll} {
		length := func(_, _ int) int { return 70_000 }
		same(t, w, ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum}, true, 5, length, length)
	}
	mu.Lock()
	require.Empty(t, slices.Compact(twice))
	mu.Unlock()
	end(t, w)
}

// A group has few streams until it sends messages, at any number of ranks: those of collectives,
// and of windows. A message takes a stream on either side.
func TestStreamsAtFirstUse(t *testing.T) {
	for _, ranks := range []int{2, 16} {
		for _, route := range []string{"staged", "windows"} {
			t.Run(fmt.Sprint(ranks, " ranks, ", route), func(t *testing.T) {
				opts := overWindows
				opts.CudaRoute = route
				w := machine(t, ranks, quick, opts, 64<<10)
				own := func() int { // without the stream of the test
					return w[0].driver.Calls("cuStreamCreateWithPriority") - ranks
				}
				for _, err := range each(ranks, func(i int) error { return w[i].issue(w[i].reduce(1000)) }) {
					require.NoError(t, err)
				}
				t.Logf("%d streams a group", own()/ranks)
				require.LessOrEqual(t, own(), 10*ranks)
				before := own()
				for range 3 { // the first one makes the streams
					for _, err := range each(2, func(i int) error {
						return w[i].issue(w[i].message([]dtype.Collective{dtype.Send, dtype.Recv}[i], 1-i, 0, 1000, 0))
					}) {
						require.NoError(t, err)
					}
				}
				require.Equal(t, before+2, own())
				end(t, w)
			})
		}
	}
}

package ccl_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// wire counts what the adapters of all ranks read: in place, and from slots.
type wire struct {
	network        *verbstest.Network // nil for adapters of the machine
	inPlace, slots atomic.Int64
}

// wired joins ranks whose links go by RDMA.
func wired(t testing.TB, ranks int) (*wire, []*ccl.Node, []*ccl.Communicator) {
	w := &wire{network: adapters(t, ranks)}
	t.Cleanup(func() {
		if w.network != nil {
			w.network.Check(t)
			require.Empty(t, w.network.Leaks())
		}
	})
	all := nodes(t, ranks, ccl.NodeOptions{})
	comms := join(t, all, ccl.GroupOptions{Transport: "rdma"}, "test")
	for host := range ranks {
		if w.network != nil {
			w.network.Tap(host, func(x verbs.Write) {
				if w.inPlace.Add(int64(x.From[1].Bytes)); x.From[1].Bytes == 0 {
					w.slots.Add(int64(x.From[0].Bytes))
				}
			})
		}
	}
	return w, all, comms
}

// Long messages from registered memory go in place, from any rank that has some, and have the same
// results; the memory may be written as soon as the call has ended.
func TestGathered(t *testing.T) {
	colls := []dtype.Collective{dtype.AllGather, dtype.AllReduce, dtype.ReduceScatter, dtype.AllToAll, dtype.Broadcast,
		dtype.Reduce, dtype.Gather, dtype.Scatter}
	var intermediate int64
	for _, ranks := range []int{2, 3} {
		if testing.Short() && ranks == 2 {
			continue
		}
		w, all, comms := wired(t, ranks)
		sizes := []int{20_000, 150_001}
		most := slices.Max(sizes) * ranks
		registered, given := operands(t, all, most)
		for _, coll := range colls {
			for _, n := range sizes {
				var want [][]float32
				for _, who := range []string{"none", "all", "first", "all"} {
					name := fmt.Sprintf("%v, %d ranks, %d elements, registered: %s", coll, ranks, n, who)
					got := make([][]float32, ranks)
					w.inPlace.Store(0)
					w.slots.Store(0)
					each(t, ranks, func(rank int) error {
						in, out := make([]float32, n*ranks), make([]float32, n*ranks)
						if who == "all" || who == "first" && rank == 0 {
							in, out = registered[rank][0][:n*ranks], registered[rank][1][:n*ranks]
						}
						copy(in, given[rank])
						clear(out)
						call := lentCall(coll, rank, ranks, n, false, in, out)
						if err := comms[rank].Do(background, call); err != nil {
							return fmt.Errorf("%s: %w", name, err)
						}
						got[rank] = written(call)
						clear(in)
						clear(out)
						return nil
					})
					if want == nil {
						want = got
					}
					for r := range want {
						require.True(t, slices.Equal(want[r], got[r]), "%s: rank %d", name, r)
					}
					if who == "none" {
						intermediate += w.inPlace.Load()
					}
					if w.network == nil || who != "all" {
						continue
					}
					if n == slices.Min(sizes) {
						require.Zero(t, w.inPlace.Load(), name)
						continue
					}
					require.GreaterOrEqual(t, w.inPlace.Load(), int64(4*n), name)
					require.Less(t, w.slots.Load(), int64(2000), "%s: ranks that ask each other need no more", name)
				}
			}
		}
		if w.network != nil && ranks == 3 {
			require.NotZero(t, intermediate, "no plan has sent intermediate results in place")
		}
	}
}

// A call that fails has its memory back: no adapter reads it any more, and it can be freed,
// although a peer does not take what was sent, or nothing gets through.
func TestGatheredCallFails(t *testing.T) {
	for name, disturb := range map[string]func(w *wire, peer *ccl.Communicator) (comes bool){
		"the peer does not come": func(*wire, *ccl.Communicator) bool { return false },
		"the path is cut":        func(w *wire, _ *ccl.Communicator) bool { w.network.Cut(0, 1); return true },
		"the peer aborts":        func(_ *wire, peer *ccl.Communicator) bool { peer.Abort("why not"); return false },
		"the peer leaves":        func(_ *wire, peer *ccl.Communicator) bool { peer.Close(); return false },
	} {
		for _, end := range []string{"abort", "timeout", "close"} {
			t.Run(name+"/"+end, func(t *testing.T) {
				w, all, comms := wired(t, 2)
				if w.network == nil {
					t.Skip("the paths of this machine's adapters cannot be disturbed")
				}
				const n = 300_000
				memory := make([][]byte, 2)
				call := func(rank int) *ccl.Call {
					var err error
					memory[rank], err = all[rank].Alloc(4 * n)
					require.NoError(t, err)
					return allReduceCall(unsafe.Slice((*float32)(unsafe.Pointer(&memory[rank][0])), n))
				}
				calls := []*ccl.Call{call(0), call(1)}
				each(t, 2, func(rank int) error { return comms[rank].Do(background, calls[rank]) })
				if end == "timeout" {
					comms[0].SetTimeout(100 * time.Millisecond)
				}
				works := make([]*ccl.Work, 2)
				if disturb(w, comms[1]) {
					var err error
					works[1], err = comms[1].Start(calls[1])
					require.NoError(t, err)
				}
				var err error
				if works[0], err = comms[0].Start(calls[0]); err == nil {
					time.AfterFunc(20*time.Millisecond, map[string]func(){
						"abort":   func() { comms[0].Abort("the test says so") },
						"timeout": func() {},
						"close":   func() { comms[0].Close() },
					}[end])
					begun := time.Now()
					require.Error(t, works[0].Wait(background))
					require.Less(t, time.Since(begun), 3*time.Second)
				}
				if works[1] != nil {
					require.Error(t, works[1].Wait(background))
				}
				for rank := range memory {
					for i := range memory[rank] {
						memory[rank][i] = 0xee
					}
					comms[rank].Close()
					require.NoError(t, all[rank].Free(memory[rank]))
				}
				each(t, 2, func(rank int) error { return all[rank].Close() })
			})
		}
	}
}

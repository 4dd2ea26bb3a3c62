package ccl_test

import (
	"context"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// A wait that ends before its operation changes nothing: the operation goes on, a later wait gets
// its end, and the other rank learns nothing of it.
func TestAnOperationOutlastsAWait(t *testing.T) {
	const short = 10 * time.Millisecond
	call := func(coll dtype.Collective, memory []float32, peer int) *ccl.Call {
		block := []ccl.Block{{Ptr: unsafe.Pointer(&memory[0]), Count: len(memory)}}
		c := &ccl.Call{Coll: coll, Type: ccl.TypeOf[float32](), Op: ccl.Sum, Root: peer, In: block, Out: block}
		switch coll {
		case dtype.Send:
			c.Out = nil
		case dtype.Recv:
			c.In = nil
		}
		return c
	}
	for _, transport := range allTransports {
		for name, colls := range map[string][2]dtype.Collective{ // of both ranks
			"all_reduce": {dtype.AllReduce, dtype.AllReduce},
			"recv":       {dtype.Recv, dtype.Send},
			"send":       {dtype.Send, dtype.Recv},
		} {
			t.Run(transport+"/"+name, func(t *testing.T) {
				comms := group(t, transport, 2, ccl.GroupOptions{})
				memory := [2][]float32{make([]float32, 100_000), make([]float32, 100_000)}
				memory[0][99_999], memory[1][99_999] = 1, 2
				want := [2]float32{3, 3}
				switch colls[0] {
				case dtype.Recv:
					want = [2]float32{2, 2}
				case dtype.Send:
					want = [2]float32{1, 1}
				}
				work, err := comms[0].Start(call(colls[0], memory[0], 1))
				require.NoError(t, err)
				for range 3 {
					ctx, cancel := context.WithTimeout(background, short)
					require.ErrorIs(t, work.Wait(ctx), context.DeadlineExceeded)
					cancel()
					ended, err := work.WaitSlice(short)
					require.False(t, ended)
					require.NoError(t, err)
					require.ErrorIs(t, work.Unended(), ccl.Timeout)
					require.ErrorContains(t, work.Unended(), "seq 1: timeout: the time of this wait is over")
					require.Eventually(t, func() bool { // another thread may drive just now
						return strings.Contains(work.Unended().Error(), "So far rank 0 waits for 1")
					}, 10*time.Second, time.Millisecond)
				}
				each(t, 2, func(rank int) error {
					if rank == 0 {
						return work.Wait(background)
					}
					return comms[1].Do(background, call(colls[1], memory[1], 0))
				})
				work.Free()
				for rank, c := range comms {
					require.Equal(t, want[rank], memory[rank][99_999])
					require.Nil(t, c.Failure())
				}
				each(t, 2, func(rank int) error { return ccl.Barrier(background, comms[rank]) })
			})
		}
	}
}

package ccl_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

func allReduceCall(x []float32) *ccl.Call {
	b := []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x)}}
	return &ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, In: b, Out: b}
}

// Every rank sends to the next one first and only then receives, with messages of every size class.
func TestSendRecv(t *testing.T) {
	for _, transport := range allTransports {
		for _, ranks := range []int{2, 3} {
			if testing.Short() && ranks == 2 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", transport, ranks), func(t *testing.T) {
				comms := group(t, transport, ranks, ccl.GroupOptions{})
				each(t, ranks, func(rank int) error {
					c := comms[rank]
					next, prev := (rank+1)%ranks, (rank+ranks-1)%ranks
					for tag, n := range []int{0, 1, 100, 5000, 300_000} {
						out := make([]float32, n)
						x := input(rank, n, tag)
						b := []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: n}}
						send, err := c.Start(&ccl.Call{Coll: dtype.Send, Type: dtype.F32, Root: next,
							Tag: uint32(tag), In: b})
						if err != nil {
							return err
						}
						from := prev
						if tag == 2 {
							from = ccl.AnySource
						}
						source, err := ccl.Recv(background, c, out, from, uint32(tag))
						if err != nil {
							return err
						}
						if source != prev {
							return fmt.Errorf("message from %d, want %d", source, prev)
						}
						if err := same(out, input(prev, n, tag)); err != nil {
							return err
						}
						if err := send.Wait(background); err != nil {
							return err
						}
						send.Free()
					}
					return ccl.Barrier(background, c)
				})
			})
		}
	}
}

// Messages and collectives have no order relative to each other.
func TestMessagesBesideCollectives(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 2, ccl.GroupOptions{})
			each(t, 2, func(rank int) error {
				c := comms[rank]
				const n = 100_000
				x, out := input(rank, n, 1), make([]float32, n)
				b := []ccl.Block{{Ptr: unsafe.Pointer(&x[0]), Count: n}}
				var work *ccl.Work
				var err error
				if rank == 0 { // the send is posted before the collective, the receive after it
					if work, err = c.Start(&ccl.Call{Coll: dtype.Send, Type: dtype.F32, Root: 1, In: b}); err != nil {
						return err
					}
				}
				if err := ccl.Barrier(background, c); err != nil {
					return err
				}
				if rank == 0 {
					return work.Wait(background)
				}
				if _, err := ccl.Recv(background, c, out, 0, 0); err != nil {
					return err
				}
				return same(out, input(0, n, 1))
			})
		})
	}
}

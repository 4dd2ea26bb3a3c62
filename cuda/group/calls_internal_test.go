//go:build !race

package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/share"
)

// counted is a device that does nothing but count what is enqueued.
type counted struct {
	still
	calls, words int
}

func (c *counted) Copy(cuda.Ptr, cuda.Ptr, int) error { c.calls++; return nil }
func (c *counted) Words(ops []cuda.WordOp) error      { c.calls++; c.words += len(ops); return nil }
func (c *counted) Wait(cuda.Event) error              { c.calls++; return nil }
func (c *counted) Record(cuda.Stream) error           { c.calls++; return nil }
func (c *counted) Launch(cuda.Function, int, int, []byte) error {
	c.calls++
	return nil
}

// An all_reduce of 1 GiB takes at most 300 calls of the driver at default memory, on 2 and on 8
// ranks.
func TestCallsOfAGibibyte(t *testing.T) {
	const staging = 16 << 20 // GOCCL_CUDA_BUFFSIZE
	for _, ranks := range []int{2, 8} {
		a, err := algo.Find(dtype.AllReduce, "two_shot_window")
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
		require.NoError(t, err)
		w := newTape(t, p, 0, plain).w
		device := &counted{still: still{host: make([]byte, w.layout.Bytes())}}
		w.Stream, w.ahead, w.offers, w.page, w.g.callers.at = device, device, device, device, device
		w.Room.Slot, w.Room.Piece = share.SlotOn(cuda.Info{Bytes: 80 << 30}, staging, true), share.SlotOf(staging)
		low, err := program.Lower(p, &w.Room)
		require.NoError(t, err)
		enqueue := func(bytes int) (pieces, calls, words int) {
			block := []exec.Block{{Ptr: liftPointer(blockBase(0, 0)), Count: bytes / 4}}
			call := exec.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: dtype.Sum, In: block, Out: block}
			o := &Op{g: w.g, call: call, first: 3, end: device, low: low}
			device.calls, device.words = 0, 0
			require.NoError(t, w.enqueue(o, device))
			return o.cut.pieces, device.calls, device.words
		}
		pieces, calls, words := enqueue(1 << 30)
		t.Logf("%d ranks: 1 GiB in %d pieces, %d calls, %d words", ranks, pieces, calls, words)
		require.LessOrEqual(t, calls, 300)
		require.LessOrEqual(t, calls, 9*pieces+20)
		for bytes, want := range map[int]int{1 << 20: 1, 8 << 20: 1, 16 << 20: 2, 32 << 20: 4, 64 << 20: 4,
			256 << 20: 8} {
			pieces, _, _ := enqueue(bytes)
			require.Equal(t, want, pieces, "%d bytes", bytes)
		}
	}
}

//go:build !race

package group

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
	"github.com/goccl/goccl/cuda/group/page"
)

// still is a stream that does nothing, and memory of the host whose words are loaded and stored.
type still struct {
	cuda.Stream
	cuda.Registered
	host []byte
}

func (s *still) Copy(cuda.Ptr, cuda.Ptr, int) error           { return nil }
func (s *still) Words([]cuda.WordOp) error                    { return nil }
func (s *still) Launch(cuda.Function, int, int, []byte) error { return nil }
func (s *still) Wait(cuda.Event) error                        { return nil }
func (s *still) Record(cuda.Stream) error                     { return nil }
func (s *still) Done() (bool, error)                          { return true, nil }
func (s *still) Destroy() error                               { return nil }
func (s *still) Host() []byte                                 { return s.host }
func (s *still) Load(at int) uint64                           { return atomic.LoadUint64(page.Word(s.host, at)) }
func (s *still) Reached(at int, value uint64) bool            { return int64(s.Load(at)-value) >= 0 }
func (s *still) Store(at int, value uint64)                   { atomic.StoreUint64(page.Word(s.host, at), value) }

// To enqueue a call over windows, in several pieces or as one kernel, and to notice its end
// allocates nothing, also if the rank lends its buffers.
func TestWindowsDoNotAllocate(t *testing.T) {
	windowsDoNotAllocate(t, 100_000, func(o *Op) bool { return o.cut.pieces > 1 })
}

func TestInterpretedDoNotAllocate(t *testing.T) {
	for _, count := range []int{1000, 4000} { // in packets, and with flags
		windowsDoNotAllocate(t, count, func(o *Op) bool {
			return o.g.windows().forms[0].(*interpreter).steps.table.Count > 0
		})
	}
}

// windowsDoNotAllocate makes calls of so many elements, after which each has to be as expected.
func windowsDoNotAllocate(t *testing.T, count int, expected func(*Op) bool) {
	const ranks = 4
	for _, c := range []struct {
		coll      dtype.Collective
		algorithm string
		mode      mode
	}{{dtype.AllReduce, "two_shot_window", plain}, {dtype.AllReduce, "one_shot_window", plain},
		{dtype.AllToAll, "window", plain}, {dtype.Reduce, "window", plain}, {dtype.AllReduce, "two_shot_window", lends},
		{dtype.AllToAll, "window", lends}, {dtype.AllReduce, "two_shot_window", borrowed},
		{dtype.AllGather, "window", plain}} {
		if count < 100_000 && !c.coll.LengthsKnown() {
			continue
		}
		a, err := algo.Find(c.coll, c.algorithm)
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: c.coll, Ranks: ranks})
		require.NoError(t, err)
		s := tapedLending(t, p, 0, c.mode)
		device := &still{host: make([]byte, s.w.layout.Bytes())}
		w, g := s.w, s.w.g
		w.Stream, w.page, w.compared, g.callers.at = device, device, make([]uint64, ranks), device
		w.ahead, w.offers = device, device
		for rank := range w.pages {
			w.pages[rank].Host = device.host // all have called the same
		}
		low, err := program.Lower(p, &w.Room)
		require.NoError(t, err)
		g.ways, w.forms = []way{w}, []form{newInterpreter(w)}
		w.forms[0].learn(p, low)
		call := &exec.Call{Coll: c.coll, Type: dtype.F32, Op: dtype.Avg}
		for range call.Coll.InBlocks(ranks, 0, 0) {
			call.In = append(call.In, exec.Block{Ptr: liftPointer(blockBase(0, 0)), Count: count})
		}
		for range call.Coll.OutBlocks(ranks, 0, 0) {
			call.Out = append(call.Out, exec.Block{Ptr: liftPointer(blockBase(1, 0)), Count: count})
		}
		o := &Op{g: g, call: *call, end: device, low: low}
		step := func() {
			o.seq = w.op + 1
			o.holders.Store(2)
			w.announce(o)
			w.hand(o)
			if err := w.enqueue(o, device); err != nil || !expected(o) {
				t.Fatal(err, o.cut.pieces)
			}
			device.Store(w.layout.Ended(), page.At(o.first+1, 0, 0))
			if ended, pending := w.advance(); !ended || pending {
				t.Fatal("the call has not ended")
			}
		}
		if c.mode == borrowed {
			w.Arena = emit.Lent{} // as if another rank had one
		}
		step()
		require.Zero(t, testing.AllocsPerRun(200, step), "%v=%s", c.coll, c.algorithm)
		require.Equal(t, c.mode == lends && count >= 100_000, g.Exposed() > 100, "short calls lend nothing")
	}
}

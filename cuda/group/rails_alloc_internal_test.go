//go:build !race

package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda/group/page"
)

// To enqueue a call between hosts, in several pieces, and to notice the end of it and of its
// messages allocates nothing.
func TestRailsDoNotAllocate(t *testing.T) {
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
		s := tapedRails(t, onHosts(t, coll, "ring", topo.Spread(6, 3)), 1)
		w, g, r := s.w, s.w.g, s.w.forms[0].(*rails)
		device := &still{host: make([]byte, w.layout.Bytes())}
		w.Stream, w.page, w.compared, g.callers.at = device, device, make([]uint64, g.size), device
		for rank := range w.pages {
			w.pages[rank].Host = device.host // all have called the same
		}
		var messages []*pipeline
		for rank := range g.size {
			for _, p := range [2]*pipeline{r.to[rank], r.from[rank]} {
				if p != nil {
					p.toHost.stream, p.toDevice.stream = device, device
					messages = append(messages, p)
				}
			}
		}
		low, err := program.Lower(s.plan, &w.Room)
		require.NoError(t, err)
		r.learn(s.plan, low)
		call := &exec.Call{Coll: coll, Type: dtype.F32, Op: dtype.Avg}
		const count = 100_000
		for range coll.InBlocks(g.size, 0, 0) {
			call.In = append(call.In, exec.Block{Ptr: liftPointer(blockBase(0, 0)), Count: count})
		}
		for range coll.OutBlocks(g.size, 0, 0) {
			call.Out = append(call.Out, exec.Block{Ptr: liftPointer(blockBase(1, 0)), Count: count})
		}
		o := &Op{g: g, call: *call, end: device, low: low}
		step := func() {
			o.seq = w.op + 1
			o.holders.Store(2)
			w.announce(o)
			w.hand(o)
			if err := w.enqueue(o, device); err != nil || o.cut.pieces < 3 {
				t.Fatal(err, o.cut.pieces)
			}
			device.Store(w.layout.Ended(), page.At(o.first+1, 0, 0))
			if ended, pending := w.advance(); ended || !pending || o.messages.Load() == 0 {
				t.Fatal("the call has ended before its messages")
			}
			for _, p := range messages {
				for m := p.queue.head(); m != nil; m = p.queue.head() {
					p.queue.pop()
					m.finish(nil)
				}
			}
			if ended, pending := w.advance(); !ended || pending {
				t.Fatal("the call has not ended")
			}
		}
		step()
		require.Zero(t, testing.AllocsPerRun(100, step), "%v", coll)
	}
}

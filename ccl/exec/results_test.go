package exec

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport"
)

func TestCacheShare(t *testing.T) {
	for _, c := range []struct{ bytes, processors, ranks, want, alone int }{
		{0, 0, 2, 0, 0},
		{32 << 20, 8, 1, 32 << 20, 32 << 20},
		{32 << 20, 8, 2, 16 << 20, 32 << 20},
		{32 << 20, 2, 4, 16 << 20, 32 << 20}, // two ranks run on each processor, one at a time
		{32 << 20, 8, 96, 4 << 20, 32 << 20},
		{1 << 20, 0, 4, 1 << 20, 1 << 20},
	} {
		opts := Options{Links: make([]transport.Link, c.ranks), Cache: topo.Cache{Bytes: int64(c.bytes), Processors: make([]int, c.processors)}}
		require.Equal(t, c.alone, cacheShare(&opts), "%+v, no windows", c)
		opts.Window = new(mem.Window)
		require.Equal(t, c.want, cacheShare(&opts), "%+v", c)
	}
}

func TestTouched(t *testing.T) {
	memory := make([]byte, 1<<10)
	at := func(i int) Block { return Block{unsafe.Pointer(&memory[i]), 8} }
	for _, c := range []struct {
		name    string
		rank    int
		in, out []Block
		want    int
	}{
		{"nothing", 0, nil, nil, 0},
		{"all_reduce", 0, []Block{at(0)}, []Block{at(64)}, 64},
		{"all_reduce in place", 1, []Block{at(0)}, []Block{at(0)}, 32},
		{"broadcast, not the root", 1, nil, []Block{at(0)}, 32},
		{"all_gather", 1, []Block{at(0)}, []Block{at(64), at(96)}, 96},
		{"all_gather in place", 1, []Block{at(96)}, []Block{at(64), at(96)}, 64},
		{"reduce_scatter", 1, []Block{at(0), at(32)}, []Block{at(64)}, 96},
		{"reduce_scatter in place", 1, []Block{at(0), at(32)}, []Block{at(32)}, 64},
		{"all_to_all", 1, []Block{at(0), at(32)}, []Block{at(64), at(96)}, 128},
	} {
		require.Equal(t, c.want, (&Call{Type: dtype.F32, In: c.in, Out: c.out}).touched(c.rank), c.name)
	}
}

// What is read again is no result, in whichever lane.
func TestResults(t *testing.T) {
	ref := func(buf plan.Buffer, at, n int) plan.Ref { return plan.Ref{Buf: buf, At: at, N: n} }
	low := &lowered{lanes: [][]step{{
		{kind: plan.Copy, dst: ref(plan.Out, 0, 1), src: []plan.Ref{ref(plan.In, 0, 1)}},
		{kind: plan.Recv, dst: ref(plan.Out, 1, 2)},
		{kind: plan.Recv, dst: ref(plan.Out, 3, 2)},
		{kind: plan.Recv, dst: ref(plan.Tmp, 5, 1)},
		{kind: plan.Wait},
	}, {
		{kind: plan.Send, src: []plan.Ref{ref(plan.Out, 2, 1)}},
		{kind: plan.Send, src: []plan.Ref{ref(plan.In, 4, 1)}},
	}}}
	low.markResults()
	for i, want := range []bool{true, false, true, false, false} {
		require.Equal(t, want, low.lanes[0][i].result, "step %d", i)
	}
}

func TestTwins(t *testing.T) {
	ref := func(buf plan.Buffer, at int) plan.Ref { return plan.Ref{Buf: buf, At: at, N: 1} }
	to := func(buf plan.Buffer, from int) step {
		return step{kind: plan.Copy, dst: ref(buf, 0), src: []plan.Ref{ref(plan.In, from)}}
	}
	signal, wait := step{kind: plan.Signal}, step{kind: plan.Wait}
	for _, c := range []struct {
		name  string
		lane  []step
		twins bool
	}{
		{"signals between", []step{to(plan.Win, 1), signal, signal, to(plan.Out, 1)}, true},
		{"other block", []step{to(plan.Win, 1), signal, to(plan.Out, 0)}, false},
		{"a wait between", []step{to(plan.Win, 1), signal, wait, to(plan.Out, 1)}, false},
		{"nothing behind", []step{to(plan.Win, 1), signal}, false},
		{"not into the window", []step{to(plan.Tmp, 1), signal, to(plan.Out, 1)}, false},
	} {
		low := &lowered{lanes: [][]step{c.lane}}
		low.pairTwins()
		last := &c.lane[len(c.lane)-1]
		require.Equal(t, c.twins, last.fusedInto == &c.lane[0], c.name)
		require.Equal(t, c.twins, c.lane[0].fusedCopy == last, c.name)
	}
}

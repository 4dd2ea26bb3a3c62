package exec

import (
	"fmt"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/program"
)

// TestOrder checks the order of fingerprints. The numbers of the phases of an operation wrap
// around; phases that are compared are close together.
func TestOrder(t *testing.T) {
	for _, test := range []struct {
		seqA, seqB     uint32
		phaseA, phaseB uint8
		want           int
	}{
		{7, 7, 1, 1, 0},
		{7, 8, 9, 1, -1},
		{8, 7, 1, 9, 1},
		{1<<32 - 1, 0, 1, 1, -1},
		{7, 7, phaseCounts, phaseOf(0), -1},
		{7, 7, phaseOf(0), phaseCounts, 1},
		{7, 7, phaseOf(253), phaseOf(254), -1},
		{7, 7, phaseOf(254), phaseOf(255), -1},
		{7, 7, phaseOf(256), phaseOf(254), 1},
		{7, 7, phaseOf(600), phaseOf(601), -1},
	} {
		a, b := fingerprint{seq: test.seqA, phase: test.phaseA}, fingerprint{seq: test.seqB, phase: test.phaseB}
		if got := order(a.meta(8), b.meta(0)); got != test.want {
			t.Errorf("order(%d, %d, %d, %d) = %d, want %d",
				test.seqA, test.seqB, test.phaseA, test.phaseB, got, test.want)
		}
	}
	for piece := range 1000 {
		if phaseOf(piece) == phaseCounts {
			t.Errorf("piece %d has the phase of the exchange of lengths", piece)
		}
	}
}

// TestBlocksInTheFingerprint checks that ranks which know all blocks compare the length of each, in
// its place.
func TestBlocksInTheFingerprint(t *testing.T) {
	of := func(counts ...int) fingerprint {
		f := fingerprint{coll: dtype.AllGather, typ: dtype.F32, hash: 0x1234}
		var blocks []Block
		for _, n := range counts {
			blocks = append(blocks, Block{Count: n})
		}
		f.blocks(blocks)
		return f
	}
	seen := map[string][]int{}
	for _, counts := range [][]int{
		{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 0, 0}, {0, 3, 0}, {0, 0, 3}, {1, 2, 3}, {3, 2, 1}, {2, 1, 3}, {1, 1, 4},
		{6, 0, 0}, {1 << 40, 1 << 40, 1 << 40}, {1 << 40, 1 << 40, 1<<40 + 1}, {1 << 40, 1<<40 + 1, 1 << 40},
		{program.MaxBytes, program.MaxBytes, program.MaxBytes - 1},
	} {
		f := of(counts...)
		m := f.meta(0)
		key := fmt.Sprint(m)
		if other, ok := seen[key]; ok {
			t.Errorf("blocks of %v and of %v look alike", counts, other)
		}
		seen[key] = counts
		if got, _ := decode(m); got != f {
			t.Errorf("%v: %+v is read as %+v", counts, f, got)
		}
	}
	for want, f := range map[string]fingerprint{
		"all_gather seq 0, blocks of 7 x f32":                             of(7, 7),
		"all_gather seq 0, blocks of different lengths, together 9 x f32": of(7, 2),
		"all_gather seq 0, f32":                                           of(0, 0),
		"reduce seq 3, 5 x f32 sum, root 1": {
			seq: 3, coll: dtype.Reduce, typ: dtype.F32, op: dtype.Sum, root: 1, count: 5, phase: 1,
		},
		"barrier seq 4": {seq: 4, coll: dtype.Barrier},
	} {
		f.phase = 1
		if got := f.describe(askLength); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestHistory checks that another call, at any earlier place, gives another history.
func TestHistory(t *testing.T) {
	usual := fingerprint{coll: dtype.Broadcast, typ: dtype.F32, count: 1000}
	others := map[string]fingerprint{
		"root":       {coll: dtype.Broadcast, typ: dtype.F32, count: 1000, root: 2},
		"length":     {coll: dtype.Broadcast, typ: dtype.F32, count: 1001},
		"type":       {coll: dtype.Broadcast, typ: dtype.I32, count: 1000},
		"collective": {coll: dtype.AllReduce, typ: dtype.F32, count: 1000},
		"operator":   {coll: dtype.Broadcast, typ: dtype.F32, count: 1000, op: dtype.Max},
	}
	for what, other := range others {
		for later := range 100 {
			var a, b history
			a.add(usual.digest())
			b.add(other.digest())
			for range later {
				a.add(usual.digest())
				b.add(usual.digest())
			}
			if a.hash() == b.hash() {
				t.Errorf("another %s is not seen after %d calls", what, later)
			}
		}
	}
	var a, b history
	a.add(usual.digest())
	swapped := others["collective"]
	a.add(swapped.digest())
	b.add(swapped.digest())
	b.add(usual.digest())
	if a.hash() == b.hash() {
		t.Error("the order of calls is not seen")
	}
}

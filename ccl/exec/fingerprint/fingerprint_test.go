package fingerprint

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
		{7, 7, PhaseCounts, PhaseOf(0), -1},
		{7, 7, PhaseOf(0), PhaseCounts, 1},
		{7, 7, PhaseOf(253), PhaseOf(254), -1},
		{7, 7, PhaseOf(254), PhaseOf(255), -1},
		{7, 7, PhaseOf(256), PhaseOf(254), 1},
		{7, 7, PhaseOf(600), PhaseOf(601), -1},
	} {
		a, b := Fields{Seq: test.seqA, Phase: test.phaseA}, Fields{Seq: test.seqB, Phase: test.phaseB}
		if got := Order(a.Meta(8), b.Meta(0)); got != test.want {
			t.Errorf("Order(%d, %d, %d, %d) = %d, want %d",
				test.seqA, test.seqB, test.phaseA, test.phaseB, got, test.want)
		}
	}
	for piece := range 1000 {
		if PhaseOf(piece) == PhaseCounts {
			t.Errorf("piece %d has the phase of the exchange of lengths", piece)
		}
	}
}

// TestBlocksInTheFingerprint checks that ranks which know all blocks compare the length of each, in
// its place.
func TestBlocksInTheFingerprint(t *testing.T) {
	of := func(counts ...int) Fields {
		f := Fields{Coll: dtype.AllGather, Type: dtype.F32, Hash: 0x1234}
		var blocks []program.Block
		for _, n := range counts {
			blocks = append(blocks, program.Block{Count: n})
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
		m := f.Meta(0)
		key := fmt.Sprint(m)
		if other, ok := seen[key]; ok {
			t.Errorf("blocks of %v and of %v look alike", counts, other)
		}
		seen[key] = counts
		if got, _ := Decode(m); got != f {
			t.Errorf("%v: %+v is read as %+v", counts, f, got)
		}
	}
	for want, f := range map[string]Fields{
		"all_gather seq 0, blocks of 7 x f32":                             of(7, 7),
		"all_gather seq 0, blocks of different lengths, together 9 x f32": of(7, 2),
		"all_gather seq 0, f32":                                           of(0, 0),
		"reduce seq 3, 5 x f32 sum, root 1": {
			Seq: 3, Coll: dtype.Reduce, Type: dtype.F32, Op: dtype.Sum, Root: 1, Count: 5, Phase: 1,
		},
		"barrier seq 4": {Seq: 4, Coll: dtype.Barrier},
	} {
		f.Phase = 1
		if got := f.Describe(NoLength); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestHistory checks that another call, at any earlier place, gives another history.
func TestHistory(t *testing.T) {
	usual := Fields{Coll: dtype.Broadcast, Type: dtype.F32, Count: 1000}
	others := map[string]Fields{
		"root":       {Coll: dtype.Broadcast, Type: dtype.F32, Count: 1000, Root: 2},
		"length":     {Coll: dtype.Broadcast, Type: dtype.F32, Count: 1001},
		"type":       {Coll: dtype.Broadcast, Type: dtype.I32, Count: 1000},
		"collective": {Coll: dtype.AllReduce, Type: dtype.F32, Count: 1000},
		"operator":   {Coll: dtype.Broadcast, Type: dtype.F32, Count: 1000, Op: dtype.Max},
	}
	for what, other := range others {
		for later := range 100 {
			var a, b History
			a.Add(usual.Digest())
			b.Add(other.Digest())
			for range later {
				a.Add(usual.Digest())
				b.Add(usual.Digest())
			}
			if a.Hash() == b.Hash() {
				t.Errorf("another %s is not seen after %d calls", what, later)
			}
		}
	}
	var a, b History
	a.Add(usual.Digest())
	swapped := others["collective"]
	a.Add(swapped.Digest())
	b.Add(swapped.Digest())
	b.Add(usual.Digest())
	if a.Hash() == b.Hash() {
		t.Error("the order of calls is not seen")
	}
}

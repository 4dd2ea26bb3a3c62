package exec

import "testing"

// The phases of one operation come round; what is compared lies close together.
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
		if got := order(test.seqA, test.seqB, test.phaseA, test.phaseB); got != test.want {
			t.Errorf("order(%d, %d, %d, %d) = %d, want %d", test.seqA, test.seqB, test.phaseA, test.phaseB, got, test.want)
		}
	}
	for piece := range 1000 {
		if phaseOf(piece) == phaseCounts {
			t.Errorf("piece %d has the phase of the exchange of lengths", piece)
		}
	}
}

package program

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRings checks which signals wake sleeping peers at once: those of lanes whose chunks are long
// together. Copies that another copy does too count once.
func TestRings(t *testing.T) {
	signal := Instruction{Op: OpSignal}
	work := func(bytes int, way Way) Instruction { return Instruction{Op: OpCopy, Bytes: bytes, Way: way} }
	for _, c := range []struct {
		name  string
		lane  []Instruction
		rings bool
	}{
		{"nothing but a signal", []Instruction{signal}, false},
		{"short", []Instruction{work(longWork/2, WayGeneral), signal, {Op: OpWait}}, false},
		{"long before", []Instruction{work(longWork, WayGeneral), signal, {Op: OpWait}}, true},
		{"long behind", []Instruction{signal, {Op: OpWait}, work(longWork, WayGeneral)}, true},
		{"long together", []Instruction{work(longWork/2, WayGeneral), signal, work(longWork/2, WayOfTwo)}, true},
		{"done elsewhere", []Instruction{signal, work(longWork, WayNothing)}, false},
	} {
		for i := range c.lane {
			c.lane[i].Rings = !c.rings // as a program of another shape has left it
		}
		ring(c.lane)
		for i := range c.lane {
			require.Equal(t, c.rings && c.lane[i].Op == OpSignal, c.lane[i].Rings, "%s, instruction %d", c.name, i)
		}
	}
}

package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKinds holds the table of kinds against itself: what follows from what.
func TestKinds(t *testing.T) {
	implies := func(a, b bool) bool { return !a || b }
	names := map[string]bool{}
	for k := range numKinds {
		does := k.Traits()
		t.Run(does.Name, func(t *testing.T) {
			parsed, ok := parseKind(does.Name)
			require.True(t, ok && parsed == k && !names[does.Name], "its name is its own")
			names[does.Name] = true
			require.True(t, implies(does.Outward() || does.Awaits(), does.Peer), "whoever gives or waits has a Peer")
			require.False(t, does.Message() && does.Flagged(), "Chan is a channel or a flag")
			require.False(t, does.Outward() && (does.Awaits() || does.Gets), "one direction")
			require.True(t, implies(does.Puts, does.Writes && does.Reads), "a put copies")
			require.True(t, implies(does.Gets, does.Reads && does.Peer != does.From), "gets read from Peer or From")
			require.True(t, implies(does.Many, does.Reads && does.Reduces), "several sources are combined")
			require.True(t, implies(does.Final, does.Writes && !does.Puts), "what is final is in memory of this rank")
			require.Equal(t, does.Message(), does.Need == Messages, "messages are a need")
			require.Equal(t, does.Puts || does.Flagged(), does.Need == Puts, "puts and signals are a need")
			require.Equal(t, does.Gets, does.Need == Gets, "gets are a need")
		})
	}
}

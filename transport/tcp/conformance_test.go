package tcp

import (
	"testing"

	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/require"
)

// loopback makes a fabric of its own process, as far as anybody can tell.
func loopback(t testing.TB, change func(*Options)) (*Fabric, *park.Bell) {
	t.Helper()
	o := Options{Bell: park.NewBell(), Interfaces: "lo"}
	if change != nil {
		change(&o)
	}
	f, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, o.Bell
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, bellA := loopback(t, nil)
		b, bellB := loopback(t, nil)
		return transporttest.Pair{A: a, B: b, BellA: bellA, BellB: bellB}
	}, transporttest.Options{})
}

// TestConformanceSelf links the ranks of one process.
func TestConformanceSelf(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		f, bell := loopback(t, nil)
		return transporttest.Pair{A: f, B: f, BellA: bell, BellB: bell}
	}, transporttest.Options{})
}

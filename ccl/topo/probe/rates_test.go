package probe

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRates(t *testing.T) {
	begun := time.Now()
	r := Rates(2)
	took := time.Since(begun)
	t.Logf("%+v in %v", r, took)
	require.Greater(t, r.One, 1e8)
	require.Less(t, r.One, 1e12)
	require.GreaterOrEqual(t, r.All, r.One)
	require.GreaterOrEqual(t, r.Handover, 0.0)
	require.Less(t, r.Handover, turnSpan.Seconds())
	require.Less(t, took, 5*time.Second) // 50 ms, where nothing else runs

	one := Rates(1)
	require.Equal(t, one.One, one.All)
	require.Zero(t, one.Handover)
	require.Positive(t, Rates(0).One)

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // where two threads would wait for each other in vain
	require.Zero(t, Rates(8).Handover)
}

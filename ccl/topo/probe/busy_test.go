package probe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCPUTimes(t *testing.T) {
	for text, want := range map[string]times{
		"cpu  100 1 20 300 40 5 6 7 9 9\ncpu0 1 2 3 4": {340, 479},
		"cpu  1 2 3 4": {4, 10},
	} {
		got, ok := cpuTimes(text)
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4", "cpu 1 2 x 4"} {
		_, ok := cpuTimes(text)
		require.False(t, ok, text)
	}
}

func TestBusy(t *testing.T) {
	busy := Busy(20 * time.Millisecond)
	require.True(t, 0 <= busy && busy <= 1, busy)
}

//go:build unix

package drill

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrillStalls runs a cell again only if it has failed while this process stalled.
func TestDrillStalls(t *testing.T) {
	still := func() {
		wake := exec.Command("sh", "-c", fmt.Sprintf("sleep 0.3; kill -CONT %d", os.Getpid()))
		require.NoError(t, wake.Start())
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGSTOP))
		require.NoError(t, wake.Wait())
	}
	for name, tt := range map[string]struct {
		stalls int // runs during which this process is stopped
		passes int // run that passes, 0 for none
		runs   int
	}{
		"passes":              {0, 1, 1},
		"fails":               {0, 0, 1},
		"passes, stopped":     {1, 1, 1},
		"fails once, stopped": {1, 2, 2},
		"fails, stopped once": {1, 0, 2},
		"fails, always stops": {9, 0, mostRuns},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			o := fairly(func() *outcome {
				if runs++; runs <= tt.stalls {
					still()
				}
				return &outcome{Passed: runs == tt.passes}
			})
			require.Equal(t, tt.runs, runs)
			require.Equal(t, runs == tt.passes, o.Passed)
			require.Len(t, o.Stalls, runs-1)
			for _, stall := range o.Stalls {
				require.GreaterOrEqual(t, stall, leastStall)
			}
		})
	}
}

package probe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A measurement starts a small part of the threads that a container may have more.
func TestSpareThreads(t *testing.T) {
	none := spareThreads(t.TempDir()) // fewer than mostThreads where ulimit -u is small
	require.LessOrEqual(t, none, mostThreads)
	for _, test := range []struct {
		most, used string
		want       int
	}{{"30", "10", 5}, {"12", "10", 0}, {"10", "12", 0}, {"max", "10", mostThreads}, {"30", "", mostThreads}} {
		root := t.TempDir()
		for name, text := range map[string]string{"proc/self/cgroup": "0::/\n",
			"proc/self/mountinfo": "36 35 98:0 / /cg rw - cgroup2 cgroup rw\n",
			"cg/pids.max":         test.most, "cg/pids.current": test.used} {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
		}
		require.Equal(t, min(none, test.want), spareThreads(root), test)
	}
}

// Where the process may not have the memory, or a thread, nothing is measured.
func TestNothingSpared(t *testing.T) {
	require.Empty(t, memoryOf(0))
	blocks := memoryOf(2)
	require.LessOrEqual(t, len(blocks), 2)
	for _, b := range blocks {
		require.Len(t, b.Bytes(), 2*copied)
		require.NoError(t, b.Free())
	}
}

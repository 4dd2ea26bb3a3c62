package doctor

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

// TestPaths has three ranks that share no memory, as if each was on a host of its own.
func TestPaths(t *testing.T) {
	program := filepath.Join(t.TempDir(), "goccl")
	text, err := exec.Command("go", "build", "-o", program, "../..").CombinedOutput()
	require.NoError(t, err, string(text))
	t.Setenv("GOCCL_TRANSPORT", "tcp")
	t.Setenv("GOCCL_SOCKET_IFNAME", "lo")
	t.Setenv("GOCCL_DEBUG", "WARN")
	text, err = exec.Command(program, "run", "-n", "3", "--", program, "doctor", "--paths", "--json").Output()
	require.NoError(t, err)
	var rows []pathRow
	require.NoError(t, json.Unmarshal(text, &rows))
	require.Len(t, rows, 3)
	for i, ends := range [][2]int{{0, 1}, {0, 2}, {1, 2}} {
		row := rows[i]
		require.Equal(t, ends, [2]int{row.From, row.To})
		require.Equal(t, "tcp", row.Transport)
		require.Regexp(t, `^lo (127\.0\.0\.1|\[::1\]):\d+ to `, row.Wire)
		require.Positive(t, row.RoundTrip)
		require.Positive(t, row.There)
		require.Positive(t, row.Back)
	}
	text, err = exec.Command(program, "run", "-n", "3", "--", program, "doctor", "--paths").Output()
	require.NoError(t, err)
	require.Contains(t, string(text), "3 ranks; those that share memory: 1 + 1 + 1\n")
	require.Regexp(t, `\(rank 1\)  \S+ \(rank 2\)  tcp  \d+ us +\d+\.\d\d GB/s +\d+\.\d\d GB/s +lo `, string(text))
}

func TestPathsNeedsALauncher(t *testing.T) {
	for _, name := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} {
		t.Setenv(name, "")
	}
	_, err := run(t, "--paths")
	require.ErrorAs(t, err, new(cli.Misuse))
	require.ErrorContains(t, err, "WORLD_SIZE is not set: a launcher sets RANK, WORLD_SIZE")
}

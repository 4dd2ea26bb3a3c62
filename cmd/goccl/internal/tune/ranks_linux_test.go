package tune

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

// The ranks of a bench end when it ends, even if it is killed in the middle of a size that takes
// them a quarter of an hour.
func TestRanksEndWithBench(t *testing.T) {
	c := newTuner(t)
	var errors bytes.Buffer
	cmd := exec.Command(filepath.Join(c.folder, "goccl"),
		strings.Fields("bench --json --size 8..16M --factor 2097152 --block 1h --repeat 3")...)
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	row, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, &errors)
	require.Contains(t, row, `"size":8`)
	require.Len(t, c.processes(ranks.Process), 2)
	require.NoError(t, cmd.Process.Kill())
	c.await(t, &running{}, 0, ranks.Process)
	require.Error(t, cmd.Wait())
}

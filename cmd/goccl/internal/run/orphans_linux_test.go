package run

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrphans has goccl run be process 1 of a PID namespace, and its rank leave twelve processes
// that end: none of them stays as a zombie.
func TestOrphans(t *testing.T) {
	unshare := []string{"--pid", "--fork", "--mount-proc", "--map-root-user", "--user", "--kill-child"}
	if err := exec.Command("unshare", append(unshare, "true")...).Run(); err != nil {
		t.Skip("PID namespaces need root or user namespaces")
	}
	program := filepath.Join(t.TempDir(), "goccl")
	text, err := exec.Command("go", "build", "-tags", "nodrill", "-o", program, "../..").CombinedOutput()
	require.NoError(t, err, string(text))
	script := `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (sh -c "sleep 0.$i" &); done
for i in $(seq 200); do
	sleep 0.1
	left=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -cE "\) [A-Z] 1 ")
	test $left = 1 && break # this rank
done
echo "$left children of process 1"; exit 42`
	unshare = append(unshare, program, "run", "-n", "1", "--", "sh", "-c", script)
	text, err = exec.Command("unshare", unshare...).CombinedOutput()
	require.Contains(t, string(text), "1 children of process 1\n")
	exit := (*exec.ExitError)(nil)
	require.ErrorAs(t, err, &exit, string(text))
	require.Equal(t, 42, exit.ExitCode(), "that of the rank")
}

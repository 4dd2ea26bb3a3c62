package tune

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/tune"
)

func TestTuneMeasureRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"more":                               "takes no arguments",
		"--fit":                              "unknown flag: --fit",
		"--ranks 1":                          "--ranks 1: want numbers from 2 to 64",
		"--ranks 2,65":                       "--ranks 2,65: want numbers",
		"--ranks two":                        "--ranks two: want numbers",
		"--op dance":                         `unknown collective "dance"`,
		"--op send":                          "send has no plans",
		"--size 2":                           "want 4 bytes or more",
		"--size 1M..1K":                      "is no range",
		"--size 1M..2G":                      "--size: want 1G or less",
		"--factor 1":                         "--factor 1: want 2 or more",
		"--repeat 2":                         "--repeat 2: want 3 or more",
		"--runs 0":                           "--runs 0: want 1 or more",
		"--block 0s":                         "--block",
		"--transport pigeon":                 "GOCCL_TRANSPORT=pigeon: want auto, shm, rdma or tcp",
		"--hosts 0":                          "--hosts 0: want 1 to 64",
		"--hosts 2 --ranks 4,5":              "5 ranks cannot be spread evenly over --hosts 2",
		"--hosts 2 --rate fast":              "--rate fast: want a number",
		"--output /no/such/folder/own.table": "--output /no/such/folder/own.table:",
	} {
		_, err := run(t, append([]string{"measure"}, strings.Fields(args)...)...)
		require.ErrorContains(t, err, want, args)
	}
	out, err := run(t, "measure", "--help")
	require.NoError(t, err)
	require.Contains(t, out, "usage: goccl tune measure [flags]")
	require.Contains(t, out, "-runs")
	require.NotContains(t, out, "-json")
	require.NotContains(t, out, inside)
	require.Contains(t, out, "--size")
}

// The ranks are processes of the real command. Their measurement gives a table that they can use.
func TestTuneMeasure(t *testing.T) {
	folder := t.TempDir()
	binary := filepath.Join(folder, "goccl")
	build, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput()
	require.NoError(t, err, "%s", build)
	command := func(args ...string) (string, string) {
		cmd := exec.Command(binary, args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		// These settings do not affect the measurement.
		cmd.Env = append(os.Environ(), "GOCCL_DETERMINISM=4", "GOCCL_ALGO=all_reduce=two_shot")
		out, err := cmd.Output()
		require.NoError(t, err, "%s\n%s", out, errs.String())
		return string(out), errs.String()
	}
	brief := []string{
		"tune", "measure", "--size", "64..1K", "--factor", "16", "--runs", "2", "--repeat", "3",
		"--block", "100us",
	}
	file := filepath.Join(folder, "own.table")
	out, progress := command(append(brief,
		"--ranks", "3,2", "--op", "barrier,allreduce,all_to_all", "--output", file)...)
	require.Contains(t, out, "all_reduce, 3 ranks")
	require.Contains(t, out, "own.table: ")
	require.Contains(t, progress, "all_to_all on 2 ranks")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	table, err := tune.ParseTable(text)
	require.NoError(t, err)
	require.Contains(t, string(text), "--op barrier,allreduce,all_to_all")
	seen := map[dtype.Collective]map[int]bool{}
	for _, row := range table.Rows() {
		require.Equal(t, tune.OneHost, row.Hosts)
		require.Equal(t, row.First, row.Last)
		if seen[row.Coll] == nil {
			seen[row.Coll] = map[int]bool{}
		}
		seen[row.Coll][row.Last] = true
	}
	both := map[int]bool{2: true, 3: true}
	require.Equal(t, map[dtype.Collective]map[int]bool{
		dtype.Barrier: both, dtype.AllReduce: both, dtype.AllToAll: both,
	}, seen)
	left, err := filepath.Glob(filepath.Join(folder, ".goccl-tune-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	use := exec.Command(binary, "bench", "--size", "8..1K", "--factor", "16", "--repeat", "1", "--block", "1ms")
	use.Env = append(os.Environ(), "GOCCL_TUNE="+file)
	used, err := use.CombinedOutput()
	require.NoError(t, err, "%s", used)

	// Without --output the table is printed, also for TCP.
	out, _ = command(append(brief, "--op", "reduce", "--transport", "tcp")...)
	require.Contains(t, out, "\n"+tune.Header+"\n")
	require.Regexp(t, `\nreduce +2 +\S+ +2\+ +`, out)
}

package bench

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

func TestWrongUse(t *testing.T) {
	for args, words := range map[string]string{
		"bench --op dance":            `unknown collective "dance"`,
		"bench --op al_reduce":        "; did you mean all_reduce?",
		"bench --dtype f33":           `unknown element type "f33"`,
		"bench --redop plus":          `unknown reduction operator "plus"`,
		"bench --redop band":          "reduction band is not defined for f32",
		"bench --ranks 0":             "--ranks 0: want 1 to 256",
		"bench --op send --ranks 1":   "--ranks 1: --op send needs 2",
		"bench --size 1M..1K":         "is no range",
		"bench --size x":              `size "x"`,
		"bench --transport pigeon":    "GOCCL_TRANSPORT=pigeon: want auto, shm, rdma or tcp",
		"bench --algo all_reduce=bad": "bad",
		"bench --root 5":              "--root 5 of 2 ranks",
		"bench extra":                 "takes no arguments",
	} {
		err := cli.Execute(cli.Root(Command()), strings.Fields(args), &bytes.Buffer{})
		require.ErrorContains(t, err, words, args)
		require.Equal(t, 2, cli.Status(err), args)
	}
}

// The ranks of bench are processes of the real command.
func TestBench(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "goccl")
	build, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput()
	require.NoError(t, err, "%s", build)
	tries := []string{
		"--op all_reduce --ranks 3 --dtype bf16", "--op all_gather --in-place",
		"--op reduce_scatter --dtype f16 --redop max", "--op broadcast --root 1", "--op reduce --in-place",
		"--op gather --ranks 3 --root 2", "--op scatter", "--op all_to_all --dtype i8", "--op barrier",
		"--registered --size 8..1M", "--op barrier --registered", "--op send", "--transport tcp --ranks 3",
	}
	if !testing.Short() { // types and operators
		tries = append(tries,
			"--algo all_reduce=ring", "--ranks 5 --dtype f8e5m2", "--ranks 3 --dtype f8e4m3 --redop avg",
			"--op reduce_scatter --ranks 3 --dtype f8e5m2 --redop prod", "--op all_gather --dtype f8e4m3",
			"--op reduce_scatter --ranks 3 --dtype bool --redop bxor", "--dtype c64 --ranks 3 --redop avg",
			"--op send --dtype f8e5m2 --ranks 3", "--dtype f8e4m3 --redop max --algo all_reduce=ring --ranks 3",
		)
	}
	for _, args := range tries {
		all := append([]string{
			"bench", "--json", "--size", "8..4K", "--factor", "16", "--repeat", "1", "--block", "1ms",
		}, strings.Fields(args)...)
		out, err := exec.Command(binary, all...).Output()
		require.NoError(t, err, "%s", args)
		rows := 0
		for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			var row ranks.Row
			require.NoError(t, json.Unmarshal([]byte(line), &row), "%s: %s", args, line)
			require.Zero(t, row.Wrong, args)
			require.Positive(t, row.Micros, args)
			rows++
		}
		require.Positive(t, rows, args)
	}
	out, err := exec.Command(binary, "bench", "--size", "8..64", "--repeat", "1").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "busbw")
}

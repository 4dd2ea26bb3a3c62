package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

var rewrite = flag.Bool("rewrite", false, "write the generated pages of docs anew")

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := dispatch(args, &out)
	return out.String(), err
}

func TestWrongUse(t *testing.T) {
	for args, words := range map[string]string{
		"dance":                       `unknown verb "dance"; there are run, bench, plan, verify`,
		"bench --op dance":            `unknown collective "dance"`,
		"bench --op al_reduce":        "; did you mean all_reduce?",
		"bench --dtype f33":           `unknown element type "f33"`,
		"bench --redop plus":          `unknown reduction operator "plus"`,
		"bench --redop band":          "reduction band is not defined for f32",
		"bench --ranks 0":             "--ranks 0: want 1 to 256",
		"bench --op send --ranks 1":   "--ranks 1: want 2 to 256",
		"bench --min 1M --max 1K":     "are not a range",
		"bench --min x":               `size "x"`,
		"bench --transport pigeon":    "GOCCL_TRANSPORT=pigeon: want auto, shm, rdma or tcp",
		"bench --algo all_reduce=bad": "bad",
		"bench --root 5":              "--root 5 of 2 ranks",
		"bench extra":                 "takes no arguments",
		"plan":                        "usage: goccl plan list",
		"plan show":                   "needs one COLLECTIVE",
		"plan show dance":             `unknown collective "dance"`,
		"plan show all_reduce/dance":  `unknown algorithm "dance" for all_reduce; known:`,
		"plan show --ranks 0 barrier": "0 ranks",
		"plan show --rank 9 barrier":  "--rank 9 of 4 ranks",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, words, args)
	}
}

func TestPlans(t *testing.T) {
	out, err := run(t, "plan", "list")
	require.NoError(t, err)
	require.Contains(t, out, "all_reduce")
	out, err = run(t, "plan", "list", "barrier")
	require.NoError(t, err)
	require.NotContains(t, out, "all_reduce")
	out, err = run(t, "plan", "show", "--ranks", "3", "allreduce/ring")
	require.NoError(t, err)
	require.Contains(t, out, "verified")
	require.Contains(t, out, "recvreduce")
	out, err = run(t, "plan", "show", "--ranks", "3", "--rank", "1", "broadcast")
	require.NoError(t, err)
	require.Contains(t, out, "recv")
}

func TestDoctor(t *testing.T) {
	out, err := run(t, "doctor", "--json", "--python", "no-such-python")
	require.NoError(t, err)
	var findings []struct{ Name, State, Value, Hint string }
	require.NoError(t, json.Unmarshal([]byte(out), &findings))
	names := map[string]string{}
	for _, f := range findings {
		names[f.Name] = f.State
	}
	require.Equal(t, "ok", names["goccl"])
	require.Equal(t, "missing", names["python"])
	require.Contains(t, names, "interfaces")
	out, err = run(t, "doctor", "--python", "no-such-python")
	require.NoError(t, err)
	require.Contains(t, out, "→ name one by --python")
}

// The ranks of bench are processes of the real command.
func TestBench(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "goccl")
	build, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	for _, args := range []string{
		"--op all_reduce --ranks 3 --dtype bf16", "--op all_gather --in-place",
		"--op reduce_scatter --dtype f16 --redop max", "--op broadcast --root 1", "--op reduce --in-place",
		"--op gather --ranks 3 --root 2", "--op scatter", "--op all_to_all --dtype i8", "--op barrier",
		"--registered --max 1M", "--op barrier --registered", "--op send", "--transport tcp --ranks 3",
		"--algo all_reduce=ring", "--ranks 5 --dtype f8e5m2", "--ranks 3 --dtype f8e4m3 --redop avg",
		"--op reduce_scatter --ranks 3 --dtype f8e5m2 --redop prod", "--op all_gather --dtype f8e4m3",
		"--op reduce_scatter --ranks 3 --dtype bool --redop bxor", "--dtype c64 --ranks 3 --redop avg",
		"--op send --dtype f8e5m2 --ranks 3", "--dtype f8e4m3 --redop max --algo all_reduce=ring --ranks 3",
	} {
		all := append([]string{
			"bench", "--json", "--max", "4K", "--factor", "16", "--repeat", "1", "--block", "1ms",
		}, strings.Fields(args)...)
		out, err := exec.Command(binary, all...).Output()
		require.NoError(t, err, "%s", args)
		rows := 0
		for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			var row benchRow
			require.NoError(t, json.Unmarshal([]byte(line), &row), "%s: %s", args, line)
			require.Zero(t, row.Wrong, args)
			require.Positive(t, row.Micros, args)
			rows++
		}
		require.Positive(t, rows, args)
	}
	out, err := exec.Command(binary, "bench", "--max", "64", "--repeat", "1").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "busbw")
}

// docs/options.md contains the table of ccl.OptionHelp.
func TestOptionsPage(t *testing.T) {
	const page = "../../docs/options.md"
	want := "# Options\n\nEnvironment variables, read when a group is made. `goccl.Options` sets the same for one " +
		"group from Python.\nAn unknown `GOCCL_` variable is an error.\n\n" +
		"Where the first group of a process decides, a later group that asks for something else runs with what there " +
		"is, and a\nWARN names both values. In Go these are the `NodeOptions` that `NewNode` gets, all others are " +
		"`GroupOptions`.\n\n" +
		ccl.OptionHelp()
	if *rewrite {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "go test ./cmd/goccl -rewrite writes it anew")
}

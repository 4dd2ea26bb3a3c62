package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	_ "github.com/goccl/goccl/internal/scratch"
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
		"bench --op send --in-place":  "send has no in-place form",
		"bench --json --csv":          "none of the others can be",
		"bench --launched --ranks 2":  "none of the others can be",
		"bench --launched":            "RANK, WORLD_SIZE", // no launcher
	} {
		err := cli.Execute(cli.Root(Command()), strings.Fields(args), &bytes.Buffer{})
		require.ErrorContains(t, err, words, args)
		require.Equal(t, 2, cli.Status(err), args)
	}
}

// The ranks of bench are processes of the real command.
func TestBench(t *testing.T) {
	binary := build(t)
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
}

// Each form has the rows of all sizes, the last one of the range with them.
func TestForms(t *testing.T) {
	binary := build(t)
	run := func(args string) string {
		all := append(strings.Fields("bench --size 8..24 --repeat 2 --block 1ms"), strings.Fields(args)...)
		out, err := exec.Command(binary, all...).Output()
		require.NoError(t, err, args)
		return string(out)
	}
	table := run("")
	require.Contains(t, table, "in place")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Len(t, lines, 6, table) // what it is, two of heads, and 8, 16, 24
	for _, line := range lines[1:] {
		require.Len(t, line, len(lines[2]), table)
	}
	require.NotContains(t, run("--in-place"), "out of place")

	rows, err := csv.NewReader(strings.NewReader(run("--csv --op reduce_scatter --redop max"))).ReadAll()
	require.NoError(t, err)
	require.Equal(t, columns, rows[0])
	require.Len(t, rows, 1+3*2)
	require.Equal(t, strings.Split("reduce_scatter 2 1 auto 16 4 f32 max true", " "), rows[4][:9])

	golang := run("--go --op all_gather --transport tcp")
	form := regexp.MustCompile(`(?m)^BenchmarkAllGather/ranks=2/hosts=1/transport=tcp/type=f32/redop=none/place=(in|out)/size=\d+-\d+` +
		`\t *\d+\t *[\d.]+ ns/op\t *[\d.]+ MB/s\t *[\d.]+ p99-ns$`)
	require.Len(t, form.FindAllString(golang, -1), 3*2*2, golang) // sizes, places, blocks
	require.Contains(t, golang, "goos: linux\n")

	row := ranks.Row{}
	require.NoError(t, json.NewDecoder(strings.NewReader(run("--json"))).Decode(&row))
	require.Positive(t, row.Min)
	require.GreaterOrEqual(t, row.Micros, row.Min)
	require.Positive(t, row.P99)
}

// Under a launcher it is one of the ranks, if it is told so.
func TestLaunched(t *testing.T) {
	binary := build(t)
	run := func(args string) (string, int) {
		cmd := exec.Command(binary, append(strings.Fields("run -n 3 --"), strings.Fields(args)...)...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, status := run(binary + " bench --launched --size 8 --repeat 1 --block 1ms --op broadcast --root 2")
	require.Zero(t, status, out)
	require.Equal(t, 1, strings.Count(out, "# broadcast on 3 ranks, "), out)
	out, status = run(binary + " bench")
	require.Equal(t, 2, status, out)
	require.Contains(t, out, "with --launched it is a rank of that job")
	out, status = run(binary + " bench --launched --root 3")
	require.Equal(t, 2, status, out)
	require.Contains(t, out, "--root 3 of 3 ranks")
	for _, each := range []string{"bench --launched --dtype bf16 --root $RANK", "bench --launched --size $((8+RANK*8))"} {
		cmd := exec.Command(binary, "run", "-n", "3", "--", "sh", "-c", "exec "+binary+" "+each)
		out, _ := cmd.CombinedOutput()
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), string(out))
		require.Contains(t, string(out), "rank 1 has other flags than rank 0")
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// folder has the command, built once.
var folder = filepath.Join(os.TempDir(), fmt.Sprint("goccl-bench-test-", os.Getpid()))

var once sync.Once

func build(t *testing.T) string {
	binary := filepath.Join(folder, "goccl")
	once.Do(func() {
		text, err := exec.Command("go", "build", "-tags", "nodrill", "-o", binary, "../..").CombinedOutput()
		require.NoError(t, err, "%s", text)
	})
	return binary
}

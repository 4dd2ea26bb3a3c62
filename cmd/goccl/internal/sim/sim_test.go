package sim

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/plan"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(Command(), plan.Command()), args, &out)
	return out.String(), err
}

func simRows(t *testing.T, args string) []sim.Row {
	t.Helper()
	out, err := run(t, append([]string{"sim", "--json"}, strings.Fields(args)...)...)
	require.NoError(t, err, args)
	var rows []sim.Row
	for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
		var row sim.Row
		require.NoError(t, decoder.Decode(&row))
		rows = append(rows, row)
	}
	return rows
}

func TestSimTensorParallel(t *testing.T) {
	rows := simRows(t, "--topo uniform:8,bw=600GB --algo ring --size 1.6GB")
	require.Len(t, rows, 1)
	require.InDelta(t, 4.67e-3, rows[0].Seconds, 0.005e-3)
	require.InDelta(t, 600, rows[0].BusBW, 1e-6)
	require.InEpsilon(t, rows[0].Formula, rows[0].Seconds, 1e-9)
	require.True(t, rows[0].Wins)
}

// Times per byte take units, as the times of messages do.
func TestSimTimesPerByte(t *testing.T) {
	const args = "--topo uniform:4,alpha=1us,bw=1GB --algo ring --size 1M "
	require.Equal(t, simRows(t, args+"--gamma 8.25e-11 --copy 1e-10"),
		simRows(t, args+"--gamma 0.0825ns --copy 0.0000001ms"))
	require.NotEqual(t, simRows(t, args), simRows(t, args+"--gamma 0.0825ns"))
}

func TestSimWinners(t *testing.T) {
	winner := map[int64]string{}
	for _, row := range simRows(t, "--topo uniform:8,alpha=2us,bw=25GB --algo ring,recursive_doubling --size 1K,1G") {
		if row.Wins {
			winner[row.Bytes] = row.Algorithm
		}
	}
	require.Equal(t, map[int64]string{1 << 10: "recursive_doubling", 1 << 30: "ring"}, winner)
	out, err := run(t, "sim", "--topo", "torus:2x4,alpha=1us,bw=10GB", "--size", "1K..4K", "--shape", "2x4")
	require.NoError(t, err)
	require.Contains(t, out, "# all_reduce on 8 ranks (2x4), topology torus-2-4")
	require.Equal(t, 3, strings.Count(out, " ring "))
	require.Contains(t, out, "*")
	require.NotEmpty(t, simRows(t, "--op all_gather --ranks 6 --size 6K --root 0"))
	require.NotEmpty(t, simRows(t, "--op barrier --ranks 6 --size 0"))
}

// On 8 ranks recursive doubling costs 3(α+βm), the ring 14(α+βm/8): they cross at m = 8.8α/β, here
// 220,000 bytes.
func TestSimCrossover(t *testing.T) {
	const args = "--topo uniform:8,alpha=1us,bw=25GB --algo ring,recursive_doubling --size "
	for size, want := range map[string]string{"219968": "recursive_doubling", "220032": "ring"} {
		for _, row := range simRows(t, args+size) {
			require.Equal(t, row.Algorithm == want, row.Wins, "%+v", row)
			require.InEpsilon(t, row.Formula, row.Seconds, 1e-9)
		}
	}
	out, err := run(t, append([]string{"sim"}, strings.Fields(args+"1K..1G")...)...)
	require.NoError(t, err)
	require.Contains(t, out, "which wins where:\n  up to 128K  recursive_doubling\n  from 256K   ring\n")
	out, err = run(t, append([]string{"sim"}, strings.Fields(args+"1G,1K")...)...)
	require.NoError(t, err)
	require.Contains(t, out, "  up to 1K  recursive_doubling\n  from 1G   ring\n", "sizes in any order")
	out, err = run(t, "sim", "--algo", "ring", "--size", "1K,2K")
	require.NoError(t, err)
	require.NotContains(t, out, "which wins")
}

// The trace follows the Trace Event Format: complete events with times and durations in
// microseconds, no two at a time on a thread, and a name for each process and thread.
func TestSimTrace(t *testing.T) {
	out, err := run(t, strings.Fields("sim --ranks 4 --algo ring --size 4K --trace -")...)
	require.NoError(t, err)
	var trace struct {
		TraceEvents []struct {
			Ph, Name string
			Pid, Tid *int
			Ts, Dur  *float64
			Args     map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &trace))
	processes, threads, ends, steps := map[int]string{}, map[[2]int]bool{}, map[[2]int]float64{}, 0
	last := 0.0
	for _, e := range trace.TraceEvents {
		switch {
		case e.Ph == "M" && e.Name == "process_name":
			processes[*e.Pid] = e.Args["name"].(string)
		case e.Ph == "M" && e.Name == "thread_name":
			threads[[2]int{*e.Pid, *e.Tid}] = true
			require.NotEmpty(t, e.Args["name"])
		case e.Ph == "M":
			require.Equal(t, "process_sort_index", e.Name)
		default:
			require.Equal(t, "X", e.Ph)
			key := [2]int{*e.Pid, *e.Tid}
			require.True(t, threads[key])
			require.NotEmpty(t, e.Name)
			require.GreaterOrEqual(t, *e.Ts, ends[key]-1e-6)
			require.GreaterOrEqual(t, *e.Dur, 0.0)
			ends[key] = *e.Ts + *e.Dur
			last = max(last, ends[key])
			steps++
		}
	}
	require.Equal(t, map[int]string{0: "rank 0", 1: "rank 1", 2: "rank 2", 3: "rank 3"}, processes)
	require.Equal(t, 4*2*6, steps)
	require.InDelta(t, simRows(t, "--ranks 4 --algo ring --size 4K")[0].Seconds*1e6, last, 1e-6)
}

func TestSimFiles(t *testing.T) {
	dir := t.TempDir()
	topology := filepath.Join(dir, "net.txt")
	var text bytes.Buffer
	require.NoError(t, network.Ring(4, network.Wire{Alpha: 1e-6, Bandwidth: 1e9}).WriteText(&text))
	require.NoError(t, os.WriteFile(topology, text.Bytes(), 0o600))
	trace := filepath.Join(dir, "trace.json")
	require.Len(t, simRows(t, "--topo "+topology+" --algo ring --size 4K --trace "+trace), 1)
	written, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.True(t, json.Valid(written))
	require.NoError(t, os.WriteFile(topology, []byte("goccl topology format 1\nwire a b\n"), 0o600))
	_, err = run(t, "sim", "--topo", topology)
	require.ErrorContains(t, err, "line 2, column 1")
}

// A plan from a file takes as long as the algorithm from which it was exported.
func TestSimPlanFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.plan")
	_, err := run(t, "plan", "export", "all_reduce/ring", "--ranks", "8", "-o", path)
	require.NoError(t, err)
	rows := simRows(t, "--size 1M --algo ring,"+path)
	require.Len(t, rows, 2)
	require.Equal(t, rows[0], rows[1])
	require.NoError(t, os.WriteFile(path, []byte("goccl plan"), 0o600))
	_, err = run(t, "sim", "--algo", path)
	require.ErrorContains(t, err, path+": plan:1:1: this is no plan")
}

// A plan from a file determines its collective, ranks, root and shape; flags may repeat them, but
// not contradict them.
func TestSimPlanFileSaysWhatItIsFor(t *testing.T) {
	dir := t.TempDir()
	file := func(name, args string) string {
		path := filepath.Join(dir, name)
		_, err := run(t, append(strings.Fields("plan export -o "+path), strings.Fields(args)...)...)
		require.NoError(t, err)
		return path
	}
	gather := file("gather.plan", "gather/binomial --ranks 6 --root 5")
	out, err := run(t, "sim", "--algo", gather+",linear", "--size", "6K")
	require.NoError(t, err)
	require.Contains(t, out, "# gather on 6 ranks, root 5, topology uniform-6;")
	_, err = run(t, strings.Fields("sim --size 6K --op gather --ranks 6 --root 5 --algo "+gather)...)
	require.NoError(t, err)
	grid := file("grid.plan", "all_reduce/torus_2d --ranks 8 --shape 2x4")
	rows := simRows(t, "--size 1M --algo torus_2d,"+grid)
	require.Equal(t, rows[0], rows[1], "the algorithm has the grid of the file")
	require.Equal(t, simRows(t, "--size 1M --shape 2x4 --algo torus_2d"), rows[:1])
	for args, words := range map[string]string{
		"--ranks 8":       "gather.plan is a plan for gather on 6 ranks, root 5, but --ranks is 8; leave it out",
		"--root 0":        "but --root is 0",
		"--op all_gather": "but --op is all_gather",
		"--shape 3x2":     "but --shape is 3x2",
		"--topo ring:4":   "has 4 ranks only",
		"--algo " + gather + "," + grid: "grid.plan is a plan for all_reduce on 8 ranks (2x4), but " + gather +
			" is one for gather on 6 ranks, root 5",
		"--algo dir/none.plan": "--algo dir/none.plan: there is no such file",
	} {
		_, err := run(t, append([]string{"sim", "--algo", gather}, strings.Fields(args)...)...)
		require.ErrorContains(t, err, words, args)
	}
}

// A wrong plan from a file is refused with verify's message.
func TestSimRefusesWrongPlans(t *testing.T) {
	text, err := run(t, "plan", "export", "all_reduce/ring", "--ranks", "3")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "wrong.plan")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, " final", "")), 0o600))
	out, err := run(t, "sim", "--algo", "ring,"+path)
	require.ErrorContains(t, err, path+`: plan "ring" (all_reduce on 3 ranks) is wrong: post-scaling: `)
	require.Empty(t, out)
}

func TestSimWrongUse(t *testing.T) {
	for args, words := range map[string]string{
		"sim extra":                             "takes no arguments",
		"sim --topo net.txt":                    "topology net.txt: there is no such file; see goccl help topo",
		"sim --topo dir/none":                   "topology dir/none: there is no such file",
		"sim --topo hypercube:8":                "unknown kind",
		"sim --op dance":                        `unknown collective "dance"`,
		"sim --algo dance":                      `unknown algorithm "dance"`,
		"sim --algo rng":                        "did you mean ring?",
		"sim --op send":                         "send has no plans",
		"sim --size many":                       `size "many"`,
		"sim --size 4K..1K":                     "is no range",
		"sim --size 1K..x":                      `size "x"`,
		"sim --ranks -1":                        "--ranks -1",
		"sim --ranks 9 --topo ring:8":           "has 8 ranks only",
		"sim --shape 2y4":                       "--shape 2y4",
		"sim --shape 2x2x2x2":                   "up to 3 numbers",
		"sim --shape 3x3":                       "shape 3x3 has 9 ranks, want 8",
		"sim --element 0":                       "--element 0",
		"sim --root 9":                          "root 9 of 8 ranks",
		"sim --trace x":                         "--trace needs one algorithm",
		"sim --gamma -1 --algo ring --size 1K":  `--gamma -1: time "-1": write a number with ns`,
		"sim --copy 1m":                         `--copy 1m: time "1m"`,
		"sim --algo ring --size 1K --trace /x/": "/x/",
		"sim --topo /":                          "/",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, words, args)
	}
}

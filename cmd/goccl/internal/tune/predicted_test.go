package tune

import (
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/tune/predicted"
	"github.com/goccl/goccl/internal/humanize"
)

var rewrite = flag.Bool("rewrite", false, "write the figures of docs/predict.md anew")

const (
	keptRows = "../../../../tests/bench/predicted"
	docs     = "../../../../docs"
	redraw   = `make predict PREDICT_ARGS="--kept" writes it anew`
)

// The networks that make predict measures, in its order.
var networks = []struct{ name, title string }{
	{"1gbit", "1 Gbit/s"}, {"100mbit", "100 Mbit/s"}, {"5ms", "1 Gbit/s, 5 ms"}, {"host", "one host"},
}

// readKept reads the rows of a network that make predict has kept (tests/bench/predict.py).
func readKept(t *testing.T, name string) (rows []predicted.Row) {
	t.Helper()
	file, err := os.Open(filepath.Join(keptRows, name+".csv"))
	require.NoError(t, err)
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	var above []string
	for _, line := range lines[1:] {
		if line[0] != "" {
			above = line
		}
		var f [6]float64 // bytes, calls, and of the times in µs the least, median, most and predicted one
		for i := range f {
			f[i], err = strconv.ParseFloat(line[4+i], 64)
			require.NoError(t, err)
		}
		r := predicted.Row{Name: above[0], Algorithm: above[1], Hosts: 1, Bytes: int64(f[0]), Calls: int(f[1]),
			Blocks: []float64{f[2] / 1e6, f[3] / 1e6, f[4] / 1e6}, Predicted: f[5] / 1e6}
		r.Coll, err = dtype.ParseCollective(r.Name)
		require.NoError(t, err)
		r.Ranks, err = strconv.Atoi(above[2])
		require.NoError(t, err)
		r.Cores, err = strconv.Atoi(above[3])
		require.NoError(t, err)
		if name != "host" {
			r.Hosts = r.Ranks
		}
		rows = append(rows, r)
	}
	require.NotEmpty(t, rows)
	return rows
}

// The predictions that are kept, of which page and pictures are made, are what the simulator says.
func TestKeptPredictions(t *testing.T) {
	for _, n := range networks {
		rows := readKept(t, n.name)
		costs, err := cost.Read(filepath.Join(keptRows, n.name+".json"))
		require.NoError(t, err)
		again := slices.Clone(rows)
		require.NoError(t, predict(again, &costs.Costs))
		for i := range rows {
			require.InEpsilon(t, rows[i].Predicted, again[i].Predicted, 0.01,
				"%s: %s/%s on %d ranks, %d bytes: the simulator has changed; %s", n.title, rows[i].Name, rows[i].Algorithm,
				rows[i].Ranks, rows[i].Bytes, redraw)
		}
	}
}

// Rows are predicted for a machine with the cores that they had, whatever this one has.
func TestRowsSayCores(t *testing.T) {
	row := func(cores int) string {
		file := filepath.Join(t.TempDir(), "rows")
		text := fmt.Sprintf(`{"collective": "all_reduce", "algorithm": "ring", "ranks": 4, "hosts": 1, "cores": %d, `+
			`"size": 4096, "calls": 10, "times_s": [1e-5]}`, cores)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	var times []float64
	for _, cores := range []int{1, 2, 4} {
		out, err := run(t, "check", "--costs", "off", "--json", "--from", row(cores))
		require.NoError(t, err)
		var r predicted.Row
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Equal(t, cores, r.Cores)
		times = append(times, r.Predicted)
	}
	require.Greater(t, times[0], times[1])
	require.Greater(t, times[1], times[2])
	_, err := run(t, "check", "--from", row(-1))
	require.ErrorContains(t, err, "row 1: no row of tune check --json")
}

const (
	pageBegin = "<!-- make predict writes this -->\n"
	pageEnd   = "<!-- end of what it writes -->\n"
	fewKept   = 5    // of the worst rows
	farOff    = 0.25 // at most, a prediction should be off by this
	small     = 32 << 10
)

// docs/predict.md and its pictures are made of the rows that are kept.
func TestPredictedPage(t *testing.T) {
	sums := sha256.New()
	for _, n := range networks {
		text, err := os.ReadFile(filepath.Join(keptRows, n.name+".csv"))
		require.NoError(t, err)
		sums.Write(text)
	}
	mark := hex.EncodeToString(sums.Sum(nil))[:16]
	for _, name := range []string{"predicted.svg", "predicted-all-reduce.svg"} {
		text, err := os.ReadFile(filepath.Join(docs, name))
		require.NoError(t, err)
		require.Contains(t, string(text), mark, "docs/%s is of other rows; %s", name, redraw)
	}
	path := filepath.Join(docs, "predict.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), pageBegin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, pageEnd)
	require.True(t, ok)
	want := before + pageBegin + predictedPage(t) + pageEnd + after
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.True(t, want == string(text), "docs/predict.md is not what the rows say; %s", redraw)
}

// predictedPage returns the part of the page that is made of rows.
func predictedPage(t *testing.T) string {
	machine, err := os.ReadFile(filepath.Join(keptRows, "machine.txt"))
	require.NoError(t, err)
	var table, byRanks, worst strings.Builder
	for _, n := range networks {
		rows := readKept(t, n.name)
		writeSummaries(&table, &byRanks, n.title, rows)
		writeWorst(&worst, n.title, rows)
	}
	return "Measured on " + strings.TrimSpace(string(machine)) + `. By how much a prediction differs from the median block:

| network | sizes | cells | median | 90 % within | mean, with signs | τ | off by more than 25 % |
|---|---|---|---|---|---|---|---|
` + table.String() + `
The median by the number of ranks:

| network | sizes | 3 ranks | 4 ranks | 6 ranks |
|---|---|---|---|---|
` + byRanks.String() + `
τ compares the orders of algorithms: 1 is the same order of all that differ by more than the noise, 0 none, −1 the reverse.

![predicted over measured times, a panel for each network](predicted.svg)

![time by size for each algorithm of all_reduce on four ranks, predicted and measured](predicted-all-reduce.svg)

The cells that are most off, where the bytes count (64 KiB or more):

| network | call | size | measured (least and most of the blocks) | predicted | off by |
|---|---|---|---|---|---|
` + worst.String()
}

// writeSummaries writes the lines of a network in two tables, for small sizes and for large ones.
func writeSummaries(table, byRanks *strings.Builder, title string, rows []predicted.Row) {
	for _, large := range []bool{false, true} {
		var some []predicted.Row
		of := map[int][]predicted.Row{}
		least, most := int64(math.MaxInt64), int64(0)
		for _, r := range rows {
			if (r.Bytes >= small) == large {
				some, of[r.Ranks] = append(some, r), append(of[r.Ranks], r)
				least, most = min(least, rounded(r.Bytes)), max(most, rounded(r.Bytes))
			}
		}
		if some == nil {
			continue
		}
		s := predicted.Summarize(some)
		off := 0
		for i := range some {
			if math.Abs(some[i].Off()) > farOff {
				off++
			}
		}
		sizes := sizeText(least) + " to " + sizeText(most)
		fmt.Fprintf(table, "| %s | %s | %d | %.1f %% | %.1f %% | %s | %.2f | %d |\n", title, sizes, s.Rows, 100*s.Median,
			100*s.P90, signed(s.Mean), s.Tau, off)
		fmt.Fprintf(byRanks, "| %s | %s |", title, sizes)
		for _, n := range []int{3, 4, 6} {
			if of[n] == nil {
				byRanks.WriteString(" – |")
			} else {
				fmt.Fprintf(byRanks, " %.1f %% |", 100*predicted.Summarize(of[n]).Median)
			}
		}
		byRanks.WriteByte('\n')
	}
}

// writeWorst writes the large rows that are most off.
func writeWorst(b *strings.Builder, title string, rows []predicted.Row) {
	rows = slices.DeleteFunc(rows, func(r predicted.Row) bool { return r.Bytes < small })
	slices.SortStableFunc(rows, func(a, b predicted.Row) int {
		return cmp.Compare(math.Abs(b.Off()), math.Abs(a.Off()))
	})
	for _, r := range rows[:fewKept] {
		fmt.Fprintf(b, "| %s | %s/%s on %d ranks | %s | %s (%s to %s) | %s | %s |\n", title, r.Name, r.Algorithm, r.Ranks,
			sizeText(rounded(r.Bytes)), milli(r.Measured()), milli(slices.Min(r.Blocks)),
			milli(slices.Max(r.Blocks)), milli(r.Predicted), signed(r.Off()))
	}
}

// sizeText writes a size as 64 B or 16 KiB.
func sizeText(bytes int64) string {
	text := humanize.FormatSize(bytes)
	if unit := text[len(text)-1]; unit > '9' {
		return text[:len(text)-1] + " " + string(unit) + "iB"
	}
	return text + " B"
}

func milli(seconds float64) string { return fmt.Sprintf("%.3g ms", seconds*1e3) }

// signed writes a part in percent, with its sign.
func signed(part float64) string {
	return strings.Replace(fmt.Sprintf("%+.1f %%", 100*part), "-", "−", 1)
}

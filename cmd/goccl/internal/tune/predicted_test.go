package tune

import (
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
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
	{"1gbit", "1 Gbit/s"}, {"100mbit", "100 Mbit/s"}, {"5ms", "1 Gbit/s, round trips of 5 ms"}, {"host", "one host"},
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
			f[i], err = strconv.ParseFloat(line[3+i], 64)
			require.NoError(t, err)
		}
		r := predicted.Row{Name: above[0], Algorithm: above[1], Hosts: 1, Bytes: int64(f[0]), Calls: int(f[1]),
			Blocks: []float64{f[2] / 1e6, f[3] / 1e6, f[4] / 1e6}, Predicted: f[5] / 1e6}
		r.Coll, err = dtype.ParseCollective(r.Name)
		require.NoError(t, err)
		r.Ranks, err = strconv.Atoi(above[2])
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
	var table, worst strings.Builder
	for _, n := range networks {
		rows := readKept(t, n.name)
		writeSummaries(&table, n.title, rows)
		writeWorst(&worst, n.title, rows)
	}
	return "Measured on " + strings.TrimSpace(string(machine)) + `. By how much a prediction differs from the median block:

| network | sizes | cells | median | 90 % within | mean, with signs | τ | off by more than 25 % | median of 3 ranks | 4 ranks | 6 ranks |
|---|---|---|---|---|---|---|---|---|---|---|
` + table.String() + `
τ compares the orders of algorithms: 1 is the same order of all that differ by more than the noise, 0 none, −1 the reverse.

![predicted over measured times, a panel for each network](predicted.svg)

![time by size for each algorithm of all_reduce on four ranks, predicted and measured](predicted-all-reduce.svg)

The cells that are most off, where the bytes count (64 KiB or more):

| network | call | size | measured (least and most of the blocks) | predicted | off by |
|---|---|---|---|---|---|
` + worst.String()
}

// writeSummaries writes the lines of a network, for small sizes and for large ones.
func writeSummaries(b *strings.Builder, title string, rows []predicted.Row) {
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
		fmt.Fprintf(b, "| %s | %s to %s | %d | %.1f %% | %.1f %% | %s | %.2f | %d |", title, humanize.FormatSize(least),
			humanize.FormatSize(most), s.Rows, 100*s.Median, 100*s.P90, signed(s.Mean), s.Tau, off)
		for _, n := range []int{3, 4, 6} {
			if of[n] == nil {
				b.WriteString(" – |")
			} else {
				fmt.Fprintf(b, " %.1f %% |", 100*predicted.Summarize(of[n]).Median)
			}
		}
		b.WriteByte('\n')
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
			humanize.FormatSize(rounded(r.Bytes)), milli(r.Measured()), milli(slices.Min(r.Blocks)),
			milli(slices.Max(r.Blocks)), milli(r.Predicted), signed(r.Off()))
	}
}

func milli(seconds float64) string { return fmt.Sprintf("%.3g ms", seconds*1e3) }

// signed writes a part in percent, with its sign.
func signed(part float64) string {
	return strings.Replace(fmt.Sprintf("%+.1f %%", 100*part), "-", "−", 1)
}

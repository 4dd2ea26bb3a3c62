package tune

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/ccl/tune/predicted"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/netlab"
	"github.com/goccl/goccl/internal/park"
)

// tableWriter collects the text of the table and prints progress.
type tableWriter struct {
	out    io.Writer
	file   *tableFile // nil: print only
	hosts  int
	shared bool // the ranks of a host share memory
	slot   int  // of a window
	ranks  []int
	runs   int
	text   strings.Builder
	rows   []tune.Row
}

// table measures all collectives, and makes the table.
func (w *tableWriter) table(spec ranks.Spec, colls []dtype.Collective, file string, words []string) (err error) {
	if file != "-" {
		if w.file, err = newTableFile(file); err != nil {
			return err
		}
		defer w.file.remove()
	}
	w.head(words)
	for _, n := range w.ranks {
		for _, coll := range colls {
			m, err := w.measure(spec, coll, n)
			if err != nil {
				return fmt.Errorf("%v on %d ranks: %w", coll, n, err)
			}
			w.add(m)
		}
	}
	return w.end()
}

// measure runs the candidates of one collective.
func (w *tableWriter) measure(spec ranks.Spec, coll dtype.Collective, count int) (*measured.Measured, error) {
	began := time.Now()
	on, err := measured.Group(count, w.hosts, w.slot, w.shared)
	if err != nil {
		return nil, err
	}
	m := &measured.Measured{Coll: coll, On: on,
		Candidates: measured.Candidates(coll, on, w.shared, exec.PlanChannels)}
	var prefix func(int) []string
	if w.hosts > 1 {
		prefix = func(rank int) []string { return netlab.In(rank * w.hosts / count) }
	}
	spec.Coll, spec.Ranks = coll, count
	spec.InPlace = predicted.InPlace(coll)
	if coll == dtype.Barrier {
		spec.Sizes = []int64{0}
	}
	for _, c := range m.Candidates {
		spec.Candidates = append(spec.Candidates, c.Name)
	}
	fmt.Fprintf(os.Stderr, "%v on %d ranks: %d algorithms, %d sizes", coll, count, len(m.Candidates), len(spec.Sizes))
	defer func() { fmt.Fprintf(os.Stderr, " (%.1f s)\n", time.Since(began).Seconds()) }()
	spec.Sizes = slices.Clone(spec.Sizes)
	for n := range w.runs {
		var run []measured.Cell
		err := ranks.Start("tune", spec, prefix, func(cell measured.Cell) {
			fmt.Fprint(os.Stderr, ".")
			run = append(run, cell)
		})
		if n%2 == 1 { // they went downwards
			slices.Reverse(run)
		}
		slices.Reverse(spec.Sizes)
		if err == nil {
			err = m.Add(run)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// head writes where the table comes from.
func (w *tableWriter) head(args []string) {
	processor := "unknown processor"
	for _, f := range probe.Host() {
		if f.Name == "processor" && f.Value != "" {
			processor = f.Value
		}
	}
	fmt.Fprintf(&w.text, "%s\n# %s; %d cores; goccl %s; %s\n# goccl tune measure %s\n",
		tune.Header, processor, park.Cores(), ccl.Version,
		time.Now().UTC().Format(time.DateOnly), strings.Join(args, " "))
	fmt.Fprintf(&w.text, "# Before the rows: the median times of a call, of the winner and of the next; where an algorithm that the library chose before was kept\n"+
		"# since the winner was not faster by more than %.0f %% and the noise, it is named first.\n#\n"+
		"# collective    ranks  over hosts    size  algorithm\n", 100*(measured.Margin-1))
}

// add prints the winners and makes rows of them.
func (w *tableWriter) add(m *measured.Measured) {
	picked := m.Pick()
	table := cli.Table(w.out)
	fmt.Fprintf(table, "%v, %d ranks\tsize (B)\talgorithm\ttime (µs)\tnext\tof that\twithout this\tof that\n",
		m.Coll, m.On.Size())
	for s, size := range m.Sizes {
		i := picked[s][0]
		fmt.Fprintf(table, "\t%d\t%s\t%.2f\t", size, m.Candidates[i].Name, m.Times[s][i].Median()*1e6)
		for _, other := range []int{m.RunnerUp(s, i), m.Incumbent(s, 0)} {
			if other < 0 {
				fmt.Fprint(table, "-\t-\t")
				continue
			}
			fmt.Fprintf(table, "%s\t%.2f ×\t", m.Candidates[other].Name, m.Times[s][other].Ratio(m.Times[s][i]))
		}
		fmt.Fprintln(table)
	}
	fmt.Fprintln(table)
	table.Flush()
	w.text.WriteString("\n")
	for _, b := range m.Bands(measured.FirstRanks(m.On.Size(), w.ranks)) {
		for s := b.First; s <= b.Last; s++ {
			i, next := b.Winners[0], m.RunnerUp(s, b.Winners[0])
			fmt.Fprintf(&w.text, "# %d B: %s %.2f µs", m.Sizes[s], m.Candidates[i].Name, m.Times[s][i].Median()*1e6)
			if next >= 0 {
				fmt.Fprintf(&w.text, ", %s %.2f µs", m.Candidates[next].Name, m.Times[s][next].Median()*1e6)
			}
			w.text.WriteString("\n")
		}
		for _, row := range b.Rows {
			fmt.Fprintln(&w.text, row)
			w.rows = append(w.rows, row)
		}
	}
}

// end writes the table after checking that the library can read it.
func (w *tableWriter) end() error {
	read, err := tune.ParseTable([]byte(w.text.String()))
	if err != nil {
		return fmt.Errorf("the table that was made is refused: %w", err)
	}
	if w.file == nil {
		_, err := io.WriteString(w.out, w.text.String())
		return err
	}
	if err := w.file.write(w.text.String()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w.out, "%s: %d rows; GOCCL_TUNE=%s uses them, on all ranks\n",
		w.file.name, len(read.Rows()), w.file.name)
	return err
}

// tableFile is a file that appears only once it is complete.
type tableFile struct {
	name string
	part *os.File
}

// newTableFile checks before the measurement that the file can be written.
func newTableFile(name string) (*tableFile, error) {
	part, err := os.CreateTemp(filepath.Dir(name), ".goccl-tune-")
	if err != nil {
		return nil, fmt.Errorf("--output %s: %w", name, err)
	}
	return &tableFile{name, part}, nil
}

func (f *tableFile) write(text string) error {
	if _, err := f.part.WriteString(text); err != nil {
		return err
	}
	if err := f.part.Chmod(0o644); err != nil {
		return err
	}
	if err := f.part.Close(); err != nil {
		return err
	}
	return os.Rename(f.part.Name(), f.name)
}

// remove deletes an unfinished file.
func (f *tableFile) remove() {
	f.part.Close()
	os.Remove(f.part.Name())
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/internal/humanize"
	"github.com/goccl/goccl/internal/netlab"
	"github.com/goccl/goccl/internal/park"
)

// measureFlag in place of --fit makes a table.
const measureFlag = "measure"

// asksToMeasure reports whether the arguments of tune have --measure.
func asksToMeasure(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return strings.TrimLeft(arg, "-") == measureFlag && strings.HasPrefix(arg, "-")
	})
}

// measureProcess is the first argument of the process that measures in a network of hosts; the
// arguments of tune follow.
const measureProcess = "measure-process"

// tuneMeasure compares the algorithms of each collective and makes a table of the winners. inside
// means that this process has namespaces for a network.
func tuneMeasure(args []string, out io.Writer, inside bool) error {
	opts, err := environment()
	if err != nil {
		return err
	}
	set := flags("tune --"+measureFlag, out)
	set.Bool(measureFlag, true, "measure which algorithm is fastest where; without it see goccl help tune")
	rankList := set.String("ranks", "2",
		"numbers of ranks, each a process on this host, as 2,4,8. A row is also for the numbers between one and the next smaller;\n"+
			"bind the ranks (taskset) to measure how it is with fewer cores")
	ops := set.String("op", "", "collectives, as all_reduce,broadcast; all if empty")
	lo := set.String("min", "8", "smallest size of the vector in bytes, as 64K")
	hi := set.String("max", "64M", "largest size")
	factor := set.Int64("factor", 4, "each size is so many times the one before")
	runs := set.Int("runs", 3, "how often the ranks are started anew and measure all sizes")
	repeat := set.Int("repeat", 5,
		"blocks of calls in a run for each size and algorithm, which take turns; the median of all runs counts")
	block := set.Duration("block", 5*time.Millisecond, "time of one block")
	transport := set.String("transport", "auto", "auto, shm, rdma or tcp")
	hostCount := set.Int("hosts", 1,
		"spread the ranks evenly over so many hosts: network namespaces, joined by a switch with ports of --rate")
	rate := set.String("rate", "1gbit",
		"of each port, as 1gbit or 10gbit; needs ip and tc, and to be root or allowed user namespaces")
	file := set.String("out", "", "file for the table, which GOCCL_TUNE reads; empty: it is only printed")
	if err := set.Parse(args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	network := &netlab.Network{Hosts: *hostCount, Wires: []netlab.Wire{{Rate: *rate}}}
	if *hostCount == 1 {
		network = nil
	} else {
		opts.SocketIfname = netlab.Interface(0)
	}
	// Measure what the library would do without any other settings.
	opts.Transport, opts.Algo, opts.Plan, opts.Tune, opts.Determinism = *transport, "", "", "", 0
	if err := opts.Validate(); err != nil {
		return err
	}
	spec := benchSpec{
		Type: dtype.F32, Op: dtype.Sum, Factor: *factor, Repeat: *repeat, Block: *block, Options: opts.String(),
	}
	if spec.Min, err = humanize.ParseSize(*lo); err != nil {
		return err
	}
	if spec.Max, err = humanize.ParseSize(*hi); err != nil {
		return err
	}
	ranks, err := parseRankList(*rankList)
	if err != nil {
		return err
	}
	colls, err := parseCollectives(*ops)
	if err != nil {
		return err
	}
	switch {
	case spec.Min < 4 || spec.Max < spec.Min:
		return fmt.Errorf("--min %s and --max %s are not a range of 4 bytes or more", *lo, *hi)
	case spec.Max > 1<<30:
		return fmt.Errorf("--max %s: want 1G or less, every rank holds two vectors of that size", *hi)
	case spec.Factor < 2:
		return fmt.Errorf("--factor %d: want 2 or more", spec.Factor)
	case spec.Repeat < leastBlocks || spec.Block <= 0 || *runs < 1:
		return fmt.Errorf("--repeat must be %d or more, --block and --runs more than zero", leastBlocks)
	case *hostCount < 1 || *hostCount > 64:
		return fmt.Errorf("--hosts %d: want 1 to 64", *hostCount)
	case *rate == "" || !rateForm.MatchString(*rate):
		return fmt.Errorf("--rate %s: want a number and a unit of tc, as 1gbit, 100mbit or 12.5mbps (bytes)", *rate)
	}
	for _, n := range ranks {
		if n%*hostCount != 0 {
			return fmt.Errorf("--ranks %s: %d ranks cannot be spread evenly over --hosts %d", *rankList, n, *hostCount)
		}
	}
	if network != nil && !inside {
		return apart(true, out, append([]string{measureProcess}, args...)...)
	}
	if network != nil {
		if err := network.Make(); err != nil {
			return fmt.Errorf("--hosts: %w", err)
		}
	}
	w := &tableWriter{
		out: out, hosts: *hostCount, shared: opts.Transport != "tcp", ranks: ranks, runs: *runs,
		slot: cmp.Or(opts.BuffSize, 2<<20) / plan.WindowSlots,
	}
	if *file != "" {
		if w.file, err = newTableFile(*file); err != nil {
			return err
		}
		defer w.file.remove()
	}
	w.head(args)
	for _, n := range ranks {
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

// parseRankList parses a list such as 2,4,8, in any order.
func parseRankList(text string) (all []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 2 || n > 64 {
			return nil, fmt.Errorf("--ranks %s: want numbers from 2 to 64, as 2,4,8", text)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func parseCollectives(text string) (all []dtype.Collective, err error) {
	if strings.TrimSpace(text) == "" {
		return dtype.Collectives(), nil
	}
	for part := range strings.SplitSeq(text, ",") {
		coll, err := dtype.ParseCollective(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, humanize.DidYouMean(part, collectiveNames()))
		}
		if !coll.Valid() {
			return nil, fmt.Errorf("--op %v: it has no algorithms to choose from", coll)
		}
		all = append(all, coll)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

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

// measure runs the candidates of one collective.
func (w *tableWriter) measure(spec benchSpec, coll dtype.Collective, ranks int) (*measured, error) {
	began := time.Now()
	on, err := w.group(ranks)
	if err != nil {
		return nil, err
	}
	m := &measured{coll: coll, on: on, candidates: candidates(coll, on, w.shared, exec.PlanChannels)}
	var prefix func(int) []string
	if w.hosts > 1 {
		prefix = func(rank int) []string { return netlab.In(rank * w.hosts / ranks) }
	}
	spec.Coll, spec.Ranks = coll, ranks
	spec.InPlace = coll == dtype.AllReduce || coll == dtype.Broadcast || coll == dtype.Reduce // as torch calls them
	if coll == dtype.Barrier {
		spec.Min, spec.Max = 0, 0
	}
	for _, c := range m.candidates {
		spec.Candidates = append(spec.Candidates, c.name)
	}
	fmt.Fprintf(os.Stderr, "%v on %d ranks: %d algorithms, %d sizes", coll, ranks, len(m.candidates), len(spec.sizes()))
	defer func() { fmt.Fprintf(os.Stderr, " (%.1f s)\n", time.Since(began).Seconds()) }()
	for n := range w.runs {
		var run []tuneCell
		spec.Downwards = n%2 == 1
		err := measureRanks(spec, prefix, func(cell tuneCell) {
			fmt.Fprint(os.Stderr, ".")
			run = append(run, cell)
		})
		if spec.Downwards {
			slices.Reverse(run)
		}
		if err == nil {
			err = m.add(run)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// group returns what the library will know of the group that is measured: its ranks are spread over
// network namespaces of this machine.
func (w *tableWriter) group(ranks int) (*topo.Group, error) {
	said := make([]topo.Rank, ranks)
	for rank := range said {
		said[rank] = topo.Rank{Number: rank, Size: ranks, Place: topo.Place{Network: uint64(rank * w.hosts / ranks)},
			Cores: park.Affinity().String(), Usable: park.Cores(), Slot: w.slot}
		if w.shared {
			said[rank].Transports = []string{"shm"}
		}
	}
	on, err := topo.Agree(said)
	if err == nil && len(on.Hosts()) < ranks {
		on = on.WithSlot(on.Room())
	}
	return on, err
}

// head writes where the table comes from.
func (w *tableWriter) head(args []string) {
	processor := "unknown processor"
	for _, f := range probe.Host() {
		if f.Name == "processor" && f.Value != "" {
			processor = f.Value
		}
	}
	fmt.Fprintf(&w.text, "%s\n# %s; %d cores; goccl %s; %s\n# goccl tune %s\n",
		tune.Header, processor, park.Cores(), ccl.Version,
		time.Now().UTC().Format(time.DateOnly), strings.Join(args, " "))
	fmt.Fprintf(&w.text, "# Before the rows: the median times of a call, of the winner and of the next; where an algorithm that the library chose before was kept\n"+
		"# since the winner was not faster by more than %.0f %% and the noise, it is named first.\n#\n"+
		"# collective    ranks  over hosts    size  algorithm\n", 100*(margin-1))
}

// add prints the winners and makes rows of them.
func (w *tableWriter) add(m *measured) {
	picked := m.pick()
	table := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%v, %d ranks\tsize (B)\talgorithm\ttime (µs)\tnext\tof that\twithout this\tof that\n",
		m.coll, m.on.Size())
	for s, size := range m.sizes {
		i := picked[s][0]
		fmt.Fprintf(table, "\t%d\t%s\t%.2f\t", size, m.candidates[i].name, m.times[s][i].median()*1e6)
		for _, other := range []int{m.runnerUp(s, i), m.incumbent(s, 0)} {
			if other < 0 {
				fmt.Fprint(table, "-\t-\t")
				continue
			}
			fmt.Fprintf(table, "%s\t%.2f ×\t", m.candidates[other].name, m.times[s][other].ratio(m.times[s][i]))
		}
		fmt.Fprintln(table)
	}
	fmt.Fprintln(table)
	table.Flush()
	w.text.WriteString("\n")
	for _, b := range m.bands(firstRanks(m.on.Size(), w.ranks)) {
		for s := b.first; s <= b.last; s++ {
			i, next := b.winners[0], m.runnerUp(s, b.winners[0])
			fmt.Fprintf(&w.text, "# %d B: %s %.2f µs", m.sizes[s], m.candidates[i].name, m.times[s][i].median()*1e6)
			if next >= 0 {
				fmt.Fprintf(&w.text, ", %s %.2f µs", m.candidates[next].name, m.times[s][next].median()*1e6)
			}
			w.text.WriteString("\n")
		}
		for _, row := range b.rows {
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
		return nil, fmt.Errorf("--out %s: %w", name, err)
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

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/internal/humanize"
)

// benchSpec describes a benchmark to its ranks.
type benchSpec struct {
	Rank, Ranks, Root int
	Coll              dtype.Collective
	Type              dtype.Type
	Op                dtype.Op
	Min, Max          int64
	Factor            int64
	InPlace           bool
	Registered        bool `json:",omitempty"` // buffers are in registered memory
	Warmup            int
	Repeat            int           // blocks of calls; the median block counts
	Block             time.Duration // target duration of a block
	Options           string
	// Candidates are the algorithms that goccl tune --measure compares; the ranks then report
	// tuneCells.
	Candidates []string `json:",omitempty"`
	Downwards  bool     `json:",omitempty"` // for Candidates: sizes go from Max down to Min
	EachBlock  bool     `json:",omitempty"` // rows contain the times of all blocks, for goccl tune --fit
	node       *ccl.Node
}

// benchRow is one line of the result, with nccl-tests' columns.
type benchRow struct {
	Bytes  int64   `json:"size"`
	Count  int64   `json:"count"`
	Type   string  `json:"type"`
	Op     string  `json:"redop"`
	Micros float64 `json:"time_us"`
	AlgBW  float64 `json:"algbw_gbs"`
	BusBW  float64 `json:"busbw_gbs"`
	Wrong  int64   `json:"wrong"`

	Blocks []float64 `json:"blocks_us,omitempty"` // for EachBlock
}

const benchRankVerb = "bench-rank"

func bench(args []string, out io.Writer) error {
	opts, err := environment()
	if err != nil {
		return err
	}
	set := flags("bench", out)
	op := set.String("op", "all_reduce", "collective, or send for a ping-pong of rank 0 and 1")
	ranks := set.Int("ranks", 2, "number of ranks, each a process on this host")
	typ := set.String("dtype", "float32", "element type")
	redop := set.String("redop", "sum", "reduction operator")
	lo := set.String("min", "8", "smallest size of the vector in bytes, as 64K")
	hi := set.String("max", "64M", "largest size")
	factor := set.Int64("factor", 4, "each size is so many times the one before")
	root := set.Int("root", 0, "root of rooted collectives")
	inPlace := set.Bool("in-place", false, "input and output are the same memory, where the collective allows it")
	registered := set.Bool("registered", false,
		"buffers are in registered memory, as of goccl.empty, which ranks of one host read where it lies")
	transport := set.String("transport", opts.Transport, "auto, shm, rdma or tcp")
	algorithm := set.String("algo", opts.Algo, "as in GOCCL_ALGO")
	repeat := set.Int("repeat", 7, "blocks of calls a size; the median counts")
	block := set.Duration("block", 20*time.Millisecond, "time of one block")
	asJSON := set.Bool("json", false, "print one JSON object a line")
	if err := set.Parse(args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	spec := benchSpec{
		Ranks: *ranks, Root: *root, Factor: *factor, InPlace: *inPlace, Registered: *registered,
		Warmup: 2, Repeat: *repeat, Block: *block,
	}
	if spec.Coll, err = dtype.ParseCollective(*op); err != nil {
		return fmt.Errorf("%w%s", err, humanize.DidYouMean(*op, collectiveNames()))
	}
	if spec.Type, err = dtype.ParseType(*typ); err != nil {
		return err
	}
	if spec.Op, err = dtype.ParseOp(*redop); err != nil {
		return err
	}
	if spec.Coll.Reduces() {
		if err := dtype.Reducible(spec.Type, spec.Op); err != nil {
			return err
		}
	}
	if spec.Min, err = humanize.ParseSize(*lo); err != nil {
		return err
	}
	if spec.Max, err = humanize.ParseSize(*hi); err != nil {
		return err
	}
	opts.Transport, opts.Algo = *transport, *algorithm
	if err := opts.Validate(); err != nil {
		return err
	}
	least := 1
	if spec.Coll == dtype.Send || spec.Coll == dtype.Recv {
		spec.Coll, least = dtype.Send, 2
	}
	switch {
	case spec.Ranks < least || spec.Ranks > 256:
		return fmt.Errorf("--ranks %d: want %d to 256", spec.Ranks, least)
	case spec.Min < 0 || spec.Max < spec.Min:
		return fmt.Errorf("--min %s and --max %s are not a range", *lo, *hi)
	case spec.Factor < 2:
		return fmt.Errorf("--factor %d: want 2 or more", spec.Factor)
	case spec.Root < 0 || spec.Root >= spec.Ranks:
		return fmt.Errorf("--root %d of %d ranks", spec.Root, spec.Ranks)
	case spec.Repeat < 1 || spec.Block <= 0:
		return fmt.Errorf("--repeat and --block must be more than zero")
	}
	spec.Options = opts.String()
	return runBench(spec, *asJSON, out)
}

func runBench(spec benchSpec, asJSON bool, out io.Writer) error {
	printer := newBenchPrinter(spec, asJSON, out)
	if err := measureRanks(spec, nil, printer.row); err != nil {
		return err
	}
	return printer.end()
}

// measureRanks starts the ranks, distributes their addresses, lets them begin once all have joined,
// and passes rank 0's rows to report.
// prefix(rank), if given, is put before the command of a rank.
func measureRanks[Row benchRow | tuneCell](spec benchSpec, prefix func(rank int) []string, report func(Row)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	type child struct {
		cmd  *exec.Cmd
		in   io.WriteCloser
		from *bufio.Reader
	}
	children := make([]child, spec.Ranks)
	stop := func() {
		for _, c := range children {
			if c.cmd != nil && c.cmd.Process != nil {
				c.cmd.Process.Kill()
				c.cmd.Wait()
			}
		}
	}
	addresses := make([]json.RawMessage, spec.Ranks)
	for rank := range children {
		mine := spec
		mine.Rank = rank
		text, err := json.Marshal(mine)
		if err != nil {
			return err
		}
		c := &children[rank]
		command := []string{self, benchRankVerb, string(text)}
		if prefix != nil {
			command = append(prefix(rank), command...)
		}
		c.cmd = exec.Command(command[0], command[1:]...)
		c.cmd.Stderr = os.Stderr
		if c.in, err = c.cmd.StdinPipe(); err != nil {
			return err
		}
		from, err := c.cmd.StdoutPipe()
		if err != nil {
			return err
		}
		c.from = bufio.NewReaderSize(from, 1<<16)
		if err := c.cmd.Start(); err != nil {
			stop()
			return err
		}
	}
	// gather reads a line of each rank. Where several end, the first one is named.
	gather := func(what string, use func(rank int, line []byte)) error {
		type arrival struct {
			rank int
			line []byte
			err  error
		}
		arrivals := make(chan arrival, len(children))
		for rank := range children {
			go func() {
				line, err := children[rank].from.ReadBytes('\n')
				arrivals <- arrival{rank, line, err}
			}()
		}
		for range children {
			a := <-arrivals
			if a.err != nil {
				cmd := children[a.rank].cmd
				cmd.Wait()
				stop()
				return fmt.Errorf("rank %d: %v, before it had %s", a.rank, cmd.ProcessState, what)
			}
			use(a.rank, a.line)
		}
		return nil
	}
	if err := gather("an address", func(rank int, line []byte) { addresses[rank] = line }); err != nil {
		return err
	}
	everyone, err := json.Marshal(addresses)
	if err != nil {
		stop()
		return err
	}
	for rank := range children {
		children[rank].in.Write(append(everyone, '\n'))
	}
	if err := gather("joined", func(int, []byte) {}); err != nil {
		return err
	}
	for rank := range children {
		children[rank].in.Write([]byte("\n"))
	}
	decoder := json.NewDecoder(children[0].from)
	for {
		var row Row
		if err := decoder.Decode(&row); err != nil {
			if !errors.Is(err, io.EOF) {
				stop()
				return fmt.Errorf("rank 0: %v", err)
			}
			break
		}
		report(row)
	}
	var group sync.WaitGroup
	errs := make([]error, spec.Ranks)
	for rank := range children {
		group.Go(func() {
			if err := children[rank].cmd.Wait(); err != nil {
				errs[rank] = fmt.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

type benchPrinter struct {
	json  bool
	out   io.Writer
	rows  int
	wrong int64
}

func newBenchPrinter(spec benchSpec, asJSON bool, out io.Writer) *benchPrinter {
	if !asJSON {
		opts, _ := ccl.ParseOptions(spec.Options)
		opts.EnsureDefaults()
		fmt.Fprintf(out,
			"# %v on %d ranks, transport %s, in place: %v; time is the median of %d blocks, slowest rank\n",
			spec.Coll, spec.Ranks, opts.Transport, spec.InPlace, spec.Repeat)
		fmt.Fprintf(out, "%12s %12s %8s %8s %12s %12s %12s %8s\n",
			"size (B)", "count", "type", "redop", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "#wrong")
	}
	return &benchPrinter{json: asJSON, out: out}
}

func (p *benchPrinter) row(r benchRow) {
	p.rows++
	p.wrong += r.Wrong
	if p.json {
		text, _ := json.Marshal(r)
		fmt.Fprintf(p.out, "%s\n", text)
		return
	}
	fmt.Fprintf(p.out, "%12d %12d %8s %8s %12.2f %12.3f %12.3f %8d\n",
		r.Bytes, r.Count, r.Type, r.Op, r.Micros, r.AlgBW, r.BusBW, r.Wrong)
}

func (p *benchPrinter) end() error {
	if p.wrong > 0 {
		return fmt.Errorf("%d elements were wrong", p.wrong)
	}
	if p.rows == 0 {
		return errors.New("nothing was measured")
	}
	return nil
}

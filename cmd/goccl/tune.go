package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/internal/humanize"
	"github.com/goccl/goccl/internal/netlab"
)

// fitRow compares one simulated time with the measured one.
type fitRow struct {
	Algorithm string  `json:"algorithm"`
	Bytes     int64   `json:"size"`
	Measured  float64 `json:"measured_s"`
	Simulated float64 `json:"simulated_s"`
	Range     spread  `json:"measured_range_s"` // of the blocks of calls
}

func (r fitRow) off() float64 { return r.Simulated/r.Measured - 1 }

// fitAlgorithms are the algorithms on which the fitted network is tried.
var fitAlgorithms = []string{"ring", "recursive_doubling", "rabenseifner"}

// fitJob is the task of the measuring process, and fitResult its answer.
type fitJob struct {
	Spec benchSpec `json:"spec"`
	Rate string    `json:"rate"` // of the shaped network that the process creates for itself; none if empty
}

type fitResult struct {
	Costs   fitted   `json:"costs"`
	Rows    []fitRow `json:"rows"`
	Failure string   `json:"failure"`
}

// fitProcess in place of flags makes this process the measuring process.
const fitProcess = "fit-process"

func tuneVerb(args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == fitProcess {
		return fitAsTold(args[1:], out)
	}
	if len(args) > 0 && args[0] == measureProcess {
		return tuneMeasure(args[1:], out, true)
	}
	if asksToMeasure(args) {
		return tuneMeasure(args, out, false)
	}
	opts, err := environment()
	if err != nil {
		return err
	}
	set := flags("tune", out)
	set.Bool(measureFlag, false,
		"measure which algorithm is fastest where, and make a table of it: goccl help tune --measure has its flags")
	fit := set.Bool("fit", false,
		"measure α, β and γ of the network, and compare simulated all-reduces with measured ones")
	ranks := set.Int("ranks", 2, "number of ranks, each a process on this host")
	rate := set.String("rate", "",
		"put each rank into a network namespace of its own, behind a switch port of this rate, as 1gbit or 100mbit;\n"+
			"needs ip and tc, and to be root or allowed user namespaces")
	lo := set.String("min", "1M", "smallest all-reduce in bytes, as 64K")
	hi := set.String("max", "64M", "largest all-reduce")
	factor := set.Int64("factor", 4, "each size is so many times the one before")
	repeat := set.Int("repeat", 5, "blocks of calls a size; the median counts")
	asJSON := set.Bool("json", false, "print one JSON object a line")
	if err := set.Parse(args); err != nil {
		return err
	}
	if !*fit || set.NArg() > 0 {
		return misuse{errors.New(
			"usage: goccl tune --fit [flags], or goccl tune --measure [flags]; see goccl help tune")}
	}
	opts.Transport, opts.Plan, opts.Tune = "tcp", "", ""
	if *rate != "" {
		opts.SocketIfname = netlab.Interface(0)
	}
	spec := benchSpec{
		Ranks: *ranks, Coll: dtype.Send, Type: dtype.F32, Op: dtype.Sum, Factor: *factor, Warmup: 1, Repeat: *repeat,
		Block: 20 * time.Millisecond, Options: opts.String(),
	}
	if spec.Min, err = humanize.ParseSize(*lo); err != nil {
		return err
	}
	if spec.Max, err = humanize.ParseSize(*hi); err != nil {
		return err
	}
	switch {
	case spec.Ranks < 2 || spec.Ranks > 64:
		return fmt.Errorf("--ranks %d: want 2 to 64", spec.Ranks)
	case spec.Min < 4 || spec.Max < spec.Min:
		return fmt.Errorf("--min %s and --max %s are not a range of 4 bytes or more", *lo, *hi)
	case spec.Max > 1<<30:
		return fmt.Errorf("--max %s: want 1G or less, every rank holds two vectors of that size", *hi)
	case spec.Factor < 2 || spec.Repeat < 1:
		return errors.New("--factor must be 2 or more, --repeat 1 or more")
	case !rateForm.MatchString(*rate):
		return fmt.Errorf("--rate %s: want a number and a unit of tc, as 1gbit, 100mbit or 12.5mbps (bytes)", *rate)
	}
	if largest := spec.largest(); largest < 2*smallest {
		return fmt.Errorf(
			"the largest size measured would be %d bytes: the fit needs one of 2K or more, set --max", largest)
	}
	result, err := fitApart(fitJob{Spec: spec, Rate: *rate})
	if err != nil {
		return err
	}
	return printFit(out, result.Costs, result.Rows, *asJSON)
}

// rateForm matches no rate, or a rate above zero that tc understands.
var rateForm = regexp.MustCompile(
	`(?i)^(([0-9]*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.[0-9]*[1-9][0-9]*)([kmgt]i?)?(bit|bps))?$`)

// largest returns the largest of the sizes.
func (s *benchSpec) largest() int64 {
	size := s.Min
	for size <= s.Max/s.Factor {
		size *= s.Factor
	}
	return size
}

// fitApart measures in a process of its own.
func fitApart(job fitJob) (*fitResult, error) {
	told, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	var answer bytes.Buffer
	if err := apart(job.Rate != "", &answer, fitProcess, string(told)); err != nil {
		return nil, err
	}
	var result fitResult
	if err := json.Unmarshal(answer.Bytes(), &result); err != nil {
		return nil, fmt.Errorf("the process that measures answered %q: %w", answer.Bytes(), err)
	}
	if result.Failure != "" {
		return nil, errors.New(result.Failure)
	}
	return &result, nil
}

// apart runs goccl tune with other arguments in a process of its own, so that an interrupt ends
// that process with all of its ranks. If it makes a network, it gets namespaces, which end with it.
func apart(network bool, out io.Writer, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	attributes := ownGroup()
	if network {
		if attributes, err = netlab.Attributes(); err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(interrupted, self, append([]string{"tune"}, args...)...)
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attributes, out, os.Stderr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	runtime.LockOSThread() // the child ends with the thread that started it
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	switch {
	case interrupted.Err() != nil:
		return fmt.Errorf("interrupted: %v; the ranks are ended", context.Cause(interrupted))
	case cmd.Process == nil && network:
		return fmt.Errorf("--rate: %v: %s", err, netlab.Hint)
	case err != nil:
		return fmt.Errorf("the process that measures ended: %w", err)
	}
	return nil
}

// fitAsTold is the whole measuring process.
func fitAsTold(args []string, out io.Writer) error {
	var job fitJob
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &job) != nil {
		return fmt.Errorf("%s is for goccl tune's own use", fitProcess)
	}
	result, err := job.run()
	if err != nil {
		result.Failure = err.Error()
	}
	return json.NewEncoder(out).Encode(result)
}

func (job fitJob) run() (result fitResult, err error) {
	opts, err := ccl.ParseOptions(job.Spec.Options)
	if err != nil {
		return result, err
	}
	var prefix func(int) []string
	if job.Rate != "" {
		prefix = netlab.In
		made := netlab.Network{Hosts: job.Spec.Ranks, Wires: []netlab.Wire{{Rate: job.Rate}}}
		if err := made.Make(); err != nil {
			return result, fmt.Errorf("--rate: %w", err)
		}
	}
	if result.Costs, err = fitNetwork(job.Spec, prefix); err != nil {
		return result, err
	}
	result.Rows, err = compareFit(job.Spec, opts, prefix, result.Costs)
	return result, err
}

// compareFit measures the all-reduces and simulates them with the fitted costs.
func compareFit(spec benchSpec, opts ccl.Options, prefix func(int) []string, costs fitted) ([]fitRow, error) {
	spec.Coll, spec.InPlace, spec.EachBlock = dtype.AllReduce, true, true
	var rows []fitRow
	for _, name := range fitAlgorithms {
		opts.Algo = "all_reduce=" + name
		spec.Options = opts.String()
		err := measureRanks(spec, prefix, func(r benchRow) {
			blocks := spreadOf(r.Blocks)
			rows = append(rows, fitRow{
				Algorithm: name, Bytes: r.Bytes, Measured: r.Micros / 1e6,
				Range: spread{blocks[0] / 1e6, blocks[1] / 1e6},
			})
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for i := range rows {
		var err error
		if rows[i].Simulated, err = simulateFit(rows[i], spec.Ranks, costs); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// simulateFit returns the time of one all-reduce over a network with the fitted costs.
func simulateFit(r fitRow, ranks int, costs fitted) (float64, error) {
	a, err := algo.Find(dtype.AllReduce, r.Algorithm)
	if err != nil {
		return 0, err
	}
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
	if err != nil {
		return 0, err
	}
	wire := network.Wire{Alpha: costs.Alpha, Bandwidth: 1 / costs.Beta}
	result, err := sim.Run(p, network.Uniform(ranks, wire),
		sim.Options{Elements: int(r.Bytes / 4), ElementBytes: 4, Gamma: costs.Gamma})
	if err != nil {
		return 0, err
	}
	return result.Makespan, nil
}

func printFit(out io.Writer, costs fitted, rows []fitRow, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		if err := encoder.Encode(costs); err != nil {
			return err
		}
		for _, r := range rows {
			if err := encoder.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	costs.print(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "all_reduce\tsize (B)\tmeasured (ms)\tfrom\tto\tsimulated (ms)\toff by\t")
	worst := 0.0
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%+.1f %%\t\n", r.Algorithm, r.Bytes,
			r.Measured*1e3, r.Range[0]*1e3, r.Range[1]*1e3, r.Simulated*1e3, 100*r.off())
		worst = math.Max(worst, math.Abs(r.off()))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nlargest difference %.1f %%\n", 100*worst)
	if why := costs.unsteady(rows); why != "" {
		_, err = fmt.Fprintf(out, "warning: %s: the machine or the network is busy; measure again when it is not, "+
			"or with a larger --repeat\n", why)
	}
	return err
}

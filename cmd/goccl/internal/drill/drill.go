// Package drill is goccl drill: it injects faults into real processes, and checks what every rank
// is told. A build with the tag nodrill is without it.
package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/internal/netlab"
)

// driller runs the cells of a drill.
type driller struct {
	self    string
	folder  string        // where ranks run, and leave no file
	timeout time.Duration // after which operations have stalled
	options ccl.Options
	ctx     context.Context
}

// job is the task of the process that has the network of hosts.
type job struct {
	Cells   []cell        `json:"cells"`
	Lanes   int           `json:"lanes"`
	Folder  string        `json:"folder"`
	Timeout time.Duration `json:"timeout"`
	Options string        `json:"options"`
}

// drillLine is a line of that process: an outcome, or why there is no network.
type drillLine struct {
	Outcome *outcome `json:"outcome,omitempty"`
	Refused string   `json:"refused,omitempty"`
	Left    []string `json:"left,omitempty"`
}

// The commands of the processes that the drill starts.
const (
	drillProcess  = "process" // it has the network of hosts
	rankProcess   = "rank"
	relayProcess  = "relay"
	holderProcess = "child"
)

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use: "drill", Args: cli.Arguments(0, 0),
		Short: "inject faults (death, hang, mismatched call …) into real processes and check the error of every rank",
	}
	f := c.Flags()
	all := f.Bool("all", false, "every cell; without it, and without a choice by other flags, the part that CI runs")
	faults := cli.Flag(f, "faults", "NAMES", "", "only these, as kill,late; --list has their names", cli.Names(faultNames()))
	colls := cli.Flag(f, "op", "NAMES", "", "only these collectives, as all_reduce,send_recv", cli.Names(collNames()))
	transports := cli.Flag(f, "transport", "NAMES", "", "only these, of shm, tcp and hosts: two hosts made of network "+
		"namespaces, for which the drill must be root, or be allowed user namespaces", cli.Names(roads))
	counts := cli.Flag(f, "ranks", "RANKS", "3,6", "numbers of ranks: one has the fault, and others are to name it",
		cli.Numbers(3, 64))
	timeout := f.Duration("timeout", 500*time.Millisecond, "`TIME` of the operations that are to stall, 100ms to 1m")
	lanes := cli.Flag(f, "jobs", "N", "1", "how many cells run at the same time on each of this machine and the hosts",
		cli.Number(1, 0))
	asJSON := cli.JSON(f, "an object a cell and line, with what every rank has reported; the table goes to standard error")
	verbose := f.Bool("verbose", false, "print what every rank has reported, also of cells that pass")
	list := f.Bool("list", false, "print the faults")
	c.RunE = func(c *cobra.Command, _ []string) error {
		opts, err := cli.Environment()
		switch {
		case err != nil:
			return err
		case *list:
			return listFaults(c.OutOrStdout())
		case unsupported != nil:
			return unsupported
		case *timeout < 100*time.Millisecond || *timeout > time.Minute:
			return cli.Misused("--timeout %v: want 100ms to 1m", *timeout)
		}
		cells := choice{*faults, *colls, *transports, *counts}.cells()
		if len(cells) == 0 {
			return cli.Misused("no cell is like that: see docs/drill.md for which faults are by which transport")
		}
		if !*all && !f.Changed("ranks") && len(*faults)+len(*colls)+len(*transports) == 0 {
			cells = slices.DeleteFunc(cells, func(c cell) bool { return !c.inPart() })
		}
		p := &printer{out: c.OutOrStdout(), verbose: *verbose, cells: cells, done: map[cell]*outcome{}}
		if *asJSON {
			p.json, p.out = json.NewEncoder(p.out), os.Stderr
		}
		return conduct(cells, *timeout, opts, *lanes, p)
	}
	c.AddCommand(cli.Internal(drillProcess, hostsProcess), cli.Internal(rankProcess, playRank),
		cli.Internal(relayProcess, playRelay), cli.Internal(holderProcess, hold))
	return c
}

func listFaults(out io.Writer) error {
	for _, f := range drillFaults() {
		if _, err := fmt.Fprintf(out, "%-20s %s\n", f.name, f.doc); err != nil {
			return err
		}
	}
	return nil
}

func faultNames() (names []string) {
	for _, f := range drillFaults() {
		names = append(names, f.name)
	}
	return names
}

// collectives are those that cells have.
func collectives() []dtype.Collective { return append(dtype.Collectives(), dtype.Send) }

func collNames() (names []string) {
	for _, coll := range collectives() {
		names = append(names, collName(coll))
	}
	return names
}

// choice is a choice of cells by names; no name means all.
type choice struct {
	faults, colls, roads []string
	ranks                []int
}

func (c choice) cells() (all []cell) {
	in := func(name string, names []string) bool { return len(names) == 0 || slices.Contains(names, name) }
	for _, f := range drillFaults() {
		for _, coll := range collectives() {
			for _, road := range roads {
				for _, n := range c.ranks {
					this := cell{f.name, coll, road, n}
					if in(f.name, c.faults) && in(collName(coll), c.colls) && in(road, c.roads) && this.exists(f) {
						all = append(all, this)
					}
				}
			}
		}
	}
	return all
}

func (c cell) exists(f *drillFault) bool {
	return (f.applies == nil || f.applies(c.Coll)) && (f.roads == nil || slices.Contains(f.roads, c.Road)) &&
		(f.deaths == 0 || c.Ranks >= manyRanks)
}

// manyRanks is the least number of ranks where several die.
const manyRanks = 6

// inPart reports whether a cell is of the part that CI runs: every fault with all_reduce (or the
// first collective that can have it) among 3 ranks (or manyRanks) on every road, and of the others
// one in partOf, so that each fault meets several collectives.
func (c cell) inPart() bool {
	const partOf = 7
	first, ranks := dtype.AllReduce, 3
	if faultNamed(c.Fault).deaths > 0 {
		ranks = manyRanks
	}
	if !(cell{c.Fault, first, c.Road, c.Ranks}).exists(faultNamed(c.Fault)) {
		first = dtype.Broadcast
	}
	return c.Coll == first && c.Ranks == ranks ||
		(faultIndex(c.Fault)+2*int(c.Coll)+3*slices.Index(roads, c.Road)+c.Ranks)%partOf == 0
}

// conduct runs cells: those of this machine here, and those between hosts in a process that has a
// network of its own.
func conduct(cells []cell, timeout time.Duration, opts ccl.Options, lanes int, p *printer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := errors.Join(startPolling(), adopt()); err != nil {
		return err
	}
	begun, before := time.Now(), traces()
	folder, err := os.MkdirTemp("", "goccl-drill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	d := &driller{self: self, folder: folder, timeout: timeout, options: opts, ctx: ctx}
	var here, between []cell
	for _, c := range cells {
		if c.Road == roadHosts {
			between = append(between, c)
		} else {
			here = append(here, c)
		}
	}
	var group sync.WaitGroup
	var failed error
	group.Go(func() { d.runAll(here, lanes, p.add) })
	if len(between) > 0 {
		group.Go(func() { failed = d.betweenHosts(between, lanes, p) })
	}
	group.Wait()
	if failed != nil && ctx.Err() == nil {
		return failed
	}
	if ctx.Err() != nil {
		p.end(time.Since(begun))
		return fmt.Errorf("interrupted: %v; the ranks are ended", context.Cause(ctx))
	}
	p.left = append(p.left, left(before, traces)...)
	files, err := os.ReadDir(folder)
	for _, file := range files {
		p.left = append(p.left, "file "+file.Name())
	}
	if err != nil {
		p.left = append(p.left, err.Error())
	}
	return p.end(time.Since(begun))
}

// runAll runs cells, some at the same time.
func (d *driller) runAll(cells []cell, lanes int, report func(*outcome)) {
	next := make(chan cell)
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			runtime.LockOSThread() // ranks end with the thread that starts them; it ends with this function
			for c := range next {
				report(fairly(func() *outcome { return d.perform(lane, c) }))
			}
		})
	}
	for _, c := range cells {
		if d.ctx.Err() != nil {
			break
		}
		next <- c
	}
	close(next)
	group.Wait()
}

// betweenHosts runs cells in a process with a network of two hosts.
func (d *driller) betweenHosts(cells []cell, lanes int, p *printer) error {
	attributes, err := netlab.Attributes()
	if err != nil {
		p.skip(roadHosts, err.Error())
		return nil
	}
	told, err := json.Marshal(job{cells, lanes, d.folder, d.timeout, d.options.String()})
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the process ends with the thread that starts it
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(d.ctx, d.self, "drill", drillProcess)
	cmd.SysProcAttr, cmd.Stderr, cmd.Stdin = attributes, os.Stderr, strings.NewReader(string(told))
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		p.skip(roadHosts, fmt.Sprintf("%v: %s", err, netlab.Hint))
		return nil
	}
	lines := json.NewDecoder(bufio.NewReader(out))
	for {
		var line drillLine
		err := lines.Decode(&line)
		if err != nil {
			break
		}
		switch {
		case line.Refused != "":
			p.skip(roadHosts, line.Refused)
		case line.Outcome != nil:
			p.add(line.Outcome)
		}
		p.left = append(p.left, line.Left...)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the process with the hosts ended: %w", err)
	}
	return nil
}

// hostsProcess is the whole process with the hosts.
func hostsProcess(args []string, out io.Writer) error {
	var j job
	if len(args) > 0 || json.NewDecoder(os.Stdin).Decode(&j) != nil {
		return fmt.Errorf("%s is for goccl drill's own use", drillProcess)
	}
	opts, err := ccl.ParseOptions(j.Options)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	network := netlab.Network{Hosts: 2, Wires: make([]netlab.Wire, j.Lanes)}
	if err := network.Make(); err != nil {
		return encoder.Encode(drillLine{Refused: err.Error()})
	}
	if err := errors.Join(mountProc(), startPolling(), adopt()); err != nil {
		return err
	}
	before := traces()
	var mu sync.Mutex
	d := &driller{self: self, folder: j.Folder, timeout: j.Timeout, options: opts, ctx: context.Background()}
	d.runAll(j.Cells, j.Lanes, func(o *outcome) {
		mu.Lock()
		defer mu.Unlock()
		encoder.Encode(drillLine{Outcome: o})
	})
	return encoder.Encode(drillLine{Left: left(before, traces)})
}

// traces returns what a drill could leave behind, except files. Segments of shared memory, sockets
// and the network of hosts belong to processes, and end with them.
func traces() map[string]bool {
	all := map[string]bool{}
	for d := range descriptors() {
		all["descriptor "+d] = true
	}
	for _, child := range children() {
		all[child] = true
	}
	return all
}

// left returns the traces that were not there before. What the kernel, or threads of the library,
// have yet to take away may take a moment.
func left(before map[string]bool, traces func() map[string]bool) (all []string) {
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		all = nil
		for trace := range traces() {
			if !before[trace] {
				all = append(all, trace)
			}
		}
		if all == nil || time.Now().After(end) {
			slices.Sort(all)
			return all
		}
	}
}

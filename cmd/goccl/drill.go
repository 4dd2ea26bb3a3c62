package main

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

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/internal/humanize"
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

// drillJob is the task of the process that has the network of hosts.
type drillJob struct {
	Cells   []drillCell   `json:"cells"`
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

// drillProcess in place of flags makes this process the one with the network of hosts.
const drillProcess = "drill-process"

func drillVerb(args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == drillProcess {
		return drillAsTold(args[1:], out)
	}
	opts, err := environment()
	if err != nil {
		return err
	}
	set := flags("drill", out)
	all := set.Bool("all", false, "every cell; without it, and without a choice by other flags, the part that CI runs")
	faultList := set.String("faults", "", "only these, as kill,late; --list has their names")
	collList := set.String("collectives", "", "only these, as all_reduce,send_recv")
	roadList := set.String("roads", "",
		"only these, of shm, tcp and hosts: two hosts made of network namespaces, for which the drill must be root,\n"+
			"or be allowed user namespaces")
	rankList := set.String("ranks", "", "other numbers of ranks than 3,6")
	timeout := set.Duration("timeout", 500*time.Millisecond, "of the operations that are to stall")
	lanes := set.Int("jobs", 1, "how many cells run at the same time on each of this machine and the hosts")
	file := set.String("json", "", "file for one JSON object a cell, with what every rank has reported")
	verbose := set.Bool("verbose", false, "print what every rank has reported, also of cells that pass")
	list := set.Bool("list", false, "print the faults")
	if err := set.Parse(args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	if *list {
		return listFaults(out)
	}
	if drillable != nil {
		return drillable
	}
	choice, err := chooseCells(*faultList, *collList, *roadList, *rankList)
	if err != nil {
		return err
	}
	if *timeout < 100*time.Millisecond || *timeout > time.Minute || *lanes < 1 {
		return fmt.Errorf("--timeout %v: want 100ms to 1m, and --jobs %d 1 or more", *timeout, *lanes)
	}
	if !*all && *faultList+*collList+*roadList+*rankList == "" {
		choice = slices.DeleteFunc(choice, func(c drillCell) bool { return !c.inPart() })
	}
	p := &drillPrinter{out: out, verbose: *verbose, cells: choice, done: map[drillCell]*outcome{}}
	if *file != "" {
		f, err := os.Create(*file)
		if err != nil {
			return err
		}
		defer f.Close()
		p.file = json.NewEncoder(f)
	}
	return conduct(choice, *timeout, opts, *lanes, p)
}

func listFaults(out io.Writer) error {
	for _, f := range drillFaults() {
		if _, err := fmt.Fprintf(out, "%-20s %s\n", f.name, f.doc); err != nil {
			return err
		}
	}
	return nil
}

// chooseCells returns the cells of the lists; an empty list means all.
func chooseCells(faultList, collList, roadList, rankList string) (all []drillCell, err error) {
	var faults []string
	for _, f := range drillFaults() {
		faults = append(faults, f.name)
	}
	colls := append(dtype.Collectives(), dtype.Send)
	var collNames []string
	for _, coll := range colls {
		collNames = append(collNames, collName(coll))
	}
	chosenFaults, err := choose("fault", faultList, faults)
	if err != nil {
		return nil, err
	}
	chosenColls, err := choose("collective", collList, collNames)
	if err != nil {
		return nil, err
	}
	chosenRoads, err := choose("road", roadList, roads)
	if err != nil {
		return nil, err
	}
	ranks := []int{3, 6}
	if rankList != "" {
		if ranks, err = parseRankList(rankList); err != nil {
			return nil, err
		}
		if ranks[0] < 3 {
			return nil, fmt.Errorf("--ranks %s: the drill needs 3 or more: one has the fault, and others are to name it", rankList)
		}
	}
	for _, f := range drillFaults() {
		for _, coll := range colls {
			for _, road := range roads {
				for _, n := range ranks {
					c := drillCell{f.name, coll, road, n}
					if slices.Contains(chosenFaults, f.name) && slices.Contains(chosenColls, collName(coll)) &&
						slices.Contains(chosenRoads, road) && c.exists(f) {
						all = append(all, c)
					}
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no cell is like that: see docs/drill.md for which faults are on which roads")
	}
	return all, nil
}

func (c drillCell) exists(f *drillFault) bool {
	return (f.applies == nil || f.applies(c.Coll)) && (f.roads == nil || slices.Contains(f.roads, c.Road)) &&
		(f.deaths == 0 || c.Ranks >= manyRanks)
}

// choose returns the names of a list, all if it is empty.
func choose(what, list string, names []string) ([]string, error) {
	if list == "" {
		return names, nil
	}
	var chosen []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(names, name) {
			return nil, misuse{fmt.Errorf("unknown %s %q; there are %s%s",
				what, name, strings.Join(names, ", "), humanize.DidYouMean(name, names))}
		}
		chosen = append(chosen, name)
	}
	return chosen, nil
}

// manyRanks is the least number of ranks where several die.
const manyRanks = 6

// inPart reports whether a cell is of the part that CI runs: every fault with all_reduce (or the
// first collective that can have it) among 3 ranks (or manyRanks) on every road, and of the others
// one in partOf, so that each fault meets several collectives.
func (c drillCell) inPart() bool {
	const partOf = 7
	first, ranks := dtype.AllReduce, 3
	if faultNamed(c.Fault).deaths > 0 {
		ranks = manyRanks
	}
	if !(drillCell{c.Fault, first, c.Road, c.Ranks}).exists(faultNamed(c.Fault)) {
		first = dtype.Broadcast
	}
	return c.Coll == first && c.Ranks == ranks ||
		(faultIndex(c.Fault)+2*int(c.Coll)+3*slices.Index(roads, c.Road)+c.Ranks)%partOf == 0
}

// conduct runs cells: those of this machine here, and those between hosts in a process that has a
// network of its own.
func conduct(cells []drillCell, timeout time.Duration, opts ccl.Options, lanes int, p *drillPrinter) error {
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
	var here, between []drillCell
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
	p.left = append(p.left, left(before)...)
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
func (d *driller) runAll(cells []drillCell, lanes int, report func(*outcome)) {
	next := make(chan drillCell)
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
func (d *driller) betweenHosts(cells []drillCell, lanes int, p *drillPrinter) error {
	attributes, err := netlab.Attributes()
	if err != nil {
		p.skip(roadHosts, err.Error())
		return nil
	}
	told, err := json.Marshal(drillJob{cells, lanes, d.folder, d.timeout, d.options.String()})
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

// drillAsTold is the whole process with the hosts.
func drillAsTold(args []string, out io.Writer) error {
	var job drillJob
	if len(args) > 0 || json.NewDecoder(os.Stdin).Decode(&job) != nil {
		return fmt.Errorf("%s is for goccl drill's own use", drillProcess)
	}
	opts, err := ccl.ParseOptions(job.Options)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	network := netlab.Network{Hosts: 2, Wires: make([]netlab.Wire, job.Lanes)}
	if err := network.Make(); err != nil {
		return encoder.Encode(drillLine{Refused: err.Error()})
	}
	if err := errors.Join(mountProc(), startPolling(), adopt()); err != nil {
		return err
	}
	before := traces()
	var mu sync.Mutex
	d := &driller{self: self, folder: job.Folder, timeout: job.Timeout, options: opts, ctx: context.Background()}
	d.runAll(job.Cells, job.Lanes, func(o *outcome) {
		mu.Lock()
		defer mu.Unlock()
		encoder.Encode(drillLine{Outcome: o})
	})
	return encoder.Encode(drillLine{Left: left(before)})
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

// left returns what was not there before. What the kernel has yet to take away may take a moment.
func left(before map[string]bool) (all []string) {
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

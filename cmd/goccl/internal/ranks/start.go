// Package ranks starts processes of this command as the ranks of a group, and times and checks
// collectives in them: what goccl bench and goccl tune measure with, and what goccl drill calls.
package ranks

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

	"github.com/goccl/goccl/ccl/dtype"
)

// Spec describes to ranks what they are to measure.
type Spec struct {
	Rank, Ranks, Root int
	Coll              dtype.Collective
	Type              dtype.Type
	Op                dtype.Op
	Sizes             []int64
	InPlace           bool
	BothPlaces        bool `json:",omitempty"` // each size is measured out of place, and then in place
	Registered        bool `json:",omitempty"` // buffers are in registered memory
	Warmup            int
	Repeat            int           // blocks of calls; the median block counts
	Block             time.Duration // target duration of a block
	Options           string
	EachBlock         bool     `json:",omitempty"` // rows contain the times of all blocks
	Singles           int      `json:",omitempty"` // calls that are timed one by one, at most
	Candidates        []string `json:",omitempty"` // the algorithms that goccl tune measure compares
	Everything        bool     `json:",omitempty"` // no candidate is given up
}

// Row is a line of the result, with nccl-tests' columns.
type Row struct {
	Bytes   int64   `json:"size"`
	Count   int64   `json:"count"`
	Type    string  `json:"type"`
	Op      string  `json:"redop"`
	InPlace bool    `json:"in_place"`
	Micros  float64 `json:"time_us"` // of a call, in the median block of calls
	Min     float64 `json:"min_us"`  // in the fastest block
	P99     float64 `json:"p99_us"`  // of calls that were timed one by one, for Singles
	AlgBW   float64 `json:"algbw_gbs"`
	BusBW   float64 `json:"busbw_gbs"`
	Wrong   int64   `json:"wrong"`

	Blocks []float64 `json:"blocks_us,omitempty"` // for EachBlock
	Calls  int       `json:"block_calls"`         // of each block
}

// Process is the command of a tool that is one rank.
const Process = "rank"

// children are the processes of the ranks.
type children []struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	from *bufio.Reader
}

// Start starts the ranks, as the command rank of a tool, distributes their addresses, lets them
// begin once all have joined, and passes rank 0's rows to report.
// prefix(rank), if given, is put before the command of a rank.
func Start[R any](tool string, spec Spec, prefix func(rank int) []string, report func(R)) error {
	all := make(children, spec.Ranks)
	for rank := range all {
		if err := all.start(tool, spec, rank, prefix); err != nil {
			all.stop()
			return err
		}
	}
	if err := all.join(); err != nil {
		all.stop()
		return err
	}
	decoder := json.NewDecoder(all[0].from)
	for {
		var row R
		err := decoder.Decode(&row)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			all.stop()
			return fmt.Errorf("rank 0: %v", err)
		}
		report(row)
	}
	var group sync.WaitGroup
	errs := make([]error, spec.Ranks)
	for rank := range all {
		group.Go(func() {
			if err := all[rank].cmd.Wait(); err != nil {
				errs[rank] = fmt.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (all children) start(tool string, spec Spec, rank int, prefix func(rank int) []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	spec.Rank = rank
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	command := []string{self, tool, Process, string(text)}
	if prefix != nil {
		command = append(prefix(rank), command...)
	}
	c := &all[rank]
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	if c.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c.from = bufio.NewReaderSize(from, 1<<16)
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd = cmd
	return nil
}

func (all children) stop() {
	for _, c := range all {
		if c.cmd != nil {
			c.cmd.Process.Kill()
			c.cmd.Wait()
		}
	}
}

// join distributes the addresses, and returns when all ranks have joined and may begin.
func (all children) join() error {
	addresses := make([]json.RawMessage, len(all))
	if err := all.gather("an address", func(rank int, line []byte) { addresses[rank] = line }); err != nil {
		return err
	}
	everyone, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	for _, c := range all {
		c.in.Write(append(everyone, '\n'))
	}
	if err := all.gather("joined", func(int, []byte) {}); err != nil {
		return err
	}
	for _, c := range all {
		c.in.Write([]byte("\n"))
	}
	return nil
}

// gather reads a line of each rank. Where several end, the first one is named.
func (all children) gather(what string, use func(rank int, line []byte)) error {
	type arrival struct {
		rank int
		line []byte
		err  error
	}
	arrivals := make(chan arrival, len(all))
	for rank := range all {
		go func() {
			line, err := all[rank].from.ReadBytes('\n')
			arrivals <- arrival{rank, line, err}
		}()
	}
	for range all {
		a := <-arrivals
		if a.err != nil {
			cmd := all[a.rank].cmd
			cmd.Wait()
			return fmt.Errorf("rank %d: %v, before it had %s", a.rank, cmd.ProcessState, what)
		}
		use(a.rank, a.line)
	}
	return nil
}

package ccl

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/flight/trace"
	"github.com/goccl/goccl/internal/signals"
)

// enoughRecorded is how many operations a group remembers that is to leave them in a file, if its
// options do not say.
const enoughRecorded = 4096

// records is where a Communicator leaves the record of the process.
type records struct {
	file    atomic.Pointer[string]
	wanted  bool      // of the first failure that a caller is told of
	failure sync.Once // of that
}

// recordsWanted is whether there is such a Communicator in this process.
var recordsWanted atomic.Bool

// Trace returns the last operations of all groups of this process (GroupOptions.Recorder) in the
// form of torch's flight recorder. goccl flight lays those of all ranks beside each other.
func Trace() []byte {
	var groups []trace.Group
	for _, c := range joined() {
		of := trace.Group{Name: c.origin.endpoint.cfg.Name, Rank: c.Rank(), Size: c.Size(), Timeout: c.comm.Timeout(),
			Records: c.Records()}
		if a := c.about.Load(); a != nil {
			of.Description, of.Ranks = a.description, a.ranks
		}
		groups = append(groups, of)
	}
	return trace.Of(groups, "goccl "+Version)
}

// RecordTo names the file to which Trace is written when the process gets the signal of its options
// (Node.ListenToSignal).
func (c *Communicator) RecordTo(file string) { c.records.file.Store(&file) }

// record has the record of the process left in a file, on its signal and when the group fails, if
// the options name one. The number of the file is the rank in the first such group of the Node.
func (c *Communicator) record() {
	e := c.origin.endpoint
	prefix := e.cfg.Options.RecordFile
	if prefix == "" {
		return
	}
	n := c.node
	n.mu.Lock()
	if n.recordRank == nil {
		rank := c.Rank()
		n.recordRank = &rank
	}
	c.RecordTo(prefix + strconv.Itoa(*n.recordRank))
	options, err := n.optionsFor(e.cfg.Node)
	n.mu.Unlock()
	c.records.wanted = true
	recordsWanted.Store(true)
	if err == nil {
		err = n.ListenToSignal(options.RecordSignal)
	}
	if err != nil {
		e.log("WARN", "%v", err)
	}
}

// told is what a caller gets as the error of an operation: before, the first one with which a group
// has ended leaves the record.
func told(comm *exec.Comm, err error) error {
	if !recordsWanted.Load() || comm.Failure() == nil {
		return err
	}
	for _, c := range joined() {
		if c.comm == comm && c.records.wanted {
			c.records.failure.Do(func() {
				c.origin.endpoint.log("WARN", "%s", left(*c.records.file.Load(), Trace()))
			})
		}
	}
	return err
}

// left writes a record and says where it is.
func left(file string, record []byte) string {
	if err := trace.Write(file, record); err != nil {
		return err.Error()
	}
	return "the last operations of this rank are in " + file
}

// signalsOf has the values of NodeOptions.RecordSignal.
var signalsOf = map[string]syscall.Signal{"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}

// ListenToSignal has the process write Trace to the files of all groups (Communicator.RecordTo),
// most often one, when it gets a signal (NodeOptions.RecordSignal). The first call decides. Where
// the program has a handler of its own, the next one tries again.
func (n *Node) ListenToSignal(name string) error {
	number, wanted := signalsOf[name]
	if !wanted {
		return nil
	}
	first, err := signals.First(number, func() { n.writeRecords("SIG" + name) })
	if err != nil {
		return fault.Wrap(fault.System, err, "SIG%s cannot be watched", name)
	}
	if first {
		n.mu.Lock()
		n.opts.RecordSignal, n.listens = name, true
		n.mu.Unlock()
	}
	return nil
}

// writeRecords writes Trace to the files of all groups.
func (n *Node) writeRecords(why string) {
	defer func() {
		if p := recover(); p != nil { // the training goes on
			n.Warn("%s: the record cannot be made: %v", why, p)
		}
	}()
	var files []string
	for _, c := range joined() {
		if file := c.records.file.Load(); file != nil && !slices.Contains(files, *file) {
			files = append(files, *file)
		}
	}
	if len(files) == 0 {
		n.Warn("%s: this process is in no group, so there is nothing to record", why)
		return
	}
	record := Trace()
	for _, file := range files {
		n.Warn("%s: %s", why, left(file, record))
	}
}

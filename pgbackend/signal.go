package pgbackend

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// onSignal is the writing of records when the process gets a signal.
var onSignal struct {
	sync.Mutex
	watch    func(syscall.Signal) (io.Reader, error)
	watching bool
}

// WatchSignals sets what a process learns of signals by. watch returns a reader with a byte for
// each signal of the number, or nil if the program handles that signal itself. It must be called
// before the first group is made.
func WatchSignals(watch func(syscall.Signal) (io.Reader, error)) {
	onSignal.Lock()
	defer onSignal.Unlock()
	onSignal.watch = watch
}

// signals are the values of ccl.Options.RecordSignal.
var signals = map[string]syscall.Signal{"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}

// longestPath is more than any file system takes.
const longestPath = 4095

// RecordTo names the file to which Trace is written when the process gets the signal of the group's
// options. The first group that has a record and a file makes the process listen to its signal.
// Where the program has a handler of its own, the next group tries again.
func (g *Group) RecordTo(path string) error {
	if path == "" || len(path) > longestPath {
		return fault.New(fault.Invalid, "a path of %d bytes, want 1 to %d", len(path), longestPath)
	}
	number, wanted := signals[g.options.RecordSignal]
	if g.options.Recorder == 0 || !wanted {
		return nil
	}
	g.file.Store(&path)
	onSignal.Lock()
	defer onSignal.Unlock()
	if onSignal.watching || onSignal.watch == nil {
		return nil
	}
	from, err := onSignal.watch(number)
	if err != nil {
		return fault.Wrap(fault.System, err, "SIG%s cannot be watched", g.options.RecordSignal)
	}
	if from != nil {
		onSignal.watching = true
		process.Lock()
		process.node.Listens(g.options.RecordSignal)
		process.Unlock()
		go writeOnSignals(from, "SIG"+g.options.RecordSignal, os.Stderr)
	}
	return nil
}

// writeOnSignals writes the records for each byte that it reads; signals that come meanwhile count
// as one.
func writeOnSignals(from io.Reader, signal string, out io.Writer) {
	buffer := make([]byte, 64)
	for {
		if _, err := from.Read(buffer); err != nil {
			return
		}
		io.WriteString(out, writeRecords(signal))
	}
}

// writeRecords writes Trace to the files of all groups, most often one, and returns lines that say
// so.
func writeRecords(why string) (lines string) {
	defer func() {
		if p := recover(); p != nil { // the training goes on
			lines += fmt.Sprintf("goccl pid %d: %s: the record cannot be made: %v\n", os.Getpid(), why, p)
		}
	}()
	joinedGroups.Lock()
	var files []string
	for _, g := range joinedGroups.list {
		if file := g.file.Load(); file != nil && !slices.Contains(files, *file) {
			files = append(files, *file)
		}
	}
	joinedGroups.Unlock()
	if len(files) == 0 {
		return fmt.Sprintf("goccl pid %d: %s: this process is in no group, so there is nothing to record\n",
			os.Getpid(), why)
	}
	trace := Trace()
	var b strings.Builder
	for _, file := range files {
		if err := WriteTrace(file, trace); err != nil {
			fmt.Fprintf(&b, "goccl pid %d: %s: %v\n", os.Getpid(), why, err)
			continue
		}
		fmt.Fprintf(&b, "goccl pid %d: %s: the last operations of this rank are in %s\n", os.Getpid(), why, file)
	}
	return b.String()
}

// kept are the options that a group needs after it was opened; groups made from it have the same.
type kept struct {
	Recorder     int
	RecordSignal string
}

func keptOf(opts ccl.Options) kept {
	opts.EnsureDefaults()
	return kept{opts.Recorder, opts.RecordSignal}
}

package pgbackend

import (
	"slices"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// longestPath is more than any file system takes.
const longestPath = 4095

// RecordTo names the file to which ccl.Trace is written when the process gets the signal of the
// group's options. The first group that has a record and a file makes the process listen to its
// signal.
func (g *Group) RecordTo(path string) error {
	if path == "" || len(path) > longestPath {
		return fault.New(fault.Invalid, "a path of %d bytes, want 1 to %d", len(path), longestPath)
	}
	if g.options.Recorder == 0 || g.options.RecordSignal == "none" {
		return nil
	}
	n, err := node(ccl.NodeOptions{})
	if err != nil {
		return err
	}
	g.file.Store(&path)
	if comm := g.comm.Load(); comm != nil {
		comm.RecordTo(path)
	}
	return n.ListenToSignal(g.options.RecordSignal)
}

// Describe sets what records say about the group: torch's description, and its members' ranks in
// the whole job (empty: the same as in the group).
func (g *Group) Describe(description string, ranks []uint64) {
	g.about.Store(&about{description, slices.Clone(ranks)})
	if comm := g.comm.Load(); comm != nil {
		comm.Describe(description, ranks)
	}
}

// about is the information about a group that only torch has.
type about struct {
	description string
	ranks       []uint64 // in the whole job, by rank of the group
}

// tell gives the Communicator of a group that has joined what was said of the group before.
func (g *Group) tell(comm *ccl.Communicator) {
	if a := g.about.Load(); a != nil {
		comm.Describe(a.description, a.ranks)
	}
	if file := g.file.Load(); file != nil {
		comm.RecordTo(*file)
	}
}

// EndBatch says that no more operations with this Call.Batch will come, and records that they were
// issued as one.
func (g *Group) EndBatch(batch uint32) error {
	comm, err := g.joined()
	if err != nil {
		return err
	}
	return comm.EndBatch(batch)
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

package ccl

import (
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
)

// Key names a call that the ranks match by its key, and not by the order of their calls.
type Key = exec.Key

// StartKeyed is Start for a collective that has no place in the order of calls: it meets the call
// with the same key on the other ranks, whatever these do before it and meanwhile. It is not
// counted by Seq, and runs a plan of messages, whichever Options name another one.
func (c *Communicator) StartKeyed(call *Call, key Key) (*Work, error) {
	op, err := c.comm.PostKeyed(call, key)
	if err != nil {
		return nil, err
	}
	return (*Work)(op), nil
}

// DoKeyedSlice is StartKeyed as DoSlice is Start.
func (c *Communicator) DoKeyedSlice(call *Call, key Key, d time.Duration) (*Work, error) {
	w, err := c.StartKeyed(call, key)
	if err != nil {
		return nil, err
	}
	ended, err := w.WaitSlice(d)
	if !ended {
		return w, nil
	}
	w.Free()
	return nil, err
}

// keyedPlanner is the planner of keyed calls. All its plans consist of messages, and do not forward
// blocks, so that no lengths are exchanged; reductions are in rank order, as with the highest level
// of determinism.
type keyedPlanner struct{ *planner }

// keyedShort is the largest number of bytes that a rank sends in an all_reduce or reduce to all
// others in one step.
const keyedShort = 64 << 10

func (p keyedPlanner) Choose(coll dtype.Collective, bytes int64) int {
	return p.find(coll, keyedAlgorithm(coll, p.group.Size(), bytes))
}

func keyedAlgorithm(coll dtype.Collective, ranks int, bytes int64) string {
	short := bytes*int64(ranks) <= keyedShort
	switch {
	case coll == dtype.Broadcast:
		return "binomial"
	case coll == dtype.Scatter, coll == dtype.Gather, coll == dtype.AllToAll:
		return "linear"
	case coll == dtype.Reduce && short:
		return "flat"
	case coll == dtype.Reduce:
		return "chain"
	case coll == dtype.AllReduce && !short:
		return "two_shot"
	}
	return "direct"
}

// Make is that of the planner, whose journal is about the other calls.
func (p keyedPlanner) Make(algorithm int, spec plan.Spec) (*plan.Plan, error) {
	told := p.told
	p.told = nil
	defer func() { p.told = told }()
	return p.planner.Make(algorithm, spec)
}

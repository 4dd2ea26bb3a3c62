package exec

import (
	"math"
	"slices"

	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// AsRun is a plan in the forms in which Comms run it, to be proven: what its signals have become,
// and in which order its copies are made, where blocks are short and where they are so long that
// copies are fused; and what stands around its steps, for sequences. windows says that ranks share
// memory. Where the group cannot run the plan it fails as the group does.
//
// A signal that is a word in a window is given to nobody in particular: the word counts. So a wait
// for it becomes a wait for the first instruction that publishes as much, and that one a signal to
// whoever waits for it.
func AsRun(p *plan.Plan, windows bool) (short, long verify.Operation, err error) {
	programs, err := compileAll(p, windows)
	if err != nil {
		return short, long, err
	}
	return lift(p, programs, false), lift(p, programs, true), nil
}

// compileAll is the structure of the programs of all ranks.
func compileAll(p *plan.Plan, windows bool) ([]program, error) {
	w := new(window.Set)
	if windows {
		w = window.Planned(p.Spec.Ranks, max(p.Win, 1)<<10)
	}
	made := *p // makes each rank's program once: all ask for all
	flat := make([]plan.Program, p.Spec.Ranks)
	made.Program = func(rank int) plan.Program { return flat[rank] }
	for rank := range flat {
		prog := p.Program(rank)
		if err := p.ValidateProgram(rank, &prog); err != nil {
			return nil, err
		}
		flat[rank] = prog.Flat()
	}
	programs := make([]program, p.Spec.Ranks)
	for rank := range programs {
		low, err := lower(&made, rank, max(p.Chans, PlanChannels), w)
		if err != nil {
			return nil, err
		}
		programs[rank].low = low
		programs[rank].structure(rank)
	}
	return programs, nil
}

// lift makes a plan of programs again.
func lift(p *plan.Plan, programs []program, long bool) verify.Operation {
	all := make([]lifted, len(programs))
	for rank := range all {
		all[rank] = lifted{program: &programs[rank], signals: map[int][]int{}}
	}
	low := programs[0].low
	made := *p
	if !low.exposes {
		made.Alias &^= plan.Lend // for want of room in a record, say
	}
	op := verify.Operation{Plan: &made}
	if low.words {
		made.Flags, op.Records = 1, plan.WindowNotices
		for rank := range all {
			all[rank].meet(rank, all)
		}
	}
	made.Program = func(rank int) plan.Program { return all[rank].plan(long) }
	if low.slots {
		op.Slots, op.Ends = plan.WindowSlots, func(rank int) verify.Ends { return all[rank].ends(long) }
	}
	return op
}

// ends is what stands around the steps of plan.
func (l *lifted) ends(long bool) verify.Ends {
	e := verify.Ends{Enter: make([]int, len(l.low.lanes)), Leave: make([]int, len(l.low.lanes)), Never: true}
	for lane := range l.lanes {
		if lane < len(e.Enter) {
			e.Enter[lane] = math.MaxInt
		}
		for i := range l.lanes[lane] {
			switch b := &l.lanes[lane][i]; b.op {
			case opEnter:
				e.Enter[lane] = l.count(lane, long, func(before int) bool { return before < i })
			case opLeave:
				e.Never = false
				if lane < len(e.Leave) {
					e.Leave[lane] = l.count(lane, long, func(before int) bool { return before < i })
				}
				for _, g := range b.gates {
					e.Leave[g.lane] = l.count(g.lane, long, func(before int) bool { return l.lanes[g.lane][before].pc <= g.step })
				}
			case opDrain:
				e.Drain = true
				if e.Never { // it waits for itself
					return e
				}
			}
		}
	}
	return e
}

// count is how many steps of plan a lane makes of some instructions.
func (l *lifted) count(lane int, long bool, of func(i int) bool) int {
	var steps []plan.Step
	for i := range l.lanes[lane] {
		if of(i) {
			steps = l.appendSteps(steps, lane, i, long)
		}
	}
	return len(steps)
}

// lifted is the program of one rank on its way back to a plan.
type lifted struct {
	*program
	signals map[int][]int // words: by instruction, the peers that wait for what it publishes
	implied map[int]bool  // words: waits for what the rank knows
}

// meet finds the instruction that each wait of a rank waits for.
func (l *lifted) meet(rank int, all []lifted) {
	known := map[int]int{} // by peer: the count that this rank knows of
	l.implied = map[int]bool{}
	for i := range l.lanes[0] {
		b := &l.lanes[0][i]
		if b.op != opWait {
			continue
		}
		if known[b.peer] >= b.nth {
			l.implied[i] = true
			continue
		}
		known[b.peer] = window.MaxSignals // it never comes
		peer := &all[b.peer]
		for k := range peer.lanes[0] {
			if s := &peer.lanes[0][k]; s.op == opSignal && s.nth >= b.nth {
				known[b.peer] = s.nth
				peer.signals[k] = append(peer.signals[k], rank)
				break
			}
		}
	}
}

// plan is the program as a plan has it.
func (l *lifted) plan(long bool) plan.Program {
	made := plan.Program{Tmp: l.low.tmp, Win: l.low.win}
	pcs := make([][]int, len(l.low.lanes)) // of the steps that are made
	for lane := range l.low.lanes {
		var steps []plan.Step
		for i := range l.lanes[lane] {
			before := len(steps)
			steps = l.appendSteps(steps, lane, i, long)
			for range len(steps) - before {
				pcs[lane] = append(pcs[lane], l.lanes[lane][i].pc)
			}
		}
		made.Lanes = append(made.Lanes, steps)
	}
	for lane := range made.Lanes {
		for i := range made.Lanes[lane] {
			var after []plan.Point
			for _, at := range made.Lanes[lane][i].After {
				last := -1
				for k, pc := range pcs[at.Lane] {
					if pc <= at.Step {
						last = k
					}
				}
				if last >= 0 {
					after = append(after, plan.Point{Lane: at.Lane, Step: last})
				}
			}
			made.Lanes[lane][i].After = after
		}
	}
	return made
}

// appendSteps appends what an instruction does. The points of After are those of the plan that was
// lowered.
func (l *lifted) appendSteps(steps []plan.Step, lane, i int, long bool) []plan.Step {
	b := &l.lanes[lane][i]
	s := b.step
	if s == nil {
		return steps // see ends
	}
	made := plan.Step{Kind: s.kind, Dst: s.dst, Src: s.src, From: s.from, Peer: s.peer, Chan: s.channel,
		MsgFirst: s.msgFirst, Final: s.final}
	if s.kind == plan.Get {
		made.From = nil
	}
	for _, g := range b.gates {
		made.After = append(made.After, plan.Point{Lane: g.lane, Step: g.step})
	}
	switch b.op {
	case opSignal:
		for _, peer := range l.signals[i] {
			steps = append(steps, plan.Step{Kind: plan.Signal, Peer: peer})
		}
		return steps
	case opWait:
		if l.implied[i] {
			return steps
		}
		made = plan.Step{Kind: plan.Wait, Peer: s.peer}
	case opCopy, opReduce:
		if long && s.fusedInto != nil {
			return steps
		}
		made.Dst, made.Src = b.dst.ref(), nil
		for k := range b.src {
			o := &b.src[k]
			made.Src = append(made.Src, o.ref())
			if o.base == basePeer && s.kind == plan.Get {
				made.Peer = int(o.index)
			} else if o.base == basePeer {
				made.From = slices.Clone(made.From)
				made.From[k] = int(o.index)
			}
		}
		if long && s.fusedCopy != nil {
			both := made
			both.Dst = b.fusedCopy.ref()
			return append(steps, made, both)
		}
	}
	return append(steps, made)
}

// ref is the chunk of an operand.
func (o *operand) ref() plan.Ref { return plan.Ref{Buf: o.buf, At: int(o.chunk), N: 1} }

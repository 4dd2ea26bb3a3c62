package program

import (
	"math"
	"slices"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/internal/mem"
)

// AsRun returns a plan in the two forms in which it runs, so that they can be proven. Both have
// signals and the order of copies as they are at run time: one for blocks that are short, one for
// blocks that are so long that copies are fused. The operations also have what surrounds the steps,
// for proofs of sequences. windows means that the ranks share memory. AsRun fails if such a group
// cannot run the plan.
//
// A signal that is a word in a window is not given to one peer: the word counts the signals to all
// peers. So a wait for a count becomes a wait for the first instruction that publishes that count
// or a higher one, and that instruction becomes a signal to each rank that waits for it.
func AsRun(p *plan.Plan, windows bool) (short, long verify.Operation, err error) {
	programs, err := compileAll(p, roomFor(p, windows))
	if err != nil {
		return short, long, err
	}
	return lift(p, programs, false), lift(p, programs, true), nil
}

// Timed is a plan in the form in which a call of some length runs, for simulations.
type Timed struct {
	Plan   *plan.Plan
	Pieces int // the call is as many operations as this, each with the same part of every block
	Ahead  int // a rank enters an operation when all have left the one so many before; 0: at once
	// Counts means that an all_gather of the lengths that the ranks know comes first.
	Counts bool
}

// AsTimed returns a plan as it runs where ranks that share memory have windows with slots of so
// many bytes; 0 for none. A block has a number of elements of a size.
func AsTimed(p *plan.Plan, slot, elements, size int) (Timed, error) {
	if slot == 0 || p.Needs&(plan.Puts|plan.Gets) == 0 {
		return Timed{Plan: p, Pieces: 1, Counts: exchanges(p)}, nil
	}
	programs, err := compileAll(p, roomFor(p, true))
	if err != nil {
		return Timed{}, err
	}
	low := programs[0].Low
	made := Timed{Pieces: 1, Counts: low.Counts}
	if low.Slots && low.Window > 0 {
		l := Layout{reach: slot / low.Window &^ (mem.Align - 1) / size * low.Split}
		made.Pieces = l.LastOf(uint64(elements)) + 1
		if made.Ahead = plan.WindowSlots; low.InlineChunk(uint64(elements), size) > 0 {
			made.Ahead = plan.WindowRecords
		}
	}
	chunk := elements / made.Pieces / low.Split * size
	made.Plan = lift(p, programs, fuses(chunk)).Plan
	return made, nil
}

// AsEnqueued is AsRun for ranks that hand their programs to devices (Room.Enqueued): that form has
// signals in words, which are in no record, and if the plan has messages, the lanes that Streams
// makes. AsEnqueued fails with fault.NotSupported if devices do not execute the plan: then a group
// of devices runs it on the processor, as AsRun returns it.
func AsEnqueued(p *plan.Plan) (short, long verify.Operation, err error) {
	if p.Spec.Ranks > 1 && p.Needs&plan.Gets == 0 {
		return short, long, fault.New(fault.NotSupported, "plan %s reads no windows", p.Name)
	}
	if p.Needs&plan.Messages != 0 {
		if p, err = Streams(p); err != nil {
			return short, long, err
		}
	}
	room := roomFor(p, true)
	room.Enqueued, room.Slot = true, max(room.Slot, mostTmp(p)<<10)
	programs, err := compileAll(p, room)
	if err != nil {
		return short, long, err
	}
	if p.Spec.Ranks > 1 && !programs[0].Low.Words {
		return short, long, fault.New(fault.NotSupported, "plan %s has signals that are no words", p.Name)
	}
	short, long = lift(p, programs, false), lift(p, programs, true)
	short.Records, long.Records = 0, 0
	return short, long, nil
}

// roomFor returns a room that is large enough for a plan.
func roomFor(p *plan.Plan, windows bool) Room {
	room := Room{Ranks: p.Spec.Ranks, Channels: p.Chans}
	if windows {
		room.Slot, room.Exposes = max(p.Win, 1)<<10, true
	}
	return room
}

// compileAll makes the instructions of all ranks, without the places and lengths of chunks.
func compileAll(p *plan.Plan, room Room) ([]Program, error) {
	made := *p // makes each rank's program once, although every rank needs all of them
	flat := make([]plan.Program, p.Spec.Ranks)
	made.Program = func(rank int) plan.Program { return flat[rank] }
	for rank := range flat {
		prog := p.Program(rank)
		if err := p.ValidateProgram(rank, &prog); err != nil {
			return nil, err
		}
		flat[rank] = prog.Flat()
	}
	programs := make([]Program, p.Spec.Ranks)
	for rank := range programs {
		room.Rank = rank
		low, err := Lower(&made, &room)
		if err != nil {
			return nil, err
		}
		programs[rank].Low = low
		programs[rank].structure(rank)
	}
	return programs, nil
}

// lift turns the programs of all ranks back into a plan.
func lift(p *plan.Plan, programs []Program, long bool) verify.Operation {
	all := make([]lifted, len(programs))
	for rank := range all {
		all[rank] = lifted{Program: &programs[rank], signals: map[int][]int{}}
	}
	low := programs[0].Low
	made := *p
	if !low.Exposes {
		made.Alias &^= plan.Lend // for example because a record has no room
	}
	op := verify.Operation{Plan: &made}
	if low.Words {
		made.Flags, op.Records = 1, plan.WindowRecords
		for rank := range all {
			all[rank].meet(rank, all)
		}
	}
	made.Program = func(rank int) plan.Program { return all[rank].plan(long) }
	if low.Slots {
		op.Slots, op.Ends = plan.WindowSlots, func(rank int) verify.Ends { return all[rank].ends(long) }
	}
	return op
}

// ends returns what surrounds the steps that plan returns: where the rank enters and leaves its
// slot, and whether it drains.
func (l *lifted) ends(long bool) verify.Ends {
	e := verify.Ends{Enter: make([]int, len(l.Low.lanes)), Leave: make([]int, len(l.Low.lanes)), Never: true}
	for lane := range l.Lanes {
		if lane < len(e.Enter) {
			e.Enter[lane] = math.MaxInt
		}
		for i := range l.Lanes[lane] {
			switch b := &l.Lanes[lane][i]; b.Op {
			case OpEnter:
				e.Enter[lane] = l.count(lane, long, func(before int) bool { return before < i })
			case OpLeave:
				e.Never = false
				if lane < len(e.Leave) {
					e.Leave[lane] = l.count(lane, long, func(before int) bool { return before < i })
				}
				for _, g := range b.Gates {
					e.Leave[g.Lane] = l.count(g.Lane, long,
						func(before int) bool { return l.Lanes[g.Lane][before].PC <= g.Step })
				}
			case OpDrain:
				e.Drain = true
				if e.Never { // the rank waits for itself
					return e
				}
			}
		}
	}
	return e
}

// count returns how many steps plan makes of the instructions of a lane that of selects.
func (l *lifted) count(lane int, long bool, of func(i int) bool) int {
	var steps []plan.Step
	for i := range l.Lanes[lane] {
		if of(i) {
			steps = l.appendSteps(steps, lane, i, long)
		}
	}
	return len(steps)
}

// lifted is the program of one rank on its way back to a plan.
type lifted struct {
	*Program
	signals map[int][]int // words: by instruction, the peers that wait for the count that it publishes
	implied map[int]bool  // words: waits for a count that the rank has already seen
}

// meet finds, for each wait of a rank, the instruction that it waits for.
func (l *lifted) meet(rank int, all []lifted) {
	known := map[int]int{} // by peer: the count that this rank has seen
	l.implied = map[int]bool{}
	for i := range l.Lanes[0] {
		b := &l.Lanes[0][i]
		if b.Op != OpWait {
			continue
		}
		if known[b.Peer] >= b.Nth {
			l.implied[i] = true
			continue
		}
		known[b.Peer] = MaxSignals // it never comes, unless it is found below
		peer := &all[b.Peer]
		for k := range peer.Lanes[0] {
			if s := &peer.Lanes[0][k]; s.Op == OpSignal && s.Nth >= b.Nth {
				known[b.Peer] = s.Nth
				peer.signals[k] = append(peer.signals[k], rank)
				break
			}
		}
	}
}

// plan returns the program in the form that plans have.
func (l *lifted) plan(long bool) plan.Program {
	made := plan.Program{Tmp: l.Low.tmp, Win: l.Low.win}
	pcs := make([][]int, len(l.Low.lanes)) // by lane: the PC of each step that is made
	for lane := range l.Low.lanes {
		var steps []plan.Step
		for i := range l.Lanes[lane] {
			before := len(steps)
			steps = l.appendSteps(steps, lane, i, long)
			for range len(steps) - before {
				pcs[lane] = append(pcs[lane], l.Lanes[lane][i].PC)
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

// appendSteps appends the steps that an instruction stands for. Their After still has points of the
// plan that was lowered.
func (l *lifted) appendSteps(steps []plan.Step, lane, i int, long bool) []plan.Step {
	b := &l.Lanes[lane][i]
	s := b.Step
	if s == nil {
		return steps // see ends
	}
	made := plan.Step{Kind: s.Kind, Dst: s.Dst, Src: s.Src, From: s.from, Peer: s.Peer, Chan: s.Channel,
		MsgFirst: s.MsgFirst, Final: s.Final}
	if s.Kind.Traits().Peer { // one that gets
		made.From = nil
	}
	for _, g := range b.Gates {
		made.After = append(made.After, plan.Point{Lane: g.Lane, Step: g.Step})
	}
	switch b.Op {
	case OpSignal:
		for _, peer := range l.signals[i] {
			steps = append(steps, plan.Step{Kind: plan.Signal, Peer: peer})
		}
		return steps
	case OpWait:
		if l.implied[i] {
			return steps
		}
		made = plan.Step{Kind: plan.Wait, Peer: s.Peer}
	case OpCopy, OpReduce:
		if long && s.FusedInto != nil {
			return steps
		}
		made.Dst, made.Src = b.Dst.ref(), nil
		for k := range b.Src {
			o := &b.Src[k]
			made.Src = append(made.Src, o.ref())
			if o.Base == BasePeer && s.Kind.Traits().Peer {
				made.Peer = int(o.Index)
			} else if o.Base == BasePeer {
				made.From = slices.Clone(made.From)
				made.From[k] = int(o.Index)
			}
		}
		if long && s.FusedCopy != nil {
			both := made
			both.Dst = b.FusedCopy.ref()
			return append(steps, made, both)
		}
	}
	return append(steps, made)
}

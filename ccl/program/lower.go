package program

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/mem"
)

// Lowered is one rank's part of a plan in a flat form: dependences between lanes are decided, and
// everything that does not depend on a call is computed. It is made once for each plan.
type Lowered struct {
	Name             string
	Split            int
	Flags            int
	Alias            plan.Alias
	Hash             uint16
	Counts           bool       // the ranks exchange the lengths of their blocks first
	Slots            bool       // it uses slots of the windows: it reads windows of peers, or signals are words
	Announces        bool       // ranks announce the lengths of their blocks with their calls
	ReadsUnannounced bool       // it may read a rank's window before that rank's record shows where the chunks are
	Exposes          bool       // chunks of windows may be exposed memory
	Window           int        // chunks of a window, the largest number of any rank
	Signallers       []int      // peers whose frames are waited for; nil if the plan has no frames
	Exposable        []plan.Ref // by chunk of this rank's window: the chunk that may take its place
	Words            bool       // signals are words in the windows, not frames
	Heard            [][]int    // by peer, the counts that its word shows for this rank, if Words
	Told             [][]int    // by instruction OpSignal, the peers that it is for, if Words
	MostTold         int        // the most signals of a rank for one peer, if Words
	Offered          []int      // by rank, how many signals it gives before it first waits, if Words
	Temps            int        // chunks of Tmp, the largest number of any rank, if the program is enqueued
	tmp, win         []plan.Extent
	lanes            [][]Step
}

// Step is a plan.Step, without the parts that are not needed to run it.
type Step struct {
	Kind            plan.Kind
	MsgFirst, Final bool
	Peer, Channel   int // channel or flag
	Dst             plan.Ref
	Src             []plan.Ref
	ReadsIn         bool  // one of its sources is In
	Result          bool  // it writes Out, and no step of the rank reads what it writes
	FusedCopy       *Step // of a copy to the window: the copy of its source to Out that it includes if chunks are long
	FusedInto       *Step // the copy that includes this one if chunks are long
	from            []int // the rank in whose memory each source is; nil: this rank
	// nth is set for words: the number of signals that the rank (for a wait: the peer) has given by
	// then, or 0 if the next step publishes it.
	nth   int
	first bool // words: the first that a rank publishes, or waits for from the peer, in the operation
	gates []Gate
}

// Gate holds an instruction back until a step of another lane is done or, if it is pipelined, until
// that step has moved as many bytes as the instruction wants to move.
type Gate struct {
	Lane, Step int
	Pipelined  bool
}

// Lower flattens one rank's part of a plan, for a group. If the group cannot run the plan, all
// ranks refuse it.
func Lower(p *plan.Plan, room *Room) (*Lowered, error) {
	prog := p.Program(room.Rank)
	if err := p.ValidateProgram(room.Rank, &prog); err != nil {
		return nil, err
	}
	flat := prog.Flat()
	if err := supported(p, &flat, room); err != nil {
		return nil, err
	}
	low := &Lowered{Name: p.Name, Split: p.Split, Flags: p.Flags, Alias: p.Alias, Hash: hashOf(p), Window: p.Win,
		tmp: flat.Tmp, win: flat.Win}
	var count *signals
	if room.Slot > 0 && p.Needs&plan.Puts != 0 {
		count = countSignals(p, room.Rank)
	}
	if low.Words = count != nil; low.Words {
		low.Heard, low.Told, low.MostTold, low.Offered = count.heard, count.told, count.mostTold, count.offered
	}
	if room.Enqueued {
		if low.Temps = mostTmp(p); low.Temps > room.Slot/mem.Align {
			return nil, fault.New(fault.NotSupported, "plan %s needs %d chunks of intermediate results, this group has room "+
				"for %d", p.Name, low.Temps, room.Slot/mem.Align)
		}
	}
	low.Slots = low.Words || p.Needs&plan.Gets != 0
	// If every rank of an all_to_all waits for every other, each announces with its first signal
	// how long its blocks are, and in how many pieces it sends them.
	low.Announces = low.Words && count.everyone && p.Spec.Coll == dtype.AllToAll && p.Spec.Ranks <= MaxCounts &&
		!room.Enqueued
	low.Counts = exchanges(p) && !low.Announces && !room.Enqueued
	low.Exposable = exposable(room, p, &flat, low)
	if low.Exposes = low.Exposable != nil; low.Exposes {
		low.Hash ^= exposingHash
	}
	if p.Needs&plan.Puts != 0 && !low.Words {
		low.Signallers = []int{}
	}
	for _, lane := range flat.Lanes {
		steps := make([]Step, len(lane))
		for i := range lane {
			s := &lane[i]
			steps[i] = Step{Kind: s.Kind, MsgFirst: s.MsgFirst, Final: s.Final, Peer: s.Peer, Channel: s.Chan,
				Dst: s.Dst, Src: s.Src, from: s.From}
			steps[i].ReadsIn = slices.ContainsFunc(s.Src, func(r plan.Ref) bool { return r.Buf == plan.In })
			does := s.Kind.Traits()
			if does.Gets && does.Peer {
				steps[i].from = []int{s.Peer}
			}
			switch {
			case low.Words:
				steps[i].nth, steps[i].first = count.nth(i, lane)
			case does.Waits && !slices.Contains(low.Signallers, s.Peer):
				low.Signallers = append(low.Signallers, s.Peer)
			}
			for _, after := range s.After {
				writer := &flat.Lanes[after.Lane][after.Step]
				steps[i].gates = append(steps[i].gates, Gate{after.Lane, after.Step,
					does.Sends && writer.Kind.Traits().Receives && s.Src[0] == writer.Dst})
			}
		}
		low.lanes = append(low.lanes, steps)
	}
	low.markResults()
	if !p.Spec.Coll.Reduces() {
		low.fuseCopies()
	}
	low.ReadsUnannounced = (low.Announces || low.Exposes) && !waitsForAll(low.lanes[0], room.Rank)
	return low, nil
}

// mostTmp returns the largest number of chunks of Tmp that a rank has.
func mostTmp(p *plan.Plan) (n int) {
	for rank := range p.Spec.Ranks {
		prog := p.Program(rank)
		n = max(n, len(prog.Tmp))
	}
	return n
}

// exchanges reports whether operations begin with an exchange of lengths: either the plan requires
// it, or all ranks must cut the operation into the same pieces but do not know the lengths of all
// blocks.
func exchanges(p *plan.Plan) bool {
	some := p.Spec.Coll == dtype.AllToAll || p.Spec.Coll == dtype.Scatter || p.Spec.Coll == dtype.Gather
	return p.Needs&plan.Counts != 0 || p.Needs&plan.Gets != 0 && some
}

// supported refuses a plan that the group cannot run. A plan declares the same needs on all ranks,
// so all ranks refuse it alike.
func supported(p *plan.Plan, prog *plan.Program, room *Room) error {
	switch {
	case p.Chans > room.Channels:
		return fault.New(fault.NotSupported, "plan %s needs %d channels, links have %d", p.Name, p.Chans, room.Channels)
	case p.Needs&plan.Gets == 0:
	case room.Slot == 0:
		return fault.New(fault.NotSupported,
			"plan %s reads windows of peers%s: it needs ranks that all share memory, on one host and not by TCP; choose another algorithm",
			p.Name, firstGet(prog))
	case foreign(prog, room) >= 0:
		return fault.New(fault.NotSupported, "plan %s reads the window of rank %d, which shares no memory with rank %d",
			p.Name, foreign(prog, room), room.Rank)
	case p.Win > room.Slot/mem.Align:
		return fault.New(fault.NotSupported, "plan %s needs %d chunks of a window, this group has room for %d",
			p.Name, p.Win, room.Slot/mem.Align)
	}
	return nil
}

// foreign returns a rank without window of which the program reads one, or -1.
func foreign(prog *plan.Program, room *Room) int {
	if len(room.Windows) == 0 || room.Enqueued {
		return -1 // they are not known yet, or the device has other addresses for them
	}
	for _, lane := range prog.Lanes {
		for i := range lane {
			ranks := lane[i].From
			if does := lane[i].Kind.Traits(); does.Gets && does.Peer {
				ranks = []int{lane[i].Peer}
			}
			for _, rank := range ranks {
				if room.Windows[rank].Slots == nil {
					return rank
				}
			}
		}
	}
	return -1
}

// firstGet describes the first step of a program that reads a window. It is empty if there is none.
func firstGet(prog *plan.Program) string {
	for l, lane := range prog.Lanes {
		for i := range lane {
			if k := lane[i].Kind; k.Traits().Gets {
				return fmt.Sprintf(" (lane %d, step %d is a %v)", l, i, k)
			}
		}
	}
	return ""
}

// maxHashed is the largest group in which the programs of all ranks are hashed. In larger groups
// this would take longer than the operation, so the plan's description is hashed instead of the
// programs, except for plans that are limited to some sizes: these come from files.
const maxHashed = 16

// hashOf returns the hash of a plan that messages carry, so that ranks that run different
// algorithms do not mix their messages.
func hashOf(p *plan.Plan) uint16 {
	var sum uint64
	if p.Spec.Ranks <= maxHashed || p.MinBytes != 0 || p.MaxBytes != 0 {
		sum = p.Hash()
	} else {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%v/%d/%d/%d/%d/%d/%d",
			p.Name, p.Spec, p.Split, p.Chans, p.Flags, p.Win, p.Needs, p.Alias)
		sum = h.Sum64()
	}
	sum ^= sum >> 32
	return uint16(sum ^ sum>>16)
}

// exposingHash changes the hash of plans in groups that expose memory: a rank that would not look
// for exposed memory finds a mismatch, and does not read wrong data.
const exposingHash = 0x1e4d

// exposable returns, for each chunk of the window, the chunk that may take its place. It is nil if
// the plan, or the group, exposes nothing.
func exposable(room *Room, p *plan.Plan, prog *plan.Program, low *Lowered) []plan.Ref {
	if !room.Exposes || p.Alias&plan.Lend == 0 || !low.Words || low.Counts || p.Win > MaxExposed {
		return nil
	}
	return prog.Lent()
}

// waitsForAll reports whether a lane waits for each rank before it reads the window of that rank.
func waitsForAll(lane []Step, rank int) bool {
	var awaited []int
	for i := range lane {
		s := &lane[i]
		if s.Kind.Traits().Waits {
			awaited = append(awaited, s.Peer)
		}
		for _, from := range s.from {
			if from != rank && !slices.Contains(awaited, from) {
				return false
			}
		}
	}
	return true
}

// markResults marks the steps whose results no step of the rank reads.
func (low *Lowered) markResults() {
	var read []bool // chunks of Out
	for _, lane := range low.lanes {
		for i := range lane {
			for _, r := range lane[i].Src {
				if r.Buf != plan.Out {
					continue
				}
				for len(read) < r.At+r.N {
					read = append(read, false)
				}
				for k := range r.N {
					read[r.At+k] = true
				}
			}
		}
	}
	for _, lane := range low.lanes {
		for i := range lane {
			dst := lane[i].Dst
			again := dst.At < len(read) && slices.Contains(read[dst.At:min(dst.At+dst.N, len(read))], true)
			lane[i].Result = dst.Buf == plan.Out && !again
		}
	}
}

// fuseCopies finds each copy of In into the window that is followed, with only signals in between,
// by a copy of the same chunks to Out. A fused pair reads its source from memory once. The signals
// are given a little later then, so this pays for long chunks only.
func (low *Lowered) fuseCopies() {
	for _, lane := range low.lanes {
		for i := range lane {
			s := &lane[i]
			if s.Kind != plan.Copy || s.Dst.Buf != plan.Win || s.Src[0].Buf != plan.In {
				continue
			}
			k := i + 1
			for k < len(lane) && lane[k].Kind.Traits().OnlySignals() {
				k++
			}
			if k < len(lane) && lane[k].Kind == plan.Copy && lane[k].Dst.Buf == plan.Out &&
				lane[k].Src[0] == s.Src[0] && len(s.gates) == 0 && len(lane[k].gates) == 0 {
				s.FusedCopy, lane[k].FusedInto = &lane[k], s
			}
		}
	}
}

// InlineChunk returns the number of bytes of a chunk if all chunks of a window fit a record, else
// 0. The blocks have count elements of size bytes.
func (low *Lowered) InlineChunk(count uint64, size int) int {
	if low.Split > 1 || count > InlineBytes || low.Window*int(count)*size > InlineBytes {
		return 0
	}
	return int(count) * size
}

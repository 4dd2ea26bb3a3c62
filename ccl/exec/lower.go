package exec

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// lowered is one rank's program in the form that is run: flat, with gates decided, and everything
// that does not depend on the buffers of a call computed. It is made once for each plan.
type lowered struct {
	name             string
	split            int
	flags            int
	alias            plan.Alias
	hash             uint16
	counts           bool  // the lengths of other ranks' blocks are exchanged first
	slots            bool  // it uses slots of the windows: it reads those of peers, or signals are in them
	words            bool  // signals are words in the windows, and no frames
	announces        bool  // what a rank says of its call includes the lengths of its blocks
	readsUnannounced bool  // it may read windows of ranks before it has heard from them where their chunks are
	exposes          bool  // chunks of windows may be exposed memory
	window           int   // chunks of a window, the most of any rank
	signallers       []int // from whom frames are awaited; nil where there are none
	tmp, win         []plan.Extent
	exposable        []plan.Ref // what chunks of this rank's window may stand for
	lanes            [][]step
}

// step is a plan.Step, without what running it does not need.
type step struct {
	kind            plan.Kind
	msgFirst, final bool
	peer, channel   int  // channel or flag
	nth             int  // words: how many signals the rank, or for a wait the peer, has given by then; 0: its next step says so
	first           bool // words: the first that a rank says, or hears from the peer, in the operation
	announces       bool // words: of a plan that announces lengths
	exposes         bool // words: of a plan that exposes
	dst             plan.Ref
	src             []plan.Ref
	from            []int  // whose memory each source is in; nil: this rank's
	readsIn         bool   // one of its sources is In
	result          bool   // no step of the rank reads what it writes, which is in Out
	fusedCopy       *step  // of a copy into the window: the copy of the same source to Out behind it, which it does too where chunks are long
	fusedInto       *step  // the copy that does it too where chunks are long
	gates           []gate // in place of After
}

// gate holds a step back until another one is done or, pipelined, has moved as many bytes.
type gate struct {
	lane, step int
	pipelined  bool
}

func lower(p *plan.Plan, rank, channels int, windows *window.Set) (*lowered, error) {
	prog := p.Program(rank)
	if err := p.ValidateProgram(rank, &prog); err != nil {
		return nil, err
	}
	flat := prog.Flat()
	if err := supported(p, &flat, channels, windows); err != nil {
		return nil, err
	}
	low := &lowered{name: p.Name, split: p.Split, flags: p.Flags, alias: p.Alias, hash: hashOf(p), window: p.Win, tmp: flat.Tmp, win: flat.Win}
	var count *signals
	if windows.Slot > 0 && p.Needs&plan.Puts != 0 {
		count = countSignals(p, rank)
	}
	low.words = count != nil
	low.slots = low.words || p.Needs&plan.Gets != 0
	// Where every rank waits for every other, each says with its first signal how long its blocks
	// are, and in how many pieces it sends them.
	low.announces = low.words && count.everyone && p.Spec.Coll == dtype.AllToAll && p.Spec.Ranks <= window.MaxCounts
	low.counts = exchanges(p) && !low.announces
	low.exposable = exposableRefs(windows, p, &flat, low)
	if low.exposes = low.exposable != nil; low.exposes {
		low.hash ^= exposingHash
	}
	if p.Needs&plan.Puts != 0 && !low.words {
		low.signallers = []int{}
	}
	for _, lane := range flat.Lanes {
		steps := make([]step, len(lane))
		for i := range lane {
			s := &lane[i]
			steps[i] = step{kind: s.Kind, msgFirst: s.MsgFirst, final: s.Final, peer: s.Peer, channel: s.Chan, dst: s.Dst, src: s.Src, from: s.From}
			steps[i].readsIn = slices.ContainsFunc(s.Src, func(r plan.Ref) bool { return r.Buf == plan.In })
			if s.Kind == plan.Get {
				steps[i].from = []int{s.Peer}
			}
			switch {
			case low.words:
				steps[i].nth, steps[i].first = count.nth(i, lane)
				steps[i].announces, steps[i].exposes = low.announces, low.exposes
			case s.Kind == plan.Wait && !slices.Contains(low.signallers, s.Peer):
				low.signallers = append(low.signallers, s.Peer)
			}
			for _, after := range s.After {
				writer := &flat.Lanes[after.Lane][after.Step]
				writes := writer.Kind == plan.Recv || writer.Kind == plan.RecvReduce
				steps[i].gates = append(steps[i].gates, gate{after.Lane, after.Step,
					s.Kind == plan.Send && writes && s.Src[0] == writer.Dst})
			}
		}
		low.lanes = append(low.lanes, steps)
	}
	low.markResults()
	if !p.Spec.Coll.Reduces() {
		low.pairTwins()
	}
	low.readsUnannounced = (low.announces || low.exposes) && !waitsForAll(low.lanes[0], rank)
	return low, nil
}

// exchanges reports whether operations begin with an exchange of lengths: if the plan asks for it,
// or all ranks must cut the operation into the same pieces, and do not know the lengths of all
// blocks.
func exchanges(p *plan.Plan) bool {
	some := p.Spec.Coll == dtype.AllToAll || p.Spec.Coll == dtype.Scatter || p.Spec.Coll == dtype.Gather
	return p.Needs&plan.Counts != 0 || p.Needs&plan.Gets != 0 && some
}

// supported refuses what this executor cannot run. What a plan declares is the same on all ranks,
// so all refuse alike.
func supported(p *plan.Plan, prog *plan.Program, channels int, windows *window.Set) error {
	if p.Chans > channels {
		return fault.New(fault.NotSupported, "plan %s needs %d channels, links have %d", p.Name, p.Chans, channels)
	}
	return fits(windows, p, prog)
}

// firstGet names the first step of a program that reads a window, or nothing.
func firstGet(prog *plan.Program) string {
	for l, lane := range prog.Lanes {
		for i := range lane {
			if k := lane[i].Kind; k == plan.Get || k == plan.GetReduce {
				return fmt.Sprintf(" (lane %d, step %d is a %v)", l, i, k)
			}
		}
	}
	return ""
}

// maxHashed is the largest group in which the programs of all ranks are hashed. In larger ones this
// would cost more than the operation; the plan's description stands for them, except for plans that
// are bounded to some sizes, which come from files.
const maxHashed = 16

// hashOf names a plan on the wire: ranks that run different algorithms must not mix their messages.
func hashOf(p *plan.Plan) uint16 {
	var sum uint64
	if p.Spec.Ranks <= maxHashed || p.MinBytes != 0 || p.MaxBytes != 0 {
		sum = p.Hash()
	} else {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%v/%d/%d/%d/%d/%d/%d", p.Name, p.Spec, p.Split, p.Chans, p.Flags, p.Win, p.Needs, p.Alias)
		sum = h.Sum64()
	}
	sum ^= sum >> 32
	return uint16(sum ^ sum>>16)
}

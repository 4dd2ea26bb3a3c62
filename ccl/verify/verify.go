package verify

import (
	"errors"
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// Options limits a verification.
type Options struct {
	// Work bounds time and memory: the most elementary actions to spend. Plans that would need more are refused with
	// fault.NotSupported. 0 means DefaultWork.
	Work int64
}

// DefaultWork keeps a verification below some ten seconds and a few GiB.
const DefaultWork = 1 << 34

// What costs memory is counted as so many elementary actions.
const (
	chunkWork = 1000 // a chunk: its place, and the trees that it may hold
	clockWork = 16   // an element of a clock that is kept
)

// Report is what a verification found out about a sound plan. Amounts of data are in chunks: Split of them are a block.
type Report struct {
	Split       int
	Steps       int // of all ranks
	Messages    int // of all ranks
	Rounds      int // messages on the longest chain of messages; a lane sends or receives one at a time
	Ranks       []Load
	Determinism Level
}

// Load is what one rank does.
type Load struct {
	Steps    int
	Messages int // sent
	Sent     int // chunks
	Received int // chunks
	Reduced  int // chunks, once for each operand beyond the first
	Tmp      int // chunks
}

// Level says how far the bits of a result depend on circumstances. Each level includes those before it.
type Level uint8

const (
	PerRank   Level = 0 // ranks may get different bits
	EveryRun  Level = 2 // all ranks get the same bits (level 1), in every run
	AnySize   Level = 3 // and an element's order of reduction does not depend on its position in a block or of blocks
	RankOrder Level = 4 // and it is the order of the ranks, from left to right, whatever the algorithm
)

func (l Level) String() string { return fmt.Sprintf("level %d", uint8(l)) }

// Plan proves that a plan is right, for all ranks, element counts and interleavings, with In and Out apart and in every way
// of sharing memory that the plan allows. Otherwise the error is a fault.Invalid caused by a *Counterexample.
func Plan(p *plan.Plan, opts Options) (*Report, error) {
	progs, err := programs(p, opts)
	if err != nil {
		return nil, err
	}
	report := &Report{Split: p.Split}
	if bad := check(p, progs, false, report); bad != nil {
		return nil, refuse(bad)
	}
	if p.Alias&plan.InPlace != 0 {
		if bad := check(p, progs, true, &Report{}); bad != nil {
			return nil, refuse(bad)
		}
	}
	return report, nil
}

func refuse(bad *Counterexample) error {
	return fault.Wrap(fault.Invalid, bad, "the plan is wrong")
}

// programs makes the programs of all ranks and checks their structure and their size.
func programs(p *plan.Plan, opts Options) ([]plan.Program, error) {
	limit := opts.Work
	if limit == 0 {
		limit = DefaultWork
	}
	if p.Program == nil || p.Spec.Validate() != nil {
		return nil, refuse(malformed(p, Where{0, -1, -1}, p.Validate(0)))
	}
	progs := make([]plan.Program, p.Spec.Ranks)
	var lanes, work int64
	for r := range progs {
		progs[r] = p.Program(r)
		if err := p.ValidateProgram(r, &progs[r]); err != nil {
			return nil, refuse(malformed(p, Where{r, -1, -1}, err))
		}
		lanes += int64(len(progs[r].Lanes))
		work += chunkWork * int64(p.InChunks(r)+p.OutChunks(r)+len(progs[r].Tmp))
		if work > limit {
			return nil, tooLarge(p, limit)
		}
	}
	work += clockWork * lanes * lanes
	for r := range progs {
		for _, steps := range progs[r].Lanes {
			for i := range steps {
				s := &steps[i]
				work += lanes*int64(1+clockWork*len(s.After)) + int64(s.Dst.N)
				for _, src := range s.Src {
					work += int64(src.N)
				}
			}
			if work > limit {
				return nil, tooLarge(p, limit)
			}
		}
	}
	return progs, nil
}

func malformed(p *plan.Plan, at Where, err error) *Counterexample {
	bad := &Counterexample{Plan: p.Name, Spec: p.Spec, Reason: Malformed, At: []Where{at}, Text: err.Error()}
	if e := (*fault.Error)(nil); errors.As(err, &e) && e.Cause == nil {
		bad.Text = e.Text
	}
	return bad
}

func tooLarge(p *plan.Plan, limit int64) error {
	return fault.New(fault.NotSupported, "plan %q (%v) is too large to verify: it needs more than %d actions; raise Options.Work",
		p.Name, p.Spec, limit)
}

// check executes a plan in one layout of memory and fills in the report.
func check(p *plan.Plan, progs []plan.Program, inPlace bool, report *Report) *Counterexample {
	report.Ranks = make([]Load, len(progs))
	x := newExecution(p, progs, inPlace, report)
	if bad := x.run(); bad != nil {
		return bad
	}
	if bad := x.outcome(); bad != nil {
		return bad
	}
	for r := range x.ranks {
		load := &report.Ranks[r]
		load.Tmp = len(progs[r].Tmp)
		report.Steps += load.Steps
		for i := range x.ranks[r].lanes {
			report.Rounds = max(report.Rounds, int(*x.ranks[r].lanes[i].clock.rounds()))
		}
	}
	report.Determinism = x.determinism()
	return nil
}

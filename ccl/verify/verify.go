package verify

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// Options limits a verification.
type Options struct {
	// Work bounds time and memory: the maximum number of elementary actions to spend. Plans that
	// would need more are refused with fault.NotSupported. 0 means DefaultWork.
	Work int64
	// Brief skips the reduction of a counterexample to the steps that show it.
	Brief bool
	// Raise says how the user raises Work; "" means that a program does, by this field.
	Raise string
}

// FileWork is for plans that anybody may have written: it keeps a verification below about 200 MiB
// and some seconds. All plans of the catalogue for 64 ranks need less.
const FileWork = 1 << 28

// DefaultWork keeps a verification below about ten seconds and a few GiB.
const DefaultWork = 1 << 34

// Work charged for what takes memory, in elementary actions.
const (
	chunkWork = 1000 // a chunk: its place, and the trees that it may hold
	stepWork  = 1500 // a step, without the chunks that it moves
	refWork   = 100  // an operand of a step
	clockWork = 16   // an element of a clock that is kept
)

// Report holds the results of verifying a right plan. Amounts of data are in chunks: Split of them
// are a block.
type Report struct {
	Split       int
	Steps       int // of all ranks
	Messages    int // of all ranks
	Rounds      int // messages, signals and gets on the longest chain of them; a lane executes one at a time
	Ranks       []Load
	Determinism Level
}

// Load is the work of one rank.
type Load struct {
	Steps    int
	Messages int // sends, puts and packets
	Signals  int // given, including those of packets
	Sent     int // chunks sent to other ranks or fetched by them
	Received int // chunks
	Reduced  int // chunks, counted once for each operand beyond the first
	Tmp      int // chunks
	Win      int // chunks of the window
}

// Level states how far the bits of a result depend on circumstances. Each level includes the levels
// below it.
type Level uint8

const (
	PerRank  Level = 0 // ranks may get different bits
	EveryRun Level = 2 // all ranks get the same bits (level 1), in every run
	// Also, the order in which an element is reduced depends neither on its position in a block nor
	// on the block.
	AnySize   Level = 3
	RankOrder Level = 4 // also, that order is the order of the ranks, from left to right, for every algorithm
)

func (l Level) String() string { return fmt.Sprintf("level %d", uint8(l)) }

// Plan proves that a plan is right for all ranks, element counts and interleavings, with In and Out
// apart and with every form of shared memory that the plan allows. Otherwise the error is a
// fault.Invalid caused by a *Counterexample.
func Plan(p *plan.Plan, opts Options) (*Report, error) { return prove(p, opts, int(PerRank)) }

// prove is Plan with a minimum level for a setting of GOCCL_DETERMINISM.
func prove(p *plan.Plan, opts Options, determinism int) (*Report, error) {
	j, err := newJob([]*plan.Plan{p}, opts)
	if err != nil {
		return nil, err
	}
	j.determinism = determinism
	report := &Report{Split: p.Split}
	if err := j.verify(false, report); err != nil {
		return nil, err
	}
	for _, lend := range []bool{false, true} {
		if j.lend = lend; lend && p.Alias&plan.Lend == 0 {
			break
		}
		for _, inPlace := range []bool{false, true} {
			if inPlace && p.Alias&plan.InPlace == 0 || !inPlace && !lend {
				continue
			}
			if err := j.verify(inPlace, &Report{}); err != nil {
				return nil, err
			}
		}
	}
	return report, nil
}

func refuse(bad *Counterexample) error {
	return fault.Wrap(fault.Invalid, bad, "")
}

// job is the subject of a verification: a plan, or several in sequence.
type job struct {
	plans  []*plan.Plan
	codes  []code    // by rank
	values []*values // of each plan
	full   bool      // clocks must cover all ranks
	turns  []turn    // of each plan; only in sequences
	brief  bool
	// The setting of GOCCL_DETERMINISM that the results must satisfy.
	determinism int
	lend        bool   // window chunks stand for memory of the caller, as plan.Lend allows
	limit       int64  // on work
	raise       string // Options.Raise
	needed      int64  // work with clocks over all ranks
	lanes       int64  // of all ranks
}

// newJob creates the programs of all ranks and checks their structure and size.
func newJob(plans []*plan.Plan, opts Options) (*job, error) {
	ranks := plans[0].Spec.Ranks
	j := &job{plans: plans, full: len(plans) > 1, brief: opts.Brief, limit: opts.Work,
		raise: cmp.Or(opts.Raise, "raise Options.Work")}
	if j.limit == 0 {
		j.limit = DefaultWork
	}
	for _, p := range plans {
		if p.Program == nil || p.Spec.Validate() != nil {
			return nil, refuse(malformed(p, Where{Lane: -1, Step: -1}, p.Validate(0)))
		}
		j.full = j.full || p.Spec.Coll == dtype.Barrier
	}
	j.codes = make([]code, ranks)
	var work, lanes, joins, steps, chunks, operands int64
	large := func(p *plan.Plan, r int) error { // names the number that counts most
		switch most := max(stepWork*steps, chunkWork*chunks, refWork*operands); most {
		case stepWork * steps:
			return j.tooLarge(p, "%d steps of ranks 0 to %d, loops unrolled; a step counts %d", steps, r, stepWork)
		case chunkWork * chunks:
			return j.tooLarge(p, "%d chunks of in, out, tmp and win of ranks 0 to %d; a chunk counts %d", chunks, r, chunkWork)
		}
		return j.tooLarge(p, "%d operands of the steps of ranks 0 to %d; an operand counts %d", operands, r, refWork)
	}
	for r := range j.codes {
		progs := make([]plan.Program, len(plans))
		for k, p := range plans {
			chunks += int64(p.InChunks(r) + p.OutChunks(r))
			if work+chunkWork*chunks > j.limit {
				return nil, large(p, r)
			}
			prog := p.Program(r)
			if err := p.ValidateProgram(r, &prog); err != nil {
				return nil, refuse(malformed(p, Where{Rank: r, Lane: -1, Step: -1, Op: k}, err))
			}
			chunks += int64(len(prog.Tmp) + len(prog.Win))
			for _, lane := range prog.Lanes {
				steps += int64(plan.Len(lane))
				operands += operandsOf(lane)
			}
			if work+chunkWork*chunks+stepWork*steps+refWork*operands > j.limit {
				return nil, large(p, r)
			}
			progs[k] = prog.Flat()
		}
		j.codes[r] = newCode(r, progs)
		lanes += int64(len(j.codes[r].lanes))
		w, n := j.measure(&j.codes[r])
		work += w
		joins += n
		if work > j.limit {
			return nil, j.tooLarge(plans[0], "the steps of ranks 0 to %d move %d chunks", r, work)
		}
	}
	work += chunkWork*chunks + stepWork*steps + refWork*operands
	if work > j.limit {
		return nil, large(plans[0], ranks-1)
	}
	j.needed = work + clockWork*lanes*lanes + lanes*joins
	j.lanes = lanes
	if j.full && j.needed > j.limit {
		return nil, j.clocks()
	}
	j.contributions()
	return j, nil
}

// contributions creates the initial values of In.
func (j *job) contributions() {
	for _, p := range j.plans {
		chunks := make([]int, len(j.codes))
		for r := range chunks {
			chunks[r] = p.InChunks(r)
		}
		j.values = append(j.values, newValues(chunks))
	}
}

// measure returns the work of a rank's steps, and the number of clocks that they copy and join.
func (j *job) measure(c *code) (work, joins int64) {
	for _, lane := range c.lanes {
		for i := range lane {
			a, does := &lane[i], lane[i].kind.Traits()
			j.full = j.full || does.Need&(plan.Puts|plan.Gets) != 0
			work += int64(a.dst.n)
			for _, r := range c.refs[a.src:a.srcEnd] {
				work += int64(r.n)
			}
			joins += 1 + clockWork*int64(a.afterEnd-a.after)
			if does.Signals {
				joins += clockWork
			}
		}
	}
	return work, joins
}

func malformed(p *plan.Plan, at Where, err error) *Counterexample {
	bad := &Counterexample{Plan: p.Name, Spec: p.Spec, Reason: Malformed, At: []Where{at}, Text: err.Error()}
	if e := (*fault.Error)(nil); errors.As(err, &e) && e.Cause == nil {
		bad.Text = e.Text
	}
	return bad
}

// tooLarge refuses a plan that needs more work than is allowed; what names the number that is too
// large.
func (j *job) tooLarge(p *plan.Plan, what string, args ...any) error {
	return fault.New(fault.NotSupported, "plan %q (%v) is too large to verify: it needs more than %d actions, with %s; %s",
		p.Name, p.Spec, j.limit, fmt.Sprintf(what, args...), j.raise)
}

// clocks is tooLarge for a plan that needs clocks over the lanes of all ranks.
func (j *job) clocks() error {
	return j.tooLarge(j.plans[0], "the order of the steps of %d lanes, each with a clock for every other", j.lanes)
}

// operandsOf returns the number of sources and dependences of the steps of a lane.
func operandsOf(lane []plan.Step) (n int64) {
	for i := range lane {
		s := &lane[i]
		n += int64(len(s.Src) + len(s.After))
		for k := range s.Body {
			n += int64(s.Times) * int64(len(s.Body[k].Src)+len(s.Body[k].After))
		}
	}
	return n
}

// verify executes a job in one layout of memory and fills in the report.
//
// Clocks over all ranks are expensive in large groups. So the first run tracks only the order
// within each rank, unless the job requires full clocks. It may report a race that is none, but
// misses no real race; if it reports one, a second run with full clocks decides.
func (j *job) verify(inPlace bool, report *Report) error {
	x, bad := j.run(inPlace, j.full, report)
	if bad != nil && !j.full && (bad.Reason == Race || bad.Reason == Unordered) {
		if j.needed > j.limit {
			return j.clocks()
		}
		x, bad = j.run(inPlace, true, report)
	}
	if bad != nil {
		if !j.brief {
			x.remedy(bad)
			x.minimize(bad)
		}
		return refuse(bad)
	}
	for r := range x.ranks {
		load := &report.Ranks[r]
		for _, prog := range j.codes[r].progs {
			load.Tmp += len(prog.Tmp)
			load.Win += len(prog.Win)
		}
		report.Steps += load.Steps
		for i := range x.ranks[r].lanes {
			report.Rounds = max(report.Rounds, int(*x.ranks[r].lanes[i].clock.rounds()))
		}
	}
	report.Messages = x.messages
	report.Determinism = x.determinism()
	if report.Determinism < Needed(j.determinism) {
		return x.refuseLevel(report.Determinism, j.determinism)
	}
	return nil
}

func (j *job) run(inPlace, full bool, report *Report) (*execution, *Counterexample) {
	report.Ranks = make([]Load, len(j.codes))
	x := newExecution(j, inPlace, full, report)
	bad := x.run()
	if bad == nil {
		bad = x.outcome()
	}
	return x, bad
}

package verify_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// concrete executes a plan in some interleavings and layouts, and returns the first failure.
func concrete(p *plan.Plan, rng *rand.Rand, times int) error {
	for range times {
		for _, inPlace := range []bool{false, true} {
			if inPlace && p.Alias&plan.InPlace == 0 {
				continue
			}
			if err := newInterpreter(p, rng, inPlace).run(); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestConcrete executes the algorithms unchanged.
func TestConcrete(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, a := range algo.All() {
		for _, ranks := range []int{1, 2, 3, 4, 5, 8} {
			specs := specs(a, ranks)
			for _, s := range []plan.Spec{specs[0], specs[len(specs)-1]} {
				p, err := a.Make(s)
				if err != nil {
					continue // not for this number of ranks
				}
				if err := concrete(p, rng, 4); err != nil {
					t.Errorf("%s, %v: %v\n%s", a.Name, s, err, p.Text())
				}
			}
		}
	}
}

// TestConcretePipelines checks that sends run along with the recvs whose data they pass on, as
// After points on recvs allow.
func TestConcretePipelines(t *testing.T) {
	for _, test := range []struct {
		coll dtype.Collective
		name string
		want bool
	}{{dtype.AllGather, "ring", true}, {dtype.AllReduce, "ring", true}, {dtype.AllToAll, "linear", false}} {
		a, err := algo.Find(test.coll, test.name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Make(plan.Spec{Coll: test.coll, Ranks: 4})
		if err != nil {
			t.Fatal(err)
		}
		along := 0
		for seed := range uint64(20) {
			x := newInterpreter(p, rand.New(rand.NewPCG(seed, 8)), false)
			if err := x.run(); err != nil {
				t.Fatal(err)
			}
			along += x.along
		}
		if along > 0 != test.want {
			t.Errorf("%v/%s: %d actions of sends beside their recvs", test.coll, test.name, along)
		}
	}
}

var mutantsFlag = flag.Int("mutants", 100, "mutants of each algorithm and number of ranks; at most 30 with -short")

func mutantsEach() int {
	if testing.Short() {
		return min(*mutantsFlag, 30)
	}
	return *mutantsFlag
}

// sound is a mutant that verify accepted.
type sound struct {
	plan *plan.Plan
	what string
}

// tally counts the verdicts on mutants.
type tally struct {
	total    int
	accepted []sound
	kinds    map[string]int // number of mutants of each kind
	reasons  map[verify.Reason]int
}

// mutants creates mutants of the catalogue and verifies them.
func mutants(t *testing.T, rng *rand.Rand, each int, sizes ...int) tally {
	all := tally{kinds: map[string]int{}, reasons: map[verify.Reason]int{}}
	for _, a := range algo.All() {
		for _, ranks := range sizes {
			s := specs(a, ranks)
			p, err := a.Make(s[rng.IntN(len(s))])
			if err != nil {
				continue // not for this number of ranks
			}
			for range each {
				mutant, what := mutate(p, rng)
				if mutant == nil {
					continue
				}
				all.total++
				all.kinds[what]++
				_, err := verify.Plan(mutant, verify.Options{Brief: true})
				var bad *verify.Counterexample
				switch {
				case err == nil:
					all.accepted = append(all.accepted, sound{mutant, what})
				case errors.As(err, &bad):
					all.reasons[bad.Reason]++
				default:
					t.Errorf("%s, %v: %s: %v", a.Name, p.Spec, what, err)
				}
			}
		}
	}
	return all
}

// TestMutants changes right plans at random. Mutants that are still accepted must compute the right
// result when they are executed, by the interpreter and by package exec: mutants that hang, leave
// messages over or change the result must be refused.
func TestMutants(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	all := mutants(t, rng, mutantsEach(), 2, 3, 4, 5)
	survived := map[string]int{}
	byRanks := map[int][]*plan.Plan{}
	for _, m := range all.accepted {
		survived[m.what]++
		byRanks[m.plan.Spec.Ranks] = append(byRanks[m.plan.Spec.Ranks], m.plan)
		if err := concrete(m.plan, rng, 4); err != nil {
			t.Errorf("%s, %v: %s was accepted, but %v\n%s", m.plan.Name, m.plan.Spec, m.what, err, m.plan.Text())
		}
	}
	for ranks, plans := range byRanks {
		if err := runInproc(plans, ranks); err != nil {
			t.Errorf("a mutant was accepted, but on inproc: %v", err)
		}
	}
	killed := all.total - len(all.accepted)
	t.Logf("mutants: killed %d of %d (%d equivalent)", killed, all.total, len(all.accepted))
	t.Logf("reasons: %v", all.reasons)
	t.Logf("kinds: %v, equivalent: %v", all.kinds, survived)
	if killed < all.total/2 {
		t.Errorf("only %d of %d mutants were killed", killed, all.total)
	}
	for what, n := range all.kinds {
		if n == survived[what] && what != "operands swapped" {
			t.Errorf("%s: none of %d mutants was killed", what, n)
		}
	}
	for _, r := range []verify.Reason{verify.Deadlock, verify.Unsent, verify.Unreceived, verify.Race, verify.Unwritten,
		verify.Length, verify.PostScale} {
		if all.reasons[r] == 0 {
			t.Errorf("no mutant was killed for %v", r)
		}
	}
}

// mutate changes one thing in the program of one rank; the mutant is nil if there is nothing to
// change.
func mutate(p *plan.Plan, rng *rand.Rand) (mutant *plan.Plan, what string) {
	rank := rng.IntN(p.Spec.Ranks)
	seed := rng.Uint64()
	change := func(prog *plan.Program) string { return mutateProgram(p, prog, rand.New(rand.NewPCG(seed, 0))) }
	prog := unrolled(p.Program(rank))
	if what = change(&prog); what == "" {
		return nil, ""
	}
	return edit(p, rank, func(prog *plan.Program) { change(prog) }), what
}

func mutateProgram(p *plan.Plan, prog *plan.Program, rng *rand.Rand) string {
	if len(prog.Lanes) == 0 {
		return ""
	}
	l := rng.IntN(len(prog.Lanes))
	lane := prog.Lanes[l]
	if len(lane) == 0 {
		return ""
	}
	i := rng.IntN(len(lane))
	s := &lane[i]
	kind := rng.IntN(12)
	if kind >= 10 {
		return mutateAfter(prog, rng, kind == 10)
	}
	peers := s.Kind != plan.Copy && s.Kind != plan.Reduce && s.Kind != plan.GetReduce
	switch kind {
	case 0:
		prog.Lanes[l] = slices.Delete(lane, i, i+1)
		for _, other := range prog.Lanes { // dependences on the steps behind the deleted one move along
			for j := range other {
				for k := range other[j].After {
					if a := &other[j].After[k]; a.Lane == l && (a.Step > i || a.Step == len(lane)-1) {
						a.Step--
					}
				}
			}
		}
		return "a step dropped"
	case 1:
		j := rng.IntN(len(lane))
		if i == j {
			return ""
		}
		lane[i], lane[j] = lane[j], lane[i]
		return "two steps swapped"
	case 2:
		if !peers || p.Spec.Ranks < 3 {
			return ""
		}
		s.Peer = rng.IntN(p.Spec.Ranks)
		return "another peer"
	case 3:
		if len(s.After) == 0 {
			return ""
		}
		s.After = nil
		return "dependences dropped"
	case 4:
		other := (l + 1) % len(prog.Lanes)
		if other == l || len(prog.Lanes[other]) == 0 {
			return ""
		}
		s.After = []plan.Point{{Lane: other, Step: rng.IntN(len(prog.Lanes[other]))}}
		return "another dependence"
	case 5:
		writes := s.Kind == plan.Copy || s.Kind == plan.Reduce || s.Kind == plan.RecvReduce || s.Kind == plan.Get ||
			s.Kind == plan.GetReduce
		if !writes || !p.Spec.Coll.Reduces() {
			return ""
		}
		s.Final = !s.Final
		return "Final changed"
	case 6:
		if s.Kind != plan.RecvReduce {
			return ""
		}
		s.MsgFirst = !s.MsgFirst
		return "operands swapped"
	case 7:
		if len(s.Src) == 0 {
			return ""
		}
		r := &s.Src[rng.IntN(len(s.Src))]
		r.Buf = plan.Buffer(rng.IntN(4))
		return "another source"
	case 8:
		r := &s.Dst
		if s.Kind == plan.Send {
			r = &s.Src[0]
		}
		if rng.IntN(2) == 0 {
			r.Buf = plan.Buffer(rng.IntN(4))
		} else {
			r.At = rng.IntN(p.Spec.Ranks)
		}
		return "another chunk"
	default:
		prog.Lanes[l] = slices.Insert(lane, i, *s)
		return "a step repeated"
	}
}

// mutateAfter removes one dependence, or turns it into a dependence on the previous step.
func mutateAfter(prog *plan.Program, rng *rand.Rand, drop bool) string {
	type at struct {
		step *plan.Step
		k    int
	}
	var all []at
	for _, lane := range prog.Lanes {
		for i := range lane {
			for k, a := range lane[i].After {
				if drop || a.Step > 0 {
					all = append(all, at{&lane[i], k})
				}
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	a := all[rng.IntN(len(all))]
	if drop {
		a.step.After = slices.Delete(a.step.After, a.k, a.k+1)
		return "one dependence dropped"
	}
	a.step.After[a.k].Step--
	return "a dependence on the step before"
}

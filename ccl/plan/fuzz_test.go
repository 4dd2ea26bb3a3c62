package plan_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// seeds returns the initial plans of the fuzz corpus.
func seeds(f *testing.F) []*plan.Plan {
	plans := []*plan.Plan{everyForm()}
	for _, test := range []struct {
		coll dtype.Collective
		name string
	}{{dtype.AllReduce, "ring"}, {dtype.AllToAll, "pairwise"}, {dtype.Broadcast, "binomial"},
		{dtype.ReduceScatter, "ring"}} {
		a, err := algo.Find(test.coll, test.name)
		if err != nil {
			f.Fatal(err)
		}
		p, err := a.Make(plan.Spec{Coll: test.coll, Ranks: 3})
		if err != nil {
			f.Fatal(err)
		}
		plans = append(plans, p)
	}
	return plans
}

// readFuzzed checks what must be true of every file: it is refused with a typed error, or it is
// valid and survives being written and read back.
func readFuzzed(t *testing.T, data []byte, read func([]byte) (*plan.Plan, error)) {
	if len(data) > 1<<16 {
		return
	}
	p, err := read(data)
	if err != nil {
		if !errors.Is(err, fault.Invalid) || !refusal.MatchString(err.Error()) {
			t.Fatalf("a refusal without type or place: %v", err)
		}
		return
	}
	steps := 0
	for rank := range p.Spec.Ranks {
		prog := p.Program(rank)
		if err := p.ValidateProgram(rank, &prog); err != nil {
			t.Fatal(err)
		}
		for _, lane := range prog.Lanes {
			steps += plan.Len(lane)
		}
	}
	if steps < 1<<12 {
		roundTrip(t, p)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(friendly))
	for _, p := range seeds(f) {
		f.Add([]byte(p.Text()))
	}
	f.Fuzz(func(t *testing.T, data []byte) { readFuzzed(t, data, plan.Parse) })
}

func FuzzJSON(f *testing.F) {
	for _, p := range seeds(f) {
		data, err := p.JSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := plan.ParseJSON(data); err == nil && !json.Valid(data) {
			t.Fatal("what was read is no JSON")
		}
		readFuzzed(t, data, plan.ParseJSON)
	})
}

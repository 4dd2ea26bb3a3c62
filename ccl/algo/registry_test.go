package algo

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range All() {
		key := a.Coll.String() + "/" + a.Name
		if seen[key] || a.Doc == "" || strings.Contains(a.Doc, "\n") {
			t.Errorf("%s: registered twice, or without a line of documentation", key)
		}
		seen[key] = true
		found, err := Find(a.Coll, a.Name)
		if err != nil || found.Doc != a.Doc {
			t.Errorf("Find(%v, %s): %v, %v", a.Coll, a.Name, found, err)
		}
	}
	for _, c := range dtype.Collectives() {
		if len(For(c)) == 0 {
			t.Errorf("%v has no algorithm", c)
		}
	}
	All()[0].Name = "changed"
	if All()[0].Name == "changed" {
		t.Error("All lends the registry itself")
	}
}

func TestFindNames(t *testing.T) {
	_, err := Find(dtype.AllReduce, "rings")
	if !errors.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), `unknown algorithm "rings" for all_reduce; known: direct, ring`) {
		t.Errorf("got %v", err)
	}
	if _, err := Find(dtype.Send, "direct"); err == nil || !strings.Contains(err.Error(), "send has no algorithms") {
		t.Errorf("got %v", err)
	}
}

func TestMakeRefuses(t *testing.T) {
	ring, _ := Find(dtype.AllReduce, "ring")
	for _, test := range []struct {
		spec plan.Spec
		code fault.Code
		want string
	}{
		{plan.Spec{Coll: dtype.AllGather, Ranks: 2}, fault.Invalid,
			"ring of all_reduce asked for a plan of all_gather"},
		{plan.Spec{Coll: dtype.AllReduce}, fault.Invalid, "0 ranks"},
		{plan.Spec{Coll: dtype.AllReduce, Ranks: 3, Root: 1}, fault.Invalid, "has no root"},
		{plan.Spec{Coll: dtype.AllReduce, Ranks: plan.MaxRanks + 1}, fault.Invalid, "65537 ranks"},
	} {
		if _, err := ring.Make(test.spec); !errors.Is(err, test.code) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %v with %q", test.spec, err, test.code, test.want)
		}
	}
}

// TestMakeTooFine asks for a plan with more chunks than a plan may have.
func TestMakeTooFine(t *testing.T) {
	fine := entry("fine", dtype.AllReduce, "", func(plan.Spec) design { return design{split: plan.MaxSplit + 1} })
	_, err := fine.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 2})
	if !errors.Is(err, fault.NotSupported) || !strings.Contains(err.Error(), "131073 chunks") {
		t.Errorf("got %v", err)
	}
}

// TestPure checks that a program is a function of its rank: two calls return equal programs, which
// share no memory.
func TestPure(t *testing.T) {
	for _, a := range All() {
		for _, n := range []int{1, 2, 5} {
			p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: n})
			if err != nil {
				t.Fatal(err)
			}
			for rank := range n {
				if err := p.Validate(rank); err != nil {
					t.Error(err)
				}
				first, second := p.Program(rank), p.Program(rank)
				if !reflect.DeepEqual(first, second) {
					t.Errorf("%v/%s: rank %d has two programs", a.Coll, a.Name, rank)
				}
				for _, lane := range first.Lanes {
					clear(lane)
				}
				if !reflect.DeepEqual(second, p.Program(rank)) {
					t.Errorf("%v/%s: programs of rank %d share memory", a.Coll, a.Name, rank)
				}
			}
		}
	}
}

// TestLargeGroups asks for single programs of large groups; no program is made for other ranks.
func TestLargeGroups(t *testing.T) {
	for _, a := range All() {
		p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: 4096})
		if err != nil {
			t.Fatal(err)
		}
		for _, rank := range []int{0, 1, 2049, 4095} {
			if err := p.Validate(rank); err != nil {
				t.Error(err)
			}
		}
	}
}

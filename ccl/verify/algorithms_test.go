package verify_test

import (
	"errors"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// specs returns the Specs of an algorithm for a number of ranks: one for each root.
func specs(a algo.Algorithm, ranks int) []plan.Spec {
	if !a.Coll.Rooted() {
		return []plan.Spec{{Coll: a.Coll, Ranks: ranks}}
	}
	var all []plan.Spec
	for root := range ranks {
		all = append(all, plan.Spec{Coll: a.Coll, Ranks: ranks, Root: root})
	}
	return all
}

func TestAllAlgorithms(t *testing.T) {
	for _, a := range algo.All() {
		t.Run(a.Coll.String()+"/"+a.Name, func(t *testing.T) {
			for ranks := 1; ranks <= 17; ranks++ {
				for _, s := range specs(a, ranks) {
					p, err := a.Make(s)
					if errors.Is(err, fault.NotSupported) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					if _, err = verify.Plan(p, verify.Options{}); err != nil {
						t.Fatalf("%v\n%s", err, p.Text())
					}
				}
			}
		})
	}
}

// TestManyRanks verifies a plan with more ranks than streams have tables for, and finds a message
// left over in it.
func TestManyRanks(t *testing.T) {
	a, err := algo.Find(dtype.Broadcast, "binomial")
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Make(plan.Spec{Coll: dtype.Broadcast, Ranks: 1500, Root: 7})
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Plan(p, verify.Options{})
	if err != nil || r.Messages != 1499 {
		t.Errorf("%v, %d messages; want 1499", err, r.Messages)
	}
	rejected(t, edit(p, 7, add(0, plan.Step{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, 0)}, Peer: 1400})),
		verify.Unreceived, false, "rank 1400 does not receive the message of rank 7")
}

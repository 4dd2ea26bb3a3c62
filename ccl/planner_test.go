package ccl

import (
	"errors"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
)

// What is chosen without options runs on the links that a group has without options: anything else must be found by planner.needs.
func TestDefaultsNeedNothing(t *testing.T) {
	for _, determinism := range []int{2, 4} {
		p := newPlanner(&Options{Determinism: determinism}, nil)
		for _, coll := range dtype.Collectives() {
			for _, ranks := range []int{1, 2, 3, 8, 64, 5000} {
				for _, bytes := range []int64{0, 8, 64 << 10, 1 << 30} {
					made, err := p.Make(p.Choose(coll, ranks, bytes), plan.Spec{Coll: coll, Ranks: ranks})
					if err != nil {
						continue // refused in words when it is called
					}
					if made.Needs&plan.Gets != 0 || made.Chans > exec.PlanChannels {
						t.Errorf("%v of %d bytes on %d ranks: %s needs windows or %d channels", coll, bytes, ranks, made.Name, made.Chans)
					}
				}
			}
		}
		if channels, windows := p.needs(8); channels != exec.PlanChannels || windows {
			t.Errorf("without options: %d channels, windows %v", channels, windows)
		}
	}
	override, _ := tune.ParseOverride("all_reduce=two_shot_window")
	if _, windows := newPlanner(&Options{Algo: tune.FormatOverride(override)}, nil).needs(3); !windows {
		t.Error("two_shot_window needs windows")
	}
}

// TestProve: what is proven again is what runs; a plan that is wrong is refused before anything moves.
func TestProve(t *testing.T) {
	p := newPlanner(&Options{Verify: "always", Algo: "all_reduce=direct"}, nil)
	spec := plan.Spec{Coll: dtype.AllReduce, Ranks: 5}
	for range 2 {
		made, err := p.Make(p.Choose(spec.Coll, spec.Ranks, 8), spec)
		if err != nil || made.Name != "direct" {
			t.Fatalf("%v, %v", made, err)
		}
	}
	forgets := func(s plan.Spec) (*plan.Plan, error) {
		return &plan.Plan{Name: "forgets", Spec: s, Split: 1, Program: func(int) plan.Program {
			one := plan.Ref{Buf: plan.Out, N: 1}
			return plan.Program{Lanes: [][]plan.Step{{{Kind: plan.Copy, Dst: one, Src: []plan.Ref{{Buf: plan.In, N: 1}}, Final: true}}}}
		}}, nil
	}
	p.names = []named{{dtype.AllReduce, "forgets", forgets}}
	_, err := p.Make(0, spec)
	if !errors.Is(err, fault.Internal) || !strings.Contains(err.Error(), "algorithm forgets") {
		t.Errorf("got %v", err)
	}
}

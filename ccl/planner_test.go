package ccl

import (
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
)

// Plans that are chosen without options must run on the links that a group has without options:
// planner.needs must find anything else.
func TestDefaultsNeedNothing(t *testing.T) {
	for _, determinism := range []int{2, 4} {
		for _, ranks := range []int{1, 2, 3, 8, 64, 5000} {
			if testing.Short() && ranks == 64 {
				continue
			}
			p := newPlanner(&GroupOptions{Determinism: determinism}, nil, topo.Spread(ranks, ranks))
			for _, coll := range dtype.Collectives() {
				for _, bytes := range []int64{0, 8, 64 << 10, 1 << 30} {
					made, err := p.Make(p.Choose(coll, bytes), plan.Spec{Coll: coll, Ranks: ranks})
					if err != nil {
						continue // refused with an error when it is called
					}
					if made.Needs&plan.Gets != 0 || made.Chans > exec.PlanChannels {
						t.Errorf("%v of %d bytes on %d ranks: %s needs windows or %d channels",
							coll, bytes, ranks, made.Name, made.Chans)
					}
				}
			}
		}
		p := newPlanner(&GroupOptions{Determinism: determinism}, nil, topo.Spread(8, 8))
		if channels, windows := p.needs(); channels != exec.PlanChannels || windows {
			t.Errorf("without options: %d channels, windows %v", channels, windows)
		}
	}
	opts := &GroupOptions{Algo: "all_reduce=two_shot_window"}
	if _, windows := newPlanner(opts, nil, topo.Spread(3, 1)).needs(); !windows {
		t.Error("two_shot_window needs windows")
	}
}

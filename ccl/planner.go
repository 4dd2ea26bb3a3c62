package ccl

import (
	"fmt"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
)

// planner joins the catalogue (algo) and the choice (tune) for package exec.
type planner struct {
	override map[dtype.Collective]string

	all []algo.Algorithm
}

func newPlanner(override map[dtype.Collective]string) *planner {
	return &planner{override: override, all: algo.All()}
}

func (p *planner) Choose(coll dtype.Collective, ranks int, bytes int64) int {
	name := tune.Choose(coll, ranks, bytes, p.override)
	for i := range p.all {
		if p.all[i].Coll == coll && p.all[i].Name == name {
			return i
		}
	}
	return -1
}

func (p *planner) Make(algorithm int, spec plan.Spec) (*plan.Plan, error) {
	if algorithm < 0 {
		return nil, fmt.Errorf("no algorithm for %v", spec)
	}
	return p.all[algorithm].Make(spec)
}

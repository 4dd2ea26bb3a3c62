// Package algotest lists the plans that the catalogue can make, for tests that run or prove all of
// them.
package algotest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// Subject is an algorithm together with a shape of the group.
type Subject struct {
	algo.Algorithm
	Shape plan.Shape
	Gets  bool // it runs only where ranks share memory
}

// Subjects returns all subjects that can run on a number of ranks. skipped names those that are
// left out, with the reasons.
func Subjects(ranks int) (all []Subject, skipped []string) {
	shapes := map[int][]plan.Shape{4: {{}, {2, 2}}, 6: {{}, {3, 2}}, 8: {{}, {2, 4}, {2, 2, 2}}}[ranks]
	if shapes == nil {
		shapes = []plan.Shape{{}}
	}
	subjects := algo.All()
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.ReduceScatter, dtype.AllGather} {
		a, err := algo.Find(coll, "hierarchical.window.ring") // windows and messages in one plan
		if err != nil {
			panic(err)
		}
		subjects = append(subjects, a)
	}
	for _, a := range subjects {
		var known []plan.Program
		for _, shape := range shapes {
			name := fmt.Sprintf("%v/%s on %d ranks %v", a.Coll, a.Name, ranks, shape)
			p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks, Shape: shape})
			if err != nil {
				skipped = append(skipped, fmt.Sprintf("%s: %v", name, err))
				continue
			}
			program := p.Program(ranks - 1)
			if slices.ContainsFunc(known, func(k plan.Program) bool { return reflect.DeepEqual(k, program) }) {
				continue // the shape changes nothing
			}
			known = append(known, program)
			all = append(all, Subject{a, shape, p.Needs&plan.Gets != 0})
		}
	}
	return all, skipped
}

package exec

import (
	"fmt"
	"hash/fnv"

	"github.com/goccl/goccl/ccl/plan"
)

// lowered is one rank's program in the form that is run: flat, with gates decided, and everything that does not depend
// on the buffers of a call computed. It is made once for each plan.
type lowered struct {
	name  string
	split int
	alias plan.Alias
	hash  uint16
	tmp   []plan.Ref
	lanes [][]step
}

type step struct {
	plan.Step
	gates []gate // in place of After
}

// gate holds a step back until another one is done or, pipelined, has moved as many bytes.
type gate struct {
	lane, step int
	pipelined  bool
}

func lower(p *plan.Plan, rank, channels int) (*lowered, error) {
	if p.Chans > channels {
		return nil, fmt.Errorf("plan %s needs %d channels, links have %d", p.Name, p.Chans, channels)
	}
	prog := p.Program(rank)
	if err := p.ValidateProgram(rank, &prog); err != nil {
		return nil, err
	}
	low := &lowered{name: p.Name, split: p.Split, alias: p.Alias, tmp: prog.Tmp, hash: hashOf(p)}
	for _, lane := range prog.Lanes {
		steps := make([]step, len(lane))
		for i, s := range lane {
			steps[i].Step = s
			for _, after := range s.After {
				writer := prog.Lanes[after.Lane][after.Step]
				writes := writer.Kind == plan.Recv || writer.Kind == plan.RecvReduce
				steps[i].gates = append(steps[i].gates, gate{after.Lane, after.Step,
					s.Kind == plan.Send && writes && s.Src[0] == writer.Dst})
			}
		}
		low.lanes = append(low.lanes, steps)
	}
	return low, nil
}

// hashOf names a plan on the wire: ranks that run different algorithms must not mix their messages.
func hashOf(p *plan.Plan) uint16 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%v/%d", p.Name, p.Spec, p.Split)
	return uint16(h.Sum32() ^ h.Sum32()>>16)
}

package algo

import (
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// lanes collects the steps of a rank and orders them. It gives each step the After points that it
// needs, so that the step reads what earlier steps have written, and writes only chunks that
// earlier steps no longer use. It treats In and Out as the same memory, so that a program is also
// right in place. It is for collectives where In and Out have the same blocks.
type lanes struct {
	steps [][]plan.Step
	seen  [][]int // seen[a][b]: number of steps of lane b that come before the next step of lane a
	split int     // chunks of In and of Out; the chunks of Tmp are numbered after them
	wrote []plan.Point
	// reads[chunk*len(steps)+lane] is the number of steps of the lane up to the last step that has
	// read the chunk since it was written.
	reads []int
	tmp   []plan.Extent
}

func newLanes(n, split int, tmp ...plan.Extent) *lanes {
	b := &lanes{steps: make([][]plan.Step, n), seen: make([][]int, n), split: split, tmp: tmp,
		wrote: make([]plan.Point, split+len(tmp)), reads: make([]int, (split+len(tmp))*n)}
	for l := range b.seen {
		b.seen[l] = make([]int, n)
	}
	for i := range b.wrote {
		b.wrote[i].Step = -1
	}
	return b
}

// add appends a step to a lane.
func (b *lanes) add(lane int, s plan.Step) {
	need := make([]int, len(b.steps)) // number of steps of each lane that come first
	for _, r := range s.Src {
		for i := b.place(r); i < b.place(r)+r.N; i++ {
			b.afterWrite(need, i)
		}
	}
	for i := b.place(s.Dst); i < b.place(s.Dst)+s.Dst.N; i++ {
		b.afterWrite(need, i)
		for l, end := range b.readers(i) {
			need[l] = max(need[l], end)
		}
	}
	for l, end := range need {
		if l != lane && end > b.seen[lane][l] {
			b.seen[lane][l] = end
			s.After = append(s.After, plan.Point{Lane: l, Step: end - 1})
		}
	}
	step := len(b.steps[lane])
	b.steps[lane] = append(b.steps[lane], s)
	for _, r := range s.Src {
		for i := b.place(r); i < b.place(r)+r.N; i++ {
			b.readers(i)[lane] = step + 1
		}
	}
	for i := b.place(s.Dst); i < b.place(s.Dst)+s.Dst.N; i++ {
		b.wrote[i] = plan.Point{Lane: lane, Step: step}
		clear(b.readers(i))
	}
}

func (b *lanes) afterWrite(need []int, chunk int) {
	w := b.wrote[chunk]
	need[w.Lane] = max(need[w.Lane], w.Step+1)
}

func (b *lanes) readers(chunk int) []int {
	return b.reads[chunk*len(b.steps) : (chunk+1)*len(b.steps)]
}

func (b *lanes) place(r plan.Ref) int {
	if r.Buf == plan.Tmp {
		return b.split + r.At
	}
	return r.At
}

// program returns the steps as a program. It leaves out lanes without steps and renumbers the
// others.
func (b *lanes) program() plan.Program {
	p := plan.Program{Tmp: b.tmp}
	number := make([]int, len(b.steps))
	for l, lane := range b.steps {
		number[l] = len(p.Lanes)
		if len(lane) > 0 {
			p.Lanes = append(p.Lanes, slices.Clip(lane))
		}
	}
	for _, lane := range p.Lanes {
		for i := range lane {
			for k := range lane[i].After {
				lane[i].After[k].Lane = number[lane[i].After[k].Lane]
			}
		}
	}
	return p
}

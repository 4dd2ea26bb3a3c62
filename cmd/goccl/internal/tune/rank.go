package tune

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

// Candidates are given up when the fastest is far ahead: at once if it is hopeless times faster,
// after two blocks if it is behind times faster. This saves time with calls that are longer than a
// block.
const (
	hopeless = 4.0
	behind   = 1.5
)

// cellTime is roughly how long one candidate is measured for one size, but for at least leastBlocks
// blocks.
const (
	cellTime    = time.Second
	leastBlocks = 3
)

// auto is the candidate that is what the library chooses.
const auto = "auto"

// compareAll is the part of a rank that compares algorithms: it has a group for each algorithm; the
// groups take turns on the same buffers.
func compareAll(node *ccl.Node, spec *ranks.Spec, opts ccl.GroupOptions) error {
	comms, err := ranks.Join(node, spec, candidates(spec, opts)...)
	if err != nil {
		return err
	}
	return compareEach(comms, spec, func(cell *measured.Cell) {
		text, _ := json.Marshal(cell)
		fmt.Printf("%s\n", text)
	})
}

// candidates returns the options of the groups: the first one carries the control messages of the
// measurement.
func candidates(spec *ranks.Spec, opts ccl.GroupOptions) []ccl.GroupOptions {
	each := []ccl.GroupOptions{opts}
	for _, name := range spec.Candidates {
		own := opts
		if name != auto {
			own.Algo = fmt.Sprintf("%v=%s", spec.Coll, name)
		}
		each = append(each, own)
	}
	return each
}

// compareEach measures all sizes. Rank 0 has the cells reported.
func compareEach(comms []*ccl.Communicator, spec *ranks.Spec, report func(*measured.Cell)) error {
	for n, size := range append([]int64{slices.Min(spec.Sizes)}, spec.Sizes...) {
		cell, err := compare(comms[0], comms[1:], spec, size)
		if err != nil {
			return err
		}
		if spec.Rank == 0 && n > 0 { // the first cell warms up the processes and is not reported
			report(cell)
		}
	}
	return ccl.Barrier(context.Background(), comms[0])
}

// compare measures all groups at one size. The time of a block of calls is that of its slowest
// rank. All ranks learn it, so all give up the same candidates.
func compare(control *ccl.Communicator, groups []*ccl.Communicator, spec *ranks.Spec,
	size int64) (*measured.Cell, error) {
	b, err := ranks.NewBuffers(control, spec, size)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	cell := &measured.Cell{Bytes: b.Bytes, Times: make([][]float64, len(groups)), Turns: make([]int, len(groups)),
		Wrong: make([]int64, len(groups))}
	block := func(i, turns int) (float64, error) {
		if err := ccl.Barrier(ctx, control); err != nil {
			return 0, err
		}
		b.Comm = groups[i]
		start := time.Now()
		for range turns {
			if err := b.Run(ctx); err != nil {
				return 0, fmt.Errorf("%s: %w", spec.Candidates[i], err)
			}
		}
		slowest := []float64{time.Since(start).Seconds() / float64(turns)}
		err := ccl.AllReduce(ctx, control, slowest, slowest, ccl.Max)
		return slowest[0], err
	}
	once := make([]float64, len(groups))
	turns := func(i int, time float64) int { return int(max(1, min(1e5, time/max(once[i], 1e-8)))) }
	var left []int
	for i := range groups {
		b.Comm = groups[i]
		if cell.Wrong[i], err = b.Check(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", spec.Candidates[i], err)
		}
		if once[i], err = block(i, 1); err != nil { // the check has done all one-time work
			return nil, err
		}
		again, err := block(i, turns(i, spec.Block.Seconds()/8))
		if err != nil {
			return nil, err
		}
		once[i] = min(once[i], again)
		left = append(left, i)
		cell.Times[i] = []float64{once[i]}
	}
	if !spec.Everything {
		left = without(left, once, hopeless, spec.Block)
	}
	for _, i := range left {
		cell.Times[i] = nil
	}
	blocks := min(spec.Repeat, max(leastBlocks, int(cellTime.Seconds()/slices.Min(once))))
	for n := range blocks {
		for k := range left {
			i := left[(k+n)%len(left)]
			if n == 0 {
				cell.Turns[i] = turns(i, spec.Block.Seconds())
			}
			took, err := block(i, cell.Turns[i])
			if err != nil {
				return nil, err
			}
			cell.Times[i] = append(cell.Times[i], took)
			once[i] = min(once[i], took)
		}
		if n == 1 && !spec.Everything {
			left = without(left, once, behind, spec.Block)
		}
	}
	return cell, nil
}

// without returns the entries of list that take no more than a block, or no more than times as long
// as the fastest of all.
func without(list []int, once []float64, times float64, block time.Duration) []int {
	limit := max(slices.Min(once)*times, block.Seconds())
	return slices.DeleteFunc(list, func(i int) bool { return once[i] > limit })
}

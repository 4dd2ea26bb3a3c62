package algo

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// allReduceHierarchical reduces level by level. Within the innermost level (a host), a
// reduce-scatter leaves each of the a ranks with the host's sum of its own part of the block. The
// ranks with the same part, one on each of the b hosts, all-reduce this part (rails: a all-reduces
// run side by side, each over its own links). Then an all-gather within the host puts the parts
// together. With three levels, the middle step is itself such an all-reduce. Any reduce-scatter and
// all-gather can run within hosts, any all-reduce across hosts.
//
//	steps   the sum of the three stages: R(a) + A(b) + G(a); a ring within and across takes 2(a-1) +
//	        2(b-1)
//	bytes   a rank sends 2·m·(a-1)/a within its host, and 2·m/a·(b-1)/b across with an algorithm
//	        that sends the least
//	time    (R(a)+G(a))·α₀ + A(b)·α₁ + 2·m·(a-1)/a·β₀ + 2·(m/a)·(b-1)/b·β₁ + m·(1-1/n)·γ
//	wins    where paths within a host are faster than paths across hosts: the slower paths carry 1/a
//	        of the block for each rank, and there are fewer rounds than in a flat ring
//	order   within hosts first, in the order of the inner algorithm, then across; all ranks get the
//	        same bits: level 2, or 3 where all parts have 3
//	memory  none where the parts can run in place; else the rank's part, or the host's
//	source  Jia et al., "Highly scalable deep learning training system with mixed-precision" (2018),
//	        §4.2; Cho et al., "BlueConnect" (2019)
//
// In place: In is read by the first stage only, and a rank begins the second stage when it has
// ended the first. A part that cannot run in place has its result in Tmp.
func allReduceHierarchical(s plan.Spec, p parts, sizes []int) (design, error) {
	var subs []*plan.Plan // reduce-scatters from the innermost level on, the all-reduce, then all-gathers back
	top := len(sizes) - 1
	for l := range 2*top + 1 {
		at := min(l, 2*top-l)
		coll, name := dtype.AllReduce, p.level(at, len(sizes))
		if l < top {
			coll, name = lower(coll, dtype.ReduceScatter, name)
		} else if l > top {
			coll, name = lower(coll, dtype.AllGather, name)
		}
		sub, err := subPlan(coll, name, sizes[at], at)
		if err != nil {
			return design{}, err
		}
		subs = append(subs, sub)
	}
	split := product(sizes[:top]) * commonSplit(subs)
	return composed(split, subs, func(rank int) plan.Program {
		return allReduceLevels(s, split, rank, digits(rank, sizes), subs)
	}), nil
}

// allReduceLevels returns the program of a rank that belongs to one group in each level.
func allReduceLevels(s plan.Spec, split, rank int, groups []group, subs []*plan.Plan) plan.Program {
	c := &composer{spec: s, split: split, rank: rank, home: plan.Out}
	top := len(groups) - 1
	// The part of the block that this rank has before level l begins at begin[l]. It has length[l]
	// chunks, which is split/(sizes below l).
	begin := []int{0}
	length := []int{split}
	for l, g := range groups[:top] {
		each := length[l] / g.size
		length = append(length, each)
		begin = append(begin, begin[l]+g.pos*each)
	}
	src := whole(plan.In)
	for i, sub := range subs {
		l := min(i, 2*top-i)
		st := stage{sub: sub, ranks: ranksOf(groups[l]), self: groups[l].pos, final: i == top,
			runs: 1, length: length[l], merge: true}
		if i != top {
			st.length /= groups[l].size
		}
		st.start = func(block, _ int) int { return begin[l] + block*st.length }
		st.src, st.dst = src, whole(plan.Out)
		// In and Out may be the same memory, and the result belongs in Out. A stage that cannot run
		// in place needs Tmp on one side.
		if src.buf != plan.Tmp && !inPlace(sub) || i < len(subs)-1 && !inPlace(subs[i+1]) {
			part := l // level of the part that the stage leaves behind
			if i < top {
				part = l + 1
			}
			st.dst = c.temporary(region{unit: length[part], low: begin[part] / length[part], stride: 1}, 1)
		}
		c.add(st)
		src = st.dst
	}
	return c.prog
}

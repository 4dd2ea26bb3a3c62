package algo

import (
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// TestComposeApart composes parts that do not run in place, in every combination: their results
// must go to Tmp.
func TestComposeApart(t *testing.T) {
	const a, b, n = 3, 2, 6
	part := func(coll dtype.Collective, name string, ranks int, apart bool) *plan.Plan {
		sub, err := subPlan(coll, name, ranks, 1)
		if err != nil {
			t.Fatal(err)
		}
		if apart {
			sub.Alias = 0
		}
		return sub
	}
	least := 0 // Tmp that the parts themselves need
	for mask := range 8 {
		s := plan.Spec{Coll: dtype.AllReduce, Ranks: n, Shape: plan.Shape{a, b}}
		subs := []*plan.Plan{part(dtype.ReduceScatter, "ring", a, mask&1 != 0),
			part(dtype.AllReduce, "ring", b, mask&2 != 0), part(dtype.AllGather, "ring", a, mask&4 != 0)}
		split := a * commonSplit(subs)
		p := &plan.Plan{Name: "composed", Spec: s, Split: split, Chans: 1, Needs: plan.Messages, Alias: plan.InPlace,
			Program: func(rank int) plan.Program {
				return allReduceLevels(s, split, rank, digits(rank, []int{a, b}), subs)
			}}
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			t.Errorf("all_reduce, mask %d: %v", mask, err)
		}
		used := 0
		for rank := range n {
			prog := p.Program(rank)
			used += len(prog.Tmp)
		}
		if mask == 0 {
			least = used
		} else if used <= least {
			t.Errorf("all_reduce, mask %d: %d chunks of tmp, not more than in place", mask, used)
		}

		s = plan.Spec{Coll: dtype.AllGather, Ranks: n, Shape: plan.Shape{a, b}}
		subs = []*plan.Plan{part(dtype.AllGather, "direct", a, mask&1 != 0),
			part(dtype.AllGather, "ring", b, mask&2 != 0)}
		p = &plan.Plan{Name: "composed", Spec: s, Split: 1, Chans: 1, Needs: plan.Messages, Alias: plan.InPlace,
			Program: func(rank int) plan.Program {
				return allGatherLevels(s, 1, rank, digits(rank, []int{a, b}), subs)
			}}
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			t.Errorf("all_gather, mask %d: %v", mask, err)
		}
	}
}

// TestComposeCopiesOntoThemselves composes parts that copy In to Out first, which is no step if
// both are the same memory. A step that comes after the copy must then come after the steps that
// the copy came after, or that were before it in its lane.
func TestComposeCopiesOntoThemselves(t *testing.T) {
	const a, b, n = 2, 2, 4
	copied, after := copyStep(out(0), in(0)), copyStep(out(0), in(0))
	after.After = []plan.Point{{Lane: 0, Step: 0}}
	sum := recvReduce(out(0), in(0), 1)
	sum.Final = true
	upper := [][]plan.Step{{sum}, {send(out(0), 1, plan.Point{})}}
	for name, lower := range map[string][][]plan.Step{
		"alone in its lane": {{send(in(0), 0)}, {after}, {recv(out(0), 0, plan.Point{Lane: 1})}},
		"behind the send":   {{send(in(0), 0), copied}, {recv(out(0), 0, plan.Point{Step: 1})}},
	} {
		exchange := &plan.Plan{Name: "exchange", Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: b}, Split: 1, Chans: 1,
			Needs: plan.Messages, Program: func(rank int) plan.Program {
				return plan.Program{Lanes: [][][]plan.Step{upper, lower}[rank]}
			}}
		if _, err := verify.Plan(exchange, verify.Options{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		exchange.Alias = plan.InPlace
		scatter, _ := subPlan(dtype.ReduceScatter, "ring", a, 1)
		gather, _ := subPlan(dtype.AllGather, "ring", a, 1)
		s := plan.Spec{Coll: dtype.AllReduce, Ranks: n}
		p := &plan.Plan{Name: "composed", Spec: s, Split: a, Chans: 1, Needs: plan.Messages, Alias: plan.InPlace,
			Program: func(rank int) plan.Program {
				return allReduceLevels(s, a, rank, digits(rank, []int{a, b}), []*plan.Plan{scatter, exchange, gather})
			}}
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			t.Errorf("%s: %v\n%s", name, err, p.Text())
		}
	}
}

// TestComposeUnknownParts asks for parts that do not exist.
func TestComposeUnknownParts(t *testing.T) {
	for coll := range designers {
		for _, p := range []parts{{"none", "ring"}, {"ring", "none"}} {
			for _, n := range []int{4, 7} {
				_, err := hierarchical(coll, p).Make(plan.Spec{Coll: coll, Ranks: n})
				if wanted := n == 4 || p[1] == "none"; wanted != (err != nil) ||
					wanted && !strings.Contains(err.Error(), `no algorithm "none"`) {
					t.Errorf("%v of %v on %d ranks: %v", coll, p, n, err)
				}
			}
		}
	}
}

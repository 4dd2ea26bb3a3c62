package verify_test

import (
	"math/rand/v2"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// FuzzPlan verifies arbitrary plans: nothing panics, and an accepted plan computes the right result
// when it is executed.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{byte(dtype.Barrier), 0, 2, 2, 0, 0, 0, 3, 1, 1, 3, 0, 0, 1, 0, 2, 1})
	f.Add([]byte{byte(dtype.Broadcast), 1, 2, 3, 2, 0, 1})
	f.Add([]byte{byte(dtype.AllReduce), 4, 7, 200, 13, 54, 9, 31, 77, 140, 22, 3, 99, 250, 6})
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		b := make([]byte, 20+rng.IntN(120))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := decode(b)
		if _, err := verify.Plan(p, verify.Options{Work: 1 << 20}); err != nil {
			return
		}
		if err := concrete(p, rand.New(rand.NewPCG(1, 1)), 6); err != nil {
			t.Errorf("accepted, but %v\n%s", err, p.Text())
		}
	})
}

// decode creates a plan from bytes; when they run out, the rest is zero.
func decode(b []byte) *plan.Plan {
	next := func(n int) int {
		if len(b) == 0 {
			return 0
		}
		v := int(b[0]) % n
		b = b[1:]
		return v
	}
	colls := dtype.Collectives()
	s := plan.Spec{Coll: colls[next(len(colls))], Ranks: 1 + next(3)}
	p := &plan.Plan{Name: "fuzz", Spec: s, Split: 1 + next(2), Chans: 1, Flags: 1, Win: 3,
		Needs: plan.Messages | plan.Puts | plan.Gets | plan.Counts, Alias: plan.Alias(next(2))}
	ref := func() plan.Ref {
		v := next(24)
		return plan.Ref{Buf: plan.Buffer(v % 4), At: v / 4 % 3, N: 1 + v/12}
	}
	progs := make([]plan.Program, s.Ranks)
	for r := range progs {
		progs[r].Lanes = make([][]plan.Step, 1+next(2))
		for range next(3) {
			progs[r].Tmp = append(progs[r].Tmp, decodeExtent(next, s))
		}
		for range next(3) {
			progs[r].Win = append(progs[r].Win, decodeExtent(next, s))
		}
		for l := range progs[r].Lanes {
			for range next(4) {
				progs[r].Lanes[l] = append(progs[r].Lanes[l], decodeStep(next, ref, s.Ranks, 1-l))
			}
		}
	}
	p.Program = func(r int) plan.Program { return progs[r] }
	return p
}

// decodeExtent creates a length that some rank may have.
func decodeExtent(next func(int) int, s plan.Spec) plan.Extent {
	e := plan.Extent{Part: next(2)}
	switch s.Coll {
	case dtype.AllToAll:
		e.From, e.To = next(s.Ranks), next(s.Ranks)
	case dtype.AllGather, dtype.Gather, dtype.Scatter, dtype.ReduceScatter:
		e.From = next(s.Ranks)
		e.To = e.From
	}
	return e
}

func decodeStep(next func(int) int, ref func() plan.Ref, ranks, otherLane int) plan.Step {
	step := plan.Step{Kind: plan.Kind(next(int(plan.Loop)))}
	if step.Kind != plan.Send && step.Kind != plan.Signal && step.Kind != plan.Wait {
		step.Dst = ref()
	}
	if step.Kind != plan.Copy && step.Kind != plan.Reduce && step.Kind != plan.GetReduce {
		step.Peer = next(ranks)
	}
	switch step.Kind {
	case plan.Reduce:
		step.Src = []plan.Ref{ref(), ref()}
	case plan.GetReduce:
		step.Src, step.From = []plan.Ref{ref(), ref()}, []int{next(ranks), next(ranks)}
	case plan.Copy, plan.Send, plan.RecvReduce, plan.Put, plan.Get, plan.Packet:
		step.Src = []plan.Ref{ref()}
	}
	step.Final = next(4) == 1
	if next(4) == 1 {
		step.After = []plan.Point{{Lane: otherLane, Step: next(3)}}
	}
	return step
}

package verify_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// TestLentPlans checks that plans that declare Lend are proven right with lent windows, and that
// every chunk that a peer reads is then lent.
func TestLentPlans(t *testing.T) {
	lending := 0
	for _, a := range algo.All() {
		for _, ranks := range []int{2, 3, 4, 7} {
			p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks})
			if err != nil || p.Alias&plan.Lend == 0 {
				continue
			}
			lending++
			_, err = verify.Plan(p, verify.Options{})
			require.NoError(t, err, "%v %s", p.Spec, p.Name)
			lent := make([][]plan.Ref, ranks)
			for r := range ranks {
				prog := p.Program(r)
				lent[r] = prog.Lent()
			}
			for r := range ranks {
				for _, lane := range p.Program(r).Lanes {
					for _, s := range lane {
						for k, ref := range s.Src {
							from := s.Peer
							if s.Kind == plan.GetReduce {
								from = s.From[k]
							}
							if ref.Buf == plan.Win && from != r {
								require.Equal(t, 1, lent[from][ref.At].N, "%v %s: rank %d reads %v of rank %d",
									p.Spec, p.Name, r, ref, from)
							}
						}
					}
				}
			}
		}
	}
	require.Equal(t, 8*4, lending, "all collectives but barrier")
}

// TestLendingIsRefused: a plan that is right with windows of its own may be wrong if window chunks
// stand for memory of the caller.
func TestLendingIsRefused(t *testing.T) {
	out, in := ref(plan.Out, 0), ref(plan.In, 0)
	gather := func(before, after []plan.Step) *plan.Plan {
		var progs []plan.Program
		for me := range 2 {
			steps := append([]plan.Step{copied(ref(plan.Win, 0), in)}, before...)
			steps = append(steps, signal(1-me), wait(1-me),
				plan.Step{Kind: plan.GetReduce, Dst: ref(plan.Tmp, 0),
					Src: []plan.Ref{ref(plan.Win, 0), ref(plan.Win, 0)}, From: []int{0, 1}, Final: true})
			for _, s := range after {
				if s.Kind == plan.Signal || s.Kind == plan.Wait {
					s.Peer = 1 - me
				}
				steps = append(steps, s)
			}
			progs = append(progs, plan.Program{Tmp: []plan.Extent{{}}, Win: []plan.Extent{{}},
				Lanes: [][]plan.Step{append(steps, copied(out, ref(plan.Tmp, 0)))}})
		}
		return windowed(plan.Spec{Coll: dtype.AllReduce, Ranks: 2}, progs...)
	}
	found, err := algo.Find(dtype.AllReduce, "one_shot_window")
	require.NoError(t, err)
	oneShot, err := found.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 3})
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		p      *plan.Plan
		alias  plan.Alias
		reason verify.Reason
		ok     bool
	}{
		{"out of place, one shot writes what nobody reads", oneShot, plan.Lend, 0, true},
		{"in place it writes what others may still read", oneShot, plan.InPlace | plan.Lend, verify.Race, false},
		{"the end comes before the others have read", gather(nil, nil), plan.InPlace | plan.Lend, verify.Race, false},
		{"the end comes when they have", gather(nil, []plan.Step{signal(0), wait(0)}),
			plan.InPlace | plan.Lend, 0, true},
		{"out, which is in, is written between",
			gather([]plan.Step{copied(ref(plan.Tmp, 0), ref(plan.Win, 0)), copied(out, ref(plan.Tmp, 0))},
				[]plan.Step{signal(0), wait(0)}), plan.InPlace | plan.Lend, verify.Overwritten, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p.Alias = c.alias &^ plan.Lend
			_, err := verify.Plan(c.p, verify.Options{})
			require.NoError(t, err, "without lending")
			c.p.Alias = c.alias
			_, err = verify.Plan(c.p, verify.Options{})
			if c.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, fault.Invalid)
			var bad *verify.Counterexample
			require.True(t, errors.As(err, &bad))
			require.Equal(t, c.reason, bad.Reason, bad.Error())
			require.True(t, bad.Lent)
			require.Contains(t, bad.Error(), "with windows lent from in and out")
		})
	}
}

// TestLent checks that only chunks that one plain copy writes are lent.
func TestLent(t *testing.T) {
	w, in := ref(plan.Win, 0), ref(plan.In, 0)
	final := copied(w, in)
	final.Final = true
	for i, c := range []struct {
		steps []plan.Step
		lent  bool
	}{
		{[]plan.Step{copied(w, in)}, true},
		{[]plan.Step{copied(w, ref(plan.Out, 0))}, true},
		{[]plan.Step{copied(w, ref(plan.Tmp, 0))}, false},
		{[]plan.Step{final}, false},
		{[]plan.Step{copied(w, in), copied(w, in)}, false},
		{[]plan.Step{copied(w, in), {Kind: plan.Recv, Dst: w, Peer: 1}}, false},
		{[]plan.Step{copied(w, in), {Kind: plan.Put, Dst: w, Src: []plan.Ref{in}, Peer: 1}}, true},
		// in the window of another rank
		{[]plan.Step{{Kind: plan.Loop, Times: 2, Body: []plan.Step{copied(w, in)}}}, false},
		{nil, false},
	} {
		p := plan.Program{Win: []plan.Extent{{}}, Lanes: [][]plan.Step{c.steps}}
		want := plan.Ref{}
		if c.lent {
			want = c.steps[0].Src[0]
		}
		require.Equal(t, []plan.Ref{want}, p.Lent(), fmt.Sprint(i))
	}
}

package program

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// lane makes a plan of one lane, which is the same on both ranks except for the peer.
func lane(needs plan.Need, tmp []plan.Extent, steps func(peer int) []plan.Step) *plan.Plan {
	return &plan.Plan{
		Name: "p", Spec: plan.Spec{Coll: dtype.AllToAll, Ranks: 2}, Split: 1, Chans: 1, Flags: 1, Win: 1, Needs: needs,
		Program: func(rank int) plan.Program {
			return plan.Program{
				Tmp: tmp, Win: []plan.Extent{{From: 1 - rank, To: rank}}, Lanes: [][]plan.Step{steps(1 - rank)},
			}
		},
	}
}

// Two plans have the same hash only if they describe the same, loops included.
func TestHash(t *testing.T) {
	ref := func(buf plan.Buffer, i int) plan.Ref { return plan.Ref{Buf: buf, At: i, N: 1} }
	sends := func(first, second int) *plan.Plan {
		return lane(plan.Messages, nil, func(peer int) []plan.Step {
			return []plan.Step{
				{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, first)}, Peer: peer},
				{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, second)}, Peer: peer},
			}
		})
	}
	base := sends(0, 1)
	require.Equal(t, hashOf(base), hashOf(sends(0, 1)))
	seen := map[uint16]string{hashOf(base): "base"}
	for what, change := range map[string]func(*plan.Plan){
		"other steps":    func(p *plan.Plan) { *p = *sends(1, 0) },
		"name":           func(p *plan.Plan) { p.Name = "q" },
		"lower bound":    func(p *plan.Plan) { p.MinBytes = 1 },
		"upper bound":    func(p *plan.Plan) { p.MaxBytes = 1 << 40 },
		"aliasing":       func(p *plan.Plan) { p.Alias = plan.InPlace },
		"more ranks":     func(p *plan.Plan) { p.Spec.Ranks = 3 },
		"large group":    func(p *plan.Plan) { p.Spec.Ranks = 64 },
		"large, shape":   func(p *plan.Plan) { p.Spec.Ranks, p.Spec.Shape = 64, plan.Shape{8, 8} },
		"large, other":   func(p *plan.Plan) { p.Spec.Ranks, p.Name = 64, "q" },
		"large, bounded": func(p *plan.Plan) { p.Spec.Ranks, p.MaxBytes = 64, 9 },
	} {
		p := *base
		change(&p)
		require.Empty(t, seen[hashOf(&p)], "%s has the same hash", what)
		seen[hashOf(&p)] = what
	}
}

// Plans that this executor cannot run are refused.
func TestSupported(t *testing.T) {
	win := plan.Ref{Buf: plan.Win, N: 1}
	for _, wrong := range []struct {
		name string
		p    *plan.Plan
		code fault.Code
		want string
	}{
		{"too many channels", func() *plan.Plan {
			p := lane(plan.Messages, nil, func(int) []plan.Step { return nil })
			p.Chans = 3
			return p
		}(), fault.NotSupported, "needs 3 channels, links have 2"},
		{"gets", lane(plan.Gets, nil, func(peer int) []plan.Step {
			return []plan.Step{{Kind: plan.Get, Dst: plan.Ref{Buf: plan.Out, N: 1}, Src: []plan.Ref{win}, Peer: peer}}
		}), fault.NotSupported,
			"plan p reads windows of peers (lane 0, step 0 is a get): it needs ranks that all share memory"},
		{"gets of another rank", lane(plan.Gets, nil, func(int) []plan.Step { return nil }),
			fault.NotSupported, "needs ranks that all share memory"},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			prog := wrong.p.Program(0)
			err := supported(wrong.p, &prog, &Room{Channels: 2})
			require.ErrorIs(t, err, wrong.code)
			require.ErrorContains(t, err, wrong.want)
		})
	}
}

// A chunk that a step of any lane reads again is not a result.
func TestResults(t *testing.T) {
	ref := func(buf plan.Buffer, at, n int) plan.Ref { return plan.Ref{Buf: buf, At: at, N: n} }
	low := &Lowered{lanes: [][]Step{{
		{Kind: plan.Copy, Dst: ref(plan.Out, 0, 1), Src: []plan.Ref{ref(plan.In, 0, 1)}},
		{Kind: plan.Recv, Dst: ref(plan.Out, 1, 2)},
		{Kind: plan.Recv, Dst: ref(plan.Out, 3, 2)},
		{Kind: plan.Recv, Dst: ref(plan.Tmp, 5, 1)},
		{Kind: plan.Wait},
	}, {
		{Kind: plan.Send, Src: []plan.Ref{ref(plan.Out, 2, 1)}},
		{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, 4, 1)}},
	}}}
	low.markResults()
	for i, want := range []bool{true, false, true, false, false} {
		require.Equal(t, want, low.lanes[0][i].Result, "step %d", i)
	}
}

func TestFusedCopies(t *testing.T) {
	ref := func(buf plan.Buffer, at int) plan.Ref { return plan.Ref{Buf: buf, At: at, N: 1} }
	to := func(buf plan.Buffer, from int) Step {
		return Step{Kind: plan.Copy, Dst: ref(buf, 0), Src: []plan.Ref{ref(plan.In, from)}}
	}
	signal, wait := Step{Kind: plan.Signal}, Step{Kind: plan.Wait}
	for _, c := range []struct {
		name  string
		lane  []Step
		fused bool
	}{
		{"signals between", []Step{to(plan.Win, 1), signal, signal, to(plan.Out, 1)}, true},
		{"other block", []Step{to(plan.Win, 1), signal, to(plan.Out, 0)}, false},
		{"a wait between", []Step{to(plan.Win, 1), signal, wait, to(plan.Out, 1)}, false},
		{"nothing behind", []Step{to(plan.Win, 1), signal}, false},
		{"not into the window", []Step{to(plan.Tmp, 1), signal, to(plan.Out, 1)}, false},
	} {
		low := &Lowered{lanes: [][]Step{c.lane}}
		low.fuseCopies()
		last := &c.lane[len(c.lane)-1]
		require.Equal(t, c.fused, last.FusedInto == &c.lane[0], c.name)
		require.Equal(t, c.fused, c.lane[0].FusedCopy == last, c.name)
	}
}

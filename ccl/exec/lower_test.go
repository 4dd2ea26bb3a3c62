package exec

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// lane makes a plan of one lane, the same on both of its ranks but for the peer.
func lane(needs plan.Need, tmp []plan.Extent, steps func(peer int) []plan.Step) *plan.Plan {
	return &plan.Plan{Name: "p", Spec: plan.Spec{Coll: dtype.AllToAll, Ranks: 2}, Split: 1, Chans: 1, Flags: 1, Win: 1, Needs: needs,
		Program: func(rank int) plan.Program {
			return plan.Program{Tmp: tmp, Win: []plan.Extent{{From: 1 - rank, To: rank}}, Lanes: [][]plan.Step{steps(1 - rank)}}
		}}
}

// Two plans have the same hash only if they say the same, loops included.
func TestHash(t *testing.T) {
	ref := func(buf plan.Buffer, i int) plan.Ref { return plan.Ref{Buf: buf, At: i, N: 1} }
	sends := func(first, second int) *plan.Plan {
		return lane(plan.Messages, nil, func(peer int) []plan.Step {
			return []plan.Step{{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, first)}, Peer: peer}, {Kind: plan.Send, Src: []plan.Ref{ref(plan.In, second)}, Peer: peer}}
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

// What this executor cannot do is refused.
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
			p.Chans = PlanChannels + 1
			return p
		}(), fault.NotSupported, "needs 3 channels, links have 2"},
		{"gets", lane(plan.Gets, nil, func(peer int) []plan.Step {
			return []plan.Step{{Kind: plan.Get, Dst: plan.Ref{Buf: plan.Out, N: 1}, Src: []plan.Ref{win}, Peer: peer}}
		}), fault.NotSupported, "plan p reads windows of peers (lane 0, step 0 is a get): it needs ranks that all share memory"},
		{"gets of another rank", lane(plan.Gets, nil, func(int) []plan.Step { return nil }), fault.NotSupported, "needs ranks that all share memory"},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			prog := wrong.p.Program(0)
			err := supported(wrong.p, &prog, PlanChannels, new(window.Set))
			require.ErrorIs(t, err, wrong.code)
			require.ErrorContains(t, err, wrong.want)
		})
	}
}

package ccl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/verify"
)

// Users' plans and plans of more than 64 ranks are proven before their first use, others where the
// options ask for it.
func TestMustProve(t *testing.T) {
	for _, test := range []struct {
		own, always bool
		ranks       int
		want        bool
	}{
		{false, false, 1, false},
		{false, false, 64, false},
		{false, false, 65, true},
		{false, false, 4096, true},
		{true, false, 2, true},
		{true, false, 65, true},
		{false, true, 2, true},
		{true, true, 100, true},
	} {
		require.Equal(t, test.want, mustProve(test.own, test.always, test.ranks), "%+v", test)
	}
}

// The cost of a proof is counted, but not far beyond the bound.
func TestProofCost(t *testing.T) {
	made := func(coll dtype.Collective, name string, ranks int) *plan.Plan {
		a, err := algo.Find(coll, name)
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: coll, Ranks: ranks})
		require.NoError(t, err)
		return p
	}
	for _, test := range []struct {
		plan *plan.Plan
		want int
	}{
		{made(dtype.AllReduce, "ring", 65), 65 * 65 * 4 * 64},
		{made(dtype.AllReduce, "ring", 128), 128 * 128 * 4 * 127},
		{made(dtype.Barrier, "dissemination", 512), 512 * 512 * 2 * 9},
		{made(dtype.AllReduce, "ring", 4096), -1},
		{padded(made(dtype.Broadcast, "binomial", 65), math.MaxInt32), -1},
	} {
		cost := proofCost(test.plan)
		if test.want > 0 {
			require.Equal(t, test.want, cost, test.plan.Name)
			require.LessOrEqual(t, cost, mostProof)
		} else {
			require.Greater(t, cost, mostProof)
		}
	}
}

// padded returns a plan with the given number of extra copies, which have no effect, at the end of
// each rank's first lane.
func padded(p *plan.Plan, copies int) *plan.Plan {
	made := *p
	made.Program = func(rank int) plan.Program {
		prog := p.Program(rank)
		prog.Tmp = append(prog.Tmp, plan.Extent{}, plan.Extent{})
		copied := plan.Step{Kind: plan.Copy, Dst: plan.Ref{Buf: plan.Tmp, At: len(prog.Tmp) - 1, N: 1},
			Src: []plan.Ref{{Buf: plan.Out, N: 1}}}
		prog.Lanes[0] = append(prog.Lanes[0], plan.Step{Kind: plan.Loop, Times: copies, Body: []plan.Step{copied}})
		return prog
	}
	return &made
}

// altered replaces the plans of some algorithms of the catalogue, and the names of these plans,
// until the test ends.
func altered(t *testing.T, by map[string]func(*plan.Plan) *plan.Plan) {
	was := catalogue
	forget := func() { proofs.Clear(); unproven.Clear() }
	forget()
	t.Cleanup(func() { catalogue = was; forget() })
	catalogue = func() []algo.Algorithm {
		all := was()
		for i, right := range all {
			change := by[right.Coll.String()+"="+right.Name]
			if change == nil {
				continue
			}
			all[i].Make = func(spec plan.Spec) (*plan.Plan, error) {
				p, err := right.Make(spec)
				if err != nil {
					return nil, err
				}
				p = change(p)
				p.Name = "altered_" + p.Name
				return p, nil
			}
		}
		return all
	}
}

// edited returns a function that makes a plan with edited programs.
func edited(edit func(rank int, prog *plan.Program)) func(*plan.Plan) *plan.Plan {
	return func(p *plan.Plan) *plan.Plan {
		made := *p
		made.Program = func(rank int) plan.Program {
			prog := p.Program(rank)
			prog = prog.Flat()
			edit(rank, &prog)
			return prog
		}
		return &made
	}
}

// Groups of more ranks than the catalogue is proven for refuse wrong plans, all ranks alike and
// before any data has moved, and go on. A plan that is too large to be proven runs, and the process
// prints one line about each such plan.
func TestPlansOfManyRanks(t *testing.T) {
	const ranks = provenRanks + 1
	altered(t, map[string]func(*plan.Plan) *plan.Plan{
		"broadcast=window": edited(func(rank int, prog *plan.Program) {
			if rank == ranks-1 { // reads the window before it is written
				prog.Lanes[0] = slices.DeleteFunc(prog.Lanes[0], func(s plan.Step) bool { return s.Kind == plan.Wait })
			}
		}),
		"barrier=dissemination": edited(func(rank int, prog *plan.Program) {
			if rank == 3 {
				prog.Lanes = nil
			}
		}),
		"all_gather=ring": func(p *plan.Plan) *plan.Plan { return padded(p, mostProof/ranks/ranks) },
	})
	sum := func(ctx context.Context, c *Communicator) error {
		x := []float32{1}
		if err := AllReduce(ctx, c, x, x, Sum); err != nil || x[0] != ranks {
			return fmt.Errorf("the sum is %v: %w", x[0], err)
		}
		return nil
	}
	gather := func(ctx context.Context, c *Communicator) error {
		x := make([]float32, ranks)
		return AllGather(ctx, c, []float32{float32(c.Rank())}, x)
	}
	calls := []struct {
		name    string
		call    groupCall
		refused bool
	}{
		{"sum", sum, false},
		{"broadcast", broadcast(0, 3), true},
		{"barrier", barrier, true},
		{"gather", gather, false},
		{"sum again", sum, false},
		{"broadcast again", broadcast(0, 3), true},
	}
	opts := GroupOptions{Determinism: DefaultDeterminism, Algo: "broadcast=window,barrier=dissemination,all_gather=ring"}
	lines := printed(t, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		node, comms, err := Local(ctx, ranks, opts)
		require.NoError(t, err)
		defer node.Close()
		errs := make([]error, ranks)
		var group sync.WaitGroup
		for rank, c := range comms {
			group.Go(func() {
				for _, test := range calls {
					err := test.call(ctx, c)
					switch {
					case !test.refused && err != nil:
						errs[rank] = fmt.Errorf("%s: %w", test.name, err)
						return
					case test.refused && (!errors.Is(err, fault.Internal) ||
						!strings.Contains(err.Error(), "is not proven in the form that runs")):
						errs[rank] = fmt.Errorf("%s should be refused: %w", test.name, err)
						return
					}
				}
			})
		}
		group.Wait()
		for rank, err := range errs {
			require.NoError(t, err, "rank %d", rank)
		}
		other := newPlanner(&opts, nil, topo.Spread(ranks, 1).WithSlot(1)) // of another group with windows like these
		other.warn = func(format string, args ...any) { t.Errorf("warned twice: "+format, args...) }
		spec := plan.Spec{Coll: dtype.AllGather, Ranks: ranks}
		_, err = other.Make(other.Choose(spec.Coll, 4), spec)
		require.NoError(t, err)
	})
	require.Len(t, lines, 1)
	require.Contains(t, lines[0],
		"WARN rank 0 group local: plan altered_ring (all_gather on 65 ranks) is too large to be proven")
	require.Contains(t, lines[0], "`goccl verify --all --ranks 65 --op all_gather --algo altered_ring`")
	require.Contains(t, runsUnproven(&plan.Plan{Name: "own"}, "own.plan"),
		"`goccl verify own.plan` proves it, GOCCL_VERIFY")
}

// The plan that is proven is the one that runs. A wrong plan is refused before any data moves.
func TestProve(t *testing.T) {
	p := newPlanner(&GroupOptions{Verify: "always", Algo: "all_reduce=direct"}, nil, topo.Spread(5, 5))
	spec := plan.Spec{Coll: dtype.AllReduce, Ranks: 5}
	for range 2 {
		made, err := p.Make(p.Choose(spec.Coll, 8), spec)
		require.NoError(t, err)
		require.Equal(t, "direct", made.Name)
	}
	p.names = []algo.Algorithm{{Coll: dtype.AllReduce, Name: "forgets", Make: func(s plan.Spec) (*plan.Plan, error) {
		return &plan.Plan{Name: "forgets", Spec: s, Split: 1, Program: func(int) plan.Program {
			one := plan.Ref{Buf: plan.Out, N: 1}
			return plan.Program{Lanes: [][]plan.Step{{
				{Kind: plan.Copy, Dst: one, Src: []plan.Ref{{Buf: plan.In, N: 1}}, Final: true},
			}}}
		}}, nil
	}}}
	_, err := p.Make(0, spec)
	require.ErrorIs(t, err, fault.Internal)
	require.ErrorContains(t, err, "plan forgets (all_reduce on 5 ranks) is refused")
}

// ProveAsRun must prove every form that a group may run.
func TestProveAsRun(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(rank int, prog *plan.Program)
		want   string
	}{
		{"right", func(int, *plan.Program) {}, ""},
		{"a rank does not wait", func(rank int, prog *plan.Program) {
			if rank == 1 {
				prog.Lanes[0] = prog.Lanes[0][1:]
			}
		}, "before anything was written"},
	} {
		a, err := algo.Find(dtype.Broadcast, "window")
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: dtype.Broadcast, Ranks: 3})
		require.NoError(t, err)
		err = ProveAsRun(edited(test.change)(p), DefaultDeterminism, 1<<34)
		if test.want == "" {
			require.NoError(t, err, test.name)
		} else {
			require.ErrorContains(t, err, test.want, test.name)
		}
	}
}

// A plan that devices of several hosts execute is proven in that form, too.
func TestProvenOnDevices(t *testing.T) {
	a, err := algo.Find(dtype.AllReduce, "hierarchical.window.ring")
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 4, Shape: plan.Shape{2, 2}})
	require.NoError(t, err)
	require.NoError(t, provenOnDevices(p, DefaultDeterminism, mostWork))
	lame := *p
	lame.Program = func(rank int) plan.Program {
		prog := p.Program(rank)
		if rank == 1 { // it reads a window before that is written
			lane := slices.Clone(prog.Lanes[0])
			prog.Lanes = slices.Clone(prog.Lanes)
			wait := slices.IndexFunc(lane, func(s plan.Step) bool { return s.Kind == plan.Wait })
			same := plan.Ref{Buf: plan.Out, N: 1}
			lane[wait] = plan.Step{Kind: plan.Copy, Dst: same, Src: []plan.Ref{same}}
			prog.Lanes[0] = lane
		}
		return prog
	}
	require.Error(t, provenOnDevices(&lame, DefaultDeterminism, mostWork))
}

// circle is a broadcast from rank 0 to six ranks on three hosts. What rank 4 does in two lanes,
// with the messages of rank 2 and of rank 0, is right in any order. A device has one lane for what
// both lanes copy, and there the one waits for what only the other one brings about.
func circle(s plan.Spec) (*plan.Plan, error) {
	one := func(b plan.Buffer) plan.Ref { return plan.Ref{Buf: b, N: 1} }
	tmp := func(i int) plan.Ref { return plan.Ref{Buf: plan.Tmp, At: i, N: 1} }
	copied := func(to, from plan.Ref) plan.Step { return plan.Step{Kind: plan.Copy, Dst: to, Src: []plan.Ref{from}} }
	send := func(to int, from plan.Ref) plan.Step {
		return plan.Step{Kind: plan.Send, Peer: to, Src: []plan.Ref{from}}
	}
	recv := func(from int, to plan.Ref) plan.Step { return plan.Step{Kind: plan.Recv, Peer: from, Dst: to} }
	like := s.Extent(1, s.Root, plan.Out, 0)
	return &plan.Plan{Name: "circle", Spec: s, Split: 1, Chans: 1, Flags: 1, Win: 1,
		Needs: plan.Puts | plan.Gets | plan.Messages, Program: func(rank int) plan.Program {
			prog := plan.Program{Tmp: []plan.Extent{like, like, like, like}, Win: []plan.Extent{like}}
			switch rank {
			case 0:
				prog.Lanes = [][]plan.Step{{copied(one(plan.Win), one(plan.In)), {Kind: plan.Signal, Peer: 1},
					copied(one(plan.Out), one(plan.In)), send(4, one(plan.In)), recv(4, tmp(0))}}
			case 1:
				prog.Lanes = [][]plan.Step{{{Kind: plan.Wait, Peer: 0},
					{Kind: plan.Get, Peer: 0, Dst: one(plan.Out), Src: []plan.Ref{one(plan.Win)}},
					send(3, one(plan.Out)), send(5, one(plan.Out))}}
			case 2:
				prog.Lanes = [][]plan.Step{{recv(4, one(plan.Out)), send(4, one(plan.Out))}}
			case 4:
				prog.Lanes = [][]plan.Step{{recv(2, tmp(0)), copied(tmp(1), tmp(0)), send(0, tmp(1))},
					{recv(0, tmp(2)), copied(tmp(3), tmp(2)), send(2, tmp(3)), copied(one(plan.Out), tmp(2))}}
			default:
				prog.Lanes = [][]plan.Step{{recv(1, one(plan.Out))}}
			}
			return prog
		}}, nil
}

// A plan that is wrong in the form that devices execute, and only there, is refused where devices
// would execute it: before its first use, and by all ranks alike. The processor runs it.
func TestOnlyTheDeviceFormIsWrong(t *testing.T) {
	spec := plan.Spec{Coll: dtype.Broadcast, Ranks: 6}
	p, err := circle(spec)
	require.NoError(t, err)
	_, err = verify.Plan(p, verify.Options{})
	require.NoError(t, err)
	made := func(rank int, group *topo.Group) error {
		p := newPlanner(&GroupOptions{Verify: "always", Determinism: DefaultDeterminism}, nil, group)
		p.names = []algo.Algorithm{{Coll: dtype.Broadcast, Name: "circle", Make: circle,
			Grid: func(plan.Spec) []int { return []int{2, 3} }}}
		_, err := p.Make(0, spec)
		return err
	}
	hosts := topo.Spread(6, 3).WithSlot(1)
	devices := hosts.WithDevices(topo.Devices{})
	require.NoError(t, made(0, hosts))
	first := made(0, devices)
	require.ErrorIs(t, first, fault.Internal)
	require.ErrorContains(t, first, "plan circle (broadcast on 6 ranks (2x3), root 0) is refused")
	require.ErrorContains(t, first, "as devices execute it")
	for rank := range 6 {
		proofs.Clear() // as in a process of its own
		require.EqualError(t, made(rank, devices), first.Error(), "rank %d", rank)
	}
	require.NoError(t, made(0, topo.Spread(6, 1).WithSlot(1).WithDevices(topo.Devices{})), "devices of one host execute no messages")
}

package verify_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// windowed creates a plan from programs with windows.
func windowed(s plan.Spec, progs ...plan.Program) *plan.Plan {
	p := write(s, progs...)
	p.Needs, p.Flags = plan.Messages|plan.Puts|plan.Gets|plan.Counts, 4
	for _, prog := range progs {
		p.Win = max(p.Win, len(prog.Win))
	}
	return p
}

func put(dst, src plan.Ref, to int) plan.Step {
	return plan.Step{Kind: plan.Put, Dst: dst, Src: []plan.Ref{src}, Peer: to}
}

func packet(dst, src plan.Ref, to int) plan.Step {
	return plan.Step{Kind: plan.Packet, Dst: dst, Src: []plan.Ref{src}, Peer: to}
}

func signal(to int) plan.Step { return plan.Step{Kind: plan.Signal, Peer: to} }
func wait(from int) plan.Step { return plan.Step{Kind: plan.Wait, Peer: from} }

func copied(dst, src plan.Ref) plan.Step {
	return plan.Step{Kind: plan.Copy, Dst: dst, Src: []plan.Ref{src}}
}

// putBroadcast puts the block of rank 0 into the windows of the other ranks.
func putBroadcast(ranks int) *plan.Plan {
	var progs []plan.Program
	root := []plan.Step{copied(ref(plan.Out, 0), ref(plan.In, 0))}
	for r := 1; r < ranks; r++ {
		root = append(root, put(ref(plan.Win, 0), ref(plan.In, 0), r), signal(r))
	}
	progs = append(progs, lanes(root))
	for range ranks - 1 {
		progs = append(progs, plan.Program{Win: []plan.Extent{{}},
			Lanes: [][]plan.Step{{wait(0), copied(ref(plan.Out, 0), ref(plan.Win, 0))}}})
	}
	return windowed(plan.Spec{Coll: dtype.Broadcast, Ranks: ranks}, progs...)
}

// packetReduce lets every rank send a packet to every other, and all reduce in the order of ranks.
func packetReduce(ranks int) *plan.Plan {
	var progs []plan.Program
	for me := range ranks {
		var steps []plan.Step
		for k := 1; k < ranks; k++ {
			steps = append(steps, packet(ref(plan.Win, me), ref(plan.In, 0), (me+k)%ranks))
		}
		sum := plan.Step{Kind: plan.Reduce, Dst: ref(plan.Out, 0), Final: true}
		steps = append(steps, copied(ref(plan.Tmp, 0), ref(plan.In, 0)))
		for r := range ranks {
			if r == me {
				sum.Src = append(sum.Src, ref(plan.Tmp, 0))
				continue
			}
			steps = append(steps, wait(r))
			sum.Src = append(sum.Src, ref(plan.Win, r))
		}
		progs = append(progs, plan.Program{Tmp: []plan.Extent{{}}, Win: make([]plan.Extent, ranks),
			Lanes: [][]plan.Step{append(steps, sum)}})
	}
	return windowed(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks}, progs...)
}

// getReduce lets every rank copy its block into its window, and read all windows once all ranks
// have done so.
func getReduce(ranks int) *plan.Plan {
	var progs []plan.Program
	for me := range ranks {
		steps := []plan.Step{copied(ref(plan.Win, 0), ref(plan.In, 0))}
		sum := plan.Step{Kind: plan.GetReduce, Dst: ref(plan.Out, 0), Final: true}
		for k := 1; k < ranks; k++ {
			steps = append(steps, signal((me+k)%ranks))
		}
		for r := range ranks {
			if r != me {
				steps = append(steps, wait(r))
			}
			sum.Src, sum.From = append(sum.Src, ref(plan.Win, 0)), append(sum.From, r)
		}
		progs = append(progs, plan.Program{Win: []plan.Extent{{}}, Lanes: [][]plan.Step{append(steps, sum)}})
	}
	return windowed(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks}, progs...)
}

// getBroadcast lets the other ranks read the window of rank 0.
func getBroadcast(ranks int) *plan.Plan {
	root := []plan.Step{copied(ref(plan.Win, 0), ref(plan.In, 0)), copied(ref(plan.Out, 0), ref(plan.In, 0))}
	for r := 1; r < ranks; r++ {
		root = append(root, signal(r))
	}
	progs := []plan.Program{{Win: []plan.Extent{{}}, Lanes: [][]plan.Step{root}}}
	for range ranks - 1 {
		progs = append(progs, lanes(
			[]plan.Step{wait(0), {Kind: plan.Get, Dst: ref(plan.Out, 0), Src: []plan.Ref{ref(plan.Win, 0)}, Peer: 0}}))
	}
	return windowed(plan.Spec{Coll: dtype.Broadcast, Ranks: ranks}, progs...)
}

// signalBarrier is a barrier of signals between all ranks.
func signalBarrier(ranks int) *plan.Plan {
	var progs []plan.Program
	for me := range ranks {
		var steps []plan.Step
		for k := 1; k < ranks; k++ {
			steps = append(steps, signal((me+k)%ranks))
		}
		for k := 1; k < ranks; k++ {
			steps = append(steps, wait((me+k)%ranks))
		}
		progs = append(progs, lanes(steps))
	}
	return windowed(plan.Spec{Coll: dtype.Barrier, Ranks: ranks}, progs...)
}

// oneSided holds plans with windows, by name.
var oneSided = map[string]func(ranks int) *plan.Plan{"put": putBroadcast, "packet": packetReduce,
	"getreduce": getReduce, "get": getBroadcast, "barrier": signalBarrier}

func TestOneSided(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for name, make := range oneSided {
		for ranks := 2; ranks <= 6; ranks++ {
			p := make(ranks)
			r, err := verify.Plan(p, verify.Options{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if r.Determinism != verify.RankOrder {
				t.Errorf("%s: %v", name, r.Determinism)
			}
			if r.Rounds == 0 || p.Win > 0 && r.Ranks[0].Win+r.Ranks[1].Win == 0 {
				t.Errorf("%s: report %+v", name, r)
			}
			if err := concrete(p, rng, 8); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestOneSidedBroken(t *testing.T) {
	table := []struct {
		name, plan string
		rank       int
		change     func(*plan.Program)
		reason     verify.Reason
		text       string
	}{
		{"no signal", "put", 0, drop(0, 2), verify.Unsignalled,
			"rank 0 does not give the signal of rank 1, lane 0, step 0 (wait"},
		{"no wait", "put", 1, drop(0, 0), verify.Undefined, "reads win[0] before"},
		{"read before the wait", "put", 1, swap(0, 0, 1), verify.Undefined, ""},
		{"signal before the put", "put", 0, swap(0, 1, 2), verify.Race, ""},
		{"beyond the window", "put", 0, change(0, 1, func(s *plan.Step) { s.Dst.At = 1 }), verify.OutOfBounds,
			"whose window has 1 chunks"},
		{"no put", "put", 0, drop(0, 1), verify.Undefined, "reads win[0]"},
		{"a signal too many", "put", 0, add(0, signal(1)), verify.Unwaited, "rank 1 does not wait for the signal"},
		{"a put too many", "packet", 0, add(0, put(ref(plan.Win, 2), ref(plan.In, 0), 2)), verify.Late,
			"rank 2 may end, and a later operation use its window, before what rank 0, lane 0, step 6 (put win[2]@2 = in[0]) puts has arrived"},
		{"a put behind its signal", "put", 0, swap(0, 3, 4), verify.Race, ""},
		{"to another place", "packet", 0, change(0, 0, func(s *plan.Step) { s.Dst.At = 2 }), verify.Race,
			"win[2] of rank 1"},
		{"get before all came", "getreduce", 2, drop(0, 3), verify.Undefined, "win[0] of rank"},
		{"get before the wait", "get", 1, swap(0, 0, 1), verify.Undefined, "win[0] of rank 0"},
		{"get beyond the window", "get", 1, change(0, 1, func(s *plan.Step) { s.Src[0].At = 3 }),
			verify.OutOfBounds, ""},
		{"a barrier that waits for itself", "barrier", 1, drop(0, 0), verify.Unsignalled, ""},
	}
	for _, test := range table {
		t.Run(test.name, func(t *testing.T) {
			p := edit(oneSided[test.plan](3), test.rank, test.change)
			if test.plan == "put" || test.plan == "get" {
				p.Win = 4
			}
			rejected(t, p, test.reason, false, test.text)
		})
	}
	t.Run("waits in a circle", func(t *testing.T) {
		p := windowed(plan.Spec{Coll: dtype.Barrier, Ranks: 2}, lanes([]plan.Step{wait(1), signal(1)}),
			lanes([]plan.Step{wait(0), signal(0)}))
		rejected(t, p, verify.Deadlock, false, "wait")
	})
	t.Run("signals from two lanes", func(t *testing.T) {
		p := windowed(plan.Spec{Coll: dtype.Barrier, Ranks: 2},
			lanes([]plan.Step{signal(1)}, []plan.Step{signal(1)}, []plan.Step{wait(1)}),
			lanes([]plan.Step{signal(0), wait(0), wait(0)}))
		rejected(t, p, verify.Unordered, false, "signals given")
	})
	t.Run("a message makes no put visible to a third rank", func(t *testing.T) {
		p := windowed(plan.Spec{Coll: dtype.Broadcast, Ranks: 3},
			lanes([]plan.Step{copied(ref(plan.Out, 0), ref(plan.In, 0)), put(ref(plan.Win, 0), ref(plan.In, 0), 1),
				signal(1), signal(2)}),
			plan.Program{Win: []plan.Extent{{}},
				Lanes: [][]plan.Step{{wait(0), copied(ref(plan.Out, 0), ref(plan.Win, 0))}}},
			lanes([]plan.Step{wait(0),
				{Kind: plan.Get, Dst: ref(plan.Out, 0), Src: []plan.Ref{ref(plan.Win, 0)}, Peer: 1}}))
		rejected(t, p, verify.Race, false, "")
	})
	t.Run("windows of other lengths", func(t *testing.T) {
		p := putBroadcast(2)
		p.Split = 2
		rejected(t, edit(p, 1, func(prog *plan.Program) { prog.Win[0].Part = 1 }), verify.Malformed, false,
			"different lengths")
		q := edit(p, 0, func(prog *plan.Program) { prog.Lanes[0][1].Src[0].At = 1 })
		rejected(t, q, verify.Length, false, "win[0] of rank 1 has the length of part 0")
	})
}

func TestSequence(t *testing.T) {
	put, barrier := putBroadcast(4), signalBarrier(4)
	for _, plans := range [][]*plan.Plan{{put}, {put, put, put},
		{put, packetReduce(4), getReduce(4), put, getBroadcast(4), barrier, put},
		{barrier, barrier, barrier}} {
		if err := verify.Sequence(verify.WithSlots(plans...), verify.Options{}); err != nil {
			t.Errorf("%d plans: %v", len(plans), err)
		}
	}
	if err := verify.SequenceWithoutCredits([]*plan.Plan{put, put}); err != nil {
		t.Errorf("two slots are enough for two: %v", err)
	}
	err := verify.SequenceWithoutCredits([]*plan.Plan{put, put, put})
	var bad *verify.Counterexample
	if !errors.As(err, &bad) || bad.Reason != verify.Race || !strings.Contains(err.Error(), "same slot") {
		t.Errorf("without credits: %v, want a race", err)
	}
	// A barrier in between is as good as credits.
	if err := verify.SequenceWithoutCredits([]*plan.Plan{put, barrier, put}); err != nil {
		t.Errorf("a barrier in between: %v", err)
	}
	late := edit(put, 0, add(0, signal(1)))
	early := edit(put, 1, func(p *plan.Program) { p.Lanes[0] = slices.Insert(p.Lanes[0], 0, wait(0)) })
	err = verify.Sequence(verify.WithSlots(late, early), verify.Options{})
	if !errors.As(err, &bad) || bad.Reason != verify.Crossed {
		t.Errorf("a signal of another plan: %v", err)
	}
	for _, plans := range [][]*plan.Plan{nil, {put, putBroadcast(3)}} {
		if err := verify.Sequence(verify.WithSlots(plans...), verify.Options{}); err == nil {
			t.Errorf("%d plans were accepted", len(plans))
		}
	}
}

func TestRoots(t *testing.T) {
	if got := verify.Roots(dtype.AllReduce, 40); !slices.Equal(got, []int{0}) {
		t.Error(got)
	}
	if got := verify.Roots(dtype.Reduce, 3); !slices.Equal(got, []int{0, 1, 2}) {
		t.Error(got)
	}
	if got := verify.Roots(dtype.Scatter, 17); !slices.Equal(got, []int{0, 1, 16}) {
		t.Error(got)
	}
	if got := len(verify.Roots(dtype.Gather, 16)); got != 16 {
		t.Error(got)
	}
}

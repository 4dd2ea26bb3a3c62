package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// shared is a small valid plan with windows, flags and a loop.
func shared() *Plan {
	return &Plan{Name: "shared", Spec: Spec{Coll: dtype.AllReduce, Ranks: 4}, Split: 4, Chans: 1, Flags: 2, Win: 8,
		Needs: Messages | Puts | Gets, MinBytes: 8, MaxBytes: 64,
		Program: func(rank int) Program {
			if rank != 1 {
				return Program{}
			}
			return Program{
				Win: []Extent{{}, {Part: 1}, {Part: 2}, {Part: 3}, {}},
				Lanes: [][]Step{
					{
						{Kind: Put, Dst: at(Win, 7), Src: []Ref{at(In, 0)}, Peer: 2},
						{Kind: Signal, Peer: 2, Chan: 1},
						{Kind: Wait, Peer: 0},
						{Kind: Packet, Dst: at(Win, 0), Src: []Ref{at(In, 0)}, Peer: 2, Chan: 1},
						{Kind: Get, Dst: at(Out, 0), Src: []Ref{at(Win, 7)}, Peer: 3, Final: true},
						{Kind: GetReduce, Dst: at(Out, 0), Src: []Ref{at(In, 0), at(Win, 7), at(Win, 4), at(Out, 0)},
							From: []int{1, 3, 1, 1}, Final: true},
					},
					{
						{Kind: Loop, Times: 3, Body: []Step{
							{Kind: Copy, Dst: at(Out, 1), Src: []Ref{at(Win, 1)}, After: []Point{{0, 0}},
								By: &Advance{Dst: Stride{By: 1}, Src: []Stride{{By: 1}}, After: []int{2}}},
							{Kind: Signal, Peer: 2, By: &Advance{Peer: Stride{By: 1, Low: 2, Mod: 2}}},
							{Kind: GetReduce, Dst: at(Out, 0), Src: []Ref{at(In, 0), at(Win, 0)}, From: []int{1, 0},
								By: &Advance{From: []Stride{{}, {By: 1}}}},
						}},
						{Kind: Send, Src: []Ref{at(In, 0)}, Peer: 0},
					},
				},
			}
		}}
}

func TestValidateWindowsAndLoops(t *testing.T) {
	for rank := range 4 {
		if err := shared().Validate(rank); err != nil {
			t.Error(err)
		}
	}
	step := func(i int, f func(*Step)) func(*Plan, *Program) {
		return func(_ *Plan, prog *Program) { f(&prog.Lanes[0][i]) }
	}
	loop := func(f func(*Step)) func(*Plan, *Program) {
		return func(_ *Plan, prog *Program) { f(&prog.Lanes[1][0]) }
	}
	body := func(i int, f func(*Step)) func(*Plan, *Program) {
		return func(_ *Plan, prog *Program) { f(&prog.Lanes[1][0].Body[i]) }
	}
	table := []struct {
		name   string
		change func(*Plan, *Program)
		want   string
	}{
		{"a long name", func(p *Plan, _ *Program) { p.Name = strings.Repeat("x", 256) }, "the name must be"},
		{"too many flags", func(p *Plan, _ *Program) { p.Flags = MaxFlags + 1 }, "17 flags"},
		{"large windows", func(p *Plan, _ *Program) { p.Win = MaxWin + 1 }, "windows of 65537 chunks"},
		{"an unknown need", func(p *Plan, _ *Program) { p.Needs = 16 }, "need bits 0x10"},
		{"bytes upside down", func(p *Plan, _ *Program) { p.MinBytes = 65 }, "calls of 65 to 64 bytes"},
		{"a grid of other ranks", func(p *Plan, _ *Program) { p.Spec.Shape = Shape{3, 2} }, "shape 3x2 has 6 ranks"},
		{"a window beyond", func(p *Plan, _ *Program) { p.Win = 4 },
			"rank 1: 5 chunks of win, the plan says that windows have at most 4"},
		{"a window as long as nothing", func(_ *Plan, prog *Program) { prog.Win[2].Part = 4 },
			"win[2] is as long as {0 0 4}"},
		{"no need for messages", func(p *Plan, _ *Program) { p.Needs &^= Messages },
			"lane 1, step 9 (send in[0] to 0): the plan does not declare the need messages"},
		{"no need for puts", func(p *Plan, _ *Program) { p.Needs &^= Puts },
			"lane 0, step 0 (put win[7]@2 = in[0]): the plan does not declare the need puts"},
		{"no need for gets", func(p *Plan, _ *Program) { p.Needs &^= Gets },
			"step 4 (get out[0] = win[7]@3 final): the plan does not declare the need gets"},
		{"a put into out", step(0, func(s *Step) { s.Dst = at(Out, 0) }),
			"dst is in out of another rank; only win can be reached"},
		{"a put beyond", step(0, func(s *Step) { s.Dst = at(Win, 8) }), "dst is chunks 8 to 8+1 of win, which has 8"},
		{"a put of nothing", step(0, func(s *Step) { s.Dst.N, s.Src[0].N = 0, 0 }), "dst is empty"},
		{"a put of too little", step(0, func(s *Step) { s.Dst = Ref{Win, 4, 2} }), "different numbers of chunks"},
		{"a put to itself", step(0, func(s *Step) { s.Peer = 1 }), "the peer is this rank itself"},
		{"a put with a flag", step(0, func(s *Step) { s.Chan = 1 }), "it has no channel and no flag"},
		{"a final put", step(0, func(s *Step) { s.Final = true }), "can be Final"},
		{"a signal with a source", step(1, func(s *Step) { s.Src = []Ref{at(In, 0)} }), "1 sources, want none"},
		{"a signal that writes", step(1, func(s *Step) { s.Dst = at(Out, 0) }), "it writes nothing"},
		{"a flag beyond", step(1, func(s *Step) { s.Chan = 2 }), "flag 2, the plan has 2"},
		{"a wait for nobody", step(2, func(s *Step) { s.Peer = 4 }), "peer 4 of 4 ranks"},
		{"a wait for itself", step(2, func(s *Step) { s.Peer = 1 }), "the peer is this rank itself"},
		{"a packet into tmp", step(3, func(s *Step) { s.Dst = at(Tmp, 0) }), "dst is in tmp of another rank"},
		{"a get of in", step(4, func(s *Step) { s.Src[0] = at(In, 0) }), "source is in in of another rank"},
		{"a get beyond", step(4, func(s *Step) { s.Src[0] = at(Win, 8) }),
			"source is chunks 8 to 8+1 of win, which has 8"},
		{"a get into in", step(4, func(s *Step) { s.Dst = at(In, 0) }), "it writes in"},
		{"a get with ranks", step(4, func(s *Step) { s.From = []int{2} }), "only the sources of getreduce have ranks"},
		{"a getreduce of no ranks", step(5, func(s *Step) { s.From = s.From[:3] }), "4 sources from 3 ranks"},
		{"a getreduce of one", step(5, func(s *Step) { s.Src, s.From = s.Src[:1], s.From[:1] }),
			"1 sources, want two or more"},
		{"a getreduce with a peer", step(5, func(s *Step) { s.Peer = 2 }), "it is no message"},
		{"a getreduce from nobody", step(5, func(s *Step) { s.From[1] = 4 }), "source 1 is of rank 4 of 4"},
		{"a getreduce of another's in", step(5, func(s *Step) { s.From[0] = 2 }), "source is in in of another rank"},
		{"a getreduce of its own window beyond", step(5, func(s *Step) { s.Src[2].At = 5 }),
			"source is chunks 5 to 5+1 of win, which has 5"},
		{"a getreduce of other lengths", step(5, func(s *Step) { s.Src[2].At = 3 }), "may have different lengths"},
		{"a getreduce that overlaps",
			step(5, func(s *Step) { s.Dst.N = 2; s.Src = []Ref{{Out, 1, 2}, {Win, 0, 2}}; s.From = []int{1, 2} }),
			"out[0:2] overlaps out[1:3]"},
		{"a step with a body", step(0, func(s *Step) { s.Times = 2 }), "it is no loop"},
		{"a step that advances", step(0, func(s *Step) { s.By = &Advance{} }), "only steps of a loop advance"},
		{"a loop of none", loop(func(s *Step) { s.Times = 0 }), "lane 1, step 0 (loop 0): 0 times, want 1 to"},
		{"a loop without steps", loop(func(s *Step) { s.Body = nil }), "it has no steps"},
		{"a loop without end", loop(func(s *Step) { s.Times = 1 << 62 }), "4611686018427387904 times, want 1 to"},
		{"a loop that is too long", loop(func(s *Step) { s.Times = MaxSteps }), "1048576 times 3 steps"},
		{"a loop and more", func(_ *Plan, prog *Program) {
			prog.Lanes = append(prog.Lanes, []Step{{Kind: Loop, Times: MaxSteps, Body: []Step{{Kind: Signal}}}})
		}, "rank 1, lane 2, step 0 (loop 1048576): more than 1048576 steps"},
		{"a huge body", loop(func(s *Step) { s.Body = make([]Step, MaxSteps+1) }), "1048577 steps, at most"},
		{"a loop with a peer", loop(func(s *Step) { s.Peer = 1 }), "a loop has only Times and Body"},
		{"a loop after a step", loop(func(s *Step) { s.After = []Point{{0, 0}} }), "a loop comes after nothing itself"},
		{"a loop in a loop", body(1, func(s *Step) { s.Kind = Loop }), "lane 1, step 1 (loop 0): loops are not nested"},
		{"an unknown kind in a loop", body(1, func(s *Step) { s.Kind = numKinds }),
			"lane 1, step 1 (kind(12)): unknown kind"},
		{"advances of other sources", body(0, func(s *Step) { s.By.Src = make([]Stride, 2) }),
			"(copy): By has not as many"},
		{"a Dst that advances to nothing", body(1, func(s *Step) { s.By.Dst.By = 1 }), "it writes nothing"},
		{"a peer that advances to nobody", body(0, func(s *Step) { s.By.Peer.By = 1 }), "it has none"},
		{"a huge advance", body(0, func(s *Step) { s.By.Dst.By = 1 << 40 }), "it advances by what cannot be"},
		{"a negative range", body(1, func(s *Step) { s.By.Peer.Mod = -2 }), "it advances by what cannot be"},
		{"a low without a range", body(1, func(s *Step) { s.By.Peer.Mod = 0 }), "it advances by what cannot be"},
		{"a huge start", body(0, func(s *Step) { s.Src[0].At = 1 << 40 }), "it advances by what cannot be"},
		{"a huge dependence", body(0, func(s *Step) { s.By.After[0] = 1 << 40 }), "it advances by what cannot be"},
		{"a huge rank", body(2, func(s *Step) { s.By.From[1].By = 1 << 40 }), "it advances by what cannot be"},
		{"a rank of in that advances", body(2, func(s *Step) { s.By.From[0].By = 1 }),
			"the rank of source in[0] advances"},
		{"the third iteration writes beyond", body(0, func(s *Step) { s.By.Dst.By = 2 }),
			"rank 1, lane 1, step 3 (copy out[3] = win[2] after 0.2): out[3] and win[2] may have different lengths"},
		{"the second iteration is its own peer", body(1, func(s *Step) { s.By.Peer = Stride{By: -1} }),
			"lane 1, step 4 (signal 1): the peer is this rank"},
		{"the third iteration waits for nothing", body(0, func(s *Step) { s.By.After[0] = 3 }),
			"step 6 (copy out[3] = win[3] after 0.6): it comes after step 6 of lane 0"},
		{"after a loop's end", step(0, func(s *Step) { s.After = []Point{{1, 10}} }),
			"after step 10 of lane 1, which has 10"},
	}
	for _, test := range table {
		t.Run(test.name, func(t *testing.T) {
			p := shared()
			prog := p.Program(1)
			p.Program = func(int) Program { return prog }
			test.change(p, &prog)
			err := p.Validate(1)
			if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	p := shared()
	prog := p.Program(1)
	prog.Lanes[0][0].After = []Point{{1, 9}} // the last step
	if err := p.ValidateProgram(1, &prog); err != nil {
		t.Error(err)
	}
}

// TestValidateCounts has a rank that stores a block of two other ranks.
func TestValidateCounts(t *testing.T) {
	for _, test := range []struct {
		s    Spec
		e    Extent
		want bool // of the need counts
	}{
		{Spec{Coll: dtype.AllToAll, Ranks: 3}, Extent{0, 2, 0}, true},
		{Spec{Coll: dtype.AllToAll, Ranks: 3}, Extent{1, 2, 0}, false},
		{Spec{Coll: dtype.Gather, Ranks: 3}, Extent{2, 2, 0}, true},
		{Spec{Coll: dtype.Gather, Ranks: 3, Root: 1}, Extent{2, 2, 0}, false},
		{Spec{Coll: dtype.AllGather, Ranks: 3}, Extent{2, 2, 0}, false},
	} {
		for _, prog := range []Program{{Tmp: []Extent{test.e}}, {Win: []Extent{test.e}}} {
			p := &Plan{Name: "x", Spec: test.s, Split: 1, Win: 1, Program: func(int) Program { return prog }}
			err := p.Validate(1)
			if (err != nil) != test.want ||
				err != nil && !strings.Contains(err.Error(), "must declare the need counts") {
				t.Errorf("%v, %v: %v", test.s, test.e, err)
			}
			p.Needs = Counts
			if err := p.Validate(1); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestValidateIsBounded has lists of lengths whose comparison would take hours.
func TestValidateIsBounded(t *testing.T) {
	tmp := make([]Extent, MaxTmp)
	p := &Plan{Name: "x", Spec: Spec{Coll: dtype.AllReduce, Ranks: 2}, Split: 1, Program: func(int) Program {
		half := MaxTmp / 2
		return Program{Tmp: tmp, Lanes: [][]Step{{{Kind: Loop, Times: MaxSteps, Body: []Step{
			{Kind: Copy, Dst: Ref{Tmp, 0, half}, Src: []Ref{{Tmp, half, half}}, By: &Advance{}}}}}}}
	}}
	prog := p.Program(0)
	budget := 3 << 20 // the lengths and the steps take 2 of these
	if wrong := p.check(0, &prog, &budget); wrong == nil || !strings.Contains(wrong.text, "too large to check") {
		t.Errorf("got %v", wrong)
	}
}

package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

func at(b Buffer, i int) Ref { return Ref{b, i, 1} }

// sample is a small valid plan: rank 1's second lane forwards a sum while its first lane computes
// it.
func sample() *Plan {
	return &Plan{Name: "sample", Spec: Spec{Coll: dtype.ReduceScatter, Ranks: 3}, Split: 2, Chans: 2,
		Needs: Messages, Alias: InPlace,
		Program: func(rank int) Program {
			if rank != 1 {
				return Program{}
			}
			return Program{
				Tmp: []Extent{{2, 2, 0}, {2, 2, 1}, {1, 1, 0}},
				Lanes: [][]Step{
					{
						{Kind: RecvReduce, Dst: Ref{Tmp, 0, 2}, Src: []Ref{{In, 4, 2}}, Peer: 0, Chan: 1},
						{Kind: Recv, Dst: at(Tmp, 2), Peer: 2},
						{Kind: Copy, Dst: at(Out, 1), Src: []Ref{at(In, 3)}, After: []Point{{1, 0}, {1, 1}}},
						{Kind: Reduce, Dst: at(Out, 0), Src: []Ref{at(Tmp, 2), at(In, 2), at(Tmp, 2)}, Final: true},
						{Kind: RecvReduce, Dst: at(Out, 1), Src: []Ref{at(Out, 1)}, Peer: 0, MsgFirst: true,
							Final: true},
					},
					{
						{Kind: Send, Src: []Ref{{Tmp, 0, 2}}, Peer: 2, After: []Point{{0, 0}}},
						{Kind: Send, Src: []Ref{{}}, Peer: 0, Chan: 1},
					},
				},
			}
		}}
}

func TestValidate(t *testing.T) {
	for rank := range 3 {
		if err := sample().Validate(rank); err != nil {
			t.Error(err)
		}
	}
	step := func(lane, i int, f func(*Step)) func(*Plan, *Program) {
		return func(_ *Plan, prog *Program) { f(&prog.Lanes[lane][i]) }
	}
	table := []struct {
		name   string
		change func(*Plan, *Program)
		want   string
	}{
		{"no name", func(p *Plan, _ *Program) { p.Name = "" }, "the name must be"},
		{"a name of two words", func(p *Plan, _ *Program) { p.Name = "a b" }, "the name must be"},
		{"no collective", func(p *Plan, _ *Program) { p.Spec.Coll = dtype.Send }, "has no plans"},
		{"no ranks", func(p *Plan, _ *Program) { p.Spec.Ranks = 0 }, "0 ranks"},
		{"a root without use", func(p *Plan, _ *Program) { p.Spec.Root = 1 }, "without a root"},
		{"no split", func(p *Plan, _ *Program) { p.Split = 0 }, "split 0"},
		{"a large split", func(p *Plan, _ *Program) { p.Split = MaxSplit + 1 }, "split 131073"},
		{"too many channels", func(p *Plan, _ *Program) { p.Chans = MaxChans + 1 }, "5 channels"},
		{"an unknown alias", func(p *Plan, _ *Program) { p.Alias = 4 }, "alias bits 0x4"},
		{"no programs", func(p *Plan, _ *Program) { p.Program = nil }, "no programs"},
		{"too many lanes", func(_ *Plan, prog *Program) { prog.Lanes = make([][]Step, MaxLanes+1) },
			"rank 1: 65 lanes"},
		{"too many steps", func(_ *Plan, prog *Program) { prog.Lanes = [][]Step{make([]Step, MaxSteps+1)} },
			"more than 1048576 steps"},
		{"too much tmp", func(_ *Plan, prog *Program) { prog.Tmp = make([]Extent, MaxTmp+1) }, "1048577 chunks of tmp"},
		{"tmp as long as the block of no rank", func(_ *Plan, prog *Program) { prog.Tmp[1] = Extent{3, 3, 0} },
			"rank 1: tmp[1] is as long as"},
		{"tmp as long as the block of two ranks", func(_ *Plan, prog *Program) { prog.Tmp[1].To = 1 },
			"tmp[1] is as long as"},
		{"tmp as long as no part", func(_ *Plan, prog *Program) { prog.Tmp[2].Part = 2 }, "tmp[2] is as long as"},
		{"an unknown kind", step(0, 1, func(s *Step) { s.Kind = numKinds }), "lane 0, step 1 (kind(12)): unknown kind"},
		{"a recv with a source", step(0, 1, func(s *Step) { s.Src = []Ref{at(In, 0)} }), "1 sources, want none"},
		{"a copy without a source", step(0, 2, func(s *Step) { s.Src = nil }), "0 sources, want one"},
		{"a reduce of one", step(0, 3, func(s *Step) { s.Src = s.Src[:1] }), "1 sources, want two or more"},
		{"a send that writes", step(1, 0, func(s *Step) { s.Dst = at(Out, 0) }), "it writes nothing"},
		{"a copy with a peer", step(0, 2, func(s *Step) { s.Peer = 1 }), "it is no message"},
		{"a peer below 0", step(0, 0, func(s *Step) { s.Peer = -1 }), "peer -1 of 3 ranks"},
		{"a peer beyond", step(0, 0, func(s *Step) { s.Peer = 3 }), "peer 3 of 3 ranks"},
		{"a message to itself", step(1, 0, func(s *Step) { s.Peer = 1 }), "no messages to itself"},
		{"a channel beyond", step(1, 0, func(s *Step) { s.Chan = 2 }), "channel 2, the plan has 2"},
		{"a reduction in a gather",
			func(p *Plan, _ *Program) { p.Spec.Coll, p.Needs = dtype.AllToAll, Messages|Counts }, "no operator"},
		{"MsgFirst of a copy", step(0, 2, func(s *Step) { s.MsgFirst = true }), "only recvreduce has MsgFirst"},
		{"a final recv", step(0, 1, func(s *Step) { s.Final = true }),
			"step 1 (recv tmp[2] from 2 final): only copy, reduce, recvreduce, get and getreduce can be Final"},
		{"a write to In", step(0, 2, func(s *Step) { s.Dst.Buf = In }),
			"rank 1, lane 0, step 2 (copy in[1] = in[3] after 1.0 1.1): it writes in"},
		{"a destination beyond", step(0, 2, func(s *Step) { s.Dst.At = 2 }),
			"dst is chunks 2 to 2+1 of out, which has 2"},
		{"a source beyond", step(1, 0, func(s *Step) { s.Src[0].At = 2 }),
			"source is chunks 2 to 2+2 of tmp, which has 3"},
		{"a source before", step(1, 0, func(s *Step) { s.Src[0].At = -1 }), "source is chunks -1"},
		{"a huge source", step(1, 0, func(s *Step) { s.Src[0] = Ref{In, 1 << 62, 1 << 62} }), "source is chunks"},
		{"an empty copy", step(0, 2, func(s *Step) { s.Dst.N = 0 }), "dst is empty"},
		{"an unknown buffer", step(0, 2, func(s *Step) { s.Src[0].Buf = numBuffers }),
			"(copy): source is in no buffer"},
		{"other numbers of chunks", step(0, 2, func(s *Step) { s.Dst = Ref{Out, 0, 2} }),
			"different numbers of chunks"},
		{"other lengths", step(0, 2, func(s *Step) { s.Dst.At = 0 }), "may have different lengths (chunk 0 of them)"},
		{"a copy onto itself", step(0, 2, func(s *Step) { s.Src[0] = s.Dst }), "out[1] overlaps out[1]"},
		{"an overlap", step(0, 0, func(s *Step) { s.Src[0] = Ref{Tmp, 1, 2} }), "tmp[0:2] overlaps tmp[1:3]"},
		{"after no lane", step(0, 2, func(s *Step) { s.After[1].Lane = 2 }), "after lane 2, the program has 2"},
		{"after its own lane", step(0, 2, func(s *Step) { s.After[1].Lane = 0 }), "own lane"},
		{"after no step", step(0, 2, func(s *Step) { s.After[1].Step = 2 }), "after step 2 of lane 1, which has 2"},
	}
	for _, test := range table {
		t.Run(test.name, func(t *testing.T) {
			p := sample()
			prog := p.Program(1)
			p.Program = func(int) Program { return prog }
			test.change(p, &prog)
			err := p.Validate(1)
			if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if err := sample().Validate(3); err == nil || !strings.Contains(err.Error(), "no rank 3") {
		t.Errorf("rank 3 of 3: got %v", err)
	}
	p := sample()
	p.Spec.Coll = dtype.AllToAll
	p.Program = func(int) Program {
		return Program{Lanes: [][]Step{{{Kind: Copy, Dst: at(Out, 0), Src: []Ref{at(In, 0)}, Final: true}}}}
	}
	if err := p.Validate(0); err == nil || !strings.Contains(err.Error(), "nothing is Final") {
		t.Errorf("final in all_to_all: got %v", err)
	}
}

func TestExtent(t *testing.T) {
	plan := func(c dtype.Collective) *Plan { return &Plan{Spec: Spec{Coll: c, Ranks: 3}, Split: 2} }
	table := []struct {
		coll  dtype.Collective
		buf   Buffer
		chunk int
		want  Extent // at rank 1
	}{
		{dtype.Broadcast, Out, 1, Extent{0, 0, 1}},
		{dtype.AllReduce, In, 0, Extent{0, 0, 0}},
		{dtype.Scatter, In, 5, Extent{2, 2, 1}},
		{dtype.Scatter, Out, 1, Extent{1, 1, 1}},
		{dtype.ReduceScatter, Out, 0, Extent{1, 1, 0}},
		{dtype.Gather, In, 1, Extent{1, 1, 1}},
		{dtype.AllGather, Out, 4, Extent{2, 2, 0}},
		{dtype.AllToAll, In, 5, Extent{1, 2, 1}},
		{dtype.AllToAll, Out, 5, Extent{2, 1, 1}},
		{dtype.AllToAll, Tmp, 0, Extent{1, 0, 1}},
	}
	for _, test := range table {
		if got := plan(test.coll).Extent(1, &Program{Tmp: []Extent{{1, 0, 1}}},
			test.buf, test.chunk); got != test.want {
			t.Errorf("%v, %v[%d]: %v, want %v", test.coll, test.buf, test.chunk, got, test.want)
		}
	}
}

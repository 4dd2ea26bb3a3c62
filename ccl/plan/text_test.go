package plan_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares text with a file of testdata, or writes the file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test ./ccl/plan -rewrite writes it", err)
	}
	if text != string(want) {
		t.Errorf("%s has changed; if that is right, go test ./ccl/plan -rewrite\ngot\n%s\nwant\n%s", file, text, want)
	}
}

// TestTextOfAlgorithms prints some algorithms for four ranks, so that a change in one of them is
// seen in review.
func TestTextOfAlgorithms(t *testing.T) {
	for _, test := range []struct {
		coll dtype.Collective
		name string
	}{
		{dtype.AllReduce, "ring"}, {dtype.AllReduce, "direct"}, {dtype.AllToAll, "pairwise"},
		{dtype.Broadcast, "binomial"},
		{dtype.ReduceScatter, "ring"},
	} {
		a, err := algo.Find(test.coll, test.name)
		if err != nil {
			t.Fatal(err)
		}
		s := plan.Spec{Coll: a.Coll, Ranks: 4}
		if a.Coll.Rooted() {
			s.Root = 1
		}
		p, err := a.Make(s)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, a.Coll.String()+"_"+a.Name, p.Text())
	}
}

// everyForm returns a plan with every form of every step.
func everyForm() *plan.Plan {
	in := func(i, n int) plan.Ref { return plan.Ref{Buf: plan.In, At: i, N: n} }
	out := func(i, n int) plan.Ref { return plan.Ref{Buf: plan.Out, At: i, N: n} }
	tmp := func(i, n int) plan.Ref { return plan.Ref{Buf: plan.Tmp, At: i, N: n} }
	win := func(i, n int) plan.Ref { return plan.Ref{Buf: plan.Win, At: i, N: n} }
	return &plan.Plan{Name: "every-form",
		Spec: plan.Spec{Coll: dtype.Reduce, Ranks: 8, Root: 1, Shape: plan.Shape{2, 4}}, Split: 8,
		Chans: 2, Flags: 3, Win: 10, Needs: plan.Messages | plan.Puts | plan.Gets, Alias: plan.InPlace,
		MinBytes: 64, MaxBytes: 1 << 20,
		Program: func(rank int) plan.Program {
			if rank != 1 {
				return plan.Program{}
			}
			around := func(by int) plan.Stride { return plan.Stride{By: by, Mod: 8} }
			return plan.Program{
				Tmp: []plan.Extent{{}, {Part: 1}, {Part: 3}, {}, {Part: 1}, {Part: 2}},
				Win: []plan.Extent{{}, {Part: 1}, {Part: 2}, {Part: 3}, {}, {}, {}, {}, {}},
				Lanes: [][]plan.Step{
					{
						{Kind: plan.Copy, Dst: tmp(0, 1), Src: []plan.Ref{in(0, 1)}},
						{Kind: plan.Reduce, Dst: tmp(0, 2), Src: []plan.Ref{tmp(0, 2), in(0, 2), in(0, 2)},
							Final: true},
						{Kind: plan.RecvReduce, Dst: out(0, 4), Src: []plan.Ref{in(0, 4)}, Peer: 2,
							After: []plan.Point{{Lane: 1, Step: 0}}},
						{Kind: plan.RecvReduce, Dst: out(0, 1), Src: []plan.Ref{out(0, 1)}, Peer: 2, Chan: 1,
							MsgFirst: true, Final: true,
							After: []plan.Point{{Lane: 1, Step: 0}, {Lane: 2, Step: 1}}},
						{Kind: plan.Loop, Times: 7, Body: []plan.Step{
							{Kind: plan.Recv, Dst: out(3, 1), Peer: 2, By: &plan.Advance{Dst: around(-1)}},
							{Kind: plan.Send, Src: []plan.Ref{out(0, 2)}, Peer: 2, Chan: 1,
								After: []plan.Point{{Lane: 2, Step: 1}, {Lane: 1, Step: 0}},
								By: &plan.Advance{Src: []plan.Stride{{By: 1}}, Peer: plan.Stride{By: 1, Low: 2, Mod: 6},
									After: []int{1, 0}}},
							{Kind: plan.GetReduce, Dst: out(0, 1), Src: []plan.Ref{in(0, 1), win(0, 1), win(0, 1)},
								From: []int{1, 2, 1}, By: &plan.Advance{From: []plan.Stride{{}, {By: 1, Mod: 8}, {}}}},
						}},
						{Kind: plan.Wait, Peer: 3},
					},
					{{Kind: plan.Send, Src: []plan.Ref{in(0, 0)}, Peer: 0, Chan: 1}},
					{
						{Kind: plan.Send, Src: []plan.Ref{tmp(4, 1)}, Peer: 2, After: []plan.Point{{Lane: 0, Step: 0}}},
						{Kind: plan.Recv, Dst: tmp(4, 2), Peer: 2, Chan: 1},
						{Kind: plan.Put, Dst: win(3, 2), Src: []plan.Ref{in(0, 2)}, Peer: 2},
						{Kind: plan.Signal, Peer: 2, Chan: 1},
						{Kind: plan.Wait, Peer: 2},
						{Kind: plan.Get, Dst: tmp(0, 1), Src: []plan.Ref{win(9, 1)}, Peer: 2, Final: true},
						{Kind: plan.GetReduce, Dst: out(0, 1),
							Src: []plan.Ref{in(0, 1), win(0, 1), win(0, 1), tmp(0, 1)}, From: []int{1, 0, 2, 1},
							Final: true, After: []plan.Point{{Lane: 1, Step: 0}}},
						{Kind: plan.Packet, Dst: win(3, 1), Src: []plan.Ref{in(0, 1)}, Peer: 2, Chan: 2},
						{Kind: plan.Loop, Times: 3, Body: []plan.Step{
							{Kind: plan.Packet, Dst: win(3, 1), Src: []plan.Ref{in(7, 1)}, Peer: 2,
								By: &plan.Advance{Dst: plan.Stride{By: 2}, Src: []plan.Stride{around(3)},
									Peer: plan.Stride{By: 1, Low: 2, Mod: 3}}}}},
					},
					{},
				}}
		}}
}

// TestTextOfEverything prints every form of every step.
func TestTextOfEverything(t *testing.T) {
	p := everyForm()
	if err := p.Validate(1); err != nil {
		t.Fatal(err)
	}
	golden(t, "every_form", p.Text(1))
}

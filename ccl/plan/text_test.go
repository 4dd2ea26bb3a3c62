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

// golden compares text with a file of testdata, or writes it.
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

// TestTextOfAlgorithms shows every algorithm on four ranks; a change in an algorithm is to be seen in review.
func TestTextOfAlgorithms(t *testing.T) {
	for _, a := range algo.All() {
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

// TestTextOfEverything has every form of every step.
func TestTextOfEverything(t *testing.T) {
	in := func(i, n int) plan.Ref { return plan.Ref{Buf: plan.In, At: i, N: n} }
	out := func(i, n int) plan.Ref { return plan.Ref{Buf: plan.Out, At: i, N: n} }
	tmp := func(i, n int) plan.Ref { return plan.Ref{Buf: plan.Tmp, At: i, N: n} }
	p := &plan.Plan{Name: "every-form", Spec: plan.Spec{Coll: dtype.Reduce, Ranks: 3, Root: 1}, Split: 4, Chans: 2,
		Program: func(rank int) plan.Program {
			if rank != 1 {
				return plan.Program{}
			}
			return plan.Program{Tmp: []plan.Ref{in(0, 1), in(1, 1), in(3, 1), out(0, 1), in(1, 1), in(2, 1)}, Lanes: [][]plan.Step{
				{
					{Kind: plan.Copy, Dst: tmp(0, 1), Src: []plan.Ref{in(0, 1)}},
					{Kind: plan.Reduce, Dst: tmp(0, 2), Src: []plan.Ref{tmp(0, 2), in(0, 2), in(0, 2)}, Final: true},
					{Kind: plan.RecvReduce, Dst: out(0, 4), Src: []plan.Ref{in(0, 4)}, Peer: 2, After: []plan.Point{{Lane: 1, Step: 0}}},
					{Kind: plan.RecvReduce, Dst: out(0, 1), Src: []plan.Ref{out(0, 1)}, Peer: 2, Chan: 1, MsgFirst: true, Final: true,
						After: []plan.Point{{Lane: 1, Step: 0}, {Lane: 2, Step: 1}}},
				},
				{{Kind: plan.Send, Src: []plan.Ref{in(0, 0)}, Peer: 0, Chan: 1}},
				{
					{Kind: plan.Send, Src: []plan.Ref{tmp(4, 1)}, Peer: 2, After: []plan.Point{{Lane: 0, Step: 0}}},
					{Kind: plan.Recv, Dst: tmp(4, 2), Peer: 2, Chan: 1},
				},
				{},
			}}
		}}
	if err := p.Validate(1); err != nil {
		t.Fatal(err)
	}
	golden(t, "every_form", p.Text(1))
}

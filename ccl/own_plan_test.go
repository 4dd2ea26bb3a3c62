package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// A user's plan for all_reduce of two ranks by one exchange. The group runs it from a file.
func Example_plan() {
	in, out := plan.Ref{Buf: plan.In, N: 1}, plan.Ref{Buf: plan.Out, N: 1}
	exchange := &plan.Plan{Name: "exchange", Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 2},
		Split: 1, Chans: 1, Needs: plan.Messages,
		Program: func(rank int) plan.Program {
			return plan.Program{Lanes: [][]plan.Step{
				{{Kind: plan.Send, Src: []plan.Ref{in}, Peer: 1 - rank}},
				{{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{in}, Peer: 1 - rank,
					MsgFirst: rank == 1, Final: true}},
			}}
		}}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("exchange-%d.plan", os.Getpid()))
	defer os.Remove(file)
	if err := os.WriteFile(file, []byte(exchange.Text()), 0o600); err != nil {
		log.Fatal(err)
	}
	run(2, ccl.GroupOptions{Plan: file}, func(ctx context.Context, c *ccl.Communicator) error {
		x, sum := []float32{float32(c.Rank() + 1)}, make([]float32, 1)
		err := ccl.AllReduce(ctx, c, x, sum, ccl.Sum)
		if c.Rank() == 0 {
			fmt.Println(sum)
		}
		return err
	})
	fmt.Print(exchange.Text(0))
	// Output:
	// [3]
	// goccl plan format 2
	// plan exchange all_reduce ranks=2 split=1 chans=1 flags=0 win=0 needs=messages alias=none
	// rank 0
	//   lane 0
	//     0 send in[0] to 1
	//   lane 1
	//     0 recvreduce out[0] = in[0] + msg from 1 final
}

// backwards is an all_reduce of three ranks that adds x₂ + x₁ + x₀.
func backwards() *plan.Plan {
	ref := func(b plan.Buffer) plan.Ref { return plan.Ref{Buf: b, N: 1} }
	in, out, tmp := ref(plan.In), ref(plan.Out), ref(plan.Tmp)
	receive := [3][]plan.Step{
		{
			{Kind: plan.Recv, Dst: tmp, Peer: 2},
			{Kind: plan.RecvReduce, Dst: tmp, Src: []plan.Ref{tmp}, Peer: 1},
			{Kind: plan.Reduce, Dst: out, Src: []plan.Ref{tmp, in}, Final: true},
		}, {
			{Kind: plan.Recv, Dst: tmp, Peer: 2},
			{Kind: plan.Reduce, Dst: tmp, Src: []plan.Ref{tmp, in}},
			{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{tmp}, Peer: 0, Final: true},
		}, {
			{Kind: plan.RecvReduce, Dst: tmp, Src: []plan.Ref{in}, Peer: 1},
			{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{tmp}, Peer: 0, Final: true},
		},
	}
	return &plan.Plan{Name: "backwards", Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 3},
		Split: 1, Chans: 1, Needs: plan.Messages,
		Program: func(rank int) plan.Program {
			var sends []plan.Step
			for _, to := range [3][2]int{{1, 2}, {0, 2}, {0, 1}}[rank] {
				sends = append(sends, plan.Step{Kind: plan.Send, Src: []plan.Ref{in}, Peer: to})
			}
			return plan.Program{Tmp: []plan.Extent{{}}, Lanes: [][]plan.Step{sends, receive[rank]}}
		}}
}

// planFile writes the text of a plan to a file.
func planFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.plan")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOwnPlan detects from the last bits which plan has run: the sum of these numbers is 0 from
// left to right, and 1 from right to left.
func TestOwnPlan(t *testing.T) {
	x := [3]float32{1, 1 << 30, -1 << 30}
	sum := func(opts ccl.GroupOptions, count int) float32 {
		var result [3]float32
		run(3, opts, func(ctx context.Context, c *ccl.Communicator) error {
			in, out := make([]float32, count), make([]float32, count)
			if count%2 == 0 {
				out = in // the plan does not run in place, so the library copies
			}
			in[0] = x[c.Rank()]
			err := ccl.AllReduce(ctx, c, in, out, ccl.Sum)
			result[c.Rank()] = out[0]
			return err
		})
		if result[0] != result[1] || result[0] != result[2] {
			t.Errorf("ranks have %v", result)
		}
		return result[0]
	}
	p := backwards()
	if got := sum(ccl.GroupOptions{Determinism: 4}, 1); got != 0 {
		t.Errorf("without a plan: %v, want 0", got)
	}
	if got := sum(ccl.GroupOptions{Determinism: 4}, 100_000); got != 0 {
		t.Errorf("without a plan, a large sum: %v, want 0", got)
	}
	if got := sum(ccl.GroupOptions{Plan: planFile(t, p.Text())}, 1); got != 1 {
		t.Errorf("with a plan: %v, want 1", got)
	}
	p.MinBytes, p.MaxBytes = 8, 16
	bounded := ccl.GroupOptions{Plan: planFile(t, p.Text()), Algo: "all_reduce=direct"}
	for count, want := range map[int]float32{1: 0, 2: 1, 4: 1, 5: 0} {
		if got := sum(bounded, count); got != want {
			t.Errorf("with a plan for 8 to 16 bytes, %d bytes: %v, want %v", 4*count, got, want)
		}
	}
}

func TestOwnPlanRefused(t *testing.T) {
	good := backwards().Text()
	table := []struct {
		name string
		opts ccl.GroupOptions
		want []string
	}{
		{"no file", ccl.GroupOptions{Plan: filepath.Join(t.TempDir(), "nowhere")}, []string{"GOCCL_PLAN", "nowhere"}},
		{"a folder", ccl.GroupOptions{Plan: t.TempDir()}, []string{"GOCCL_PLAN", "want a file"}},
		{"no plan", ccl.GroupOptions{Plan: planFile(t, "hello\n")}, []string{"own.plan is refused", "1:"}},
		{"a send to nobody",
			ccl.GroupOptions{Plan: planFile(t, strings.Replace(good, "send in[0] to 2", "send in[0] to 3", 1))},
			[]string{"rank 0", "peer 3"}},
		{"a wrong plan",
			ccl.GroupOptions{Plan: planFile(t, strings.Replace(good, "send in[0] to 2", "send in[0] to 1", 1))},
			[]string{`plan "backwards" (all_reduce on 3 ranks) is wrong`}},
		{"not in the order of ranks", ccl.GroupOptions{Plan: planFile(t, good), Determinism: 3},
			[]string{"GOCCL_DETERMINISM=3"}},
		{"an algorithm of another level", ccl.GroupOptions{Algo: "all_reduce=ring", Determinism: 4},
			[]string{"all_reduce=ring", "level"}},
		{"an unknown level", ccl.GroupOptions{Determinism: 5}, []string{"GOCCL_DETERMINISM=5"}},
		{"ranks with different bits",
			ccl.GroupOptions{Plan: filepath.Join("verify", "testdata", "bits", "from_own_rank.plan")},
			[]string{"GOCCL_DETERMINISM=2 asks for level 2",
				"out[0] is (x0 + x1) + x2 on rank 0 and (x1 + x2) + x0 on rank 1"}},
	}
	for _, test := range table {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, _, err := ccl.Local(ctx, 3, test.opts)
			if !errors.Is(err, fault.Invalid) {
				t.Fatalf("got %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

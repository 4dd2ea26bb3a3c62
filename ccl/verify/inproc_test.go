package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
)

// only is a planner that knows one plan.
type only struct{ p *plan.Plan }

func (o only) Choose(dtype.Collective, int, int64) int { return 0 }

func (o only) Make(int, plan.Spec) (*plan.Plan, error) { return o.p, nil }

// TestMutantsInproc runs mutants that verify accepts on the executor: none hangs, and all give the right result.
func TestMutantsInproc(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	ran := 0
	for _, m := range mutants(t, rng, min(*mutantsEach, 5), 3).accepted {
		if m.plan.Needs&^plan.Messages != 0 || ran == 150 {
			continue
		}
		ran++
		if err := runInproc(m.plan, 1000); err != nil {
			t.Errorf("%s, %v: %s was accepted, but %v\n%s", m.plan.Name, m.plan.Spec, m.what, err, m.plan.Text())
		}
	}
	t.Logf("%d accepted mutants ran on inproc", ran)
	if ran == 0 {
		t.Error("no mutant was run")
	}
}

// runInproc runs a plan on all ranks of a group in this process, with blocks of n elements.
func runInproc(p *plan.Plan, n int) error {
	bell := park.NewBell()
	fabric := inproc.New(bell)
	defer fabric.Close()
	progress := exec.NewProgress(bell, nil)
	defer progress.Close()
	ranks := p.Spec.Ranks
	links, errs := make([][]transport.Link, ranks), make([]error, ranks*ranks)
	var group sync.WaitGroup
	for rank := range ranks {
		links[rank] = make([]transport.Link, ranks)
		for peer := range ranks {
			if peer == rank {
				continue
			}
			group.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				links[rank][peer], errs[rank*ranks+peer] = fabric.Connect(ctx, fabric.Address(),
					transport.Session{Rank: rank, Peer: peer, Channels: exec.LinkChannels(exec.PlanChannels)})
			})
		}
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	comms := make([]*exec.Comm, ranks)
	for rank := range ranks {
		c, err := exec.New(exec.Options{Name: "mutant", Rank: rank, Links: links[rank], Bell: bell, Planner: only{p},
			Progress: progress, Timeout: 10 * time.Second})
		if err != nil {
			return err
		}
		defer c.Close()
		comms[rank] = c
	}
	results := make([]error, ranks)
	for rank := range ranks {
		group.Go(func() { results[rank] = call(comms[rank], p.Spec, rank, n) })
	}
	group.Wait()
	for rank, err := range results {
		if err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

// element i of block b of a rank's In: whole numbers, so that sums are exact in any order.
func element(rank, b, i int) float64 { return float64((rank*31+b*17+i*7)%101 - 50) }

// call runs the plan on one rank and checks Out.
func call(c *exec.Comm, s plan.Spec, rank, n int) error {
	call := exec.Call{Coll: s.Coll, Type: dtype.F64, Op: dtype.Sum, Root: s.Root, Factor: 1}
	for b := range s.Coll.InBlocks(s.Ranks, rank, s.Root) {
		x := make([]float64, n)
		for i := range x {
			x[i] = element(rank, b, i)
		}
		call.In = append(call.In, exec.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: n})
	}
	var out [][]float64
	for range s.Coll.OutBlocks(s.Ranks, rank, s.Root) {
		x := make([]float64, n)
		out = append(out, x)
		call.Out = append(call.Out, exec.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: n})
	}
	if err := c.Run(&call); err != nil {
		return err
	}
	for b, x := range out {
		for i, got := range x {
			if want := wanted(s, rank, b, i); got != want {
				return fmt.Errorf("block %d, element %d is %v, want %v", b, i, got, want)
			}
		}
	}
	return nil
}

// wanted is element i of block b of a rank's Out.
func wanted(s plan.Spec, rank, b, i int) float64 {
	switch s.Coll {
	case dtype.Broadcast:
		return element(s.Root, 0, i)
	case dtype.Scatter:
		return element(s.Root, rank, i)
	case dtype.Gather, dtype.AllGather:
		return element(b, 0, i)
	case dtype.AllToAll:
		return element(b, rank, i)
	case dtype.ReduceScatter:
		b = rank
	}
	sum := 0.0
	for r := range s.Ranks {
		sum += element(r, b, i)
	}
	return sum
}

package verify_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
)

// inOrder is a planner that plays the mutants in order; each rank has its own, and advances on its
// own.
type inOrder struct {
	plans []*plan.Plan
	now   int
}

func (o *inOrder) Choose(coll dtype.Collective, _ int64) int {
	if o.plans[o.now].Spec.Coll == coll {
		return o.now
	}
	return -1 // the exchange of lengths
}

func (o *inOrder) Make(i int, s plan.Spec) (*plan.Plan, error) {
	if i >= 0 {
		return o.plans[i], nil
	}
	a, err := algo.Find(s.Coll, "ring")
	if err != nil {
		return nil, err
	}
	return a.Make(s)
}

// runInproc runs plans for the given number of ranks, one after the other, in a group in this
// process. It stops at the first error.
func runInproc(plans []*plan.Plan, ranks int) error {
	const slot = 4 << 10
	doorbell := park.NewDoorbell()
	fabric := inproc.New(doorbell)
	defer fabric.Close()
	progress := exec.NewProgress(doorbell)
	defer progress.Close()
	links, errs := make([][]transport.Link, ranks), make([]error, ranks*ranks)
	windows := make([]*mem.Window, ranks)
	for rank := range ranks {
		links[rank] = make([]transport.Link, ranks)
		var err error
		if windows[rank], err = mem.NewWindow(window.Bytes(slot), false); err != nil {
			return err
		}
	}
	var group sync.WaitGroup
	for rank := range ranks {
		for peer := range ranks {
			if peer == rank {
				continue
			}
			group.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				links[rank][peer], errs[rank*ranks+peer] = fabric.Connect(ctx, fabric.Address(),
					transport.Session{Rank: rank, Peer: peer, Channels: exec.LinkChannels(exec.PlanChannels),
						Window: windows[rank]})
			})
		}
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	comms, planners := make([]*exec.Comm, ranks), make([]*inOrder, ranks)
	for rank := range ranks {
		planners[rank] = &inOrder{plans: plans}
		c, err := exec.New(exec.Options{Name: "mutants", Rank: rank, Links: links[rank], Doorbell: doorbell,
			Planner: planners[rank], Window: windows[rank], Progress: progress, Timeout: 20 * time.Second})
		if err != nil {
			return err
		}
		defer c.Close()
		comms[rank] = c
	}
	results := make([]error, ranks)
	for rank := range ranks {
		group.Go(func() {
			for i, p := range plans {
				planners[rank].now = i
				if err := call(comms[rank], p.Spec, []dtype.Op{dtype.Sum, dtype.Avg}[i%2], rank,
					[]int{1, 300, 7}[i%3]); err != nil {
					results[rank] = fmt.Errorf("rank %d, plan %d: %w\n%s", rank, i, err, p.Text())
					comms[rank].Close() // the others must not wait
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(results...)
}

// element returns element i of block b of a rank's In: whole numbers, so that sums are exact in any
// order.
func element(rank, b, i int) float64 { return float64((rank*31+b*17+i*7)%101 - 50) }

// call runs the plan on one rank and checks Out.
func call(c *exec.Comm, s plan.Spec, op dtype.Op, rank, n int) error {
	call := exec.Call{Coll: s.Coll, Type: dtype.F64, Op: op, Root: s.Root, Factor: 1}
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
			if want := wanted(s, op, rank, b, i); got != want {
				return fmt.Errorf("block %d, element %d is %v, want %v", b, i, got, want)
			}
		}
	}
	return nil
}

// wanted returns element i of block b of a rank's Out.
func wanted(s plan.Spec, op dtype.Op, rank, b, i int) float64 {
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
	if op == dtype.Avg {
		sum *= 1 / float64(s.Ranks)
	}
	return sum
}

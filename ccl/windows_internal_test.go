package ccl

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// The windows of many groups must stay within the budget of the process: they become smaller, then
// groups have none. When groups end there is room again.
func TestWindowBudget(t *testing.T) {
	node, err := NewNode(NodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	join := func(name string, opts GroupOptions) []*Communicator {
		var endpoints [3]*Endpoint
		var addresses [][]byte
		for rank := range endpoints {
			if endpoints[rank], err = node.Open(Config{Name: name, Rank: rank, Size: 3, Timeout: time.Minute,
				Options: opts}); err != nil {
				t.Fatal(err)
			}
			addresses = append(addresses, endpoints[rank].Address())
		}
		comms, errs := make([]*Communicator, 3), make([]error, 3)
		var group sync.WaitGroup
		for rank := range endpoints {
			group.Go(func() { comms[rank], errs[rank] = endpoints[rank].Join(ctx, addresses) })
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		return comms
	}
	sum := func(comms []*Communicator) {
		const n = 100_000
		var group sync.WaitGroup
		errs := make([]error, 3)
		for rank, c := range comms {
			group.Go(func() {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(rank + i%7)
				}
				if errs[rank] = AllReduce(ctx, c, x, x, Sum); errs[rank] != nil {
					return
				}
				for i := range x {
					if want := float32(3 + 3*(i%7)); x[i] != want {
						errs[rank] = fmt.Errorf("element %d is %v, want %v", i, x[i], want)
						return
					}
				}
			})
		}
		group.Wait()
		for rank, err := range errs {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
	}
	var all [][]*Communicator
	before := node.windows.Load()
	for i := range 40 {
		all = append(all, join(fmt.Sprint(i), GroupOptions{}))
		if used := node.windows.Load(); used > windowBudget {
			t.Fatalf("%d groups have %d bytes of windows, the budget is %d", i+1, used, windowBudget)
		}
	}
	if last := node.windowSlot(3, windowSlot); last != 0 {
		t.Errorf("after 40 groups there is room for slots of %d bytes", last)
	}
	sum(all[0])
	sum(all[39])
	asked := join("asked", GroupOptions{Algo: "all_reduce=two_shot_window"}) // has windows nevertheless
	sum(asked)
	for _, comms := range append(all, asked) {
		for _, c := range comms {
			c.Close()
		}
	}
	if node.windows.Load() != before || node.windowSlot(3, windowSlot) != windowSlot {
		t.Errorf("%d bytes of windows are left", node.windows.Load())
	}
}

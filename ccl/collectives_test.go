package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/goccl/goccl/ccl"
)

var background = context.Background()

// oneOfEach calls every collective once and compares the results with what one process computes.
func oneOfEach(c *ccl.Communicator, n, root int) error {
	rank, size := c.Rank(), c.Size()
	root %= size
	check := func(name string, err error, got, want []float32) error {
		if err == nil {
			err = same(got, want)
		}
		if err != nil {
			return fmt.Errorf("%s of %d on %d ranks, root %d: %w", name, n, size, root, err)
		}
		return nil
	}
	all := func(part int) []float32 {
		var cat []float32
		for r := range size {
			cat = append(cat, input(r, n, part)...)
		}
		return cat
	}
	var errs []error
	add := func(err error) { errs = append(errs, err) }

	x := input(rank, n, 1)
	out := make([]float32, n)
	add(check("all_reduce", ccl.AllReduce(background, c, x, out, ccl.Sum), out, sums(size, n, 1)))
	add(check("all_reduce leaves its input", nil, x, input(rank, n, 1)))
	add(check("all_reduce in place", ccl.AllReduce(background, c, x, x, ccl.Sum), x, sums(size, n, 1)))

	x = input(rank, n, 2)
	add(check("broadcast", ccl.Broadcast(background, c, x, root), x, input(root, n, 2)))

	x, out = input(rank, n, 3), make([]float32, n)
	want := make([]float32, n)
	if rank == root {
		want = sums(size, n, 3)
	}
	add(check("reduce", ccl.Reduce(background, c, x, out, ccl.Sum, root), out, want))
	add(check("reduce leaves its input", nil, x, input(rank, n, 3)))

	out = make([]float32, n*size)
	add(check("all_gather", ccl.AllGather(background, c, input(rank, n, 4), out), out, all(4)))
	out = make([]float32, n*size)
	copy(out[rank*n:], input(rank, n, 4))
	add(check("all_gather in place", ccl.AllGather(background, c, out[rank*n:(rank+1)*n], out), out, all(4)))

	out = make([]float32, n)
	x = input(rank, n*size, 5)
	add(check("reduce_scatter", ccl.ReduceScatter(background, c, x, out, ccl.Sum),
		out, sums(size, n*size, 5)[rank*n:(rank+1)*n]))
	add(check("reduce_scatter leaves its input", nil, x, input(rank, n*size, 5)))

	out, want = make([]float32, n*size), make([]float32, n*size)
	if rank == root {
		want = all(6)
	}
	add(check("gather", ccl.Gather(background, c, input(rank, n, 6), out, root), out, want))

	out = make([]float32, n)
	add(check("scatter", ccl.Scatter(background, c, input(rank, n*size, 7), out, root),
		out, input(root, n*size, 7)[rank*n:(rank+1)*n]))

	out, want = make([]float32, n*size), nil
	for r := range size {
		want = append(want, input(r, n*size, 8)[rank*n:(rank+1)*n]...)
	}
	add(check("all_to_all", ccl.AllToAll(background, c, input(rank, n*size, 8), out), out, want))
	add(ccl.Barrier(background, c))
	return errors.Join(errs...)
}

func TestCollectives(t *testing.T) {
	counts, sizes := []int{0, 1, 7, 1000, 40_000}, []int{1, 2, 3, 5}
	if testing.Short() {
		counts, sizes = []int{0, 7, 40_000}, []int{1, 3}
	}
	for _, transport := range allTransports {
		for _, ranks := range sizes {
			t.Run(fmt.Sprintf("%s/%d", transport, ranks), func(t *testing.T) {
				comms := group(t, transport, ranks, ccl.GroupOptions{})
				each(t, ranks, func(rank int) error {
					for root, n := range counts {
						if err := oneOfEach(comms[rank], n, root); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// Large messages go through the channels in many fragments.
func TestLargeMessages(t *testing.T) {
	n := 3<<20 + 1
	if testing.Short() {
		n = 1<<18 + 1
	}
	for _, transport := range allTransports {
		for _, ranks := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", transport, ranks), func(t *testing.T) {
				comms := group(t, transport, ranks, ccl.GroupOptions{})
				want := sums(ranks, n, 0)
				each(t, ranks, func(rank int) error {
					x := input(rank, n, 0)
					if err := ccl.AllReduce(background, comms[rank], x, x, ccl.Sum); err != nil {
						return err
					}
					return same(x, want)
				})
			})
		}
	}
}

// Many operations are in flight, and each rank waits for them in another order.
func TestInFlight(t *testing.T) {
	const depth, ranks = 32, 3
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, ranks, ccl.GroupOptions{})
			each(t, ranks, func(rank int) error {
				var works []*ccl.Work
				var bufs [][]float32
				for i := range depth {
					x := input(rank, 500+i, i)
					work, err := comms[rank].Start(allReduceCall(x))
					if err != nil {
						return err
					}
					works, bufs = append(works, work), append(bufs, x)
				}
				for k := range depth {
					i := (k*7 + rank*5) % depth
					if err := works[i].Wait(background); err != nil {
						return err
					}
					works[i].Free()
					if err := same(bufs[i], sums(ranks, 500+i, i)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

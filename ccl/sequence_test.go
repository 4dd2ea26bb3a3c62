package ccl_test

import (
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/transport/faulty"
)

// TestRandomSequences runs random programs: collectives of all kinds and sizes, with sends and
// receives among them, waited for at once, later, in another order on each rank, or by the progress
// thread. Every rank draws the calls from a common source, and the way it waits from its own.
func TestRandomSequences(t *testing.T) {
	first, end, turns := 0, 6, 150
	if testing.Short() {
		first, end, turns = 1, 2, 25 // 3 ranks
	}
	for _, transport := range allTransports {
		for seed := first; seed < end; seed++ {
			ranks := 2 + seed%3
			t.Run(fmt.Sprintf("%s/%d", transport, seed), func(t *testing.T) {
				comms := group(t, transport, ranks, ccl.GroupOptions{})
				each(t, ranks, func(rank int) error { return sequence(comms[rank], int64(seed), turns) })
			})
		}
	}
}

var faultySeed = flag.Uint64("faulty.seed", 0, "run only this seed of TestRandomSequencesDisturbed")

// TestRandomSequencesDisturbed delays data and wake-ups between ranks, and makes space scarce.
func TestRandomSequencesDisturbed(t *testing.T) {
	turns, seeds := 30, []uint64{1, uint64(rand.Int63())}
	if testing.Short() {
		turns, seeds = 10, seeds[1:]
	}
	if *faultySeed != 0 {
		seeds = []uint64{*faultySeed}
	}
	for _, transport := range allTransports {
		for _, seed := range seeds {
			ranks := 2 + int(seed%3)
			t.Run(fmt.Sprintf("%s/%d", transport, seed), func(t *testing.T) {
				every := faulty.Fault{
					From: faulty.Any, To: faulty.Any, Channel: faulty.Any, Fragment: faulty.Any, OneIn: 8,
				}
				late, short, hungry, wakes := every, every, every, every
				late.Jitter = 300 * time.Microsecond
				short.Short = 64 << (seed % 8)
				hungry.Starve = 100 * time.Microsecond
				wakes.Channel, wakes.Jitter = faulty.Wakes, 300*time.Microsecond
				network := faulty.NewNetwork(late, short, hungry, wakes)
				network.Seed = seed
				opts := ccl.GroupOptions{Transport: transport}
				if transport == "inproc" {
					opts.Transport = "shm" // within a process this means inproc
				}
				var all []*ccl.Node
				if transport == "inproc" {
					all = slices.Repeat(nodesFor(t, 1, opts.Transport), ranks)
				} else {
					all = nodesFor(t, ranks, opts.Transport)
				}
				for rank, node := range all {
					if rank == 0 || node != all[0] {
						require.NoError(t, node.Disturb(network, opts))
					}
				}
				comms := join(t, all, opts, "disturbed")
				begin := time.Now()
				each(t, ranks, func(rank int) error {
					if err := sequence(comms[rank], int64(seed), turns); err != nil {
						return fmt.Errorf("again with -faulty.seed=%d: %w", seed, err)
					}
					return nil
				})
				t.Logf("seed %d: %d turns of %d ranks took %v", seed, turns, ranks, time.Since(begin))
			})
		}
	}
}

// pending is an operation that was started, and its expected result.
type pending struct {
	work *ccl.Work
	what string
	got  []float32
	want []float32
}

func (p *pending) settle() error {
	defer p.work.Free()
	if err := p.work.Wait(background); err != nil {
		return fmt.Errorf("%s: %w", p.what, err)
	}
	if p.want == nil {
		return nil
	}
	if err := same(p.got, p.want); err != nil {
		return fmt.Errorf("%s: %w", p.what, err)
	}
	return nil
}

func sequence(c *ccl.Communicator, seed int64, turns int) error {
	rank, ranks := c.Rank(), c.Size()
	calls, own := rand.New(rand.NewSource(seed)), rand.New(rand.NewSource(seed*100+int64(rank)))
	var open []pending
	start := func(what string, call *ccl.Call, got, want []float32) error {
		work, err := c.Start(call)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		open = append(open, pending{work, what, got, want})
		return nil
	}
	for turn := range turns {
		n := []int{0, 1, 13, 700, 9_000, 120_000}[calls.Intn(6)]
		root, part := calls.Intn(ranks), turn
		what := fmt.Sprintf("turn %d, %d elements, root %d", turn, n, root)
		var err error
		switch calls.Intn(6) {
		case 0:
			x := input(rank, n, part)
			err = start("all_reduce "+what, allReduceCall(x), x, sums(ranks, n, part))
		case 1:
			x := input(rank, n, part)
			call := ccl.Call{Coll: dtype.Broadcast, Type: dtype.F32, Root: root, Out: blocks(x, 1)}
			if rank == root {
				call.In = call.Out
			}
			err = start("broadcast "+what, &call, x, input(root, n, part))
		case 2:
			x, out := input(rank, n*ranks, part), make([]float32, n)
			call := ccl.Call{Coll: dtype.ReduceScatter, Type: dtype.F32, In: blocks(x, ranks), Out: blocks(out, 1)}
			err = start("reduce_scatter "+what, &call, out, sums(ranks, n*ranks, part)[rank*n:(rank+1)*n])
		case 3:
			x, out := input(rank, n*ranks, part), make([]float32, n*ranks)
			var want []float32
			for r := range ranks {
				want = append(want, input(r, n*ranks, part)[rank*n:(rank+1)*n]...)
			}
			call := ccl.Call{Coll: dtype.AllToAll, Type: dtype.F32, In: blocks(x, ranks), Out: blocks(out, ranks)}
			err = start("all_to_all "+what, &call, out, want)
		case 4:
			err = ccl.Barrier(background, c)
		case 5: // each rank sends to the next, by chance before or after it posts its receive
			next, prev := (rank+1)%ranks, (rank+ranks-1)%ranks
			x, out := input(rank, n, part), make([]float32, n)
			send := func() error {
				return start("send "+what, &ccl.Call{Coll: dtype.Send, Type: dtype.F32, Root: next,
					Tag: uint32(turn), In: blocks(x, 1)}, nil, nil)
			}
			recv := func() error {
				return start("recv "+what, &ccl.Call{Coll: dtype.Recv, Type: dtype.F32, Root: prev,
					Tag: uint32(turn), Out: blocks(out, 1)}, out, input(prev, n, part))
			}
			if own.Intn(2) == 0 {
				send, recv = recv, send
			}
			if err = send(); err == nil {
				err = recv()
			}
		}
		if err != nil {
			return err
		}
		for len(open) > 0 && own.Intn(3) != 0 {
			i := own.Intn(len(open))
			if err := open[i].settle(); err != nil {
				return err
			}
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	for i := range open {
		if err := open[i].settle(); err != nil {
			return err
		}
	}
	return nil
}

// blocks splits a slice into n equal blocks.
func blocks(x []float32, n int) []ccl.Block {
	all := make([]ccl.Block, n)
	for i := range all {
		part := x[i*len(x)/n : (i+1)*len(x)/n]
		all[i] = ccl.Block{Ptr: unsafe.Pointer(unsafe.SliceData(part)), Count: len(part)}
	}
	return all
}

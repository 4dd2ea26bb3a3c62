//go:build !race

package ccl_test

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// perSecond is how often a process may allocate in a second, whatever it does: each second it reads
// the limits on its processor time, which takes some files of control groups.
const perSecond = 20

// allocations returns how often ranks that repeat the same turn allocate in the given number of
// turns, without the first ones, and without what the time alone explains on a busy machine.
func allocations(t *testing.T, ranks, turns int, turn func(rank, turn int) error) int {
	t.Helper()
	mallocs := func(n int) int {
		var before, after runtime.MemStats
		begun := time.Now()
		runtime.ReadMemStats(&before)
		each(t, ranks, func(rank int) error {
			for i := range n {
				if err := turn(rank, i); err != nil {
					return err
				}
			}
			return nil
		})
		runtime.ReadMemStats(&after)
		return int(after.Mallocs-before.Mallocs) - perSecond*int(time.Since(begun).Seconds())
	}
	// A collection would empty the pools. The first turns fill them, for as many operations as
	// happen to be in flight.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	mallocs(turns)
	least := math.MaxInt
	for range 3 { // on a busy machine more are in flight at times, and pools grow
		few := max(0, mallocs(turns/10)) // allocations of the test itself
		if least = min(least, max(0, mallocs(turns+turns/10)-few)); least < turns/10 {
			break
		}
	}
	return least
}

// callOf returns a call of a collective with blocks of n elements, in memory of its own.
func callOf(coll dtype.Collective, rank, ranks, n int) *ccl.Call {
	const root = 1
	call := &ccl.Call{Coll: coll, Type: dtype.F32}
	if coll.Rooted() {
		call.Root = root
	}
	for range coll.InBlocks(ranks, rank, root) {
		call.In = append(call.In, allReduceCall(make([]float32, n)).In[0])
	}
	for range coll.OutBlocks(ranks, rank, root) {
		call.Out = append(call.Out, allReduceCall(make([]float32, n)).Out[0])
	}
	return call
}

var collectives = []dtype.Collective{
	dtype.AllReduce, dtype.Broadcast, dtype.Reduce, dtype.AllGather, dtype.ReduceScatter, dtype.AllToAll,
	dtype.Gather, dtype.Scatter, dtype.Barrier,
}

// small returns different small calls of one rank.
func small(rank, ranks, many int) (calls []*ccl.Call) {
	for i := range many {
		coll := collectives[i%len(collectives)]
		calls = append(calls, callOf(coll, rank, ranks, 2+i))
	}
	return calls
}

func start(c *ccl.Communicator, calls ...*ccl.Call) (works [4]*ccl.Work, err error) {
	for i, call := range calls {
		if works[i], err = c.Start(call); err != nil {
			return works, err
		}
	}
	return works, nil
}

// ends are ways to complete a posted operation.
var ends = map[string]func(w *ccl.Work) error{
	"wait": func(w *ccl.Work) error { return w.Wait(background) },
	"poll": func(w *ccl.Work) error {
		for {
			if done, err := w.Poll(); done {
				return err
			}
			runtime.Gosched()
		}
	},
	"expedite": func(w *ccl.Work) error {
		for w.Expedite(); ; time.Sleep(20 * time.Microsecond) {
			if done, err := w.Done(); done {
				return err
			}
		}
	},
}

// Operations must allocate nothing, on whichever path they run. The subtest counter, which never
// frees its Works, shows that the counter counts.
func TestNoAllocations(t *testing.T) {
	const ranks = 2
	for _, transport := range []string{"inproc", "shm"} {
		comms := group(t, transport, ranks, ccl.GroupOptions{BuffSize: 128 << 10})
		check := func(name string, turns int, turn func(rank, turn int) error) {
			t.Run(transport+"/"+name, func(t *testing.T) {
				// Threads and the Go runtime allocate now and then, too.
				require.Less(t, allocations(t, ranks, turns, turn), turns/3, "in %d turns", turns)
			})
		}
		sync := func(name string, turns int, make func(rank int) []*ccl.Call) {
			var calls [ranks][]*ccl.Call
			for rank := range ranks {
				calls[rank] = make(rank)
			}
			check(name, turns, func(rank, turn int) error {
				return comms[rank].Do(background, calls[rank][turn%len(calls[rank])])
			})
		}
		for _, coll := range collectives {
			for _, n := range []int{2, 3000, 50_000} { // a kept program, one piece, several pieces
				sync(fmt.Sprintf("%v/%d", coll, n), 100, func(rank int) []*ccl.Call {
					return []*ccl.Call{callOf(coll, rank, ranks, n)}
				})
			}
		}
		for _, many := range []int{2, 3, 4, 5, 8, 16, 40} {
			sync(fmt.Sprintf("alternating/%d", many), 200, func(rank int) []*ccl.Call {
				return small(rank, ranks, many)
			})
		}
		for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllToAll} {
			sync(fmt.Sprintf("%v/addresses", coll), 200, func(rank int) (calls []*ccl.Call) {
				for range 37 {
					calls = append(calls, callOf(coll, rank, ranks, 4))
				}
				return calls
			})
		}
		for end, see := range ends {
			for _, n := range []int{2, 50_000} {
				calls := [ranks][]*ccl.Call{}
				for rank := range ranks {
					for i := range 3 {
						calls[rank] = append(calls[rank], callOf(dtype.AllReduce, rank, ranks, n+i))
					}
				}
				check(fmt.Sprintf("posted/%s/%d", end, n), 100, func(rank, turn int) error {
					works, err := start(comms[rank], calls[rank]...)
					for _, w := range works[:3] {
						if err == nil {
							err = see(w)
							w.Free()
						}
					}
					return err
				})
			}
		}
		for _, n := range []int{2, 500, 5000, 50_000, 500_000} {
			var send, recv [ranks]*ccl.Call
			for rank := range ranks {
				all := callOf(dtype.AllReduce, rank, ranks, n)
				send[rank] = &ccl.Call{Coll: dtype.Send, Type: dtype.F32, Root: 1 - rank, Tag: 3, In: all.In}
				recv[rank] = &ccl.Call{Coll: dtype.Recv, Type: dtype.F32, Root: 1 - rank, Tag: 3, Out: all.Out}
			}
			check(fmt.Sprintf("message/%d", n), 100, func(rank, turn int) error {
				first, second := send[rank], recv[rank]
				if rank == 1 {
					first, second = second, first
				}
				if err := comms[rank].Do(background, first); err != nil {
					return err
				}
				return comms[rank].Do(background, second)
			})
			for end, see := range ends {
				if n == 500 || n == 500_000 {
					continue
				}
				check(fmt.Sprintf("message/posted/%s/%d", end, n), 100, func(rank, turn int) error {
					works, err := start(comms[rank], recv[rank], send[rank])
					for _, w := range works[:2] {
						if err == nil {
							err = see(w)
							w.Free()
						}
					}
					return err
				})
			}
		}
		t.Run(transport+"/counter", func(t *testing.T) {
			var calls [ranks]*ccl.Call
			for rank := range ranks {
				calls[rank] = callOf(dtype.AllReduce, rank, ranks, 4)
			}
			require.GreaterOrEqual(t, allocations(t, ranks, 100, func(rank, turn int) error {
				w, err := comms[rank].Start(calls[rank]) // never freed
				if err != nil {
					return err
				}
				return w.Wait(background)
			}), 100)
		})
	}
}

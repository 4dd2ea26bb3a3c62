package group_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda/cudatest"
)

// routes make groups of ranks of which each is a process of its own, by all routes.
var routes = []struct {
	name string
	make func(t *testing.T, device cudatest.Options) []*rank
}{
	{"staged", func(t *testing.T, device cudatest.Options) []*rank { return world(t, 3, device, small()) }},
	{"windows", func(t *testing.T, device cudatest.Options) []*rank {
		device.Devices = 2
		return machine(t, 3, device, overWindows, memory)
	}},
	{"host-windows", func(t *testing.T, device cudatest.Options) []*rank {
		return machine(t, 4, device, overHostWindows, memory)
	}},
	{"lent", func(t *testing.T, device cudatest.Options) []*rank {
		return lenders(t, 3, device, overWindows, memory, []bool{true, true, false})
	}},
	{"interpreted", func(t *testing.T, device cudatest.Options) []*rank {
		return machine(t, 3, device, interpreted, memory)
	}},
	{"rails in a ring", func(t *testing.T, device cudatest.Options) []*rank {
		return network(t, networkOf(2, 2), device, with(overWindows, "ring"), memory)
	}},
	{"direct rails", func(t *testing.T, device cudatest.Options) []*rank {
		return network(t, networkOf(2, 3), device, with(overHostWindows, "direct"), memory)
	}},
}

// Every collective goes on by every route if all streams of a rank share one hardware queue, or a
// few. In a full run, each route has each number of them.
func TestQueuesMatrix(t *testing.T) {
	for i, route := range routes {
		for k, queues := range fewQueues {
			if !*full && k != 0 && k != 1+i%2 || testing.Short() && k != 0 {
				continue
			}
			t.Run(fmt.Sprint(route.name, ", ", queues, " queues"), func(t *testing.T) {
				t.Parallel()
				w := route.make(t, cudatest.Options{Delay: -1, Queues: queues})
				someCalls(t, w, false)
				end(t, w)
			})
		}
	}
}

// Random calls, of which several are in flight, in random order of execution.
func TestQueuesOrder(t *testing.T) {
	inParts(t, 24, 8, func(t *testing.T, seeds iter.Seq[uint64]) {
		for seed := range seeds {
			sequence(t, seed, func(t *testing.T, n int, seed uint64) []*rank {
				device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond, Queues: 1 + int(seed/4%3)}
				switch seed % 4 {
				case 0:
					return machine(t, n, device, eitherWindows[seed/4%2], 256<<10)
				case 1:
					return lenders(t, n, device, overWindows, 256<<10, all(n))
				case 2:
					return machine(t, n, device, interpreted, 256<<10)
				}
				return world(t, n, device, small())
			})
		}
	})
}

// What a rank sends to the host is ahead of what it waits for, by the slots that there are.
func TestQueuesCopyAhead(t *testing.T) {
	var copies atomic.Int32
	device := cudatest.Options{Delay: -1, Stuck: -1, Queues: 1, Trace: func(line string) {
		if strings.Contains(line, ": copy to ") {
			copies.Add(1)
		}
	}}
	w := world(t, 2, device, small())
	const count = 90_000 // six pieces
	w[1].driver.Hold(w[1].stream)
	ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(count)), w[1].begin(t, w[1].reduce(count))}
	w[0].driver.Settle()
	require.EqualValues(t, 4*2, copies.Load(), "of as many pieces as there are slots, two chunks each")
	w[1].driver.Release(w[1].stream)
	for _, op := range ops {
		done, err := op.Wait(hang)
		require.True(t, done)
		require.NoError(t, err)
		op.Free()
	}
	end(t, w)
}

// Messages between hosts, of one piece and of as many as they may have: all_reduce by every fourth
// algorithm, in a full run by each, and the others in a ring. On four hosts there are plans that
// send more messages to a rank before they receive from it than slots hold; those that goccl
// chooses itself do not.
func TestQueuesOfRails(t *testing.T) {
	for i, a := range algo.For(dtype.AllReduce) {
		name := "hierarchical.window." + a.Name
		few := i%4 != 0 || testing.Short()
		if _, err := algo.Find(dtype.AllReduce, name); err != nil || !*full && few && a.Name != "ring" {
			continue
		}
		for k, hosts := range [][]int{{0, 1, 2, 2, 1, 0}, {0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}} {
			if !*full && k > 0 || k == 2 && a.Name != "ring" && a.Name != "direct" {
				break
			}
			t.Run(fmt.Sprint(a.Name, " ", hosts), func(t *testing.T) {
				colls := []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter}
				opts := with(ccl.GroupOptions{CudaBuffSize: 4 << 20, CudaRoute: "windows"}, "ring")
				if a.Name != "ring" {
					opts.Algo, colls = "all_reduce="+name, colls[:1]
				}
				w := network(t, hosts, cudatest.Options{Delay: -1, Queues: 1}, opts, memory)
				for seed, coll := range colls {
					for _, bytes := range []int{4000, memory - 4096} {
						count := bytes / 4
						if coll != dtype.AllReduce {
							count /= len(hosts) + 1
						}
						length := func(_, _ int) int { return count }
						call := ccl.Call{Coll: coll, Type: dtype.I32, Op: ccl.Sum}
						same(t, w, call, coll == dtype.AllReduce, uint64(seed), length, length)
					}
				}
				end(t, w)
			})
		}
	}
}

// Graphs of calls over windows, and replays of them, between calls outside of graphs.
func TestQueuesOfGraphs(t *testing.T) {
	for queues := 1; queues <= 3; queues++ {
		t.Run(fmt.Sprint(queues, " queues"), func(t *testing.T) {
			t.Parallel()
			w := capturingOn(t, 3, cudatest.Options{Delay: -1, Queues: queues})
			someCalls(t, w, false, dtype.Barrier)
			const count = 70_000 // some pieces
			for _, r := range w {
				r.put(t, 0, make([]byte, 4*count))
			}
			sum := func(r *rank) error {
				b := r.part(0, count)
				return r.enqueue(&ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum, In: b, Out: b})
			}
			twice := graphs(t, w, func(r *rank) error {
				if err := sum(r); err != nil {
					return err
				}
				return sum(r)
			})
			for range 10 {
				launch(t, w, twice)
				for _, r := range w {
					require.NoError(t, sum(r))
				}
			}
			for _, r := range w {
				r.fetch(t, 0, 4*count)
				require.Equal(t, make([]byte, 4*count), r.get(t, 0, 4*count))
			}
			destroy(t, w, twice)
			end(t, w)
		})
	}
}

// Batches of random messages, each of which all ranks issue in an order of their own, but for those
// from one rank to another one; and collectives in between. Some ranks end a batch, others go on.
func TestQueuesOfBatches(t *testing.T) {
	inParts(t, 24, 8, func(t *testing.T, seeds iter.Seq[uint64]) {
		for seed := range seeds {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { batches(t, seed) })
		}
	})
}

func batches(t *testing.T, seed uint64) {
	const area, bytes = 512 << 10, 16 << 20
	dice := rand.New(rand.NewPCG(seed, 3))
	n := 1 + dice.IntN(4)
	device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond, Queues: 1 + dice.IntN(3)}
	var w []*rank
	if dice.IntN(2) == 0 {
		devices := slices.Repeat([]cudatest.Options{device}, n)
		w = worldOf(t, devices, small(), bytes)
	} else {
		w = machine(t, n, device, overWindows, bytes)
	}
	length := func(_, _ int) int { return 1 + int(seed)*100 }
	for batch := uint32(1); batch < 4; batch++ {
		type message struct {
			from, to, at, bytes, into int
			data                      []byte
		}
		var all []message
		var used, filled [4]int // areas of each rank
		for range 1 + dice.IntN(4*n) {
			m := message{from: dice.IntN(n), to: dice.IntN(n), bytes: dice.IntN(area) >> (4 * dice.IntN(3))}
			if used[m.from] == 16 || filled[m.to] == 16 {
				continue
			}
			m.at, m.into = used[m.from]*area, (16+filled[m.to])*area
			used[m.from]++
			filled[m.to]++
			m.data = random(dice.Uint64(), m.bytes+1)[:m.bytes]
			all = append(all, m)
		}
		for _, m := range all {
			w[m.from].put(t, m.at, m.data)
		}
		ops := make([][]*ccl.DeviceWork, n)
		for i, r := range w {
			// The peers in any order, and receives first, last, or mixed with sends.
			mine := []func(){}
			for _, peer := range dice.Perm(n) {
				var in, out []func()
				for _, m := range all {
					if m.to == i && m.from == peer {
						in = append(in, func() {
							ops[i] = append(ops[i], r.post(t, dtype.Recv, peer, m.into, m.bytes, batch))
						})
					}
					if m.from == i && m.to == peer {
						out = append(out, func() {
							ops[i] = append(ops[i], r.post(t, dtype.Send, peer, m.at, m.bytes, batch))
						})
					}
				}
				switch dice.IntN(3) {
				case 0:
					mine = append(append(mine, in...), out...)
				case 1:
					mine = append(append(in, mine...), out...)
				case 2:
					mine = append(append(out, mine...), in...)
				}
			}
			for _, post := range mine {
				post()
			}
			if dice.IntN(2) == 0 {
				require.NoError(t, r.EndBatch(batch))
			}
		}
		for i, r := range w {
			r.joinAll(t, ops[i])
			for _, m := range all {
				if m.to == i {
					r.fetch(t, m.into, m.bytes)
				}
			}
		}
		for _, m := range all {
			require.Equal(t, string(m.data), string(w[m.to].get(t, m.into, m.bytes)), "%d bytes from %d to %d", m.bytes,
				m.from, m.to)
		}
		same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum}, true, seed, length, length)
	}
	end(t, w)
}

package group_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/cudatest"
)

// A driver may have what frees memory wait for all streams, and meanwhile every call of other
// threads wait (cudatest.Options.FreeBlocks). A stream that waits for a word goes on nevertheless:
// who stores words makes no call to the driver. These tests have a thread of each rank allocate and
// free memory all the time, as the allocator of a program does when memory is short.

// frees has a thread of each rank allocate and free until the function that it returns is called.
func frees(t testing.TB, w []*rank) (stop func()) {
	var all sync.WaitGroup
	var over atomic.Bool
	for i, r := range w {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(i), 5))
			for !over.Load() {
				if err := r.free(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(dice.IntN(200)) * time.Microsecond)
			}
		})
	}
	return func() {
		over.Store(true)
		all.Wait()
	}
}

// free allocates memory and frees it.
func (r *rank) free() error {
	if err := r.ctx.Enter(true); err != nil {
		return err
	}
	defer r.ctx.Leave()
	memory, err := r.ctx.Alloc(1)
	if err == nil {
		err = memory.Free()
	}
	return err
}

// Every collective by every route, and graphs. In a full run all kinds of calls, with one hardware
// queue as well.
func TestFreesMatrix(t *testing.T) {
	for i, route := range routes {
		if testing.Short() && i%3 > 0 {
			continue
		}
		for queues := range 2 {
			if queues > 0 && !*full {
				continue
			}
			t.Run(fmt.Sprint(route.name, ", ", queues, " queues"), func(t *testing.T) {
				t.Parallel()
				w := route.make(t, cudatest.Options{Delay: -1, Queues: queues, FreeBlocks: true})
				stop := frees(t, w)
				someCalls(t, w, *full)
				stop()
				end(t, w)
			})
		}
	}
	t.Run("graphs", func(t *testing.T) {
		t.Parallel()
		w := capturingOn(t, 3, cudatest.Options{Delay: -1, FreeBlocks: true})
		stop := frees(t, w)
		someCalls(t, w, *full, dtype.Barrier)
		stop()
		end(t, w)
	})
}

// Another thread of each rank's process frees memory while the ranks join.
func TestFreesWhileJoining(t *testing.T) {
	device := cudatest.Options{FreeBlocks: true, Delay: -1, Queues: 2}
	drivers, others := make([]*cudatest.Driver, 3), make([]*rank, 3)
	for i := range drivers {
		drivers[i] = cudatest.New(device)
		t.Cleanup(drivers[i].Close)
		ctx, err := drivers[i].Retain(0)
		require.NoError(t, err)
		others[i] = &rank{driver: drivers[i], ctx: ctx}
	}
	for range 3 {
		stop := frees(t, others)
		opts := small()
		opts.CudaRoute = "staged"
		w := ranksOn(t, drivers, opts, memory)
		stop()
		someCalls(t, w, false)
		for _, r := range w {
			r.leave(t)
		}
	}
	for _, r := range others {
		require.NoError(t, r.ctx.Release())
		r.driver.Check(t)
	}
}

// Random calls, of which several are in flight, in random order of execution.
func TestFreesOrder(t *testing.T) {
	inParts(t, 16, 8, func(t *testing.T, seeds iter.Seq[uint64]) {
		for seed := range seeds {
			sequenceWith(t, seed, func(t *testing.T, n int, seed uint64) []*rank {
				device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond, FreeBlocks: true}
				switch seed % 4 {
				case 0:
					return machine(t, n, device, eitherWindows[seed/4%2], 256<<10)
				case 1:
					return lenders(t, n, device, overWindows, 256<<10, all(n))
				case 2:
					return machine(t, n, device, interpreted, 256<<10)
				}
				return world(t, n, device, small())
			}, true)
		}
	})
}

// blocked has a rank in a call that does not end, while a thread of it frees memory, and so all
// other calls to its driver wait. It returns the call, and a function that waits until the memory
// is free.
func blocked(t *testing.T, r *rank, call *ccl.Call) (op *ccl.DeviceWork, freed func() error) {
	t.Helper()
	op = r.begin(t, call)
	return op, r.frees(t)
}

// frees has a thread of the rank free memory, and returns when that waits for streams. wait waits
// for its end, and returns its error.
func (r *rank) frees(t *testing.T) (wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.free() }()
	require.Eventually(t, func() bool { return r.driver.Freeing() == 1 }, hang, time.Millisecond)
	return func() error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(hang):
			require.Fail(t, "the driver waits for streams for ever", r.driver.Blocked())
			return nil
		}
	}
}

// While the driver keeps every call waiting, calls go on that need none: the other rank comes, is
// late, aborts, or leaves.
func TestFreesWhileBlocked(t *testing.T) {
	device := cudatest.Options{FreeBlocks: true, Stuck: -1, Delay: -1}
	bothRoutes(t, func(t *testing.T, world maker) {
		for name, c := range map[string]struct {
			timeout time.Duration
			then    func(t *testing.T, other *rank)
			code    fault.Code
		}{
			"comes": {hang, func(t *testing.T, other *rank) {
				other.begin(t, other.reduce(60_000)).Free()
			}, fault.OK},
			"is late": {200 * time.Millisecond, func(*testing.T, *rank) {}, fault.Timeout},
			"aborts": {hang, func(t *testing.T, other *rank) {
				other.Abort(fault.New(fault.Aborted, "because"))
			}, fault.Aborted},
			"leaves": {hang, func(t *testing.T, other *rank) { other.leave(t) }, fault.PeerLeft},
		} {
			t.Run(name, func(t *testing.T) {
				w := world(t, 2, device, small())
				call := w[0].reduce(60_000)
				call.Timeout = c.timeout
				op, freed := blocked(t, w[0], call)
				c.then(t, w[1])
				require.NoError(t, freed())
				if name == "leaves" {
					w = w[:1]
				}
				if c.code == fault.OK {
					_, err := op.Wait(hang)
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, w[0].fails(t, op), c.code)
				}
				op.Free()
				bury(t, w)
			})
		}
	})
}

// A rank that closes its group while the driver keeps every call waiting lets its streams go first.
func TestFreesWhileClosing(t *testing.T) {
	device := cudatest.Options{FreeBlocks: true, Stuck: -1, Delay: -1}
	bothRoutes(t, func(t *testing.T, world maker) {
		for _, staged := range []bool{false, true} {
			w := world(t, 2, device, small())
			call := w[0].reduce(60_000)
			if staged { // by all routes a message is
				call = w[0].message(dtype.Recv, 1, 0, 100, 0)
			}
			op, freed := blocked(t, w[0], call)
			closed := make(chan error, 1)
			go func() { closed <- w[0].DeviceGroup.Close() }()
			select {
			case err := <-closed:
				require.NoError(t, err)
			case <-time.After(hang):
				require.Fail(t, "Close waits for ever", w[0].driver.Blocked())
			}
			if err := freed(); err != nil { // the context is gone with the group, perhaps before the free has ended
				require.ErrorIs(t, err, fault.Closed)
			}
			op.Free()
			require.NoError(t, w[0].block.Free()) // the driver forgets the rest, as the context is gone
			require.NoError(t, w[1].ctx.Enter(false))
			require.NoError(t, w[1].stream.Synchronize())
			w[1].ctx.Leave()
			w[1].leave(t)
		}
	})
}

// Who watches a call is not kept waiting, and learns of its end when the driver answers again.
func TestFreesWhileWatched(t *testing.T) {
	w := world(t, 2, cudatest.Options{FreeBlocks: true, Delay: -1}, small())
	r := w[0]
	r.driver.Hold(r.stream)
	require.NoError(t, r.ctx.Enter(false))
	other, err := r.ctx.NewStream(0) // so that the call does not wait for what the memory waits for
	require.NoError(t, err)
	require.NoError(t, r.stream.Copy(r.device.Ptr()+1<<20, r.device.Ptr()+2<<20, 8))
	r.ctx.Leave()
	call := r.reduce(1000)
	op, err := r.Enqueue(call, other)
	require.NoError(t, err)
	ended := watch(op)
	freed := r.frees(t)
	w[1].begin(t, w[1].reduce(1000)).Free()
	require.Eventually(t, func() bool { _, others := r.Pending(); return others == 0 }, hang, time.Millisecond)
	select {
	case <-ended:
		t.Fatal("the call has ended before what the caller's stream has before it")
	case <-time.After(100 * time.Millisecond):
	}
	r.driver.Release(r.stream)
	require.NoError(t, freed())
	select {
	case <-ended:
	case <-time.After(hang):
		t.Fatal("nobody learns of the end")
	}
	op.Free()
	require.NoError(t, r.ctx.Enter(false))
	require.NoError(t, other.Destroy())
	r.ctx.Leave()
	end(t, w)
}

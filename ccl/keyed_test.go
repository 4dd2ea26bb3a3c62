package ccl_test

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

func blockOf(x []float32) ccl.Block {
	return ccl.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x)}
}

// parts cuts x into a block for each rank.
func parts(x []float32, ranks int) []ccl.Block {
	blocks, n := make([]ccl.Block, ranks), len(x)/ranks
	for i := range blocks {
		blocks[i] = blockOf(x[i*n : (i+1)*n])
	}
	return blocks
}

// collective returns a call of each kind with blocks of n elements, and what checks its result. The
// values depend on part.
func collective(coll dtype.Collective, rank, ranks, root, n, part int) (*ccl.Call, func() error) {
	call := &ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum, Root: root}
	x, all, out, whole := input(rank, n, part), input(rank, n*ranks, part), make([]float32, n), make([]float32, n*ranks)
	result, want := out, []float32(nil)
	switch coll {
	case dtype.Broadcast:
		call.Out, result, want = []ccl.Block{blockOf(x)}, x, input(root, n, part)
		if rank == root {
			call.In = call.Out
		}
	case dtype.Scatter:
		call.Out, want = []ccl.Block{blockOf(out)}, input(root, n*ranks, part)[rank*n:][:n]
		if rank == root {
			call.In = parts(all, ranks)
		}
	case dtype.Gather, dtype.AllGather:
		if call.In, result = []ccl.Block{blockOf(x)}, whole; coll == dtype.AllGather || rank == root {
			call.Out = parts(whole, ranks)
			for r := range ranks {
				want = append(want, input(r, n, part)...)
			}
		} else {
			want = whole
		}
	case dtype.Reduce:
		if call.In, want = []ccl.Block{blockOf(x)}, out; rank == root {
			call.Out, want = []ccl.Block{blockOf(out)}, sums(ranks, n, part)
		}
	case dtype.AllReduce:
		call.In, call.Out, want = []ccl.Block{blockOf(x)}, []ccl.Block{blockOf(out)}, sums(ranks, n, part)
		if part%2 == 0 { // in place
			call.Out, result = call.In, x
		}
	case dtype.ReduceScatter:
		call.In, call.Out = parts(all, ranks), []ccl.Block{blockOf(out)}
		want = sums(ranks, n*ranks, part)[rank*n:][:n]
	case dtype.AllToAll:
		call.In, call.Out, result = parts(all, ranks), parts(whole, ranks), whole
		for r := range ranks {
			want = append(want, input(r, n*ranks, part)[rank*n:][:n]...)
		}
	case dtype.Barrier:
		result, want = nil, nil
	}
	return call, func() error {
		if err := same(result, want); err != nil {
			return fmt.Errorf("%v of %d on rank %d of %d, root %d: %w", coll, n, rank, ranks, root, err)
		}
		return nil
	}
}

// keyOf returns the key of call i, with its bits spread.
func keyOf(i int) ccl.Key { return ccl.Key{ID: uint64(i+1) * 0x9e3779b97f4a7c15, Within: uint64(i)} }

// TestKeyedCalls starts keyed calls of all kinds in another order on each rank, while another
// goroutine makes calls that have an order, and waits for them in yet another order.
func TestKeyedCalls(t *testing.T) {
	sizes := []int{1, 2, 3, 4}
	if testing.Short() {
		sizes = []int{1, 3}
	}
	for _, transport := range allTransports {
		for _, ranks := range sizes {
			t.Run(fmt.Sprintf("%s/%d", transport, ranks), func(t *testing.T) {
				comms := group(t, transport, ranks, ccl.GroupOptions{})
				each(t, ranks, func(rank int) error {
					ordered := make(chan error)
					go func() {
						var errs []error
						for range 20 {
							x := input(rank, 1000, 0)
							err := ccl.AllReduce(background, comms[rank], x, x, ccl.Sum)
							errs = append(errs, err, same(x, sums(ranks, 1000, 0)))
						}
						ordered <- errors.Join(errs...)
					}()
					return errors.Join(keyedCalls(comms[rank], rank, ranks), <-ordered)
				})
			})
		}
	}
}

func keyedCalls(c *ccl.Communicator, rank, ranks int) error {
	type started struct {
		work  *ccl.Work
		check func() error
	}
	var all []started
	counts := []int{0, 1, 1000, 30_000}
	order := rand.New(rand.NewSource(int64(rank)))
	for _, i := range order.Perm(len(counts) * int(dtype.Barrier)) {
		coll, n := dtype.Collective(i%int(dtype.Barrier)+1), counts[i/int(dtype.Barrier)]
		call, check := collective(coll, rank, ranks, i%ranks, n, i)
		w, err := c.StartKeyed(call, keyOf(i))
		if err != nil {
			return err
		}
		all = append(all, started{w, check})
	}
	var errs []error
	for _, i := range order.Perm(len(all)) {
		errs = append(errs, all[i].work.Wait(background))
		if errs[len(errs)-1] == nil {
			errs = append(errs, all[i].check())
		}
		all[i].work.Free()
	}
	return errors.Join(errs...)
}

// TestKeyedCallsBlock has a goroutine for each of several keyed calls, begun in another order on
// each rank, and a rank blocked in a call with an order that the other makes last.
func TestKeyedCallsBlock(t *testing.T) {
	const calls = 6
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 2, ccl.GroupOptions{})
			each(t, 2, func(rank int) error {
				errs := make(chan error)
				keyed := func() {
					for i := range calls {
						if rank == 1 {
							i = calls - 1 - i
						}
						call, check := collective(dtype.AllReduce, rank, 2, 0, 10, i)
						go func() {
							_, err := comms[rank].DoKeyedSlice(call, keyOf(i), 0)
							errs <- errors.Join(err, check())
						}()
					}
				}
				wait := func() (all error) {
					for range calls {
						all = errors.Join(all, <-errs)
					}
					return all
				}
				keyed()
				if rank == 0 { // blocks until the keyed calls of the other rank have ended
					return errors.Join(ccl.Barrier(background, comms[0]), wait())
				}
				return errors.Join(wait(), ccl.Barrier(background, comms[1]))
			})
		})
	}
}

// TestKeyedTypes reduces in the ways that need more than the sum of two numbers.
func TestKeyedTypes(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		comms := group(t, "inproc", ranks, ccl.GroupOptions{})
		for n, op := range map[int]ccl.Op{10: ccl.Avg, 50_000: ccl.Avg, 11: dtype.PremulSum, 50_001: dtype.PremulSum} {
			each(t, ranks, func(rank int) error {
				x, want := input(rank, n, 0), sums(ranks, n, 0)
				for i := range want {
					if op == ccl.Avg {
						want[i] = float32(float64(want[i]) * (1 / float64(ranks)))
					} else {
						want[i] *= 0.5
					}
				}
				call := ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: op, Factor: 0.5,
					In: []ccl.Block{blockOf(x)}, Out: []ccl.Block{blockOf(x)}}
				_, err := comms[rank].DoKeyedSlice(&call, keyOf(n), 0)
				return errors.Join(err, same(x, want))
			})
		}
	}
}

// TestKeyedMismatch checks that different calls with one key, of which each rank could end its own,
// fail with both calls' names.
func TestKeyedMismatch(t *testing.T) {
	comms := group(t, "shm", 2, ccl.GroupOptions{})
	errs := make([]error, 2)
	each(t, 2, func(rank int) error {
		call, _ := collective(dtype.Broadcast, rank, 2, rank, 10, 0)
		_, errs[rank] = comms[rank].DoKeyedSlice(call, keyOf(7), 0)
		return nil
	})
	for _, err := range errs {
		require.ErrorContains(t, err, "in a callback of seq 7")
		require.ErrorContains(t, err, "this rank called broadcast, 10 x f32, root")
		require.NotContains(t, err.Error(), "lengths")
	}
	_, err := comms[0].StartKeyed(&ccl.Call{Coll: dtype.Send}, keyOf(0))
	require.Error(t, err)
}

// TestKeyedCallAlone checks what a rank is told whose call the others do not make, and one whose
// peer has left.
func TestKeyedCallAlone(t *testing.T) {
	comms := group(t, "shm", 2, ccl.GroupOptions{})
	call, _ := collective(dtype.AllReduce, 0, 2, 0, 10, 0)
	call.Timeout = 200 * time.Millisecond
	_, err := comms[0].DoKeyedSlice(call, keyOf(3), 0)
	require.ErrorContains(t, err, "all_reduce of 10 x f32 (sum), in a callback of seq 3: timeout (rank 1)")
	require.ErrorContains(t, err, "rank 0 waits for 1 (nothing of this call has come)")

	comms = group(t, "tcp", 2, ccl.GroupOptions{})
	call.Timeout = 0
	w, err := comms[0].StartKeyed(call, keyOf(3))
	require.NoError(t, err)
	comms[1].Abort("it was told to")
	require.ErrorContains(t, w.Wait(background), "it was told to")
	w.Free()
}

// TestKeysThatCannotBeToldApart has two calls whose keys have the same part in their tags.
func TestKeysThatCannotBeToldApart(t *testing.T) {
	comms := group(t, "shm", 2, ccl.GroupOptions{})
	errs := make([]error, 2)
	each(t, 2, func(rank int) error {
		call, _ := collective(dtype.AllReduce, rank, 2, 0, 10, 0)
		_, errs[rank] = comms[rank].DoKeyedSlice(call, ccl.Key{ID: 1 | uint64(rank)<<60}, 0)
		return nil
	})
	require.ErrorContains(t, errs[0], "cannot be told apart")
}

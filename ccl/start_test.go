package ccl_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

type (
	grad   float32
	count  int
	signed bool
)

func TestTypeOf(t *testing.T) {
	word := dtype.I64
	if reflect.TypeFor[int]().Size() == 4 {
		word = dtype.I32
	}
	require.Equal(t, word, ccl.TypeOf[int]())
	require.Equal(t, word, ccl.TypeOf[count]())
	require.Equal(t, dtype.F32, ccl.TypeOf[grad]())
	require.Equal(t, dtype.Bool, ccl.TypeOf[signed]())
	for _, c := range []struct {
		of   dtype.Type
		zero any
	}{
		{ccl.TypeOf[float64](), float64(0)}, {ccl.TypeOf[float32](), float32(0)},
		{ccl.TypeOf[int8](), int8(0)}, {ccl.TypeOf[uint8](), uint8(0)}, {ccl.TypeOf[int16](), int16(0)},
		{ccl.TypeOf[uint16](), uint16(0)}, {ccl.TypeOf[int32](), int32(0)}, {ccl.TypeOf[uint32](), uint32(0)},
		{ccl.TypeOf[int64](), int64(0)}, {ccl.TypeOf[uint64](), uint64(0)}, {ccl.TypeOf[uint](), uint(0)},
		{ccl.TypeOf[complex64](), complex64(0)}, {ccl.TypeOf[complex128](), complex128(0)}, {ccl.TypeOf[bool](), false},
	} {
		require.EqualValues(t, reflect.TypeOf(c.zero).Size(), c.of.Size(), "%v", c.of)
		real, parts := dtype.Real(c.of)
		require.Equal(t, reflect.TypeOf(c.zero).Kind().String()[:1] == "c", parts == 2, "%v of %v", c.of, real)
	}
}

// TestElements sums values of a named type, of int, and of bool, where a sum is an or.
func TestElements(t *testing.T) {
	comms := group(t, "inproc", 3, ccl.GroupOptions{})
	each(t, 3, func(rank int) error {
		c := comms[rank]
		grads, counts, flags := []grad{grad(rank), 0.5}, []int{rank, -rank}, []bool{rank == 1, false}
		err := errors.Join(ccl.AllReduce(background, c, grads, grads, ccl.Sum),
			ccl.AllReduce(background, c, counts, counts, ccl.Sum), ccl.AllReduce(background, c, flags, flags, ccl.Sum))
		if !slices.Equal(grads, []grad{3, 1.5}) || !slices.Equal(counts, []int{3, -3}) || !flags[0] || flags[1] {
			err = errors.Join(err, fmt.Errorf("%v, %v, %v", grads, counts, flags))
		}
		return err
	})
}

// TestStart starts each call, and compares what it leaves with what the call that waits leaves.
func TestStart(t *testing.T) {
	const n, root, tag = 3, 1, 5
	type buffers struct{ in, out []int32 }
	for name, c := range map[string]struct {
		in, out int
		run     func(*ccl.Communicator, buffers) error
		start   func(*ccl.Communicator, buffers) (*ccl.Work, error)
	}{
		"broadcast": {0, 4, func(c *ccl.Communicator, b buffers) error {
			return ccl.Broadcast(background, c, b.out, root)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) { return ccl.StartBroadcast(c, b.out, root) }},
		"all_reduce": {4, 4, func(c *ccl.Communicator, b buffers) error {
			return ccl.AllReduce(background, c, b.in, b.out, ccl.Sum)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) {
			return ccl.StartAllReduce(c, b.in, b.out, ccl.Sum)
		}},
		"reduce": {4, 4, func(c *ccl.Communicator, b buffers) error {
			return ccl.Reduce(background, c, b.in, b.out, ccl.Max, root)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) {
			return ccl.StartReduce(c, b.in, b.out, ccl.Max, root)
		}},
		"reduce_scatter": {4 * n, 4, func(c *ccl.Communicator, b buffers) error {
			return ccl.ReduceScatter(background, c, b.in, b.out, ccl.Sum)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) {
			return ccl.StartReduceScatter(c, b.in, b.out, ccl.Sum)
		}},
		"all_gather": {4, 4 * n, func(c *ccl.Communicator, b buffers) error {
			return ccl.AllGather(background, c, b.in, b.out)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) { return ccl.StartAllGather(c, b.in, b.out) }},
		"gather": {4, 4 * n, func(c *ccl.Communicator, b buffers) error {
			return ccl.Gather(background, c, b.in, b.out, root)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) { return ccl.StartGather(c, b.in, b.out, root) }},
		"scatter": {4 * n, 4, func(c *ccl.Communicator, b buffers) error {
			return ccl.Scatter(background, c, b.in, b.out, root)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) { return ccl.StartScatter(c, b.in, b.out, root) }},
		"all_to_all": {4 * n, 4 * n, func(c *ccl.Communicator, b buffers) error {
			return ccl.AllToAll(background, c, b.in, b.out)
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) { return ccl.StartAllToAll(c, b.in, b.out) }},
		"barrier": {0, 0, func(c *ccl.Communicator, b buffers) error { return ccl.Barrier(background, c) },
			func(c *ccl.Communicator, b buffers) (*ccl.Work, error) { return ccl.StartBarrier(c) }},
		"to the next, from the one before": {4, 4, func(c *ccl.Communicator, b buffers) error {
			work, err := ccl.StartSend(c, b.in, (c.Rank()+1)%n, tag)
			if err != nil {
				return err
			}
			defer work.Free()
			from, err := ccl.Recv(background, c, b.out, (c.Rank()+n-1)%n, tag)
			if err == nil && from != (c.Rank()+n-1)%n {
				err = fmt.Errorf("from rank %d", from)
			}
			return errors.Join(err, work.Wait(background))
		}, func(c *ccl.Communicator, b buffers) (*ccl.Work, error) {
			work, err := ccl.StartRecv(c, b.out, ccl.AnySource, tag)
			if err != nil {
				return nil, err
			}
			if err := ccl.Send(background, c, b.in, (c.Rank()+1)%n, tag); err != nil {
				return nil, err
			}
			err = work.Wait(background)
			if err == nil && work.Source() != (c.Rank()+n-1)%n {
				err = fmt.Errorf("from rank %d", work.Source())
			}
			return work, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			comms := group(t, "inproc", n, ccl.GroupOptions{})
			each(t, n, func(rank int) error {
				made := func() buffers {
					b := buffers{make([]int32, c.in), make([]int32, c.out)}
					for i := range b.in {
						b.in[i] = int32(100*rank + i)
					}
					for i := range b.out {
						b.out[i] = int32(-rank)
					}
					return b
				}
				waits, starts := made(), made()
				if err := c.run(comms[rank], waits); err != nil {
					return err
				}
				work, err := c.start(comms[rank], starts)
				if err != nil {
					return err
				}
				defer work.Free()
				if err := work.Wait(background); err != nil {
					return err
				}
				if c.out > 0 && rank == root && slices.Equal(waits.out, made().out) && name != "broadcast" {
					return errors.New("nothing has come")
				}
				if !slices.Equal(waits.out, starts.out) {
					return fmt.Errorf("%v, and started %v", waits.out, starts.out)
				}
				return nil
			})
		})
	}
	c := group(t, "inproc", 2, ccl.GroupOptions{})[0]
	odd := make([]int32, 3)
	for _, err := range []error{second(ccl.StartAllGather(c, odd, odd)), second(ccl.StartAllToAll(c, odd, odd)),
		second(ccl.StartReduceScatter(c, odd, odd, ccl.Sum)), second(ccl.StartGather(c, odd, odd, 0)),
		second(ccl.StartScatter(c, odd, odd, 0)), ccl.AllToAll(background, c, odd, odd)} {
		require.ErrorContains(t, err, "3 elements cannot be cut into 2 equal blocks")
	}
}

func second[T any](_ T, err error) error { return err }

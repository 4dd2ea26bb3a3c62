package record_test

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/record"
)

func TestRecords(t *testing.T) {
	before := time.Now()
	r := record.New(8)
	ids := []uint64{}
	for i := range 3 {
		ids = append(ids, r.Begin(&record.Operation{
			Coll: dtype.AllReduce, Type: dtype.F32, Seq: uint64(i + 1), In: 4, Out: 4, Root: -1, Tag: 9, Batch: 2,
		}))
	}
	r.End(ids[0], fault.OK, true)
	r.End(ids[1], fault.Timeout, false)
	r.End(ids[1], fault.OK, false) // too late
	all := r.Records()
	require.Len(t, all, 3)
	for i, each := range all {
		require.Equal(t, ids[i], each.ID)
		require.Equal(t, uint64(i+1), each.Seq)
		require.Equal(t, dtype.AllReduce, each.Coll)
		require.Equal(t, int32(-1), each.Root)
		require.WithinRange(t, each.Begun, before.Add(-time.Millisecond), time.Now().Add(time.Millisecond))
	}
	require.Equal(t, [3]bool{true, true, false}, [3]bool{all[0].Done, all[1].Done, all[2].Done})
	require.Equal(t, [2]fault.Code{fault.OK, fault.Timeout}, [2]fault.Code{all[0].Code, all[1].Code})
	require.False(t, all[0].Ended.Before(all[0].Begun))
	require.True(t, all[1].Ended.IsZero())
}

func TestTheOldestAreOverwritten(t *testing.T) {
	r := record.New(5) // rounded up to 8
	for i := range 21 {
		r.End(r.Begin(&record.Operation{Seq: uint64(i + 1)}), fault.OK, false)
	}
	r.End(3, fault.Aborted, true) // forgotten
	all := r.Records()
	require.Len(t, all, 8)
	require.Equal(t, uint64(21), r.Total())
	for i, each := range all {
		require.Equal(t, uint64(14+i), each.ID)
		require.Equal(t, each.ID, each.Seq)
		require.Equal(t, fault.OK, each.Code)
	}
}

// TestReadWhileWritten checks that a record read while others write is never a mixture of two
// operations.
func TestReadWhileWritten(t *testing.T) {
	r := record.New(16)
	var writers, reader sync.WaitGroup
	stop := make(chan struct{})
	reader.Go(func() {
		for {
			for _, each := range r.Records() {
				if each.In != each.Seq || each.Out != each.Seq || uint64(each.Tag) != each.Seq {
					t.Errorf("a mixture: %+v", each)
					return
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for w := range 3 {
		writers.Go(func() {
			for i := range 20_000 {
				n := uint64(w*20_000 + i)
				r.End(r.Begin(&record.Operation{Seq: n, In: n, Out: n, Tag: uint32(n)}), fault.OK, i%2 == 0)
			}
		})
	}
	writers.Wait()
	close(stop)
	reader.Wait()
}

func TestNoAllocations(t *testing.T) {
	r := record.New(64)
	o := &record.Operation{Coll: dtype.Barrier}
	require.Zero(t, testing.AllocsPerRun(1000, func() { r.End(r.Begin(o), fault.OK, true) }))
}

func TestSize(t *testing.T) {
	require.EqualValues(t, 40, unsafe.Sizeof(record.Operation{}),
		"with its number and times an operation fills one cache line")
}

func BenchmarkOperation(b *testing.B) {
	r := record.New(4096)
	for b.Loop() {
		o := record.Operation{Coll: dtype.AllReduce, Type: dtype.F32, In: 2, Out: 2}
		r.End(r.Begin(&o), fault.OK, false)
	}
}

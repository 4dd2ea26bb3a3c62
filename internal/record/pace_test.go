package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/record"
)

func TestPace(t *testing.T) {
	r := record.New(8)
	require.Equal(t, record.Pace{Span: time.Hour}, r.Pace(time.Hour))
	call := func(coll dtype.Collective, seq uint64, ends bool) {
		id := r.Begin(&record.Operation{Coll: coll, Type: dtype.F32, Seq: seq, In: 2, Out: 8})
		if ends {
			r.End(id, fault.OK, false)
		}
	}
	call(dtype.AllGather, 1, true)
	call(dtype.Recv, 1, false)
	call(dtype.AllGather, 2, false)
	call(dtype.AllGather, 3, false)
	r.NoteBatch(1)
	p := r.Pace(time.Hour)
	require.Equal(t, []uint64{4, 4 * 8 * 4}, []uint64{p.Operations, p.Bytes})
	require.Equal(t, time.Hour, p.Span)
	require.Equal(t, []uint64{2, 1}, []uint64{p.Collective.Seq, p.Message.Seq})
	require.Zero(t, r.Pace(0).Operations, "all began before")
	for i := range uint64(20) { // more than the ring holds
		call(dtype.AllGather, 4+i, true)
	}
	p = r.Pace(time.Hour)
	require.EqualValues(t, 8, p.Operations)
	require.Less(t, p.Span, time.Hour, "only for so long it reaches back")
	require.Zero(t, p.Collective.ID)
}

func TestPaceAllocatesNothing(t *testing.T) {
	r := record.New(64)
	r.Begin(&record.Operation{Coll: dtype.Barrier})
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Pace(time.Second) }))
}

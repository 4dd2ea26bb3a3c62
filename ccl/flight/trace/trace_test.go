package trace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/flight"
	"github.com/goccl/goccl/internal/record"
)

// field returns the value of a field of a traced operation.
func field(e traced, key string) any {
	for _, each := range e.fields {
		if each.key == key {
			return each.value
		}
	}
	return nil
}

func TestTraceOfRecords(t *testing.T) {
	g := Group{Name: "3", Rank: 1, Size: 4, Timeout: time.Minute}
	begun := time.Unix(100, 0)
	id := uint64(10) // older records were overwritten
	op := func(o record.Operation, done bool, code fault.Code) record.Record {
		id++
		begun = begun.Add(time.Second)
		o.Type = dtype.BF16
		return record.Record{Operation: o, ID: id, Begun: begun, Done: done, Code: code}
	}
	batchOnly := op(record.Operation{Batch: 1}, true, fault.OK) // the records of its parts were overwritten
	timed := op(record.Operation{Coll: dtype.AllReduce, Seq: 5, In: 8, Out: 8}, true, fault.OK)
	timed.Ended = timed.Begun.Add(250 * time.Millisecond)
	g.Records = []record.Record{
		batchOnly,
		timed,
		op(record.Operation{Coll: dtype.Broadcast, Seq: 6, Out: 3}, true, fault.OK),
		op(record.Operation{Coll: dtype.Send, Seq: 1, In: 2, Root: 3, Batch: 2}, true, fault.OK),
		op(record.Operation{Coll: dtype.Recv, Seq: 2, Out: 2, Root: -1, Batch: 2}, false, fault.OK),
		op(record.Operation{Batch: 2}, true, fault.OK),
		op(record.Operation{Coll: dtype.AllGather, Seq: 7, In: 2, Out: 8}, true, fault.Timeout),
	}
	of := newTracedGroup(&g, 9)
	got := of.entries()
	require.Len(t, got, 6)
	for i, want := range []struct {
		title, state          string
		op, seq, p2p          int64
		retired, message      bool
		in, out               any
		started, ended, lasts any
	}{
		{
			"all_reduce", "completed", 12, 5, 0, true, false,
			list{list{int64(8)}}, list{list{int64(8)}}, int64(102e9), int64(102.25e9), 250.0,
		},
		{
			"broadcast", "completed", 13, 6, 0, true, false,
			list{list{int64(3)}}, list{list{int64(3)}}, int64(103e9), int64(104e9), nil,
		},
		{"send 1->3", "completed", 14, 0, 2, true, true, list{list{int64(2)}}, list{}, int64(104e9), int64(105e9), nil},
		{"recv 1<-?", "scheduled", 15, 0, 2, false, true, list{}, list{list{int64(2)}}, nil, nil, nil},
		{"coalesced", "scheduled", 16, 0, 2, true, true, list{}, list{}, nil, nil, nil},
		{"all_gather", "scheduled", 17, 7, 0, true, false, list{list{int64(2)}}, list{list{int64(8)}}, nil, nil, nil},
	} {
		e := got[i]
		require.Equal(t,
			[]any{
				"goccl:" + want.title, want.state, want.op, want.seq, want.p2p, want.retired, want.message,
				want.in, want.out, want.started, want.ended, want.lasts,
			},
			[]any{
				field(e, "profiling_name"), field(e, "state"), field(e, "op_id"),
				field(e, "collective_seq_id"), field(e, "p2p_seq_id"), field(e, "retired"), field(e, "is_p2p"),
				field(e, "input_sizes"), field(e, "output_sizes"), field(e, "time_discovered_started_ns"),
				field(e, "time_discovered_completed_ns"), field(e, "duration_ms"),
			})
		require.Equal(t, tuple{"3", "undefined"}, field(e, "process_group"))
	}
	require.Equal(t, list{"BFloat16"}, field(got[0], "input_dtypes"))
	require.Equal(t, dict{
		{"last_enqueued_collective", int64(7)}, {"last_started_collective", int64(7)},
		{"last_completed_collective", int64(6)},
	}, of.status())
	require.Equal(t, "[0, 1, 2, 3]", of.config()[2].value)
	g.Description, g.Ranks = "dp", []uint64{4, 5, 6, 7}
	of = newTracedGroup(&g, 9)
	require.Equal(t, []any{"dp", "[4, 5, 6, 7]"}, []any{of.config()[1].value, of.config()[2].value})
}

func TestEveryTypeHasTorchsName(t *testing.T) {
	for _, typ := range dtype.Types() {
		require.Contains(t, flight.TorchTypes, typ, "%v", typ)
	}
}

// TestRecordsFollowNoLink writes a record where somebody has planted a link.
func TestRecordsFollowNoLink(t *testing.T) {
	folder := t.TempDir()
	victim, path := filepath.Join(folder, "victim"), filepath.Join(folder, "trace_0")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o644))
	require.NoError(t, os.Symlink(victim, path))
	require.NoError(t, Write(path, []byte("trace")))
	kept, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(kept))
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "a file of its owner, and no link")
	all, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, all, 2, "nothing else is left")
	require.Error(t, Write(filepath.Join(victim, "trace_0"), nil))
}

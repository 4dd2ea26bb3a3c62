package trace

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/flight"
	"github.com/goccl/goccl/internal/record"
)

// version is that of the file format of torch's flight recorder: torch 2.15's.
const version = "2.10"

// Group is what is written of one group.
type Group struct {
	Name        string
	Description string   // torch's, or any other; "" for none
	Ranks       []uint64 // in the whole job, by rank of the group; none where they are the same
	Rank, Size  int
	Timeout     time.Duration
	Records     []record.Record
}

// Of returns the operations of a process's groups in the form in which torch's flight recorder
// writes them: a pickle that torch.distributed.flight_recorder reads. It contains no Python frames.
// What that form lacks (when it was made; operator, root and tag of an operation) has keys of its
// own, which torch ignores, for package flight. library is its name and version.
func Of(groups []Group, library string) []byte {
	config, status, entries := dict{}, dict{}, []traced{}
	total := 0
	for id := range groups {
		g := &groups[id]
		if len(g.Records) == 0 {
			continue
		}
		total += int(g.Records[len(g.Records)-1].ID)
		of := newTracedGroup(g, id)
		config = append(config, pair{g.Name, of.config()})
		entries = append(entries, of.entries()...)
		status = append(status, pair{fmt.Sprint(id), of.status()})
	}
	slices.SortStableFunc(entries, func(a, b traced) int { return a.begun.Compare(b.begun) })
	written := list{}
	for i, e := range entries {
		// Ranks are aligned by these numbers, so they also count overwritten records.
		written = append(written, append(dict{{"record_id", total - len(entries) + i}}, e.fields...))
	}
	return pickle(dict{{"version", version}, {"comm_lib_version", library}, {"pg_config", config},
		{"pg_status", status}, {flight.WrittenKey, time.Now().UnixNano()},
		{"entries", written}})
}

type traced struct {
	begun  time.Time
	fields dict
}

// tracedGroup writes the records of one group.
type tracedGroup struct {
	Group
	id int
}

func newTracedGroup(g *Group, id int) tracedGroup {
	of := tracedGroup{*g, id}
	of.Description = cmp.Or(of.Description, "undefined")
	if len(of.Ranks) == 0 {
		for rank := range of.Size {
			of.Ranks = append(of.Ranks, uint64(rank))
		}
	}
	return of
}

func (g tracedGroup) config() dict {
	ranks := strings.ReplaceAll(fmt.Sprint(g.Ranks), " ", ", ") // a Python list: [0, 1]
	global := list{}
	for _, rank := range g.Ranks {
		global = append(global, int64(rank))
	}
	return dict{{"name", g.Name}, {"desc", g.Description}, {"ranks", ranks}, {"global_ranks", global}}
}

func isMessage(r *record.Record) bool { return r.Coll == dtype.Send || r.Coll == dtype.Recv }

// status reports how far the collectives have come.
func (g tracedGroup) status() dict {
	called, ended := int64(-1), int64(-1)
	for i := range g.Records {
		if r := &g.Records[i]; r.Coll.Valid() {
			called = int64(r.Seq)
			if r.Done && r.Code == fault.OK {
				ended = called
			}
		}
	}
	return dict{{"last_enqueued_collective", called}, {"last_started_collective", called},
		{"last_completed_collective", ended}}
}

// batch is what the parts of a batch have in common.
type batch struct {
	seq     uint64 // of the last part
	message bool   // whether the last part is a message
	ended   bool
}

func (g tracedGroup) entries() []traced {
	records, batches := g.Records, map[uint32]*batch{}
	for i := range records {
		r := &records[i]
		if r.Batch == 0 || r.Coll == dtype.NoCollective {
			continue
		}
		b := batches[r.Batch]
		if b == nil {
			b = &batch{ended: true}
			batches[r.Batch] = b
		}
		b.seq, b.message = r.Seq, isMessage(r)
		b.ended = b.ended && r.Done && r.Code == fault.OK
	}
	var all []traced
	for i := range records {
		until := time.Now()
		if i+1 < len(records) {
			until = records[i+1].Begun
		}
		r := &records[i]
		if b := batches[r.Batch]; b != nil {
			all = append(all, traced{r.Begun, g.entry(r, b, until)})
		} else if r.Coll != dtype.NoCollective { // the records of the batch's parts were overwritten
			all = append(all, traced{r.Begun, g.entry(r, nil, until)})
		}
	}
	return all
}

// entry returns one operation, or a batch. until is when the next operation began: if nobody read
// when this one ended, it is known to have ended before that.
func (g tracedGroup) entry(r *record.Record, of *batch, until time.Time) dict {
	message, seq, well := isMessage(r), r.Seq, r.Done && r.Code == fault.OK
	if of != nil {
		seq = of.seq // torch's analyzer finds the parts of a batch by their common number
		if r.Coll == dtype.NoCollective {
			message, well = of.message, of.ended
		}
	}
	collectiveSeq, messageSeq := seq, uint64(0)
	if message {
		collectiveSeq, messageSeq = 0, seq
	}
	e := dict{
		{"pg_id", g.id}, {"process_group", tuple{g.Name, g.Description}},
		{"collective_seq_id", int64(collectiveSeq)}, {"p2p_seq_id", int64(messageSeq)}, {"op_id", int64(r.ID)},
		{"profiling_name", "goccl:" + g.title(r)}, {"time_created_ns", r.Begun.UnixNano()},
	}
	in, out := r.In, r.Out
	if r.Coll == dtype.Broadcast || r.Coll == dtype.Reduce { // torch has one tensor, in place, on every rank
		in = max(in, out)
		out = in
	}
	e = append(e, sizes("input", r, in, r.Coll != dtype.Recv)...)
	e = append(e, sizes("output", r, out, r.Coll != dtype.Send)...)
	state, started, ended := "scheduled", any(nil), any(nil)
	if well {
		state, started = "completed", r.Begun.UnixNano()
		if !r.Ended.IsZero() {
			until = r.Ended
			e = append(e, pair{"duration_ms", float64(r.Ended.Sub(r.Begun)) / float64(time.Millisecond)})
		}
		ended = until.UnixNano()
	}
	switch {
	case message:
		e = append(e, pair{flight.TagKey, int64(r.Tag)})
	case r.Coll.Reduces():
		e = append(e, pair{flight.OperatorKey, r.Op.String()})
	}
	if r.Coll.Rooted() {
		e = append(e, pair{flight.RootKey, int64(r.Root)})
	}
	return append(e, pair{"state", state},
		pair{"time_discovered_started_ns", started}, pair{"time_discovered_completed_ns", ended},
		pair{"retired", r.Done}, pair{"timeout_ms", g.Timeout.Milliseconds()}, pair{"is_p2p", message},
		pair{"frames", list{}})
}

// title names the operation as torch's analyzer knows it. Its ranks are ranks of the group.
func (g tracedGroup) title(r *record.Record) string {
	switch {
	case r.Coll == dtype.NoCollective:
		return "coalesced"
	case r.Coll == dtype.Send:
		return fmt.Sprintf("send %d->%d", g.Rank, r.Root)
	case r.Coll == dtype.Recv && r.Root < 0:
		return fmt.Sprintf("recv %d<-?", g.Rank)
	case r.Coll == dtype.Recv:
		return fmt.Sprintf("recv %d<-%d", g.Rank, r.Root)
	}
	return r.Coll.String()
}

// sizes returns the size and type of all blocks together, as one tensor.
func sizes(role string, r *record.Record, elements uint64, has bool) dict {
	shapes, types := list{}, list{}
	if has && r.Type.Valid() && r.Coll != dtype.NoCollective {
		shapes, types = list{list{int64(elements)}}, list{flight.TorchTypes[r.Type]}
	}
	return dict{{role + "_sizes", shapes}, {role + "_dtypes", types}}
}

// Write writes a trace to a file, which only its owner can read, and creates its folder. A reader
// never finds a part of a trace: a failure and a signal may come at the same time. In a
// folder that others may write to, no link of theirs is followed.
func Write(path string, trace []byte) error {
	folder := filepath.Dir(path)
	// A name that readers of the folder, which know the files by their prefix, do not take for one
	// of them.
	err := os.MkdirAll(folder, 0o755)
	var part *os.File
	if err == nil {
		part, err = os.CreateTemp(folder, ".goccl-*.part") // with mode 0600, and never one that exists
	}
	if err == nil {
		_, err = part.Write(trace)
		if err = errors.Join(err, part.Close()); err == nil {
			err = os.Rename(part.Name(), path) // takes the place of a link
		}
		if err != nil {
			os.Remove(part.Name())
		}
	}
	if err != nil {
		return fault.Wrap(fault.System, err, "the trace of this rank could not be written")
	}
	return nil
}

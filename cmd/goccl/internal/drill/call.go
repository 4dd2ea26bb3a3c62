package drill

import (
	"context"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

// exercise is the collective that a rank of a drill repeats, with its memory and the right results.
type exercise struct {
	comm    *ccl.Communicator
	typ     dtype.Type
	calls   []ccl.Call // a collective, or a send and a receive
	outputs []resultBlock
}

// resultBlock is a block of results, and the pattern that it must have.
type resultBlock struct {
	block   ccl.Block
	pattern []byte
}

// elementType is that of all calls, except for one that is to differ.
const elementType = dtype.F32

// newExercise makes the calls of a rank. Send stands for a ring of messages: each rank sends to the
// next one and receives from the one before.
func newExercise(comm *ccl.Communicator, s drillSpec) (*exercise, error) {
	spec := &ranks.Spec{Rank: s.Rank, Ranks: s.Ranks, Root: s.Root, Coll: s.Coll, Type: elementType, Op: dtype.Sum}
	switch s.Differs {
	case differType:
		spec.Type = dtype.I32
	case differOp:
		spec.Op = dtype.Max
	}
	e := &exercise{comm: comm, typ: spec.Type}
	size := int64(spec.Type.Size())
	if s.Coll == dtype.Send {
		e.ring(spec, s.Elements, s.Elements-s.extra())
		return e, nil
	}
	b, err := ranks.NewBuffers(comm, spec, s.Elements*size)
	if err != nil {
		return nil, err
	}
	for i, block := range b.Call.In {
		ranks.Fill(block, spec.Type, spec.Pattern(func(place int) int { return spec.Given(spec.Rank, i, place) }))
	}
	for i, block := range b.Call.Out {
		e.outputs = append(e.outputs,
			resultBlock{block, spec.Pattern(func(place int) int { return spec.Expected(i, place) })})
	}
	e.calls = []ccl.Call{b.Call}
	return e, nil
}

// ring makes the two calls of a ring of messages. Ranks with an odd number receive first: otherwise
// all would send and wait for a receiver.
func (e *exercise) ring(spec *ranks.Spec, sent, received int64) {
	size := int64(spec.Type.Size())
	next, last := (spec.Rank+1)%spec.Ranks, (spec.Rank+spec.Ranks-1)%spec.Ranks
	in := ranks.Cut(make([]byte, sent*size), 1, sent, size)
	out := ranks.Cut(make([]byte, received*size), 1, received, size)
	ranks.Fill(in[0], spec.Type, spec.Pattern(func(place int) int { return spec.Given(spec.Rank, 0, place) }))
	e.outputs = []resultBlock{{out[0], spec.Pattern(func(place int) int { return spec.Given(last, 0, place) })}}
	e.calls = []ccl.Call{
		{Coll: dtype.Send, Type: spec.Type, Root: next, Tag: 7, In: in},
		{Coll: dtype.Recv, Type: spec.Type, Root: last, Tag: 7, Out: out},
	}
	if spec.Rank%2 == 1 {
		e.calls[0], e.calls[1] = e.calls[1], e.calls[0]
	}
}

// round makes the calls and a barrier, by which ranks learn of a fault whose part in the collective
// is done before. It notes what it does in end, and returns the first error. A message that fails
// does not fail its group: the rank goes on, so that the others wait for the culprit only.
func (e *exercise) round(ctx context.Context, end *rankEnd) (failed error) {
	for _, o := range e.outputs { // the round before has left the right results here
		ranks.Fill(o.block, e.typ, []byte{0xa5})
	}
	begun := time.Now()
	for i := range e.calls {
		if err := e.do(ctx, &e.calls[i], end); err != nil && failed == nil {
			failed = err
		}
	}
	if failed == nil {
		for _, o := range e.outputs {
			end.Wrong += ranks.Count(o.block, e.typ, o.pattern)
		}
	} else if e.calls[0].Coll.Valid() {
		return failed
	}
	if err := e.do(ctx, &ccl.Call{Coll: dtype.Barrier}, end); failed == nil {
		failed = err
	}
	if failed == nil {
		end.Rounds++
		end.Slowest = max(end.Slowest, time.Since(begun))
	}
	return failed
}

// do makes one call, and notes when, and when the first one has failed.
func (e *exercise) do(ctx context.Context, call *ccl.Call, end *rankEnd) error {
	if end.Failed == 0 {
		end.Called = time.Now().UnixNano()
	}
	err := e.comm.Do(ctx, call)
	if err != nil && end.Failed == 0 {
		end.Failed = time.Now().UnixNano()
	}
	return err
}

// What may be different in the calls of one rank.
const (
	differSize = "size"
	differType = "type"
	differOp   = "op"
	differRoot = "root"
	differCall = "call"
)

// canDiffer reports whether calls of a collective can differ so.
func canDiffer(what string, coll dtype.Collective) bool {
	switch what {
	case differSize:
		return coll != dtype.Barrier
	case differType:
		return coll.Valid() && coll != dtype.Barrier // messages are bytes
	case differOp:
		return coll.Reduces()
	case differRoot:
		return coll.Rooted()
	}
	return coll.Valid() // messages have no order with other calls
}

// differ returns the spec of the calls that differ.
func (s drillSpec) differ() drillSpec {
	switch s.Differs {
	case differSize:
		s.Elements += s.extra()
	case differRoot:
		s.Root = (s.Root + 1) % s.Ranks
	case differCall:
		if s.Coll == dtype.AllReduce {
			s.Coll = dtype.AllGather
		} else {
			s.Coll = dtype.AllReduce
		}
	}
	return s
}

// extra returns how many elements more the calls of a rank have that differ in size; of messages
// only those that it sends.
func (s drillSpec) extra() int64 {
	if s.Differs != differSize {
		return 0
	}
	return 4 * int64(s.Ranks)
}

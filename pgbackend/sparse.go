package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/flight"
	"github.com/goccl/goccl/ccl/kernel"
)

const (
	mostDims  = 64 // of a sparse tensor
	mostNamed = 16 // ranks named in a message
)

// SparseTensor is a tensor in coordinate form, with the operator and timeout of its reduction.
type SparseTensor struct {
	Type       dtype.Type
	Op         dtype.Op // Sum or Avg
	Sizes      []int64  // of all dimensions; the sparse ones come first
	SparseDims int      // dimensions that Indices index
	Count      int      // elements
	Indices    []int64  // all indices in the first sparse dimension, then all in the second, …
	// A dense block for each element; elements at the same place are added up.
	Values  []byte
	Timeout time.Duration // of each phase; 0: the group's
}

// check refuses errors that every rank can detect on its own, so that no rank waits for one that
// has refused.
func (t *SparseTensor) check() error {
	if t.Op != dtype.Sum && t.Op != dtype.Avg {
		return fault.New(fault.NotSupported,
			"sparse tensors can be reduced with ReduceOp.SUM and ReduceOp.AVG only; convert them with "+
				"to_dense() for other operators")
	}
	if !t.Type.Valid() {
		return fault.New(fault.Invalid, "%v is not an element type", t.Type)
	}
	if t.Op == dtype.Avg && kernel.Scale(t.Type) == nil {
		return fault.New(fault.NotSupported,
			"avg is not defined for %s: use ReduceOp.SUM and divide", flight.TorchTypes[t.Type])
	}
	if len(t.Sizes) > mostDims || t.SparseDims < 0 || t.SparseDims > len(t.Sizes) {
		return fault.New(fault.NotSupported, "%d dimensions, %d of them sparse; at most %d are supported",
			len(t.Sizes), t.SparseDims, mostDims)
	}
	if _, ok := product(t.Sizes[:t.SparseDims]); !ok {
		return fault.New(fault.NotSupported, "sizes %s have more than 2^63 places for elements", listed(t.Sizes))
	}
	n := t.Count
	if n < 0 || len(t.Indices) != n*t.SparseDims || len(t.Values) != n*t.block() {
		return fault.New(fault.Invalid,
			"%d indices and %d bytes of values do not fit %d elements of sizes %s with %d sparse dimensions",
			len(t.Indices), len(t.Values), n, listed(t.Sizes), t.SparseDims)
	}
	return nil
}

// product returns the product of sizes, if it is less than 2⁶³ and no size is negative.
func product(sizes []int64) (int64, bool) {
	p := int64(1)
	for _, s := range sizes {
		if s < 0 || s > 0 && p > (1<<63-1)/s {
			return 0, false
		}
		p *= s
	}
	return p, true
}

// listed writes a list the way Python does: [2, 3].
func listed(numbers []int64) string { return strings.ReplaceAll(fmt.Sprint(numbers), " ", ", ") }

// width returns the number of elements in a dense block, block its number of bytes.
func (t *SparseTensor) width() int {
	n, ok := product(t.Sizes[t.SparseDims:])
	if !ok {
		return 0
	}
	return int(n)
}

func (t *SparseTensor) block() int { return t.width() * t.Type.Size() }

// facts is a rank's description of its tensor, as a row of numbers, exchanged before the elements.
type facts [5 + mostDims]int64

const (
	factType = iota
	factOp
	factSparseDims
	factDims
	factCount // the only one that may differ between ranks
	factSizes
)

func (f *facts) same(other *facts) bool {
	mine, theirs := *f, *other
	mine[factCount], theirs[factCount] = 0, 0
	return mine == theirs
}

func (f *facts) String() string {
	sizes := f[factSizes:][:min(max(f[factDims], 0), mostDims)] // bounded: another process wrote it
	name, known := flight.TorchTypes[dtype.Type(f[factType])]
	if !known {
		name = fmt.Sprintf("type %d", f[factType])
	}
	return fmt.Sprintf("%s of sizes %s with %d sparse dimensions (%v)",
		name, listed(sizes), f[factSparseDims], dtype.Op(f[factOp]))
}

// Sparse is a started all_reduce of sparse tensors: the sum, or the mean, of tensors that have
// different elements on each rank.
//
// It has two phases. First the ranks gather the facts about their tensors; this is a collective
// like others and has its place in their order. Then each rank sends its indices and values to
// every other one. These are messages with tags of their own, because the second phase begins when
// the first has ended, and only messages need no order that is the same on all ranks. So the call
// never waits, and other operations may be issued meanwhile. Each rank then adds up the same
// numbers in rank order: the results have the same bits.
type Sparse struct {
	group  *Group
	comm   *ccl.Communicator
	tensor SparseTensor // holds type and sizes only: this rank's own elements, merged, are in parts
	seq    uint64
	all    []facts // by rank
	parts  []elements
	result elements
	ending
	once sync.Once
	err  error // set before the end
}

// StartSparse starts an all_reduce of sparse tensors. It copies the parts of the tensor that it
// needs.
func (g *Group) StartSparse(tensor SparseTensor) (*Sparse, error) {
	if g.place != nil {
		return nil, g.elsewhere("all_reduce of sparse tensors")
	}
	comm, err := g.joined()
	if err != nil {
		return nil, err
	}
	s := &Sparse{group: g, comm: comm, tensor: tensor, all: make([]facts, comm.Size()), ending: newEnding()}
	own, err := s.own()
	if err != nil {
		return nil, s.explain(err)
	}
	s.tensor.Count, s.tensor.Indices, s.tensor.Values = 0, nil, nil
	s.parts = make([]elements, comm.Size())
	s.parts[comm.Rank()] = own
	mine := facts{factType: int64(tensor.Type), factOp: int64(tensor.Op), factSparseDims: int64(tensor.SparseDims),
		factDims: int64(len(tensor.Sizes)), factCount: int64(own.count())}
	copy(mine[factSizes:], tensor.Sizes)
	out := make([]ccl.Block, comm.Size())
	for rank := range out {
		out[rank] = blockOfInts(s.all[rank][:])[0]
	}
	call := ccl.Call{
		Coll: dtype.AllGather, Type: dtype.I64, In: blockOfInts(mine[:]), Out: out, Timeout: tensor.Timeout,
	}
	gather, err := comm.Start(&call)
	if err != nil {
		return nil, s.explain(err)
	}
	s.seq = gather.Seq()
	g.sparse.Add(1)
	go s.run(gather)
	return s, nil
}

func (s *Sparse) run(gather *ccl.Work) {
	defer func() {
		s.group.sparse.Add(-1)
		select {
		case s.group.summed <- struct{}{}:
		default: // there is one already
		}
	}()
	defer func() { // a broken invariant must not take the trainer with it
		if p := recover(); p != nil {
			s.end(fault.New(fault.Internal, "%v\n%s", p, debug.Stack()))
		}
	}()
	err := wait(gather)
	for _, phase := range []func() error{s.compare, s.exchange, s.reduce} {
		if err == nil {
			err = phase()
		}
	}
	s.end(err)
}

// wait waits for all works, gives them back, and returns the first failure.
func wait(works ...*ccl.Work) (first error) {
	for _, w := range works {
		if err := w.Wait(context.Background()); err != nil && first == nil {
			first = err
		}
		w.Free()
	}
	return first
}

// end ends the operation, unless it has ended before.
func (s *Sparse) end(err error) {
	s.once.Do(func() {
		s.err = s.explain(err)
		s.ending.end()
	})
}

// explain adds to an error which operation it ended.
func (s *Sparse) explain(err error) error {
	f := &fault.Error{}
	if !errors.As(err, &f) {
		return err
	}
	e := *f
	if e.Op != "" { // the operation of the phase
		e.Text, e.Op = e.Op+": "+e.Text, ""
	}
	op := fmt.Sprintf("sparse_all_reduce of %s %s", flight.TorchTypes[s.tensor.Type], listed(s.tensor.Sizes))
	if s.seq > 0 {
		op += fmt.Sprintf(", seq %d", s.seq)
	}
	return e.In(s.group.member(), op)
}

// Seq returns the operation's number among the collectives of the group.
func (s *Sparse) Seq() uint64 { return s.seq }

// Done reports whether the operation has ended, and its error. It never waits.
func (s *Sparse) Done() (bool, error) {
	if s.ended() {
		return true, s.err
	}
	return false, nil
}

// Unended returns the error of a wait that the operation has outlasted.
func (s *Sparse) Unended() error { return s.explain(fault.Unended()) }

// WaitSlice waits until the operation has ended, for at most d unless d is 0, and returns what Done
// does.
func (s *Sparse) WaitSlice(d time.Duration) (bool, error) {
	within(s.done, d)
	return s.Done()
}

// Result returns the elements of the sum, sorted by place and each place at most once, with their
// count. They are valid once the operation has ended without an error.
func (s *Sparse) Result() (count int, indices []int64, values []byte) {
	return s.result.count(), s.result.indices, s.result.values
}

// compare checks that all ranks have the same kind of tensor. The group goes on if they differ.
func (s *Sparse) compare() error {
	var others []string
	differ := 0
	places, _ := product(s.tensor.Sizes[:s.tensor.SparseDims])
	for rank := range s.all {
		f := &s.all[rank]
		if !f.same(&s.all[0]) {
			if differ++; differ <= mostNamed {
				others = append(others, fmt.Sprintf("; rank %d has %v", rank, f))
			}
		} else if n := f[factCount]; n < 0 || n > places {
			return fault.Peer(fault.Mismatch, rank, "it says that it has %d elements at %d places", n, places)
		}
	}
	if differ == 0 {
		return nil
	}
	if differ > mostNamed {
		others = append(others, fmt.Sprintf("; and %d more ranks differ", differ-mostNamed))
	}
	return fault.New(fault.Mismatch,
		"rank 0 has %v%s; type, sizes, sparse dimensions and operator must be the same on all ranks",
		&s.all[0], strings.Join(others, ""))
}

// exchange sends this rank's elements to every other rank and receives theirs.
func (s *Sparse) exchange() error {
	var works []*ccl.Work
	var failed error
	message := func(coll dtype.Collective, peer int, part uint32, blocks []ccl.Block, t dtype.Type) {
		if failed != nil || blocks[0].Count == 0 { // neither side has such a message: there is nothing to send
			return
		}
		call := ccl.Call{Coll: coll, Type: t, Root: peer, Tag: sparseTag(s.seq, part), Timeout: s.tensor.Timeout}
		if coll == dtype.Send {
			call.In = blocks
		} else {
			call.Out = blocks
		}
		w, err := s.comm.Start(&call)
		if err == nil {
			works = append(works, w)
		}
		failed = err
	}
	rank, ranks := s.comm.Rank(), s.comm.Size()
	for peer := range ranks {
		if peer != rank {
			n := int(s.all[peer][factCount])
			s.parts[peer] = elements{
				indices: make([]int64, n*s.tensor.SparseDims), values: make([]byte, n*s.tensor.block()),
			}
			message(dtype.Recv, peer, 0, blockOfInts(s.parts[peer].indices), dtype.I64)
			message(dtype.Recv, peer, 1, blockOf(s.parts[peer].values), dtype.U8)
		}
	}
	for step := 1; step < ranks; step++ { // start at different peers, so that not all send to the same rank first
		peer := (rank + step) % ranks
		message(dtype.Send, peer, 0, blockOfInts(s.parts[rank].indices), dtype.I64)
		message(dtype.Send, peer, 1, blockOf(s.parts[rank].values), dtype.U8)
	}
	if err := wait(works...); failed == nil {
		failed = err
	}
	return failed
}

// reduce adds up the elements of all ranks. Each rank has at most one element at a place, so sums
// are formed in rank order.
func (s *Sparse) reduce() error {
	for rank := range s.parts {
		var err error
		if s.parts[rank].places, err = s.tensor.places(s.parts[rank].indices, int(s.all[rank][factCount])); err != nil {
			return fault.Peer(fault.Mismatch, rank, "%v", err)
		}
	}
	factor := 1.0
	if s.tensor.Op == dtype.Avg {
		factor = 1 / float64(s.comm.Size())
	}
	s.result = s.tensor.sum(s.parts, factor)
	s.parts = nil
	return nil
}

// own checks the caller's tensor and returns its elements, merged.
func (s *Sparse) own() (elements, error) {
	t := &s.tensor
	if err := t.check(); err != nil {
		return elements{}, err
	}
	places, err := t.places(t.Indices, t.Count)
	if err != nil {
		return elements{}, fault.New(fault.Invalid, "%v", err)
	}
	if increasing(places) {
		return elements{places, slices.Clone(t.Indices), slices.Clone(t.Values)}, nil
	}
	return t.sum([]elements{{places, t.Indices, t.Values}}, 1), nil
}

// increasing reports whether the places are strictly increasing.
func increasing(places []int64) bool {
	for i := 1; i < len(places); i++ {
		if places[i] <= places[i-1] {
			return false
		}
	}
	return true
}

func blockOfInts(numbers []int64) []ccl.Block {
	return []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(numbers)), Count: len(numbers)}}
}

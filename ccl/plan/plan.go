package plan

import (
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
)

// Limits on what a plan may ask for. They keep a plan from a file from exhausting the process that checks it.
const (
	MaxRanks = 1 << 16
	MaxLanes = 16
	MaxChans = 4
	MaxSplit = 1 << 12
	MaxSteps = 1 << 20 // of one rank
)

// Buffer names one of a rank's buffers.
type Buffer uint8

const (
	In Buffer = iota
	Out
	Tmp
)

func (b Buffer) String() string { return [...]string{"in", "out", "tmp"}[b] }

// Ref is the chunks [At, At+N) of a buffer.
type Ref struct {
	Buf Buffer
	At  int
	N   int
}

func (r Ref) String() string {
	if r.N == 1 {
		return fmt.Sprintf("%v[%d]", r.Buf, r.At)
	}
	return fmt.Sprintf("%v[%d:%d]", r.Buf, r.At, r.At+r.N)
}

// Overlaps reports whether r and s share a chunk.
func (r Ref) Overlaps(s Ref) bool {
	return r.Buf == s.Buf && r.At < s.At+s.N && s.At < r.At+r.N
}

// Kind is what a step does.
type Kind uint8

const (
	Copy Kind = iota
	Reduce
	Send
	Recv
	RecvReduce
	numKinds
)

var kindNames = [numKinds]string{"copy", "reduce", "send", "recv", "recvreduce"}

func (k Kind) String() string {
	if k >= numKinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Point names a step of the same rank: step Step of lane Lane.
type Point struct{ Lane, Step int }

// Step is one instruction; see the package comment.
type Step struct {
	Kind     Kind
	Dst      Ref     // copy, reduce, recv, recvreduce
	Src      []Ref   // copy, send, recvreduce: one; reduce: two or more
	Peer     int     // send, recv, recvreduce
	Chan     int     // send, recv, recvreduce
	MsgFirst bool    // recvreduce: the message is the left operand
	Final    bool    // Dst is fully reduced by this step
	After    []Point // steps of other lanes that come first
}

// Program is what one rank does.
type Program struct {
	Tmp   []Ref // for each chunk of Tmp the chunk (N = 1) of In or Out whose length it has
	Lanes [][]Step
}

// Alias is a set of ways in which In and Out may share memory.
type Alias uint8

const (
	// InPlace: In and Out are the same memory where both exist on a rank. For collectives with one block on one side
	// and one for each rank on the other (all_gather, reduce_scatter, gather, scatter), the single block is the rank's own
	// block of the other buffer.
	InPlace Alias = 1 << iota
)

// Spec is what an algorithm is a function of.
type Spec struct {
	Coll  dtype.Collective
	Ranks int
	Root  int // rooted collectives; 0 otherwise
}

func (s Spec) String() string {
	if s.Coll.Rooted() {
		return fmt.Sprintf("%v on %d ranks, root %d", s.Coll, s.Ranks, s.Root)
	}
	return fmt.Sprintf("%v on %d ranks", s.Coll, s.Ranks)
}

// Validate checks the ranges of s.
func (s Spec) Validate() error {
	switch {
	case !s.Coll.Valid():
		return fmt.Errorf("plan: %v has no plans", s.Coll)
	case s.Ranks < 1 || s.Ranks > MaxRanks:
		return fmt.Errorf("plan: %d ranks, want 1 to %d", s.Ranks, MaxRanks)
	case s.Root < 0 || s.Root >= s.Ranks:
		return fmt.Errorf("plan: root %d of %d ranks", s.Root, s.Ranks)
	}
	return nil
}

// Plan is an algorithm applied to a Spec. Program yields the program of one rank; it is a pure function, called for
// the ranks that somebody looks at and for no others.
type Plan struct {
	Name    string // of the algorithm
	Spec    Spec
	Split   int // chunks a block
	Chans   int // channels used, numbered from 0
	Alias   Alias
	Program func(rank int) Program
}

// InChunks is the number of chunks of a rank's In.
func (p *Plan) InChunks(rank int) int {
	return p.Split * p.Spec.Coll.InBlocks(p.Spec.Ranks, rank, p.Spec.Root)
}

// OutChunks is the number of chunks of a rank's Out.
func (p *Plan) OutChunks(rank int) int {
	return p.Split * p.Spec.Coll.OutBlocks(p.Spec.Ranks, rank, p.Spec.Root)
}

// Part is the half-open range of elements of chunk j of a block of n elements cut into split chunks.
func Part(n, split, j int) (lo, hi int) {
	each, more := n/split, n%split
	lo = j*each + min(j, more)
	hi = lo + each
	if j < more {
		hi++
	}
	return lo, hi
}

package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
)

// Limits on the size of a plan. They keep a plan from a file from exhausting the memory of the
// process that checks it.
const (
	MaxRanks = 1 << 16
	MaxLanes = 64      // of one rank
	MaxChans = 4       // channels per pair of ranks
	MaxFlags = 16      // flags per pair of ranks
	MaxSplit = 1 << 17 // chunks per block
	MaxTmp   = 1 << 20 // chunks of one rank
	MaxWin   = 1 << 16 // chunks of one rank
	MaxSteps = 1 << 20 // of one rank, loops unrolled
)

// Buffer names one of a rank's buffers.
type Buffer uint8

const (
	In Buffer = iota
	Out
	Tmp
	Win
	numBuffers
)

func (b Buffer) String() string {
	if b >= numBuffers {
		return fmt.Sprintf("buffer(%d)", uint8(b))
	}
	return [...]string{"in", "out", "tmp", "win"}[b]
}

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

// Point names a step of the same rank: step Step of lane Lane. Step numbers count loops unrolled.
type Point struct{ Lane, Step int }

// Step is one instruction; see the package comment.
//
// A loop stands for Times copies of its Body, executed one after the other. In copy i (from 0)
// every number that a step's By names has advanced i times. Loops are not nested.
type Step struct {
	Kind     Kind
	Dst      Ref      // all kinds that write; of put and packet: in the window of Peer
	Src      []Ref    // copy, send, recvreduce, put, get, packet: one; reduce, getreduce: two or more
	From     []int    // getreduce: the rank of each source
	Peer     int      // send, recv, recvreduce, put, get, signal, wait, packet
	Chan     int      // channel of send, recv, recvreduce; flag of signal, wait, packet
	MsgFirst bool     // recvreduce: the message is the left operand
	Final    bool     // copy, reduce, recvreduce, get, getreduce: Dst is fully reduced by this step
	After    []Point  // steps of other lanes that must end first
	By       *Advance // steps of a loop's Body: how their numbers advance; nil if they do not
	Times    int      // loop
	Body     []Step   // loop
}

// Advance states how the numbers of a step in a loop advance. Src, From and After are parallel to
// the step's fields of these names, or nil.
type Advance struct {
	Dst   Stride   // of Dst.At
	Src   []Stride // of each Src[i].At
	From  []Stride // of each From[i]
	Peer  Stride
	After []int // of each After[i].Step
}

// Stride advances a number x by By in each iteration, wrapping around in [Low, Low+Mod) if Mod > 0.
type Stride struct{ By, Low, Mod int }

// At returns x after i iterations.
func (s Stride) At(x, i int) int {
	x += i * s.By
	if s.Mod > 0 {
		x = (x - s.Low) % s.Mod
		if x < 0 {
			x += s.Mod
		}
		x += s.Low
	}
	return x
}

// Program is the part of a plan that one rank executes.
type Program struct {
	Tmp   []Extent // the length of each chunk of Tmp
	Win   []Extent // the length of each chunk of this rank's window
	Lanes [][]Step
}

// Alias is a set of ways in which In, Out and windows may share memory.
type Alias uint8

const (
	// InPlace: In and Out are the same memory on every rank that has both. For collectives with one
	// block on one side and one for each rank on the other (all_gather, reduce_scatter, gather,
	// scatter), the single block is the rank's own block of the other buffer.
	InPlace Alias = 1 << iota
	// Lend: any rank may substitute the caller's own chunk of In or Out for a window chunk that is
	// only a copy of it (Program.Lent). Peers then read the memory of the caller, which the
	// operation keeps until all ranks have ended it.
	Lend
)

// Need is a set of requirements that a plan has of its group.
type Need uint8

const (
	// Messages: send, recv, recvreduce.
	Messages Need = 1 << iota
	// Puts: put, signal, wait, packet. Any transport supports them.
	Puts
	// Gets: get, getreduce. Only ranks that share memory support them.
	Gets
	// Counts: some rank's Tmp or Win has the lengths of blocks that are neither in its In nor in
	// its Out.
	Counts
)

// MaxLevels is the maximum number of levels of a Shape.
const MaxLevels = 3

// Shape arranges ranks in a grid, the innermost level first: rank = i₀ + Shape[0]·(i₁ +
// Shape[1]·i₂). Unused levels are 0 and follow the used ones. {8, 16} is 16 hosts of 8 ranks, or 16
// rows of 8 columns. The zero Shape is no grid.
type Shape [MaxLevels]int

// Levels returns the number of levels of s.
func (s Shape) Levels() int {
	n := 0
	for n < MaxLevels && s[n] != 0 {
		n++
	}
	return n
}

// String returns s in the form "8x16", and "" for the zero Shape.
func (s Shape) String() string {
	var words []string
	for _, n := range s[:s.Levels()] {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, "x")
}

// Spec holds the parameters from which an algorithm makes a plan.
type Spec struct {
	Coll  dtype.Collective
	Ranks int
	Root  int   // rooted collectives; 0 otherwise
	Shape Shape // of algorithms that use a grid; the others ignore it
}

func (s Spec) String() string {
	text := fmt.Sprintf("%v on %d ranks", s.Coll, s.Ranks)
	if s.Shape != (Shape{}) {
		text += fmt.Sprintf(" (%v)", s.Shape)
	}
	if s.Coll.Rooted() {
		text += fmt.Sprintf(", root %d", s.Root)
	}
	return text
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
	return s.Shape.validate(s.Ranks)
}

// validate checks that s is a grid of the given number of ranks.
func (s Shape) validate(ranks int) error {
	if s == (Shape{}) {
		return nil
	}
	product := 1
	for i, n := range s {
		if n < 0 || n > ranks || i >= s.Levels() && n != 0 {
			return fmt.Errorf("plan: shape %v: levels must be 1 or more, and the unused ones last", [MaxLevels]int(s))
		}
		product *= max(n, 1)
	}
	if product != ranks {
		return fmt.Errorf("plan: shape %v has %d ranks, want %d", s, product, ranks)
	}
	return nil
}

// Plan is an algorithm applied to a Spec. Program returns the program of one rank; it is a pure
// function and is called only for the ranks whose programs are needed.
type Plan struct {
	Name  string // of the algorithm
	Spec  Spec
	Split int // chunks per block
	Chans int // channels used, numbered from 0
	Flags int // flags used, numbered from 0
	Win   int // maximum number of chunks of a rank's window
	Needs Need
	Alias Alias
	// MinBytes and MaxBytes bound the calls that the plan is meant for: the bytes of a block if a
	// rank has one block on both sides, and of all blocks together if it has one for each rank.
	// MaxBytes 0 means no bound. Only plans from files declare these bounds.
	MinBytes, MaxBytes int64
	Program            func(rank int) Program
}

// InChunks returns the number of chunks of a rank's In.
func (p *Plan) InChunks(rank int) int {
	return p.Split * p.Spec.Coll.InBlocks(p.Spec.Ranks, rank, p.Spec.Root)
}

// OutChunks returns the number of chunks of a rank's Out.
func (p *Plan) OutChunks(rank int) int {
	return p.Split * p.Spec.Coll.OutBlocks(p.Spec.Ranks, rank, p.Spec.Root)
}

// Part returns the half-open range [lo, hi) of the elements of chunk j of a block of n elements
// that is cut into split chunks.
func Part(n, split, j int) (lo, hi int) {
	each, more := n/split, n%split
	lo = j*each + min(j, more)
	hi = lo + each
	if j < more {
		hi++
	}
	return lo, hi
}

package algo

import (
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// composer makes the program of one rank from stages that run one after the other. Each stage is a
// plan of fewer ranks.
//
// The home chunks are the chunks of the buffer that has all chunks of the whole plan (In of
// reduce_scatter, Out of all_gather, both of all_reduce). A stage defines which home chunks its
// blocks stand for; a region defines where home chunks are at the moment.
type composer struct {
	spec  plan.Spec
	split int
	rank  int
	home  plan.Buffer
	prog  plan.Program
	flags int          // of the stages so far
	tails []plan.Point // the last steps of the previous stage
}

// stage is one plan inside another.
type stage struct {
	sub   *plan.Plan
	ranks []int // ranks of the whole group, by rank of sub
	self  int   // this rank in sub
	final bool  // the stage completes the reduction, so its Final steps stay Final

	// A block of sub is runs runs of length home chunks each. length is a multiple of sub.Split,
	// and run i of a block begins at start(block, i).
	runs, length int
	start        func(block, run int) int
	// merge means that consecutive chunks of sub are adjacent in all buffers of all ranks, so a
	// step over several chunks stays one step.
	merge    bool
	src, dst region // where the In and Out of sub are
}

// region is where home chunks are. It has units of unit chunks each: unit number low, then every
// stride-th unit, one behind the other from chunk base of buf on.
type region struct {
	buf                     plan.Buffer
	base, unit, low, stride int
}

// at returns the chunk of buf that holds a home chunk.
func (r region) at(home int) int {
	return r.base + (home/r.unit-r.low)/r.stride*r.unit + home%r.unit
}

// whole returns the region of a buffer that has all home chunks.
func whole(buf plan.Buffer) region { return region{buf: buf, unit: 1, stride: 1} }

// temporary makes a region of the given number of units in Tmp. It sets the buffer and the base of
// r.
func (c *composer) temporary(r region, units int) region {
	r.buf, r.base = plan.Tmp, len(c.prog.Tmp)
	for u := range units {
		c.prog.Tmp = c.append(c.prog.Tmp, (r.low+u*r.stride)*r.unit, r.unit)
	}
	return r
}

// append adds the lengths of the home chunks from start on.
func (c *composer) append(lengths []plan.Extent, start, chunks int) []plan.Extent {
	for i := range chunks {
		lengths = append(lengths, c.spec.Extent(c.split, c.rank, c.home, start+i))
	}
	return lengths
}

// expansion is a stage while it is added to a program. A step becomes pieces, one for each run of
// each of its chunks, in this order. If the sub-plan is right, it is also right with every step
// done several times before the next: any schedule of the sub-plan is a schedule of the pieces too.
type expansion struct {
	*composer
	stage
	steps  plan.Program // program of sub, with loops unrolled
	factor int          // home chunks of a run for each chunk of sub
	tmp    int          // where chunk 0 of sub's Tmp is in Tmp
	win    int          // where chunk 0 of sub's Win is in Win, on all ranks of the stage
	flag   int          // which flag is flag 0 of sub
	places [][]place    // [lane][step]
}

// place is the range of pieces that a step has in the composed program.
type place struct{ first, pieces int }

// add appends a stage. It begins at a rank when all steps of the previous stage have ended there.
func (c *composer) add(st stage) {
	steps := st.sub.Program(st.self)
	x := &expansion{composer: c, stage: st, steps: steps.Flat(), factor: st.length / st.sub.Split,
		tmp: len(c.prog.Tmp), win: len(c.prog.Win), flag: c.flags}
	c.flags += st.sub.Flags
	c.prog.Tmp, c.prog.Win = x.lengths(c.prog.Tmp, x.steps.Tmp), x.lengths(c.prog.Win, x.steps.Win)
	for len(c.prog.Lanes) < len(x.steps.Lanes) {
		c.prog.Lanes = append(c.prog.Lanes, nil)
	}
	x.arrange()
	var tails []plan.Point
	for l, lane := range x.steps.Lanes {
		begin := len(c.prog.Lanes[l])
		if last := len(lane) - 1; last >= 0 {
			c.prog.Lanes[l] = slices.Grow(c.prog.Lanes[l], x.places[l][last].first+x.places[l][last].pieces-begin)
		}
		for i := range lane {
			for piece := range x.places[l][i].pieces {
				c.prog.Lanes[l] = append(c.prog.Lanes[l], x.piece(l, i, piece))
			}
		}
		end := len(c.prog.Lanes[l])
		if begin == end {
			continue
		}
		tails = append(tails, plan.Point{Lane: l, Step: end - 1})
		first := &c.prog.Lanes[l][begin]
		for _, t := range c.tails {
			first.After = addPoint(first.After, l, t)
		}
	}
	if len(tails) > 0 {
		c.tails = tails
	}
}

// lengths adds the lengths of the pieces of chunks of sub.
func (x *expansion) lengths(all, of []plan.Extent) []plan.Extent {
	for _, e := range of {
		for run := range x.runs {
			all = x.append(all, x.start(e.From, run)+e.Part*x.factor, x.factor)
		}
	}
	return all
}

// addPoint adds p to the After points of a step of a lane, unless they have it already or p is in
// the same lane.
func addPoint(after []plan.Point, lane int, p plan.Point) []plan.Point {
	if p.Lane == lane || slices.Contains(after, p) {
		return after
	}
	return append(after, p)
}

// arrange finds the places of all steps. A copy onto itself has no pieces.
func (x *expansion) arrange() {
	for l, lane := range x.steps.Lanes {
		places := make([]place, len(lane))
		at := len(x.prog.Lanes[l])
		for i := range lane {
			s := &lane[i]
			pieces := 1
			if n := width(s); n > 0 && !x.merge {
				pieces = n * x.runs
			}
			if s.Kind == plan.Copy && x.ref(s.Dst, 0) == x.ref(s.Src[0], 0) {
				pieces = 0
			}
			places[i] = place{at, pieces}
			at += pieces
		}
		x.places = append(x.places, places)
	}
}

// width returns how many chunks the Refs of a step have.
func width(s *plan.Step) int {
	if len(s.Src) > 0 {
		return s.Src[0].N
	}
	return s.Dst.N
}

// piece returns one piece of step i of lane l of sub.
func (x *expansion) piece(l, i, piece int) plan.Step {
	s := x.steps.Lanes[l][i]
	s.Final = s.Final && x.final
	if s.Kind.Traits().Writes {
		s.Dst = x.ref(s.Dst, piece)
	}
	src := s.Src
	s.Src = nil
	for _, r := range src {
		s.Src = append(s.Src, x.ref(r, piece))
	}
	from := s.From
	s.From = nil
	for _, rank := range from {
		s.From = append(s.From, x.ranks[rank])
	}
	if s.HasPeer() {
		s.Peer = x.ranks[s.Peer]
	}
	if s.Kind.Traits().Flagged() {
		s.Chan += x.flag
	}
	after := s.After
	s.After = nil
	for _, a := range after {
		s.After = x.after(s.After, l, i, piece, a)
	}
	return s
}

// after adds to a list the steps that stand for step a of sub, after which a piece of step i of
// lane l comes.
func (x *expansion) after(list []plan.Point, l, i, piece int, a plan.Point) []plan.Point {
	to := x.places[a.Lane][a.Step]
	switch mine := x.places[l][i].pieces; {
	case to.pieces == 0: // it is no step any more: take the steps that it came after
		if a.Step > 0 {
			list = x.after(list, l, i, piece, plan.Point{Lane: a.Lane, Step: a.Step - 1})
		}
		for _, b := range x.steps.Lanes[a.Lane][a.Step].After {
			list = x.after(list, l, i, piece, b)
		}
		return list
	case to.pieces == x.runs && mine == x.runs: // one chunk each: its runs are independent of each other
		return addPoint(list, l, plan.Point{Lane: a.Lane, Step: to.first + piece})
	}
	return addPoint(list, l, plan.Point{Lane: a.Lane, Step: to.first + to.pieces - 1})
}

// ref returns the Ref of one piece of a Ref of sub.
func (x *expansion) ref(r plan.Ref, piece int) plan.Ref {
	buf := r.Buf
	switch buf {
	case plan.In:
		buf = x.src.buf
	case plan.Out:
		buf = x.dst.buf
	}
	if r.N == 0 {
		return plan.Ref{Buf: buf}
	}
	chunk, run, n := r.At+piece/x.runs, piece%x.runs, x.factor
	if x.merge {
		n *= r.N
	}
	if r.Buf == plan.Tmp || r.Buf == plan.Win {
		at := x.tmp
		if r.Buf == plan.Win {
			at = x.win
		}
		return plan.Ref{Buf: buf, At: at + (chunk*x.runs+run)*x.factor, N: n}
	}
	e := x.sub.Spec.Extent(x.sub.Split, x.self, r.Buf, chunk)
	home := x.start(e.From, run) + e.Part*x.factor
	if r.Buf == plan.In {
		return plan.Ref{Buf: buf, At: x.src.at(home), N: n}
	}
	return plan.Ref{Buf: buf, At: x.dst.at(home), N: n}
}

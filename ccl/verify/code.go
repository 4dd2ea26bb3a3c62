package verify

import (
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// action is a step in the form that is executed: with loops unrolled, and small, since large groups
// have millions of them.
type action struct {
	kind            plan.Kind
	msgFirst, final bool
	window          bool  // it accesses a window
	enters          bool  // sequences: it comes after its rank has entered the slot
	inside          bool  // sequences: it comes before its rank leaves the slot
	op              uint8 // index of its plan in a sequence
	peer, channel   int32
	dst             ref
	src, srcEnd     int32 // in code.refs
	after, afterEnd int32 // in code.after
}

// ref is a plan.Ref and the rank whose memory it is in.
type ref struct {
	rank, at, n int32
	buf         plan.Buffer
}

func (r ref) plan() plan.Ref { return plan.Ref{Buf: r.buf, At: int(r.at), N: int(r.n)} }

// point names an action of another lane of the same rank.
type point struct{ lane, step int32 }

// code is everything that one rank executes: its programs, one after the other.
type code struct {
	progs []plan.Program // of each plan; without lanes
	lent  [][]plan.Ref   // of each plan: the chunks that its window may stand for
	lanes [][]action
	// For each lane and action, its index before actions were removed; nil if none were.
	origin [][]int32
	refs   []ref
	after  []point
	starts [][]int32 // for each lane and plan, the index of the first action before any were removed
	begins [][]int32 // the same, after removals
}

// newCode creates the code of a rank from its programs, whose loops are unrolled. The first action
// of a lane in a plan comes after all actions of the rank in earlier plans.
func newCode(rank int, progs []plan.Program) code {
	var c code
	lanes, refs, after := 0, 0, 0
	for _, prog := range progs {
		lanes = max(lanes, len(prog.Lanes))
		c.progs = append(c.progs, plan.Program{Tmp: prog.Tmp, Win: prog.Win})
		c.lent = append(c.lent, prog.Lent())
		for _, steps := range prog.Lanes {
			for i := range steps {
				refs += len(steps[i].Src)
				after += len(steps[i].After)
			}
		}
	}
	c.lanes, c.starts = make([][]action, lanes), make([][]int32, lanes)
	c.begins = c.starts
	c.refs, c.after = make([]ref, 0, refs), make([]point, 0, after)
	for l := range c.lanes {
		total := 0
		for _, prog := range progs {
			if l < len(prog.Lanes) {
				total += len(prog.Lanes[l])
			}
		}
		c.lanes[l] = make([]action, 0, total)
	}
	for k, prog := range progs {
		before := make([]int32, lanes)
		for l := range c.lanes {
			before[l] = int32(len(c.lanes[l]))
			c.starts[l] = append(c.starts[l], before[l])
		}
		for l, steps := range prog.Lanes {
			for i := range steps {
				c.add(rank, k, l, &steps[i], before, i == 0)
			}
		}
	}
	return c
}

func (c *code) add(rank, op, lane int, s *plan.Step, before []int32, first bool) {
	does := s.Kind.Traits()
	a := action{kind: s.Kind, msgFirst: s.MsgFirst, final: s.Final, op: uint8(op),
		peer: int32(s.Peer), channel: int32(s.Chan),
		dst: ref{int32(rank), int32(s.Dst.At), int32(s.Dst.N), s.Dst.Buf},
		src: int32(len(c.refs)), after: int32(len(c.after))}
	if does.Puts {
		a.dst.rank = a.peer
	}
	a.window = does.Writes && s.Dst.Buf == plan.Win
	for i, r := range s.Src {
		from := int32(rank)
		switch {
		case does.From && i < len(s.From):
			from = int32(s.From[i])
		case does.Gets && does.Peer:
			from = a.peer
		}
		c.refs = append(c.refs, ref{from, int32(r.At), int32(r.N), r.Buf})
		a.window = a.window || r.Buf == plan.Win
	}
	for _, p := range s.After {
		c.after = append(c.after, point{int32(p.Lane), before[p.Lane] + int32(p.Step)})
	}
	if first {
		for l, n := range before {
			if l != lane && n > 0 {
				c.after = append(c.after, point{int32(l), n - 1})
			}
		}
	}
	a.srcEnd, a.afterEnd = int32(len(c.refs)), int32(len(c.after))
	c.lanes[lane] = append(c.lanes[lane], a)
}

// index returns the index that an action had before other actions were removed.
func (c *code) index(lane, i int) int {
	if c.origin == nil {
		return i
	}
	return int(c.origin[lane][i])
}

// where returns the place of an action as a step of its plan.
func (c *code) where(rank, lane, i int) Where {
	op := int(c.lanes[lane][i].op)
	return Where{Rank: rank, Lane: lane, Step: c.index(lane, i) - int(c.starts[lane][op]), Op: op}
}

// step returns an action as a step of its plan.
func (c *code) step(lane, i int) plan.Step {
	a := &c.lanes[lane][i]
	s := plan.Step{Kind: a.kind, Dst: a.dst.plan(), Peer: int(a.peer), Chan: int(a.channel),
		MsgFirst: a.msgFirst, Final: a.final}
	for _, r := range c.refs[a.src:a.srcEnd] {
		s.Src = append(s.Src, r.plan())
		if a.kind.Traits().From {
			s.From = append(s.From, int(r.rank))
		}
	}
	for _, p := range c.after[a.after:a.afterEnd] {
		if b := &c.lanes[p.lane][p.step]; b.op == a.op {
			s.After = append(s.After,
				plan.Point{Lane: int(p.lane), Step: c.index(int(p.lane), int(p.step)) - int(c.starts[p.lane][a.op])})
		}
	}
	return s
}

// only returns the code with only the actions that keep[lane][i] selects, and the dependences
// between them. The actions of a plan still come after those of earlier plans.
func (c *code) only(keep [][]bool) code {
	d := code{progs: c.progs, lent: c.lent, refs: c.refs, starts: c.starts,
		lanes: make([][]action, len(c.lanes)), origin: make([][]int32, len(c.lanes)),
		begins: make([][]int32, len(c.lanes))}
	moved := make([][]int32, len(c.lanes))
	for l, lane := range c.lanes {
		moved[l] = make([]int32, len(lane))
		for i := range lane {
			if moved[l][i] = -1; keep[l][i] {
				moved[l][i] = int32(len(d.lanes[l]))
				d.lanes[l] = append(d.lanes[l], lane[i])
				d.origin[l] = append(d.origin[l], int32(c.index(l, i)))
			}
		}
	}
	for l := range d.lanes {
		d.begins[l] = make([]int32, len(c.progs))
		for op := range d.begins[l] {
			i, _ := slices.BinarySearchFunc(d.lanes[l], op, func(a action, op int) int { return int(a.op) - op })
			d.begins[l][op] = int32(i)
		}
	}
	for l := range d.lanes {
		for i := range d.lanes[l] {
			a := &d.lanes[l][i]
			points := c.after[a.after:a.afterEnd]
			a.after = int32(len(d.after))
			for _, p := range points {
				if to := moved[p.lane][p.step]; to >= 0 {
					d.after = append(d.after, point{p.lane, to})
				}
			}
			if a.op > 0 && i == int(d.begins[l][a.op]) {
				for other := range d.lanes {
					if n := d.begins[other][a.op]; other != l && n > 0 {
						d.after = append(d.after, point{int32(other), n - 1})
					}
				}
			}
			a.afterEnd = int32(len(d.after))
		}
	}
	return d
}

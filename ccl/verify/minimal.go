package verify

// Limits on the cost of reducing a counterexample.
const (
	reduceSteps = 1 << 16 // steps of the whole plan
	reduceWork  = 1 << 22 // steps executed and chunks laid out, over all attempts
)

// Line is a step of a counterexample, with its text.
type Line struct {
	Where
	Text string
}

// reduction looks for a small set of steps that still show a failure when all other steps are
// removed.
type reduction struct {
	x      *execution // the execution that failed
	bad    *Counterexample
	places int // chunks of all ranks
	work   int
	lanes  [][]int    // for each rank and lane, the number of its first step
	steps  []pos      // by number
	pair   []int      // for each step, the other side of its message or signal, or itself
	keep   [][][]bool // by rank, lane and step
}

type pos struct{ rank, lane, step int }

// minimize lists steps that show a failure, such that it vanishes when any of them is removed.
func (x *execution) minimize(bad *Counterexample) {
	d := &reduction{x: x, bad: bad}
	d.number()
	seed := d.seed()
	var start []int
	switch {
	case d.shows(seed):
		start = seed
	case len(d.steps) <= reduceSteps:
		start = make([]int, len(d.steps))
		for i := range start {
			start[i] = i
		}
		if d.shows(start) {
			break
		}
		fallthrough
	default:
		d.list(seed, false)
		return
	}
	start = d.thin(start, true)
	start = d.thin(start, false)
	d.list(start, d.work < reduceWork)
}

// number assigns numbers to the steps and pairs the sides of messages and signals: the kth with the
// kth.
func (d *reduction) number() {
	type end struct {
		streamKey
		signal, giving bool
	}
	ends := map[end][]int{}
	d.keep = make([][][]bool, len(d.x.codes))
	d.lanes = make([][]int, len(d.x.codes))
	for r := range d.x.codes {
		c := &d.x.codes[r]
		for _, m := range d.x.ranks[r].mem {
			d.places += len(m.vals)
		}
		for l, lane := range c.lanes {
			d.lanes[r] = append(d.lanes[r], len(d.steps))
			d.keep[r] = append(d.keep[r], make([]bool, len(lane)))
			for i := range lane {
				a, does := &lane[i], lane[i].kind.Traits()
				n := len(d.steps)
				d.steps, d.pair = append(d.steps, pos{r, l, i}), append(d.pair, n)
				e := end{streamKey: streamKey{int32(r), a.peer, a.channel},
					signal: !does.Message(), giving: does.Sends || does.Signals}
				if !e.giving {
					e.from, e.to = a.peer, int32(r)
				}
				if does.Message() || does.Flagged() {
					ends[e] = append(ends[e], n)
				}
			}
		}
	}
	for e, all := range ends {
		e.giving = !e.giving
		others := ends[e]
		for k := range min(len(all), len(others)) {
			d.pair[all[k]] = others[k]
		}
	}
}

// seed returns the steps at fault, the other sides of their messages, and the steps that they wait
// for.
func (d *reduction) seed() []int {
	in := map[int]bool{}
	for _, w := range d.bad.At {
		if w.Lane < 0 {
			continue
		}
		l := &d.x.ranks[w.Rank].lanes[w.Lane]
		i := w.Step + int(d.x.codes[w.Rank].starts[w.Lane][w.Op])
		n := d.lanes[w.Rank][w.Lane] + i
		in[n], in[d.pair[n]] = true, true
		if d.bad.Reason == Deadlock && i == l.pc {
			if other, step := d.x.blocker(l); other != nil {
				n := d.lanes[other.rank][other.lane] + step
				in[n], in[d.pair[n]] = true, true
			}
		}
	}
	var all []int
	for n := range d.steps {
		if in[n] {
			all = append(all, n)
		}
	}
	return all
}

// shows reports whether the given steps show the failure.
func (d *reduction) shows(steps []int) bool {
	for r := range d.keep {
		for l := range d.keep[r] {
			clear(d.keep[r][l])
		}
	}
	for _, n := range steps {
		p := d.steps[n]
		d.keep[p.rank][p.lane][p.step] = true
	}
	d.work += len(d.steps)/8 + len(steps) + d.places
	j := *d.x.job
	j.codes, j.values = make([]code, len(d.x.codes)), nil
	for r := range j.codes {
		j.codes[r] = d.x.codes[r].only(d.keep[r])
	}
	j.contributions()
	x := newExecution(&j, d.x.inPlace, d.x.full, &Report{Ranks: make([]Load, len(j.codes))})
	x.seek = d.same
	bad := x.run()
	if bad == nil && x.left == 0 {
		bad = x.outcome()
	}
	return bad != nil
}

// same reports whether a counterexample describes the failure that is being reduced.
func (d *reduction) same(c *Counterexample) bool {
	if c.Reason != d.bad.Reason || c.out != d.bad.out {
		return false
	}
	switch c.Reason {
	case Deadlock:
		return true
	case Race, Unordered: // either step may have been found first
		return sameSteps(c, d.bad)
	}
	last := len(d.bad.At) - 1
	if d.bad.At[last].Lane < 0 {
		return c.At[len(c.At)-1] == d.bad.At[last]
	}
	return c.At[0] == d.bad.At[0]
}

// thin removes steps, with the other sides of their messages or one by one, first many at once,
// until no step can be spared.
func (d *reduction) thin(steps []int, pairs bool) []int {
	for size := max(len(steps)/2, 1); ; size = max(size/2, 1) {
		spared := false
		for lo := 0; lo < len(steps) && d.work < reduceWork; {
			away := map[int]bool{}
			for _, n := range steps[lo:min(lo+size, len(steps))] {
				away[n] = true
				if pairs {
					away[d.pair[n]] = true
				}
			}
			var rest []int
			for _, n := range steps {
				if !away[n] {
					rest = append(rest, n)
				}
			}
			if d.shows(rest) {
				steps, spared = rest, true
			} else {
				lo += size
			}
		}
		if d.work >= reduceWork || size == 1 && !spared {
			return steps
		}
	}
}

func (d *reduction) list(steps []int, minimal bool) {
	d.bad.Minimal = minimal
	for _, n := range steps {
		p := d.steps[n]
		c := &d.x.codes[p.rank]
		s := c.step(p.lane, p.step)
		d.bad.Steps = append(d.bad.Steps, Line{c.where(p.rank, p.lane, p.step), s.String()})
	}
}

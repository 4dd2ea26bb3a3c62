package sim

import (
	"math"
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// maxRoutes bounds the work of searching for a symmetry of the network.
const maxRoutes = 1 << 25

// findShift looks for the smallest s such that the whole simulation stays the same when every rank
// r becomes r+s (modulo the number of ranks): the programs of r and r+s are the same except for the
// peers, which are s further, and the links of the message paths correspond, under one mapping of
// links to links of the same class. Then whatever happens at r happens at r+s at the same time, and
// ranks 0 to s-1 are enough. Chunks must be equally long, since shifted ranks use other chunks.
func (e *engine) findShift() error {
	n := e.p.Spec.Ranks
	e.shift = n
	crowded := e.o.Costs != nil && e.o.On.Oversubscribed() // then ranks take turns, and differ
	if !e.o.Full && !e.o.Timeline && !crowded && e.sizes.chunk >= 0 {
		for s := 1; s <= n/2; s++ {
			if n%s != 0 {
				continue
			}
			if same, err := e.shiftsPrograms(s); err != nil {
				return err
			} else if same {
				e.programs = e.programs[:s] // the programs of the other ranks follow from these
				return e.shiftsNetwork(s)
			}
		}
	}
	return e.compile(n)
}

// shiftsNetwork looks for the smallest shift that the paths allow as well, given that the programs
// repeat after period ranks.
func (e *engine) shiftsNetwork(period int) error {
	n := e.p.Spec.Ranks
	for s := period; s <= n/2; s += period {
		if n%s != 0 {
			continue
		}
		if mapped, err := e.shiftsPaths(s); err != nil || mapped {
			return err
		}
	}
	return nil
}

// compile makes the programs of the first ranks.
func (e *engine) compile(ranks int) error {
	for rank := len(e.programs); rank < ranks; rank++ {
		prog, err := e.sizes.compile(rank)
		if err != nil {
			return err
		}
		e.programs = append(e.programs, prog)
	}
	return nil
}

// shiftsPrograms reports whether programs s ranks apart are the same.
func (e *engine) shiftsPrograms(s int) (bool, error) {
	n := e.p.Spec.Ranks
	if err := e.compile(s); err != nil {
		return false, err
	}
	likely := []int{s, n - s, n - 1, n / 2, n/2 - 1} // most plans that differ do so here
	for i := 0; i < len(likely)+n-s; i++ {
		rank := s + i - len(likely)
		if i < len(likely) {
			rank = likely[i]
		}
		if rank < s {
			continue
		}
		prog, err := e.sizes.compile(rank)
		if err != nil {
			return false, err
		}
		if !shifted(e.programs[rank%s], prog, rank-rank%s, n) {
			return false, nil
		}
	}
	return true, nil
}

// shifted reports whether b is a with by added to all ranks, modulo n.
func shifted(a, b *program, by, n int) bool {
	if len(a.lanes) != len(b.lanes) {
		return false
	}
	for l := range a.lanes {
		x, y := &a.lanes[l], &b.lanes[l]
		if len(x.ops) != len(y.ops) || !slices.Equal(x.segments, y.segments) {
			return false
		}
		for _, seg := range x.segments {
			for i := seg.first; i < seg.first+seg.n; i++ {
				if !shiftedOp(a, b, &x.ops[i], &y.ops[i], int(seg.times), by, n) {
					return false
				}
			}
		}
	}
	return true
}

func shiftedOp(a, b *program, x, y *op, times, by, n int) bool {
	if x.kind != y.kind || x.bytes != y.bytes || x.slot != y.slot || x.operands != y.operands || x.lane != y.lane ||
		x.after != y.after || (x.peer < 0) != (y.peer < 0) || (x.more < 0) != (y.more < 0) {
		return false
	}
	var v, w more
	if x.more >= 0 {
		v, w = a.more[x.more], b.more[y.more]
	}
	if !slices.Equal(v.after, w.after) || !slices.Equal(v.afterBy, w.afterBy) || len(v.from) != len(w.from) {
		return false
	}
	if x.peer >= 0 && !apart(int(x.peer), int(y.peer), v.peer, w.peer, times, by, n) {
		return false
	}
	for k := range v.from {
		var p, q plan.Stride
		if v.fromBy != nil {
			p = v.fromBy[k]
		}
		if w.fromBy != nil {
			q = w.fromBy[k]
		}
		if !apart(v.from[k], w.from[k], p, q, times, by, n) {
			return false
		}
	}
	return true
}

// apart reports whether y stays by further than x, modulo n, while both advance.
func apart(x, y int, p, q plan.Stride, times, by, n int) bool {
	if p == q && (p.By == 0 || p.Mod == n && p.Low == 0) {
		times = 1
	}
	for i := range times {
		if (q.At(y, i)-p.At(x, i)-by)%n != 0 {
			return false
		}
	}
	return true
}

// shiftsPaths reports whether links can be mapped to links such that the paths between ranks
// shifted by s are the shifted paths. If so, it sets the shift to s, and makes a pipe for each
// orbit of links.
func (e *engine) shiftsPaths(s int) (bool, error) {
	n := e.p.Spec.Ranks
	t := e.router.Topology()
	pairs := e.pairs(s)
	if len(pairs) > maxRoutes/(n/s) {
		return false, nil
	}
	to, from := make([]int32, len(t.Links)), make([]int32, len(t.Links))
	for i := range to {
		to[i], from[i] = -1, -1
	}
	var here, there []int32
	for _, pair := range pairs {
		a, b := int(pair>>32), int(uint32(pair))
		var err error
		if here, err = e.route(here[:0], a, b); err != nil {
			return false, err
		}
		for range n / s {
			a, b = (a+s)%n, (b+s)%n
			if there, err = e.route(there[:0], a, b); err != nil {
				return false, err
			}
			if len(here) != len(there) {
				return false, nil
			}
			for i, l := range here {
				m := there[i]
				switch {
				case to[l] == m:
				case to[l] >= 0 || from[m] >= 0 || t.Links[l].Class != t.Links[m].Class:
					return false, nil
				default:
					to[l], from[m] = m, l
				}
			}
			here, there = there, here
		}
	}
	e.shift = s
	e.orbit = make([]int32, len(t.Links))
	for l := range e.orbit {
		e.orbit[l] = -1
	}
	for l := range e.orbit {
		if to[l] < 0 || e.orbit[l] >= 0 {
			continue
		}
		id, size := int32(len(e.net.pipes)), int32(0)
		for k := int32(l); e.orbit[k] < 0; k = to[k] {
			e.orbit[k] = id
			size++
		}
		class := &t.Classes[t.Links[l].Class]
		e.net.pipes = append(e.net.pipes, pipe{bandwidth: class.Bandwidth, burst: float64(class.Burst)})
		e.size = append(e.size, size)
	}
	return true, nil
}

// pairs returns the (sender, receiver) of all messages of the first s ranks, each pair once.
func (e *engine) pairs(s int) []uint64 {
	n, period := uint64(e.p.Spec.Ranks), len(e.programs)
	var all []uint64
	for rank, prog := range e.programs {
		seen := map[uint64]bool{}
		for l := range prog.lanes {
			ln := &prog.lanes[l]
			for _, seg := range ln.segments {
				for i := seg.first; i < seg.first+seg.n; i++ {
					prog.pairs(&ln.ops[i], rank, int(seg.times), seen)
				}
			}
		}
		for pair := range seen {
			for by := 0; by < s; by += period {
				all = append(all, (pair>>32+uint64(by))%n<<32|(pair&math.MaxUint32+uint64(by))%n)
			}
		}
	}
	slices.Sort(all)
	return all
}

func (p *program) pairs(o *op, rank, times int, seen map[uint64]bool) {
	var m more
	if o.more >= 0 {
		m = p.more[o.more]
	}
	switch does := o.kind.Traits(); {
	case does.Outward(), does.Gets && does.Peer:
		if !m.moves {
			times = 1
		}
		for i := range times {
			from, to := uint64(rank), uint64(m.peer.At(int(o.peer), i))
			if does.Gets {
				from, to = to, from
			}
			seen[from<<32|to] = true
		}
	case does.From:
		for k, from := range m.from {
			for i := range times {
				at := from
				if m.fromBy != nil {
					at = m.fromBy[k].At(from, i)
				}
				if at != rank {
					seen[uint64(at)<<32|uint64(rank)] = true
				}
				if m.fromBy == nil {
					break
				}
			}
		}
	}
}

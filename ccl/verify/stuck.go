package verify

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// stuck explains why nothing moves although some lanes have not ended. Each of them waits for a
// step of another lane: one that it comes After, or the other side of its message or signal.
// Following these waits leads to a step without another side, or into a cycle.
func (x *execution) stuck() *Counterexample {
	var first *Counterexample
	for r := range x.ranks {
		for i := range x.ranks[r].lanes {
			l := &x.ranks[r].lanes[i]
			if l.pc == len(l.code) {
				continue
			}
			bad := x.follow(l)
			if bad == nil {
				continue
			}
			if bad.Reason != Deadlock {
				return bad // explains more than a cycle that it may have caused
			}
			if first == nil {
				first = bad
			}
		}
	}
	return first
}

// waiting returns the next step of each lane that has not ended.
func (x *execution) waiting() []Where {
	var at []Where
	for r := range x.ranks {
		for i := range x.ranks[r].lanes {
			if l := &x.ranks[r].lanes[i]; l.pc < len(l.code) {
				at = append(at, x.here(l))
			}
		}
	}
	return at
}

// follow goes from a lane that has not ended to the lane that it waits for, and so on.
func (x *execution) follow(l *lane) *Counterexample {
	var path []*lane
	seen := map[*lane]int{}
	for {
		if from, ok := seen[l]; ok {
			path = path[from:]
			break
		}
		seen[l] = len(path)
		path = append(path, l)
		next, _ := x.blocker(l)
		if next == nil {
			return x.alone(l)
		}
		l = next
	}
	var b strings.Builder
	var at []Where
	for i, l := range path {
		if i > 0 {
			b.WriteString(", which waits for ")
		}
		b.WriteString(x.name(l))
		at = append(at, x.here(l))
	}
	b.WriteString(", which waits for the first")
	return x.counterexample(x.op(path[0]), Deadlock, b.String(), at...)
}

// blocker returns the lane that l, which has not ended, waits for, and the step of that lane. The
// lane is nil if l waits for a message or signal without another side.
func (x *execution) blocker(l *lane) (*lane, int) {
	if l.running {
		return x.partner(l)
	}
	rk, a := &x.ranks[l.rank], &l.code[l.pc]
	for _, p := range rk.code.after[a.after:a.afterEnd] {
		if other := &rk.lanes[p.lane]; other.pc <= int(p.step) {
			return other, int(p.step)
		}
	}
	if other := x.laggard(l); other != nil {
		return other, other.pc
	}
	return l, l.pc
}

// partner returns the lane that has the other side of the message or signal that l waits with, or
// nil if there is none.
func (x *execution) partner(l *lane) (*lane, int) {
	a := &l.code[l.pc]
	lanes := x.ranks[a.peer].lanes
	for i := range lanes {
		other := &lanes[i]
		for j := other.pc; j < len(other.code); j++ {
			if b := &other.code[j]; int(b.peer) == l.rank && b.channel == a.channel && pairs(a.kind, b.kind) {
				return other, j
			}
		}
	}
	return nil, 0
}

// pairs reports whether a step of kind a that is stuck can go on once a step of kind b runs.
func pairs(a, b plan.Kind) bool {
	stuck, goes := a.Traits(), b.Traits()
	return stuck.Sends && goes.Receives || stuck.Receives && goes.Sends || stuck.Waits && goes.Signals
}

// alone returns a counterexample for a message or signal that has no other side.
func (x *execution) alone(l *lane) *Counterexample {
	a := &l.code[l.pc]
	reason, text := Unsent, "send the message"
	switch does := a.kind.Traits(); {
	case does.Sends:
		reason, text = Unreceived, "receive the message"
	case does.Waits:
		reason, text = Unsignalled, "give the signal"
	}
	return x.counterexample(x.op(l), reason,
		fmt.Sprintf("rank %d does not %s of %s", a.peer, text, x.name(l)), x.here(l))
}

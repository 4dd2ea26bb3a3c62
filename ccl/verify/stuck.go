package verify

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// stuck explains why nothing moves although lanes are left. Each of them waits for a step of
// another lane: one that it comes After, or the other side of its message or signal. Following this
// leads to one without another side, or in a circle.
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
				return bad // says more than a circle that it may have caused
			}
			if first == nil {
				first = bad
			}
		}
	}
	return first
}

// waiting is the step of each lane that is left.
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

// follow goes from a lane that is left to the one it waits for, and so on.
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

// blocker is the lane that a lane which is left waits for, and the step of it; nil if there is
// none.
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

// partner finds the lane that holds the other side of the message or signal that l waits with, nil
// if there is none.
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

// pairs reports whether a step of kind a that is stuck can go on with one of kind b.
func pairs(a, b plan.Kind) bool {
	switch a {
	case plan.Send:
		return b == plan.Recv || b == plan.RecvReduce
	case plan.Wait:
		return b == plan.Signal || b == plan.Packet
	}
	return b == plan.Send
}

// alone is the counterexample of a message or signal that has no other side.
func (x *execution) alone(l *lane) *Counterexample {
	a := &l.code[l.pc]
	reason, text := Unsent, "send the message"
	switch a.kind {
	case plan.Send:
		reason, text = Unreceived, "receive the message"
	case plan.Wait:
		reason, text = Unsignalled, "give the signal"
	}
	return x.counterexample(x.op(l), reason, fmt.Sprintf("rank %d does not %s of %s", a.peer, text, x.name(l)), x.here(l))
}

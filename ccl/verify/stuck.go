package verify

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// stuck explains why nothing moves although lanes are left. Each of them waits for a step of another lane: one that it comes
// After, or the other side of its message. Following this leads to a message without another side, or in a circle.
func (x *execution) stuck() *Counterexample {
	var first *Counterexample
	for r := range x.ranks {
		for i := range x.ranks[r].lanes {
			l := &x.ranks[r].lanes[i]
			if l.pc == len(l.steps) {
				continue
			}
			bad := x.follow(l)
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
		next := l
		if !l.running {
			next = x.waitsFor(l)
		} else if next = x.partner(l); next == nil {
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
		b.WriteString(x.name(l.where()))
		at = append(at, l.where())
	}
	b.WriteString(", which waits for the first")
	return x.counterexample(Deadlock, b.String(), at...)
}

// partner finds the lane that holds the other side of the message that l waits with, nil if there is none.
func (x *execution) partner(l *lane) *lane {
	s := &l.steps[l.pc]
	lanes := x.ranks[s.Peer].lanes
	for i := range lanes {
		other := &lanes[i]
		for j := other.pc; j < len(other.steps); j++ {
			t := &other.steps[j]
			sends := t.Kind == plan.Send
			receives := t.Kind == plan.Recv || t.Kind == plan.RecvReduce
			if t.Peer == l.rank && t.Chan == s.Chan && (s.Kind == plan.Send && receives || s.Kind != plan.Send && sends) {
				return other
			}
		}
	}
	return nil
}

// alone is the counterexample of a message that has no other side.
func (x *execution) alone(l *lane) *Counterexample {
	s := &l.steps[l.pc]
	if s.Kind == plan.Send {
		return x.counterexample(Unreceived, fmt.Sprintf("rank %d does not receive the message of %s", s.Peer, x.name(l.where())), l.where())
	}
	return x.counterexample(Unsent, fmt.Sprintf("rank %d does not send the message of %s", s.Peer, x.name(l.where())), l.where())
}

package verify

import (
	"fmt"
	"slices"
	"strings"
)

// edge is an after point: the step after of one lane of a rank comes after the step before of
// another lane.
type edge struct {
	rank          int
	before, after spot
}

// mostEdges is the maximum number of after points that a remedy adds, one after the other.
const mostEdges = 6

// remedy looks for after points that cure a failure of two unordered steps, and names them. The
// candidates are each of the two steps after the other, if one rank has both; or, for a step that
// accesses memory that was put, this step after a wait that makes the put visible. An after point
// is part of a remedy if it makes the plan right, or if the only failure left is another one of
// this kind, which has a remedy too. If many of them are needed, only the first is named.
func (x *execution) remedy(bad *Counterexample) {
	if x.steps() > reduceSteps {
		return
	}
	j := *x.job
	found := j.order(bad, mostEdges, x.inPlace)
	if len(found) == mostEdges {
		found = found[:1]
	}
	var all []string
	for _, e := range found {
		before, after := x.made(e.before), x.made(e.after)
		all = append(all, fmt.Sprintf("`after %d.%d` to step %d.%d of rank %d",
			before.Lane, before.Step, after.Lane, after.Step, e.rank))
	}
	if len(all) > 0 {
		bad.Remedy = "add " + strings.Join(all, " and ")
	}
}

// order returns up to most edges that cure a failure and the failures found after it, or nil if
// there are none.
func (j *job) order(bad *Counterexample, most int, inPlace bool) []edge {
	var next job
	var left *Counterexample
	var chosen *edge
	for i := range bad.edges {
		k := j.with(&bad.edges[i])
		_, rest := k.run(inPlace, true, &Report{})
		if rest == nil {
			return bad.edges[i : i+1]
		}
		if chosen == nil && len(rest.edges) > 0 && !sameSteps(rest, bad) {
			next, left, chosen = k, rest, &bad.edges[i]
		}
	}
	if chosen == nil {
		return nil
	}
	if most == 1 {
		return []edge{*chosen}
	}
	more := next.order(left, most-1, inPlace)
	if more == nil {
		return nil
	}
	return append([]edge{*chosen}, more...)
}

// with returns the job with one more after point.
func (j *job) with(e *edge) job {
	k := *j
	k.codes, k.values = slices.Clone(j.codes), nil
	c := &k.codes[e.rank]
	c.lanes = slices.Clone(c.lanes)
	c.lanes[e.after.lane] = slices.Clone(c.lanes[e.after.lane])
	a := &c.lanes[e.after.lane][e.after.step]
	points := append(slices.Clone(c.after[a.after:a.afterEnd]), point{e.before.lane, e.before.step})
	c.after = append(slices.Clone(c.after), points...)
	a.after, a.afterEnd = int32(len(c.after)-len(points)), int32(len(c.after))
	k.contributions()
	return k
}

func (x *execution) steps() int {
	n := 0
	for _, l := range x.byID {
		n += len(l.code)
	}
	return n
}

// edges returns the after points that may order the step of l and that of s: none for steps of one
// lane or of two ranks.
func (x *execution) edges(l *lane, s stamp) []edge {
	if !l.sameRank(s.lane) || s.lane == l.id {
		return nil
	}
	other := x.byID[s.lane]
	here, there := l.at(), spot{int32(other.rank), int32(other.lane), int32(stepOf(s.end))}
	return []edge{{l.rank, there, here}, {l.rank, here, there}}
}

// sameSteps reports whether two counterexamples are about the same two steps, in either order.
func sameSteps(a, b *Counterexample) bool {
	return a.At[0] == b.At[0] && a.At[1] == b.At[1] || a.At[0] == b.At[1] && a.At[1] == b.At[0]
}

package network

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Compare returns what differs from a to b, a line for each: nodes and links that only one of them
// has, by their names, what nodes are and hold, and rates and latencies of links that differ by
// more than a part (0.2 for a fifth).
func Compare(a, b *Topology, more float64) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if a.Startup != b.Startup {
		say("startup %s → %s", formatAlpha(a.Startup), formatAlpha(b.Startup))
	}
	if a.Routing != b.Routing {
		say("routing %v → %v", a.Routing, b.Routing)
	}
	if a.Limits != b.Limits {
		say("limits: %s → %s", cmp.Or(a.Limits.String(), "none"), cmp.Or(b.Limits.String(), "none"))
	}
	ours, theirs := a.byName(), b.byName()
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		x, y := ours[name], theirs[name]
		switch {
		case y == nil:
			say("− %s", x.line())
		case *x != *y:
			say("%s → %s", x.line(), y.line())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if ours[name] == nil {
			say("+ %s", theirs[name].line())
		}
	}
	links, other := a.byEnds(), b.byEnds()
	for _, ends := range slices.Sorted(maps.Keys(links)) {
		x, y := links[ends], other[ends]
		switch {
		case y == nil:
			say("− %s: %s", ends, x.Rates())
		case x.Unmeasured() != y.Unmeasured() || apart(x.Alpha, y.Alpha, more) ||
			!x.Unmeasured() && apart(x.Bandwidth, y.Bandwidth, more):
			say("%s: %s → %s", ends, x.Rates(), y.Rates())
		}
	}
	for _, ends := range slices.Sorted(maps.Keys(other)) {
		if links[ends] == nil {
			say("+ %s: %s", ends, other[ends].Rates())
		}
	}
	return lines
}

func apart(x, y, more float64) bool { return math.Abs(x-y) > more*min(x, y) }

// Rates returns the bandwidth and the latency of a class, for people.
func (c *Class) Rates() string {
	text := fmt.Sprintf("%.3g GB/s", c.Bandwidth/1e9)
	if c.Bandwidth < 1e8 {
		text = fmt.Sprintf("%.3g MB/s", c.Bandwidth/1e6)
	}
	if c.Unmeasured() {
		text = "rate unknown"
	}
	switch {
	case c.Alpha >= 1e-5:
		text += fmt.Sprintf(", %.3g ms", c.Alpha*1e3)
	case c.Alpha > 0:
		text += fmt.Sprintf(", %.3g ns", c.Alpha*1e9)
	}
	return text
}

func (t *Topology) byName() map[string]*Node {
	all := make(map[string]*Node, len(t.Nodes))
	for i := range t.Nodes {
		all[t.Nodes[i].Name] = &t.Nodes[i]
	}
	return all
}

// byEnds returns the classes of the links by what they connect. Of parallel links one counts, with
// the bandwidth of all.
func (t *Topology) byEnds() map[string]*Class {
	all := make(map[string]*Class, len(t.Links))
	for _, l := range t.Links {
		ends := t.Nodes[l.From].Name + " to " + t.Nodes[l.To].Name
		class := t.Classes[l.Class]
		if known := all[ends]; known != nil {
			class.Bandwidth += known.Bandwidth
		}
		all[ends] = &class
	}
	return all
}

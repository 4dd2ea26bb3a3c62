package cudatest

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// access is one access to memory by one agent.
type access struct {
	by        *agent
	time      uint64 // of the agent; of a stream, the number of the operation
	verb      string
	write     bool
	word      bool // of a word, as one: it orders, and does not need to be ordered
	of        *allocation
	at, bytes int
	site      site
}

// never is the time of an access that has not ended: nobody else knows it.
const never = math.MaxUint64

// before reports whether a comes before an access by an agent who knows this.
func (a *access) before(b *access, known clock) bool {
	return a.by == b.by || known.of(a.by.index) >= a.time
}

func (a *access) byText() string {
	kind := "operation"
	if a.by.host {
		kind = "time"
	}
	return fmt.Sprintf("%s, %s %d, at %s", a.by.name, kind, a.time, a.site)
}

func (a *access) text() string {
	return fmt.Sprintf("%s %s at allocation %d bytes %d..%d (%s)",
		a.by.name, a.verb, a.of.index, a.at, a.at+a.bytes, a.when())
}

func (a *access) when() string {
	if a.by.host {
		return fmt.Sprintf("time %d, at %s", a.time, a.site)
	}
	return fmt.Sprintf("operation %d, enqueued at %s", a.time, a.site)
}

// space is a range of addresses with the accesses that later ones must be compared with.
type space struct {
	list  []interval // sorted, without overlap
	words map[uint64]*word
}

// interval has bytes with the same last accesses. Its slices are not changed, but replaced.
type interval struct {
	from, to uint64
	write    *access
	reads    []*access // since write; none comes before another
	words    []*access
}

func newSpace() *space { return &space{words: map[uint64]*word{}} }

// touch compares an access with the earlier ones, reports those that nothing orders, and notes it.
func (d *Driver) touch(a *access, known clock) {
	from := a.of.at + uint64(a.at)
	a.of.space.visit(from, from+uint64(a.bytes), func(i *interval) {
		if i.write != nil && !i.write.before(a, known) {
			d.race(i, i.write, a)
		}
		for _, w := range i.words {
			if !a.word && (a.write || w.write) && !w.before(a, known) {
				d.race(i, w, a)
			}
		}
		if a.write {
			for _, r := range i.reads {
				if !r.before(a, known) {
					d.race(i, r, a)
				}
			}
		}
		switch {
		case a.word:
			i.words = replaceKnown(i.words, a, known)
		case a.write:
			i.write, i.reads, i.words = a, nil, nil
		default:
			i.reads = replaceKnown(i.reads, a, known)
		}
	})
}

// replaceKnown adds an access in place of those that come before it: what is ordered with it is
// ordered with them.
func replaceKnown(list []*access, a *access, known clock) []*access {
	left := make([]*access, 0, len(list)+1)
	for _, old := range list {
		if !old.before(a, known) || old.write && !a.write {
			left = append(left, old)
		}
	}
	return append(left, a)
}

func (d *Driver) race(i *interval, a, b *access) {
	from := max(i.from, b.of.at+uint64(b.at)) - b.of.at
	to := min(i.to, b.of.at+uint64(b.at+b.bytes)) - b.of.at
	d.report(Race, a.by.name+a.verb+a.site.String()+b.by.name+b.verb+b.site.String(),
		"nothing orders two accesses to allocation %d bytes %d..%d:\n\t%s\n\t%s",
		b.of.index, from, to, a.text(), b.text())
}

// visit calls f for intervals that cover exactly from..to, and joins what is equal afterwards.
func (s *space) visit(from, to uint64, f func(*interval)) {
	if from >= to {
		return
	}
	// Of the intervals first..last-1, only the outer ones may reach beyond from..to.
	first := sort.Search(len(s.list), func(i int) bool { return s.list[i].to > from })
	last := sort.Search(len(s.list), func(i int) bool { return s.list[i].from >= to })
	var parts []interval
	at := from
	for _, old := range s.list[first:last] {
		if old.from < from {
			before := old
			before.to = from
			parts = append(parts, before)
		}
		if old.from > at {
			gap := interval{from: at, to: old.from}
			f(&gap)
			parts = append(parts, gap)
		}
		inner := old
		inner.from, inner.to = max(old.from, from), min(old.to, to)
		f(&inner)
		parts = append(parts, inner)
		at = inner.to
		if old.to > to {
			after := old
			after.from = to
			parts = append(parts, after)
		}
	}
	if at < to {
		gap := interval{from: at, to: to}
		f(&gap)
		parts = append(parts, gap)
	}
	joined := parts[:1]
	for _, p := range parts[1:] {
		if end := &joined[len(joined)-1]; end.to == p.from && end.equal(&p) {
			end.to = p.to
			continue
		}
		joined = append(joined, p)
	}
	s.list = slices.Replace(s.list, first, last, joined...)
}

func (i *interval) equal(j *interval) bool {
	return i.write == j.write && slices.Equal(i.reads, j.reads) && slices.Equal(i.words, j.words)
}

// clear forgets a range.
func (s *space) clear(from, to uint64) {
	s.visit(from, to, func(i *interval) { i.write, i.reads, i.words = nil, nil, nil })
	s.list = slices.DeleteFunc(s.list, func(i interval) bool {
		return i.write == nil && i.reads == nil && i.words == nil
	})
	for at := range s.words {
		if at >= from && at < to {
			delete(s.words, at)
		}
	}
}

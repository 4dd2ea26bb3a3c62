package tune

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/humanize"
)

// Condition is what a row requires of a yes-or-no property of a group.
type Condition uint8

const (
	Any Condition = iota
	No
	Yes
)

var conditions = [...]string{"any", "no", "yes"}

func (c Condition) String() string { return conditions[c] }

// If returns Yes if has is set, else No.
func If(has bool) Condition {
	if has {
		return Yes
	}
	return No
}

func (c Condition) allows(has bool) bool { return c == Any || c == If(has) }

// covers reports whether c allows everything that other allows.
func (c Condition) covers(other Condition) bool { return c == Any || c == other }

// Hosts is the numbers of hosts that a row is for; the zero value is all of them. The ranks of a
// host share memory; ranks that share none with others are hosts of their own.
type Hosts struct{ First, Last int }

// The hosts of groups whose ranks all share memory, and of all other groups.
var (
	OneHost      = Hosts{1, 1}
	SeveralHosts = Hosts{2, Unbounded}
)

func (h Hosts) String() string {
	if h == (Hosts{}) {
		return conditions[Any]
	}
	return span(h.First, h.Last)
}

func (h Hosts) allows(hosts int) bool { return h == Hosts{} || h.First <= hosts && hosts <= h.Last }

// covers reports whether h allows everything that other allows.
func (h Hosts) covers(other Hosts) bool {
	return h == Hosts{} || other != Hosts{} && h.First <= other.First && other.Last <= h.Last
}

// AnySize as Row.Bytes means that the row is for all sizes; Unbounded as Row.Last means that the
// row has no upper limit of ranks.
const (
	AnySize   = math.MaxInt64
	Unbounded = math.MaxInt32
)

// maxRanks is the largest number of ranks in a table.
const maxRanks = 1 << 16

// Row is one row of a table: the algorithm that groups of a kind use for vectors up to a size.
type Row struct {
	Coll           dtype.Collective
	First, Last    int // ranks
	Oversubscribed Condition
	Hosts          Hosts
	Bytes          int64
	Algorithm      string
}

// String returns the row as a line of a table.
func (r Row) String() string {
	return fmt.Sprintf("%-14s  %-5s  %-4v %-4v  %6s  %s",
		r.Coll, span(r.First, r.Last), r.Oversubscribed, r.Hosts, r.size(), r.Algorithm)
}

func (r *Row) size() string {
	if r.Bytes == AnySize {
		return "any"
	}
	return humanize.FormatSize(r.Bytes)
}

// span returns the text of a range.
func span(first, last int) string {
	switch last {
	case first:
		return strconv.Itoa(first)
	case Unbounded:
		return strconv.Itoa(first) + "+"
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// Sized reports whether the choice for a collective may depend on bytes. For other collectives all
// ranks pass 0.
func Sized(coll dtype.Collective) bool {
	switch coll {
	case dtype.AllReduce, dtype.Reduce, dtype.ReduceScatter, dtype.Broadcast, dtype.AllGather:
		return true
	}
	return false
}

// rankOrder is the level of determinism of algorithms that reduce in rank order (verify.RankOrder).
const rankOrder = 4

// entry is a row as Choose reads it.
type entry struct {
	Row
	windows bool // the algorithm reads windows
	levels  bool // it has levels: windows need to be shared within hosts only
	ordered bool // it reduces in rank order, or does not reduce
	line    int  // line in the file
}

// compile looks up the algorithm of a row. Its error is text for people and names no place.
func compile(r Row) (entry, error) {
	e := entry{Row: r}
	a, err := algo.Find(r.Coll, r.Algorithm)
	if err != nil || a.Name != r.Algorithm {
		return e, fmt.Errorf("unknown; %v has %s", r.Coll, strings.Join(algo.Names(r.Coll), ", "))
	}
	last := r.Last
	if last == Unbounded {
		last = max(r.First, 64)
	}
	for _, ranks := range []int{r.First, last} {
		p, err := a.Make(plan.Spec{Coll: r.Coll, Ranks: ranks})
		if err != nil {
			return e, fmt.Errorf("it makes no plan for %d ranks: %v", ranks, err)
		}
		e.windows = e.windows || p.Needs&plan.Gets != 0
	}
	e.ordered, e.levels = !r.Coll.Reduces() || a.Level >= rankOrder, a.Grid != nil
	if e.windows && !e.levels && !r.Hosts.allows(1) {
		return e, errors.New("it reads windows, but ranks that do not share memory have none")
	}
	return e, nil
}

// covers reports whether no group ever uses later, because e comes first for it.
func (e *entry) covers(later *entry) bool {
	return e.Coll == later.Coll && e.First <= later.First && e.Last >= later.Last && e.Bytes >= later.Bytes &&
		e.Oversubscribed.covers(later.Oversubscribed) && e.Hosts.covers(later.Hosts) &&
		(!e.windows || later.windows) && (e.ordered || !later.ordered)
}

// fits reports whether e is for a group, and the group can run it. Only all_reduce has levels of
// hosts of unequal size.
func (e *entry) fits(on *topo.Group, wishes *Wishes) bool {
	ranks, even := on.Size(), e.Coll == dtype.AllReduce || on.Even()
	return e.First <= ranks && ranks <= e.Last && (even || !e.levels) &&
		(!e.windows || on.Windows() || e.levels && on.Slot() > 0) && (e.ordered || wishes.Determinism < 3) &&
		e.Oversubscribed.allows(on.Oversubscribed()) && e.Hosts.allows(len(on.Hosts()))
}

package ccl

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/tune/online"
	"github.com/goccl/goccl/internal/logs"
)

// ownPlan is a plan from a file that GOCCL_PLAN names.
type ownPlan struct {
	*plan.Plan
	file string
}

// journal prints which plan runs for which calls (GOCCL_DEBUG) and, at the end, which of the users'
// plans were never used. It is updated when a program is made, and when a call has another size
// than the one before: a call like the last one never reaches it. A nil journal keeps nothing.
type journal struct {
	planner     *planner
	group       *Endpoint
	info, trace bool // whether to print these levels

	mu    sync.Mutex // the group may be closed while a driver is at work
	used  []bool     // by index of planner.users
	calls [dtype.Barrier + 1]called
}

// called is how a group called one collective, a few values of each kind, for the text of a
// warning.
type called struct {
	sizes []int64
	roots []int
	ran   []string
}

const fewCalls = 4

func note[T comparable](list *[]T, x T) {
	if len(*list) <= fewCalls && !slices.Contains(*list, x) {
		*list = append(*list, x)
	}
}

// logs reports whether GOCCL_DEBUG asks for lines of a level: each has those of the levels above.
func (o *GroupOptions) logs(level string) bool {
	return logs.Levels[level] >= logs.Levels[cmp.Or(o.Debug, "WARN")]
}

// log writes a line for users if GOCCL_DEBUG asks for its level.
func (e *Endpoint) log(level, format string, args ...any) {
	if e.cfg.Options.logs(level) {
		e.node.write(level, fmt.Sprintf(format, args...),
			slog.Int(logs.Rank, e.cfg.Rank), slog.String(logs.Group, e.cfg.Name))
	}
}

// tellOtherPlans logs which plans from files are for groups of another size.
func (e *Endpoint) tellOtherPlans() {
	for _, p := range e.plans {
		if p.Spec.Ranks != e.cfg.Size {
			e.log("INFO", "GOCCL_PLAN: %s is not used in this group of %d ranks: it is for %s",
				p.file, e.cfg.Size, forWhat(p.Plan))
		}
	}
}

// journal returns the journal of a group, or nil where there is nothing to keep.
func (e *Endpoint) journal(p *planner) *journal {
	j := &journal{planner: p, group: e, info: e.cfg.Options.logs("INFO"), trace: e.cfg.Options.logs("TRACE")}
	for _, u := range p.users {
		if u.Spec.Ranks == e.cfg.Size && e.cfg.Rank == 0 { // all ranks would print the same
			j.used = make([]bool, len(p.users))
		}
	}
	if !j.info && j.used == nil {
		return nil
	}
	return j
}

// chosen notes a call of another size than the one before.
func (j *journal) chosen(coll dtype.Collective, bytes int64, algorithm int) {
	if j == nil {
		return
	}
	if j.trace && algorithm >= 0 {
		j.group.log("TRACE", "%v%s: plan %s", coll, sizeOf(coll, bytes), j.name(algorithm))
	}
	if j.used != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		note(&j.calls[coll].sizes, bytes)
	}
}

// made notes that the program of a plan is being made.
func (j *journal) made(algorithm int, spec plan.Spec) {
	if j == nil {
		return
	}
	if j.info {
		low, high := j.planner.span(spec.Coll, j.planner.last[spec.Coll].bytes)
		root := ""
		if spec.Coll.Rooted() {
			root = fmt.Sprintf(" with root %d", spec.Root)
		}
		j.group.log("INFO", "%v%s%s: plan %s%s", spec.Coll, root, rangeOf(spec.Coll, low, high), j.name(algorithm),
			j.why(algorithm, spec.Coll))
	}
	if j.used == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if algorithm < len(j.used) {
		j.used[algorithm] = true
	}
	c := &j.calls[spec.Coll]
	note(&c.ran, j.name(algorithm))
	note(&c.roots, spec.Root)
}

// trying notes a trial.
func (j *journal) trying(coll dtype.Collective, bytes int64, algorithm int) {
	if j != nil && j.trace {
		j.group.log("TRACE", "%v%s: plan %s, a trial", coll, sizeOf(coll, bytes), j.name(algorithm))
	}
}

// tried tells what the trials of a candidate have come to. All ranks would print the same.
func (j *journal) tried(r *online.Result) {
	if j == nil || !j.info || j.group.cfg.Rank != 0 {
		return
	}
	took := func(i int) time.Duration { return time.Duration(r.Times[i]).Round(100 * time.Nanosecond) }
	outcome := "which stays"
	if r.Won {
		row := j.planner.trials.row(r.Coll, r.High, r.High)
		outcome = fmt.Sprintf("and runs from now on; as a row: %s", strings.Join(strings.Fields(row.String()), " "))
	}
	j.group.log("INFO", "%v%s: plan %s was tried %d times and took %v, in place of %s, which took %v: %s", r.Coll,
		rangeOf(r.Coll, r.Low, r.High), j.name(r.Candidate), r.Rounds, took(1), j.name(r.Current), took(0), outcome)
}

// why says what has decided on an algorithm for the last call.
func (j *journal) why(algorithm int, coll dtype.Collective) string {
	p := j.planner
	if algorithm < len(p.users) {
		return ""
	}
	if usual := p.usual(coll, p.last[coll].bytes); usual != algorithm {
		return " (tried)"
	}
	_, why := tune.Explain(tune.Call{Coll: coll, Bytes: p.last[coll].bytes}, p.group, &p.wishes)
	if why == tune.Predicted {
		return fmt.Sprintf(" (%v by the costs of %s)", why, p.costs)
	}
	return fmt.Sprintf(" (%v)", why)
}

// name returns the name of a plan for users.
func (j *journal) name(algorithm int) string {
	users := j.planner.users
	if algorithm < len(users) {
		return fmt.Sprintf("%s of %s", users[algorithm].Name, users[algorithm].file)
	}
	return j.planner.names[algorithm-len(users)].Name
}

// close warns about the plans for groups of this size that were never used.
func (j *journal) close() {
	if j == nil || j.used == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, u := range j.planner.users {
		if u.Spec.Ranks == j.group.cfg.Size && !j.used[i] {
			j.group.log("WARN", "GOCCL_PLAN: %s was never used: it is for %s; %s",
				u.file, forWhat(u.Plan), j.instead(u.Spec.Coll))
		}
	}
}

// forWhat describes the calls that a plan is for.
func forWhat(p *plan.Plan) string {
	text := p.Spec.String()
	switch {
	case p.MinBytes == 0 && p.MaxBytes == 0:
		return text
	case p.MaxBytes == 0:
		return fmt.Sprintf("%s of %d bytes and more", text, p.MinBytes)
	}
	return fmt.Sprintf("%s of %d to %d bytes", text, p.MinBytes, p.MaxBytes)
}

// instead describes how a collective was called or, if it was not, which others were.
func (j *journal) instead(coll dtype.Collective) string {
	c := &j.calls[coll]
	if c.ran != nil {
		root := ""
		if coll.Rooted() {
			root = " with root " + some(c.roots)
		}
		if tune.Sized(coll) {
			root += " of " + some(c.sizes) + " bytes"
		}
		return fmt.Sprintf("%v was called%s, and ran %s", coll, root, some(c.ran))
	}
	var others []string
	for other := range j.calls {
		if j.calls[other].ran != nil {
			others = append(others, dtype.Collective(other).String())
		}
	}
	if others == nil {
		return "no collective was called"
	}
	return fmt.Sprintf("%v was never called, but %s", coll, strings.Join(others, ", "))
}

// some lists the first few elements.
func some[T any](list []T) string {
	var words []string
	for i, x := range list {
		if i == fewCalls {
			words = append(words, "…")
			break
		}
		words = append(words, fmt.Sprint(x))
	}
	return strings.Join(words, ", ")
}

// sizeOf describes the size of a call, for a collective whose plans depend on it.
func sizeOf(coll dtype.Collective, bytes int64) string {
	if !tune.Sized(coll) {
		return ""
	}
	return fmt.Sprintf(" of %d bytes", bytes)
}

// rangeOf describes the sizes from low to high.
func rangeOf(coll dtype.Collective, low, high int64) string {
	switch {
	case !tune.Sized(coll) || low == 0 && high == mostBytes:
		return ""
	case high == mostBytes:
		return fmt.Sprintf(" of %d bytes and more", low)
	}
	return fmt.Sprintf(" of %d to %d bytes", low, high)
}

package drill

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// How long ranks may take for what happens after their end.
const (
	laterLimit = 200 * time.Millisecond // a call of a group that has failed
	closeLimit = time.Second
)

// expectation is what one rank must report.
type expectation struct {
	codes    []string       // one of them; none: it must end well
	culprits []int          // exactly these
	some     bool           // or some of them, and nobody else
	evidence *regexp.Regexp // in the text of the error
	within   time.Duration  // from the fault, or the rank's last call if that is later
	slowest  time.Duration  // of an end that is well: no round takes longer; 0 for any
	lives    bool           // the group goes on: a later call ends well
	orWell   bool           // it may also end well
	orNext   bool           // it may end well, and then a later call must fail so: all that it needs had arrived
	former   bool           // a later call fails with what has ended the former group
	anyone   bool           // whoever is named: this rank differs from all others
}

// testimony is what became of one rank.
type testimony struct {
	Rank    int           `json:"rank"`
	Since   time.Duration `json:"since"` // from the fault, or the rank's last call if that is later
	End     *rankEnd      `json:"end,omitempty"`
	After   *rankAfter    `json:"after,omitempty"`
	Stderr  string        `json:"stderr,omitempty"` // the end of it
	Silence string        `json:"silence,omitempty"`
}

// judge returns what is wrong with what a rank has reported.
func (e *expectation) judge(t *testimony) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if t.End == nil {
		complain("HANG: %s", t.Silence)
		return wrong
	}
	well := len(e.codes) == 0 || e.orWell && t.End.Error == nil
	next := e.orNext && t.End.Error == nil && t.After != nil
	switch {
	case well:
		e.judgeWell(t, complain)
	case next:
		e.judgeWell(t, complain)
		e.judgeFailure(t.After.Later, complain)
	default:
		e.judgeError(t, complain)
	}
	if t.After == nil {
		if t.Silence != "" {
			complain("HANG after its end: %s", t.Silence)
		}
		return wrong
	}
	if later := t.After.Later; t.End.During != "join" && t.End.During != "open" {
		switch alive := well || e.lives; {
		case alive && later != nil:
			complain("a later call of a group that lives fails: %s", later.Text)
		case alive, next:
		case later == nil:
			complain("a later call of a group that has failed ends well")
		case e.former:
		case t.End.Error != nil && !later.like(t.End.Error) && !(e.some && e.names(later)):
			complain("a later call fails with another error: %s", later.Text)
		case t.After.Took > laterLimit:
			complain("a later call fails after %s", seconds(t.After.Took))
		}
	}
	if t.After.Close > closeLimit {
		complain("closing takes %s", seconds(t.After.Close))
	}
	if len(t.After.Left) > 0 {
		complain("left open: %s", strings.Join(t.After.Left, ", "))
	}
	return wrong
}

// names reports whether an error names whom it should.
func (e *expectation) names(f *failure) bool {
	if !e.some {
		return slices.Equal(f.Culprits, e.culprits)
	}
	other := func(rank int) bool { return !slices.Contains(e.culprits, rank) }
	return len(f.Culprits) > 0 && !slices.ContainsFunc(f.Culprits, other)
}

// like reports whether two errors have the same class and name the same ranks.
func (f *failure) like(other *failure) bool {
	return f.Code == other.Code && slices.Equal(f.Culprits, other.Culprits)
}

func (e *expectation) judgeWell(t *testimony, complain func(string, ...any)) {
	switch end := t.End; {
	case end.Error != nil:
		complain("fails: %s", end.Error.Text)
	case end.Wrong > 0:
		complain("%d elements are wrong", end.Wrong)
	case e.slowest > 0 && end.Slowest > e.slowest:
		complain("a round takes %s, more than %s", seconds(end.Slowest), seconds(e.slowest))
	}
}

func (e *expectation) judgeError(t *testimony, complain func(string, ...any)) {
	e.judgeFailure(t.End.Error, complain)
	if t.Since > e.within {
		complain("after %s, more than %s", seconds(t.Since), seconds(e.within))
	}
	if t.End.Wrong > 0 {
		complain("%d elements were wrong before", t.End.Wrong)
	}
}

func (e *expectation) judgeFailure(f *failure, complain func(string, ...any)) {
	if f == nil {
		complain("ends well, and should have failed: %s", strings.Join(e.codes, " or "))
		return
	}
	if !slices.Contains(e.codes, f.Code) {
		complain("the error is %q, not %s", f.Code, strings.Join(e.codes, " or "))
	}
	if !e.anyone && !e.names(f) {
		complain("names %s, not %s", ranksText(f.Culprits), ranksText(e.culprits))
	}
	if e.evidence != nil && !e.evidence.MatchString(f.Text) {
		complain("no evidence like %q", e.evidence)
	}
}

func ranksText(ranks []int) string {
	switch len(ranks) {
	case 0:
		return "nobody"
	case 1:
		return fmt.Sprint("rank ", ranks[0])
	}
	return "ranks " + strings.Trim(fmt.Sprint(ranks), "[]")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

package verify

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// Reason is the class of a failure of a plan.
type Reason uint8

const (
	Malformed   Reason = iota // a program has an invalid structure: plan.Validate refuses it
	Deadlock                  // steps wait for each other in a cycle
	Unreceived                // a message without a recv
	Unsent                    // a recv without a send
	Length                    // a message and its recv may have different lengths
	Unordered                 // two steps use the same stream of messages, and either may come first
	Race                      // two steps use the same memory, one writes, and either may come first
	Undefined                 // a step reads memory that no step has written
	Overwritten               // in place, a step reads In after Out, the same memory, was written
	Unwritten                 // no step has written a chunk of Out
	WrongValue                // a chunk of Out holds contributions to another chunk (mostly Length is found first)
	Missing                   // a chunk of Out lacks a contribution
	Twice                     // a contribution was counted more than once
	PreScale                  // a contribution was not scaled on its way in, or was scaled twice
	PostScale                 // a result was not marked Final, or twice, or too early
	NotABarrier               // a rank may leave a barrier before another rank has entered it
	Unsignalled               // a wait without a signal
	Unwaited                  // a signal without a wait
	OutOfBounds               // a step accesses chunks that the window of another rank does not have
	Crossed                   // a message or a signal of one plan of a sequence meets a step of another
	Late                      // a put that may arrive after its target has ended
	// Results depend on the rank, or are not reduced in the order of ranks, although that is
	// required.
	Bits
	numReasons
)

var reasonNames = [numReasons]string{"malformed", "deadlock", "unreceived message", "unsent message", "length",
	"unordered messages", "race", "undefined", "overwritten", "unwritten", "wrong value",
	"missing contribution", "double contribution",
	"pre-scaling", "post-scaling", "not a barrier", "missing signal", "signal left over", "out of bounds",
	"crossed plans", "put left over", "different bits"}

func (r Reason) String() string {
	if r >= numReasons {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Where names a step of a rank or, with Lane -1, the rank as a whole.
type Where struct {
	Rank, Lane, Step int
	Op               int // index of the plan in a sequence
}

func (w Where) String() string {
	if w.Lane < 0 {
		return fmt.Sprintf("rank %d", w.Rank)
	}
	return fmt.Sprintf("rank %d, lane %d, step %d", w.Rank, w.Lane, w.Step)
}

// Counterexample describes why a plan is wrong. Plan returns it as the cause of a fault.Invalid.
type Counterexample struct {
	Plan    string // name of the algorithm
	Spec    plan.Spec
	InPlace bool // found with Out in the memory of In
	Lent    bool // found with windows in the memory of In and Out
	Reason  Reason
	At      []Where // the steps at fault, the most important one first
	Text    string  // what happens
	Remedy  string  // what to change, if that is known
	// Steps show the failure without any other steps. If Minimal is set, the failure vanishes if
	// any of them is removed; otherwise there was too much to search. Steps may be empty, as when
	// nothing writes a chunk.
	Steps   []Line
	Minimal bool
	Stuck   []Where // if steps wait forever: for each lane that does not end, the step that it stops at

	edges []edge // after points that may cure the failure

	out int // the chunk of Out, or the rank, whose final state is wrong; or 0
}

// maxLines is the maximum number of steps that Error prints.
const maxLines = 24

// Summary describes the failure without the steps that show it.
func (c *Counterexample) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %q (%v) is wrong", c.Plan, c.Spec)
	if c.InPlace {
		b.WriteString(" in place")
	}
	if c.Lent {
		b.WriteString(" with windows lent from in and out")
	}
	fmt.Fprintf(&b, ": %v: %s", c.Reason, shortened(c.Text, 2*mostStep))
	if c.Remedy != "" {
		b.WriteString("; " + c.Remedy)
	}
	return b.String()
}

func (c *Counterexample) Error() string { return shortened(c.whole(), mostError) }

// mostError is the length of an error, and mostStep that of a step in it. A step may have a million
// sources.
const (
	mostError = 1800
	mostStep  = 400
)

// shortened cuts a text that is too long in the middle.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	left := fmt.Sprintf(" … (%d bytes are left out) … ", len(text)-most)
	half := (most - len(left)) / 2
	return strings.ToValidUTF8(text[:half]+left+text[len(text)-half:], "")
}

func (c *Counterexample) whole() string {
	var b strings.Builder
	b.WriteString(c.Summary())
	for i, l := range c.Steps {
		switch {
		case i == 0 && c.Minimal:
			b.WriteString("\nthese steps show it, and not without any of them:")
		case i == 0:
			b.WriteString("\nsteps at fault:")
		case i == maxLines:
			fmt.Fprintf(&b, "\n  and %d more", len(c.Steps)-i)
			return b.String()
		}
		fmt.Fprintf(&b, "\n  %v: %s", l.Where, shortened(l.Text, mostStep))
	}
	return b.String()
}

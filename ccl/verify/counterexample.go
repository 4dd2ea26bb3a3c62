package verify

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// Reason is the class of what is wrong with a plan.
type Reason uint8

const (
	Malformed   Reason = iota // the structure of a program: plan.Validate refuses it
	Deadlock                  // steps wait for each other in a circle
	Unreceived                // a message that nobody receives
	Unsent                    // a recv that nobody sends to
	Length                    // a message and its recv may have different lengths
	Unordered                 // two steps use the same stream of messages, and either may come first
	Race                      // two steps use the same memory, one writes, and either may come first
	Undefined                 // a step reads what nobody wrote
	Overwritten               // in place, a step reads In after Out, the same memory, was written
	Unwritten                 // a chunk of Out that nobody wrote
	WrongValue                // a chunk of Out holds contributions to something else (mostly Length tells it first)
	Missing                   // a chunk of Out lacks a contribution
	Twice                     // a contribution was counted more than once
	PreScale                  // a contribution was not scaled, or twice, on its way in
	PostScale                 // a result was not marked Final, or twice, or too early
	NotABarrier               // a rank may leave a barrier before another one has come
	Unsignalled               // a wait for a signal that nobody gives
	Unwaited                  // a signal that nobody waits for
	OutOfBounds               // a step accesses chunks that the window of another rank does not have
	Crossed                   // a message or a signal of one plan of a sequence meets a step of another
	Late                      // a put that may arrive after its target has ended
	Bits                      // results depend on the rank, or are not reduced in the order of ranks, where that is asked for
	numReasons
)

var reasonNames = [numReasons]string{"malformed", "deadlock", "unreceived message", "unsent message", "length", "unordered messages",
	"race", "undefined", "overwritten", "unwritten", "wrong value", "missing contribution", "double contribution",
	"pre-scaling", "post-scaling", "not a barrier", "missing signal", "signal left over", "out of bounds", "crossed plans",
	"put left over", "different bits"}

func (r Reason) String() string {
	if r >= numReasons {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Where is a step of a rank, or, with Lane -1, the rank as a whole.
type Where struct {
	Rank, Lane, Step int
	Op               int // which plan of a sequence
}

func (w Where) String() string {
	if w.Lane < 0 {
		return fmt.Sprintf("rank %d", w.Rank)
	}
	return fmt.Sprintf("rank %d, lane %d, step %d", w.Rank, w.Lane, w.Step)
}

// Counterexample says why a plan is wrong. Plan returns it as the cause of a fault.Invalid.
type Counterexample struct {
	Plan    string // name of the algorithm
	Spec    plan.Spec
	InPlace bool // found with Out in the memory of In
	Lent    bool // found with windows in the memory of In and Out
	Reason  Reason
	At      []Where // the steps that are to blame, first the one to look at first
	Text    string  // what happens
	Remedy  string  // what to change, where that is known
	// Steps show the failure by themselves. Where Minimal is set, it vanishes if any of them is
	// taken away; else there was too much to search. It may take no step at all: nothing writes a
	// chunk.
	Steps   []Line
	Minimal bool
	Stuck   []Where // where a step waits for ever: that step of each lane which does not end

	edges []edge // which may cure it

	out int // the chunk of Out, or the rank, that the end is wrong about; or 0
}

// maxLines is how many steps Error prints.
const maxLines = 24

// Summary is what is wrong, without the steps that show it.
func (c *Counterexample) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %q (%v) is wrong", c.Plan, c.Spec)
	if c.InPlace {
		b.WriteString(" in place")
	}
	if c.Lent {
		b.WriteString(" with windows lent from in and out")
	}
	fmt.Fprintf(&b, ": %v: %s", c.Reason, c.Text)
	if c.Remedy != "" {
		b.WriteString("; " + c.Remedy)
	}
	return b.String()
}

func (c *Counterexample) Error() string {
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
		fmt.Fprintf(&b, "\n  %v: %s", l.Where, l.Text)
	}
	return b.String()
}

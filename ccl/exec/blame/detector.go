package blame

import (
	"cmp"
	"math"
	"time"

	"github.com/goccl/goccl/ccl/exec/links"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/park"
)

// Lanes is what a Detector reads of the operations of its rank. Only the driver has it read, but
// for Outside.
type Lanes interface {
	// Outside is what any thread can say about this rank.
	Outside() Standing
	// Standing is what the driver can say about it.
	Standing() Standing
	// Call returns the collective in flight, if one has begun.
	Call() (call Call, begun bool)
	// InFlight returns the first operation in flight: the collective, or else the message that was
	// posted first.
	InFlight() (op Operation, any bool)
	// Awaited returns the ranks that operations in flight wait for.
	Awaited() []int
}

// Options configures a Detector.
type Options struct {
	Links    *links.Set
	Lanes    Lanes
	Calls    *Calls
	Control  *Control       // takes the control messages of the peers; nil if they send none
	Group    *topo.Group    // nil if it is unknown
	Doorbell *park.Doorbell // wakes the driver

	// Drive drives the operations once, if no other thread does, and returns why the group has
	// ended. Failure only returns that.
	Drive, Failure func() *fault.Error
	// Barred is called when the collectives from a number on are refused. The driver calls it.
	Barred func()

	// WarnAfter is how long an operation may take before Warn is told whom it waits for; 0 for
	// ever.
	WarnAfter time.Duration
	Warn      func(format string, args ...any)
}

// Detector finds out who is to blame, for one rank of a group. Only the driver uses it, but for
// what says otherwise.
type Detector struct {
	opts       Options
	Comparison Comparison
	Inquiry    Inquiry
	Losses     Losses
	Ending     Ending
	Asking     Asking
}

// Open makes d a rank's Detector, which gets the control messages from then on.
func (d *Detector) Open(opts Options) {
	d.opts = opts
	o := &d.opts
	d.Comparison.opts, d.Inquiry.opts, d.Losses.opts, d.Ending.opts = o, o, o, o
	d.Ending.losses, d.Ending.comparison, d.Inquiry.ending = &d.Losses, &d.Comparison, &d.Ending
	d.Asking = newAsking(o)
	if opts.Control != nil {
		opts.Control.detector.Store(d)
	}
}

func (o *Options) rank() int { return o.Links.Rank }
func (o *Options) size() int { return o.Links.Size() }

// alone reports whether there is nobody to ask.
func (o *Options) alone() bool { return o.Control == nil || o.size() == 1 }

// Attend handles the control messages that have come, and reports whether there were any. If calls
// differ it returns the mismatch, with which the group has to end.
func (d *Detector) Attend(t int64) (any bool, found *fault.Error) {
	if k := d.opts.Control; k == nil || !k.pending.Load() || !k.pending.Swap(false) {
		return false, nil
	}
	if found := d.Comparison.compare(); found != nil {
		return true, found
	}
	d.Ending.attend()
	d.Inquiry.attend(t)
	return true, nil
}

// Warn says whom the operation in flight waits for, after an inquiry, if it is time; the next time
// after twice as long.
func (d *Detector) Warn(t int64) {
	a := &d.Asking
	if t < a.warn || !d.Inquiry.Inquire(t) {
		return
	}
	if op, any := d.opts.Lanes.InFlight(); any {
		d.opts.Warn("%s has not ended for %v: %s", op.Name,
			time.Duration(a.after).Round(time.Millisecond), d.Inquiry.TimedOut(&op).Text)
	}
	a.warn += a.after
	a.after *= 2
}

// askAfter is the time before a rank first asks. Each further pause is twice as long as the one
// before, and the rank then asks only peers that it has not asked yet.
const askAfter = 50 * time.Millisecond

// Asking is which peers a rank has asked, by fragments, during the operation in flight, and when it
// asks and warns next.
type Asking struct {
	Asked    []bool // by peer
	seq      uint64 // number of the operation
	at       int64  // when to ask next
	pause    int64
	warn     int64 // when to warn that the operation does not end
	after    int64 // how long it will not have ended by then
	patience int64 // how long an operation may take before the first warning
}

func newAsking(o *Options) Asking {
	return Asking{Asked: make([]bool, o.size()), patience: cmp.Or(int64(o.WarnAfter), math.MaxInt64/2)}
}

// Times returns when to ask next, and when to warn, during an operation with a number. The first
// call during an operation starts the wait.
func (a *Asking) Times(seq uint64, t int64) (ask, warn int64) {
	if a.seq != seq {
		a.seq, a.pause, a.after = seq, int64(askAfter), a.patience
		a.at, a.warn = t+a.pause, t+a.after
		clear(a.Asked)
	}
	return a.at, a.warn
}

// Again has the rank ask after the next pause.
func (a *Asking) Again(t int64) {
	a.pause *= 2
	a.at = t + a.pause
}

package group

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// way is how calls are moved: staged, over windows, or as a part of a CUDA graph. A Group has a
// list of those that work on all of its ranks (setUp), the staged one last. Nothing else knows
// which there are.
type way interface {
	// suits reports whether a call goes this way, and notes in the Op how. All ranks answer alike.
	suits(o *Op) (bool, error)
	// prepare makes what the call needs. An error refuses it.
	prepare(o *Op, on cuda.Stream) error
	// announce tells the hosts of the peers of a call by whatever way.
	announce(o *Op)
	// hand gives an Op to the device thread.
	hand(o *Op)
	// enqueue puts a call behind the caller's stream.
	enqueue(o *Op, on cuda.Stream) error
	// abandon makes the caller's stream wait for what has been enqueued of a call before an error,
	// as far as the driver still does anything. The memory of the call is safe from then on.
	abandon(o *Op, on cuda.Stream)
	// unblock lets streams go that wait for this rank's host. failed says that this rank has not
	// done its part of what it called, and perhaps never will.
	unblock(failed bool)
	// outlives reports whether the way has work that goes on when the group is closed.
	outlives() bool

	// Only the device thread calls what follows, and who closes the group when that has left it.

	// advance reports whether anything has moved, and whether calls are pending.
	advance() (moved, pending bool)
	// look returns why calls cannot end, or else whether any is waiting for the device.
	look(now time.Time) (pending bool, err error)
	// stop lets streams go that wait for peers, after the group has failed. It reports whether
	// they are known to have ended; until then it is called again.
	stop() bool
	// fail ends all Ops, and reports whether there were any.
	fail(failure *fault.Error) (any bool)
	// resume lets that go on, if nobody comes for it, and reports whether it has done so.
	resume() bool
}

// passive does nothing, for what a way has no part in.
type passive struct{}

func (passive) prepare(*Op, cuda.Stream) error { return nil }
func (passive) announce(*Op)                   {}
func (passive) hand(*Op)                       {}
func (passive) advance() (moved, pending bool) { return false, false }
func (passive) unblock(bool)                   {}
func (passive) stop() bool                     { return true }
func (passive) fail(*fault.Error) bool         { return false }
func (passive) outlives() bool                 { return false }
func (passive) resume() bool                   { return false }

package exec

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

// waiter is a thread that waits for an operation. Waiting threads do the work: the thread that
// holds the lock drives the Comm; the others wait until it has ended their operation, or until they
// get the lock.
//
// A wait has three parts. While it is young, the driver only polls, and wakes no peers: peers that
// are awake see what this rank has published. After that the wait is counted: the driver wakes
// peers, checks links and deadlines too, and yields its core between two polls. In the last part it
// sleeps.
type waiter struct {
	comm    *Comm
	pace    park.Spinner
	op      *Op
	cancel  *Cancel
	limit   time.Duration // of the wait, from when it is counted; 0 for none
	until   int64         // when that is over; 0 while the wait is young, or for none
	counted bool          // the wait is no longer young

	// The record of a short call is filled in when it first waits, where that costs nothing, or at
	// its end. Its number is taken before anything is published: the atomic addition would wait
	// until the peers can see that.
	note    uint64 // number of the record
	unnoted bool   // the record is not filled in
	seq     uint64
}

// noteNow records the call, unless that has been done. It reports whether that took time.
func (w *waiter) noteNow(call *Call) bool {
	if !w.unnoted {
		return false
	}
	w.comm.fill(w.note, call, w.seq)
	w.unnoted = false
	return w.note != 0
}

// pause is called after a check that found nothing. It reports false when the thread should sleep.
func (w *waiter) pause() bool {
	awake := w.pace.Turn()
	if !w.pace.Spinning() {
		w.count()
	}
	return awake
}

// count ends the young part of the wait, and makes the wait known to other threads.
func (w *waiter) count() {
	if !w.counted {
		w.counted = true
		enterWait()
		w.comm.waiting.Add(1) // model: count
		if w.limit > 0 {
			w.until = now() + int64(w.limit)
		}
	}
}

// leave ends the wait.
func (w *waiter) leave() {
	if w.counted {
		w.counted = false
		w.comm.waiting.Add(-1) // model: leave
		leaveWait()
	}
}

// over reports whether there is nothing left to wait for, or no time.
func (w *waiter) over() bool {
	return !pending(w.op.state.Load()) || w.cancel.fired() || w.late() // model: overState
}

// late reports whether the wait has reached its limit. A young wait never has: it reads no clock.
func (w *waiter) late() bool { return w.until != 0 && w.until <= now() }

// sleep returns for how long the waiter may sleep if it has to do something at the given time.
func (w *waiter) sleep(at int64) time.Duration {
	if w.until != 0 {
		at = min(at, w.until)
	}
	return until(at)
}

// awake waits for a condition inside a step, without sleeping. It gives up, so that the wait
// continues in drive, when the thread should sleep or another thread needs something of the driver.
func (w *waiter) awake(ready func() bool) bool {
	c := w.comm
	for w.pause() {
		if w.counted {
			c.run.flush() // not earlier: the fence would delay this thread
		}
		if ready() {
			w.pace.Reset()
			return true
		}
		if w.counted && (c.stop.Load() != nil || c.posted.Load() != nil || // model: none: it may give up at any time
			w.late()) {
			break
		}
	}
	return false
}

// drive advances the Comm until w is over. The caller holds the lock.
func (c *Comm) drive(w *waiter) {
	for {
		c.young = !w.counted
		moved := c.advance()
		if w.over() {
			break
		}
		switch {
		case moved:
			w.pace.Reset()
		case c.poll(), !w.pace.Spinning() && c.look(), w.pause():
		default:
			rest(c.opts.Doorbell, func() (time.Duration, bool) {
				for _, p := range c.opts.Pollers {
					p.Arm()
				}
				if c.poll() || c.advanceAll() || c.look() || w.over() {
					return 0, false
				}
				return w.sleep(c.nextDeadline(now())), true
			})
			w.pace.Reset()
		}
	}
	c.young = false
	c.run.flush()
	w.pace.Reset()
}

// awaitTurn waits while another thread drives, until that thread has ended w's operation or leaves.
func (c *Comm) awaitTurn(w *waiter) {
	w.count()
	for w.pause() {
		if w.over() || c.lock.Load() == 0 { // model: none: spinning is left out
			return
		}
	}
	rest(c.turns, func() (time.Duration, bool) {
		return w.sleep(math.MaxInt64), !w.over() && c.lock.Load() != 0 // model: turnLock
	})
	w.pace.Reset()
}

// rest is the function in which the threads of this package sleep: for at most d, or forever if d
// is negative. It announces the sleeper before it calls last, which makes the final check and
// reports d. So any thread that changes the outcome of this check later rings.
func rest(b *park.Doorbell, last func() (d time.Duration, sleep bool)) {
	ticket := b.Prepare()
	if d, sleep := last(); sleep {
		b.Sleep(ticket, d)
	} else {
		b.Cancel()
	}
}

// Wait drives the operation, or waits while another thread does, until op has ended, and returns
// its error.
func (op *Op) Wait(cancel *Cancel) error {
	op.wait(&waiter{comm: op.comm, op: op, cancel: cancel})
	done, err := op.Done()
	if !done {
		return ErrCancelled
	}
	return err
}

// WaitSlice is Wait for a part of the time: it returns after about d at the latest, and reports
// whether op has ended. If it has not, it goes on, as it does without any thread that waits for it.
func (op *Op) WaitSlice(d time.Duration) (bool, error) {
	op.wait(&waiter{comm: op.comm, op: op, limit: d})
	return op.Done()
}

func (op *Op) wait(w *waiter) {
	c := op.comm
	if !pending(op.state.Load()) { // model: waitState
		return
	}
	for {
		if c.lock.CompareAndSwap(0, 1) { // model: waitLock
			c.drive(w)
			c.unlock()
		} else {
			c.awaitTurn(w)
		}
		if w.over() {
			break
		}
	}
	w.leave()
	c.handOver()
}

// Cancel ends waits from outside (for a context, say). The zero value is not cancelled.
type Cancel struct{ set atomic.Bool }

// Fire ends the wait. The caller must then wake the waiter with Comm.Nudge.
func (x *Cancel) Fire() { x.set.Store(true) } // model: cancelFire

func (x *Cancel) fired() bool { return x != nil && x.set.Load() } // model: overCancel

// Nudge makes the waiters of c check their Cancel.
func (c *Comm) Nudge() {
	c.opts.Doorbell.Ring()
	c.turns.Ring()
}

// ErrCancelled is returned by Wait when its Cancel fired before the operation's end. The operation
// goes on.
var ErrCancelled = fault.New(fault.Aborted, "the wait was cancelled")

func (c *Comm) unlock() { c.lock.Store(0) } // model: unlock

// handOver is called by a thread that has released the lock or leaves Wait: if operations are
// pending, another thread becomes their driver. If none are, the transports send by themselves what
// has not left yet.
func (c *Comm) handOver() {
	if c.pending.Load() == 0 { // model: handPending
		for _, p := range c.opts.Pollers {
			p.Leave()
		}
		return
	}
	if c.lock.Load() != 0 { // model: handLock
		return
	}
	if !c.turns.RingOne() && c.waiting.Load() == 0 && c.opts.Progress != nil { // model: handTurns, handWaiting
		c.opts.Progress.notify(c)
	}
}

// waiters counts the threads of this process that wait and are no longer young. Each may occupy one
// of the Go runtime's processors while it spins, so there are always two more processors than
// waiters.
var (
	waiters atomic.Int32
	procs   atomic.Int32
	raise   sync.Mutex
)

func enterWait() {
	if n := waiters.Add(1) + 2; n > procs.Load() {
		raise.Lock()
		if n > procs.Load() {
			want := max(int(n)*2, 4)
			if runtime.GOMAXPROCS(0) < want {
				runtime.GOMAXPROCS(want)
			}
			procs.Store(int32(runtime.GOMAXPROCS(0)))
		}
		raise.Unlock()
	}
}

func leaveWait() { waiters.Add(-1) }

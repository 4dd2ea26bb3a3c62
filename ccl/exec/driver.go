package exec

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/park"
)

// advance does everything that can be done without waiting, and reports whether anything was. The caller holds the lock.
func (c *Comm) advance() bool {
	moved := false
	c.idle++
	c.take()
	if why := c.stop.Load(); why != nil && c.broken == nil {
		c.breakOff(why)
		return true
	}
	f := &c.frame
	for c.head != nil {
		op, before := c.head, f.moves
		s, err := failed, error(nil)
		if f.prog == nil {
			if err = c.begin(op); err != nil && !isSystem(err) {
				s = refused
			}
		}
		if err == nil {
			s, err = c.step(f, f.call(&c.exchange))
		}
		moved = moved || f.moves != before || s != blocked
		if s == failed {
			c.fail(op, err)
			return true
		}
		if s == blocked {
			if !c.keen {
				c.flush()
				if f.moves == before && c.idle%unaskedEvery == 0 {
					if err := c.strangers(); err != nil {
						c.fail(op, err)
						return true
					}
					moved = moved || f.moves != before
				}
			}
			break
		}
		c.pop()
		c.end(op, err)
	}
	// Messages that nobody here asked for yet are looked at now and then: a sender must not wait for a receiver that
	// waits for it in a collective.
	if !moved && (c.p2p.Active() || c.idle%unaskedEvery == 0) || len(c.p2pOps) > 0 {
		moved = c.p2p.Advance() || moved
	}
	return moved
}

// unaskedEvery is how many idle turns pass between two looks at messages that nobody asked for.
const unaskedEvery = 16

// advanceAll is advance with such a look for certain: the last one before a driver sleeps.
func (c *Comm) advanceAll() bool {
	c.idle = unaskedEvery - 1
	return c.advance()
}

func (c *Comm) pop() {
	c.head = c.head.next
	if c.head == nil {
		c.tail = nil
	}
	c.finish()
}

// finish forgets the operation that was under way.
func (c *Comm) finish() {
	c.frame.finish()
	c.exchange.forget()
}

// call is what the program under way works on.
func (f *frame) call(x *exchange) *Call {
	if f.counting {
		return &x.call
	}
	return &f.op.call
}

// fail ends an operation that has begun, and with it the Comm.
func (c *Comm) fail(op *Op, err error) {
	c.breakOff(op.explain(err))
}

// look is what a driver does besides advancing, when nothing moves: links that broke, deadlines that passed. It
// reports whether that changed anything.
func (c *Comm) look() bool {
	if c.broken != nil {
		return false
	}
	changed := false
	for peer, link := range c.opts.Links {
		if link == nil || c.lost[peer] {
			continue
		}
		if err := link.Err(); err != nil {
			c.lost[peer] = true
			c.p2p.Advance()
			c.p2p.PeerFailed(peer, c.named(peer, err))
			changed = true
		}
	}
	if c.frame.prog != nil {
		if err := c.lostPeer(); err != nil {
			if !c.advance() { // nothing was there that arrived before the end
				c.fail(c.head, err)
			}
			return true
		}
	}
	if at := c.nextDeadline(); at != math.MaxInt64 && at <= now() {
		if c.expire(); c.broken == nil && c.frame.prog != nil && c.askTime() <= now() {
			c.ask()
		}
		changed = true
	}
	return changed
}

// nextDeadline is the earliest deadline among the operations of the Comm, or when the first of them has waited for long.
func (c *Comm) nextDeadline() int64 {
	at := int64(math.MaxInt64)
	if c.frame.prog != nil {
		at = c.askTime()
	}
	for op := c.head; op != nil; op = op.next {
		if d := op.due(); d != 0 {
			at = min(at, d)
		}
	}
	for _, op := range c.p2pOps {
		if d := op.due(); d != 0 {
			at = min(at, d)
		}
	}
	return at
}

func (op *Op) past(t int64) bool {
	d := op.due()
	return d != 0 && d <= t
}

// expire fails what is past its deadline: a message alone, a collective with the whole Comm.
func (c *Comm) expire() {
	t := now()
	for i := 0; i < len(c.p2pOps); i++ {
		if op := c.p2pOps[i]; op.past(t) && c.p2p.Cancel(&op.req, c.timedOut(op)) {
			i-- // messageDone has taken it out
		}
	}
	for op := c.head; op != nil; op = op.next {
		if op.past(t) {
			c.fail(op, c.timedOut(op))
			return
		}
	}
}

// Cancel ends waits from outside (a context). The zero value is not cancelled.
type Cancel struct{ set atomic.Bool }

// Fire ends the wait; the waiter must be woken by Comm.Nudge.
func (x *Cancel) Fire() { x.set.Store(true) }

// Nudge makes the waiters of c look at their Cancel.
func (c *Comm) Nudge() {
	c.opts.Bell.Ring()
	c.wake(1 << 30)
}

func (x *Cancel) fired() bool { return x != nil && x.set.Load() }

// ErrCancelled is returned by Wait when its Cancel fired before the operation's end. The operation goes on.
var ErrCancelled = fault.New(fault.Aborted, "the wait was cancelled")

// Wait works until op is done, and returns how it ended.
func (op *Op) Wait(cancel *Cancel) error {
	c := op.comm
	if op.state.Load() == opPending {
		var pace park.Spinner
		held := c.lock.CompareAndSwap(0, 1)
		if held && c.hasten(op, &pace) {
			c.unlock()
			c.handOver()
			return op.err
		}
		enterWait()
		c.waiting.Add(1)
		for op.state.Load() == opPending && !cancel.fired() {
			if held || c.lock.CompareAndSwap(0, 1) {
				held = false
				c.drive(op, cancel, &pace)
				c.unlock()
			} else {
				c.sleepTurn(op, cancel)
			}
		}
		if held { // cancelled before
			c.unlock()
		}
		c.waiting.Add(-1)
		c.handOver()
		leaveWait()
	}
	done, err := op.Done()
	if !done {
		return ErrCancelled
	}
	return err
}

// hasten works awake for op, as long as something is under way, and reports whether op has ended. The caller holds the lock.
func (c *Comm) hasten(op *Op, pace *park.Spinner) bool {
	message := !op.call.Coll.Valid()
	c.keen = true
	for {
		moved := c.advance() || c.poll()
		if op.state.Load() != opPending || !moved && (c.frame.prog == nil && !message || !(pace.Turn() && pace.Spinning())) {
			break
		}
		if moved {
			pace.Reset()
		}
	}
	c.keen = false
	c.flush()
	return op.state.Load() != opPending
}

// Urge has op driven without delay although nobody may wait for it: somebody sleeps until its end, and does not work.
func (op *Op) Urge() {
	if op.urgency.CompareAndSwap(opCalm, opUrged) {
		op.comm.urgent.Add(1)
		op.comm.handOver()
	}
}

// calm takes Urge back, before op ends.
func (op *Op) calm() {
	if op.urgency.Swap(opOver) == opUrged {
		op.comm.urgent.Add(-1)
	}
}

// Poll is Done, after some work on op's Comm if nobody else is at it. It never waits.
func (op *Op) Poll() (bool, error) {
	if op.state.Load() == opPending {
		op.comm.workOnce()
	}
	return op.Done()
}

// workOnce works on c if nobody else is at it, and reports whether anything moved.
func (c *Comm) workOnce() bool {
	if !c.lock.CompareAndSwap(0, 1) {
		return false
	}
	moved := c.advance() || c.poll() || c.look()
	c.unlock()
	c.handOver()
	return moved
}

// SetDeadline moves an operation's deadline to d from now, if that is earlier.
func (op *Op) SetDeadline(d time.Duration) {
	c := op.comm
	at := now() + int64(d)
	if old := op.due(); old == 0 || at < old {
		op.deadline.Store(at)
		c.opts.Bell.Ring()
		c.handOver()
	}
}

// drive advances c until op is done. The caller holds the lock.
func (c *Comm) drive(op *Op, cancel *Cancel, pace *park.Spinner) {
	defer pace.Reset()
	for {
		moved := c.advance()
		if op.state.Load() != opPending || cancel.fired() {
			return
		}
		if moved {
			pace.Reset()
			continue
		}
		if c.poll() {
			continue
		}
		if !pace.Spinning() && c.look() {
			continue
		}
		if pace.Turn() {
			continue
		}
		c.sleep(op, cancel)
		pace.Reset()
	}
}

func (c *Comm) poll() bool {
	moved := false
	for _, p := range c.opts.Pollers {
		moved = p.Poll() || moved
	}
	return moved
}

// sleep lets the driver sleep on the bell, after one more look at everything.
func (c *Comm) sleep(op *Op, cancel *Cancel) {
	ticket := c.opts.Bell.Prepare()
	for _, p := range c.opts.Pollers {
		p.Arm()
	}
	if c.poll() || c.advanceAll() || c.look() || op.state.Load() != opPending || cancel.fired() {
		c.opts.Bell.Cancel()
		return
	}
	c.opts.Bell.Sleep(ticket, until(c.nextDeadline()))
}

// until is the time left to a deadline, negative for none.
func until(at int64) time.Duration {
	if at == math.MaxInt64 {
		return -1
	}
	return max(0, time.Duration(at-now()))
}

// sleepTurn waits for op while another thread drives, until that one has finished op or leaves.
func (c *Comm) sleepTurn(op *Op, cancel *Cancel) {
	var pace park.Spinner
	for pace.Turn() {
		if op.state.Load() != opPending || c.lock.Load() == 0 || cancel.fired() {
			return
		}
	}
	turn := c.turn.Load()
	c.sleepers.Add(1)
	if op.state.Load() == opPending && c.lock.Load() != 0 && !cancel.fired() {
		park.Wait(&c.turn, turn, -1)
	}
	c.sleepers.Add(-1)
}

func (c *Comm) wake(n int) {
	c.turn.Add(1)
	park.Wake(&c.turn, n)
}

func (c *Comm) unlock() { c.lock.Store(0) }

// handOver is called by whoever has let the lock go or leaves Wait: operations that are pending get another driver.
func (c *Comm) handOver() {
	if c.pending.Load() == 0 || c.lock.Load() != 0 {
		return
	}
	if c.sleepers.Load() != 0 {
		c.wake(1)
	} else if c.waiting.Load() == 0 && c.opts.Progress != nil {
		c.opts.Progress.notify(c)
	}
}

// waiters counts the threads of this process inside Wait. Each of them may hold one of the Go runtime's processors
// while it spins, so there are always two more.
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

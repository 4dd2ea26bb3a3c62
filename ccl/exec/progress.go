package exec

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// Progress drives the operations of a process for which no thread waits. Its thread starts when the
// first operation is handed over to it, and sleeps when none has been pending for a while.
type Progress struct {
	doorbell *park.Doorbell

	notified   atomic.Uint32  // counts notifications
	expedited  atomic.Uint32  // counts notifications for Comms with urgent operations
	idle       *park.Doorbell // for the long sleep when there is nothing to drive: ended by a notification
	nap        *park.Doorbell // for the naps between glances: ended early by an urgent notification
	onDoorbell atomic.Bool    // the operations that it drives wait for peers: it sleeps on doorbell

	mu      sync.Mutex
	started bool
	closed  atomic.Bool
	ended   chan struct{}
	comms   atomic.Pointer[[]*Comm]
	pollers atomic.Pointer[[]transport.Poller]
}

// Most operations are soon waited for by the thread that posted them, and waking the progress
// thread for each of them would cost more than a small operation takes. So a post wakes the
// progress thread only from its long sleep. The thread then glances at the Comms, with a nap after
// each glance, and drives those that it finds unattended: an urgent operation is pending, or no
// operation has ended since the last glance. After eight glances without a notification it goes
// back to its long sleep, if no Comm is attended.
//
// The shortest nap takes about 20 times as long as a glance takes from the threads whose core it
// needs, and no longer than an operation that is worth doing beside computation. It bounds the
// delay of a peer that needs this rank's part: two naps, once for a series of operations, since the
// thread continues with what it has found. As long as all Comms are attended, each nap is an eighth
// longer than the last, until glances take less than 1 % of a core: two naps are then a quarter of
// the time that went well without this thread.
const (
	shortestNap = 100 * time.Microsecond
	longestNap  = time.Millisecond
	glances     = 8
)

// NewProgress makes the progress thread of a process. The thread is not started yet.
func NewProgress(doorbell *park.Doorbell) *Progress {
	p := &Progress{doorbell: doorbell, idle: park.NewDoorbell(), nap: park.NewDoorbell(), ended: make(chan struct{})}
	p.comms.Store(&[]*Comm{}) // model: none: the thread has not started
	p.pollers.Store(&[]transport.Poller{})
	return p
}

// Watch adds a poller. It must be called before the first Comm that needs the poller.
func (p *Progress) Watch(poller transport.Poller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pollers := append(slices.Clone(*p.pollers.Load()), poller)
	p.pollers.Store(&pollers)
}

// notify asks the thread to check c.
func (p *Progress) notify(c *Comm) {
	if !slices.Contains(*p.comms.Load(), c) { // model: notifyComms
		p.add(c)
	}
	urgent := c.urgent.Load() > 0 // model: notifyUrgent
	if urgent {
		p.expedited.Add(1) // model: notifyExpedites
	}
	p.notified.Add(1) // model: notifyWord
	p.idle.Ring()
	if urgent {
		p.nap.Ring()
	}
	if p.onDoorbell.Load() { // model: notifyDoorbell
		p.doorbell.Ring()
	}
}

func (p *Progress) add(c *Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.comms.Load() // model: none: under mu, as notifyAdd
	if p.closed.Load() || slices.Contains(old, c) {
		return
	}
	list := append(slices.Clone(old), c)
	p.comms.Store(&list) // model: notifyAdd
	if !p.started {
		p.started = true
		go p.run()
	}
}

func (p *Progress) remove(c *Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.comms.Load() // model: none: under mu, as closeRemove
	list := slices.DeleteFunc(slices.Clone(old), func(each *Comm) bool { return each == c })
	p.comms.Store(&list) // model: closeRemove
}

// Close ends the thread and waits for it.
func (p *Progress) Close() {
	p.mu.Lock()
	started := p.started
	p.closed.Store(true)
	p.mu.Unlock()
	if started {
		p.idle.Ring()
		p.nap.Ring()
		p.doorbell.Ring()
		<-p.ended
	}
}

func (p *Progress) run() {
	defer close(p.ended)
	runtime.LockOSThread() // the OS thread ends with this goroutine
	park.Slack(shortestNap / 4)
	pace := park.Spinner{Background: true}
	last, vain, nap := uint32(0), 0, shortestNap
	for !p.closed.Load() {
		seen, expedited := p.notified.Load(), p.expedited.Load() // model: progressSeen, progressExpedites
		if seen != last {
			last, vain = seen, 0
		}
		now := p.pass(&pace, false)
		switch {
		case now.responsible && now.moved:
			pace.Reset()
			nap = shortestNap
		case now.responsible:
			if !pace.Turn() {
				p.sleep(&pace)
				pace.Reset()
			}
		case !now.attended && vain >= glances:
			p.leave()
			rest(p.idle, func() (time.Duration, bool) {
				return -1, p.notified.Load() == seen && !p.closed.Load() // model: idleWord
			})
			pace.Reset()
		default:
			p.leave()
			rest(p.nap, func() (time.Duration, bool) {
				return nap, p.expedited.Load() == expedited && !p.closed.Load() // model: napExpedites
			})
			nap = min(nap+nap/8, longestNap)
			vain++
			pace.Reset()
		}
	}
}

// leave tells the transports that this thread does not poll for a while.
func (p *Progress) leave() {
	for _, each := range *p.pollers.Load() {
		each.Leave()
	}
}

// A finding is the result of a pass over the Comms.
type finding struct {
	responsible bool // it drove Comms that no other thread drives
	attended    bool // it left Comms alone because other threads have driven them just now
	moved       bool
	deadline    int64
}

// pass gives one turn to every Comm that no thread waits on. A Comm whose lock is held is not this
// thread's: the holder hands it over. The last pass before a sleep also takes Comms that seem
// attended, since there is no other check until an event comes.
func (p *Progress) pass(pace *park.Spinner, last bool) (found finding) {
	found.deadline = math.MaxInt64
	for _, c := range *p.comms.Load() { // model: passComms
		if c.pending.Load() == 0 || // model: passPending
			c.waiting.Load() != 0 || // model: passWaiting
			c.lock.Load() != 0 { // model: passLock
			continue
		}
		if c.urgent.Load() == 0 && !c.glimpse() && !last { // model: passUrgent
			found.attended = true
			continue
		}
		if !c.lock.CompareAndSwap(0, 1) { // model: passTry
			continue
		}
		found.responsible = true
		var moved bool
		if last {
			moved = c.advanceAll()
		} else {
			moved = c.advance()
		}
		if !moved && !pace.Spinning() {
			moved = c.look()
		}
		found.deadline = min(found.deadline, c.nextDeadline(now()))
		c.glimpse() // operations that ended here are not the work of other threads
		c.unlock()
		// A waiter came while this thread held the lock; or the Comm is being closed, and this was
		// its last turn here.
		if c.waiting.Load() != 0 || c.stop.Load() != nil { // model: passHand, passStop
			c.handOver()
		}
		found.moved = found.moved || moved
	}
	if found.responsible {
		for _, each := range *p.pollers.Load() {
			found.moved = each.Poll() || found.moved
		}
	}
	return found
}

// glimpse reports whether no operation has ended since its last call, given that some are pending.
func (c *Comm) glimpse() bool {
	ended := c.Ended()
	same := c.glimpsed == ended
	c.glimpsed = ended
	return same
}

// Ended returns about how many operations have ended so far.
func (c *Comm) Ended() uint64 {
	return c.colls.Load() + c.messages.called.Load() -
		uint64(c.pending.Load()) // model: none: what it finds attended is anybody's guess
}

// sleep waits for the doorbell, after one more pass.
func (p *Progress) sleep(pace *park.Spinner) {
	p.onDoorbell.Store(true) // model: doorbellSay
	rest(p.doorbell, func() (time.Duration, bool) {
		for _, each := range *p.pollers.Load() {
			each.Arm()
		}
		found := p.pass(pace, true)
		return until(found.deadline), found.responsible && !found.moved && !p.closed.Load()
	})
	p.onDoorbell.Store(false) // model: doorbellUnsay
}

// completions counts operations that have ended, for threads that wait for any of several.
type completions struct {
	count    atomic.Uint32
	doorbell *park.Doorbell
}

// Completions counts the operations of this process that have ended: those of Post, and those of
// RunSlice that it has returned, but not those of Run.
var Completions = completions{doorbell: park.NewDoorbell()}

func (x *completions) add() {
	x.count.Add(1) // model: countAdd
	x.doorbell.Ring()
}

// Count returns the number of ends so far, modulo 2³².
func (x *completions) Count() uint32 { return x.count.Load() } // model: watchSeen

// Wait sleeps until the count differs from seen, for at most d (forever if d is negative). It may
// return early.
func (x *completions) Wait(seen uint32, d time.Duration) {
	rest(x.doorbell, func() (time.Duration, bool) { return d, x.count.Load() == seen }) // model: watchCount
}

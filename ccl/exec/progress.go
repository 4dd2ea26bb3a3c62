package exec

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
)

// Progress drives the Comms of a process whose operations nobody waits for. Its thread starts with
// the first posted operation, and sleeps when none has been pending for a while.
type Progress struct {
	bell *park.Bell

	notified atomic.Uint32 // counts notifications
	urged    atomic.Uint32 // counts those for Comms with urgent operations
	idle     *park.Bell    // nothing to drive: sleeps until a notification
	nap      *park.Bell    // most likely nothing to drive: sleeps for a short time, or until an urgent one
	onBell   atomic.Bool   // what it drives waits for peers: sleeps on bell

	mu      sync.Mutex
	started bool
	closed  atomic.Bool
	ended   chan struct{}
	comms   atomic.Pointer[[]*Comm]
	pollers atomic.Pointer[[]transport.Poller]
}

// Most operations are waited for soon by whoever posted them, and to wake a thread for each costs
// more than a small one takes. So a post wakes the thread only where it sleeps for good. It then
// glances at the Comms, with a nap after each glance, and drives what it finds unattended: an
// urgent operation is pending, or none has ended since the last glance. After so many glances
// without a notification it sleeps for good again.
//
// The shortest nap is some 20 times what a glance costs the threads whose core it needs, and no
// longer than an operation that is worth being done beside computation. It bounds by how much a
// peer is held up that needs this rank's part: two naps, once for a number of operations, since the
// thread goes on with what it has found. As long as all are attended, naps grow by an eighth each,
// until they take less than 1 % of a core: two naps are a quarter of the time that went well
// without this thread.
const (
	shortestNap = 100 * time.Microsecond
	longestNap  = time.Millisecond
	glances     = 8
)

// NewProgress makes the progress thread of a process, not started yet.
func NewProgress(bell *park.Bell) *Progress {
	p := &Progress{bell: bell, idle: park.NewBell(), nap: park.NewBell(), ended: make(chan struct{})}
	p.comms.Store(&[]*Comm{}) // model: none: the thread has not started
	p.pollers.Store(&[]transport.Poller{})
	return p
}

// Watch adds a poller, before the first Comm that needs it.
func (p *Progress) Watch(poller transport.Poller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pollers := append(slices.Clone(*p.pollers.Load()), poller)
	p.pollers.Store(&pollers)
}

// notify asks the thread to look at c.
func (p *Progress) notify(c *Comm) {
	if !slices.Contains(*p.comms.Load(), c) { // model: notifyComms
		p.add(c)
	}
	urgent := c.urgent.Load() > 0 // model: notifyUrgent
	if urgent {
		p.urged.Add(1) // model: notifyUrges
	}
	p.notified.Add(1) // model: notifyWord
	p.idle.Ring()
	if urgent {
		p.nap.Ring()
	}
	if p.onBell.Load() { // model: notifyBell
		p.bell.Ring()
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
		p.bell.Ring()
		<-p.ended
	}
}

func (p *Progress) run() {
	defer close(p.ended)
	runtime.LockOSThread() // it ends with this goroutine
	park.Slack(shortestNap / 4)
	pace := park.Spinner{Background: true}
	last, vain, nap := uint32(0), 0, shortestNap
	for !p.closed.Load() {
		seen, urged := p.notified.Load(), p.urged.Load() // model: progressSeen, progressUrges
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
			rest(p.idle, func() (time.Duration, bool) {
				return -1, p.notified.Load() == seen && !p.closed.Load() // model: idleWord
			})
			pace.Reset()
		default:
			rest(p.nap, func() (time.Duration, bool) {
				return nap, p.urged.Load() == urged && !p.closed.Load() // model: napUrges
			})
			nap = min(nap+nap/8, longestNap)
			vain++
			pace.Reset()
		}
	}
}

// A finding is what a pass over the Comms has found.
type finding struct {
	responsible bool // for Comms that are nobody else's to drive
	attended    bool // Comms that were left alone, because others have just been there
	moved       bool
	deadline    int64
}

// pass gives every Comm that nobody waits on one turn. One whose lock is held is not this thread's:
// the holder hands it over. The last pass before a sleep takes what seems attended, too, since
// nobody looks again until an event comes.
func (p *Progress) pass(pace *park.Spinner, last bool) (found finding) {
	found.deadline = math.MaxInt64
	for _, c := range *p.comms.Load() { // model: passComms
		if c.pending.Load() == 0 || c.waiting.Load() != 0 || c.lock.Load() != 0 { // model: passPending, passWaiting, passLock
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
		found.deadline = min(found.deadline, c.nextDeadline())
		c.glimpse() // what has ended here was not the work of others
		c.unlock()
		// Somebody came while this thread held the lock; or the Comm is being closed, and this was
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

// glimpse reports whether no operation has ended since the last time, when some were pending.
func (c *Comm) glimpse() bool {
	ended := c.colls.Load() + c.messages.Load() - uint64(c.pending.Load()) // model: none: what it finds attended is anybody's guess
	same := c.glimpsed == ended
	c.glimpsed = ended
	return same
}

// sleep waits for the bell, after one more look.
func (p *Progress) sleep(pace *park.Spinner) {
	p.onBell.Store(true) // model: bellSay
	rest(p.bell, func() (time.Duration, bool) {
		for _, each := range *p.pollers.Load() {
			each.Arm()
		}
		found := p.pass(pace, true)
		return until(found.deadline), found.responsible && !found.moved && !p.closed.Load()
	})
	p.onBell.Store(false) // model: bellUnsay
}

// completions counts operations that ended, for the thread that completes futures.
type completions struct {
	count atomic.Uint32
	bell  *park.Bell
}

// Completions counts the posted (not the run) operations of this process that have ended.
var Completions = completions{bell: park.NewBell()}

func (x *completions) add() {
	x.count.Add(1) // model: countAdd
	x.bell.Ring()
}

// Count is the number of ends so far, modulo 2³².
func (x *completions) Count() uint32 { return x.count.Load() } // model: watchSeen

// Wait sleeps until the count differs from seen, at most d (for ever if negative). It may return
// early.
func (x *completions) Wait(seen uint32, d time.Duration) {
	rest(x.bell, func() (time.Duration, bool) { return d, x.count.Load() == seen }) // model: watchCount
}

// Interrupt has those who are inside Wait return.
func (x *completions) Interrupt() { x.add() }

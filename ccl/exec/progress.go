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

// Progress drives the Comms of a process whose operations nobody waits for. Its thread starts with the first posted
// operation, and sleeps when none has been pending for a while.
type Progress struct {
	bell *park.Bell

	word  atomic.Uint32 // counts notifications
	urges atomic.Uint32 // counts those for Comms with urgent operations
	state atomic.Uint32

	mu      sync.Mutex
	started bool
	closed  atomic.Bool
	ended   chan struct{}
	comms   atomic.Pointer[[]*Comm]
	pollers atomic.Pointer[[]transport.Poller]
}

const (
	progressAwake uint32 = iota
	progressIdle         // sleeps on word: nothing to drive
	progressBell         // sleeps on the bell: what it drives waits for peers
	progressNap          // sleeps on urges for a glance: most likely nothing to drive
)

// Most operations are waited for soon by whoever posted them, and to wake a thread for each costs more than a small one takes. So a post wakes
// the thread only where it sleeps for good. It then glances at the Comms, with a nap after each glance, and drives what it finds
// unattended: an urgent operation is pending, or none has ended since the last glance. After so many glances without a notification it sleeps
// for good again.
//
// The shortest nap is some 20 times what a glance costs the threads whose core it needs, and no longer than an operation that is worth
// being done beside computation. It bounds by how much a peer is held up that needs this rank's part: two naps, once for a number of
// operations, since the thread goes on with what it has found. As long as all are attended, naps grow by an eighth each, until they take less than
// 1 % of a core: two naps are a quarter of the time that went well without this thread.
const (
	shortestNap = 100 * time.Microsecond
	longestNap  = time.Millisecond
	glances     = 8
)

// NewProgress makes the progress thread of a process, not started yet.
func NewProgress(bell *park.Bell) *Progress {
	p := &Progress{bell: bell, ended: make(chan struct{})}
	p.comms.Store(&[]*Comm{})
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
	if !slices.Contains(*p.comms.Load(), c) {
		p.add(c)
	}
	urgent := c.urgent.Load() > 0
	if urgent {
		p.urges.Add(1)
	}
	p.word.Add(1)
	switch p.state.Load() {
	case progressIdle:
		park.Wake(&p.word, 1)
	case progressNap:
		if urgent {
			park.Wake(&p.urges, 1)
		}
	case progressBell:
		p.bell.Ring()
	}
}

func (p *Progress) add(c *Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.comms.Load()
	if p.closed.Load() || slices.Contains(old, c) {
		return
	}
	list := append(slices.Clone(old), c)
	p.comms.Store(&list)
	if !p.started {
		p.started = true
		go p.run()
	}
}

func (p *Progress) remove(c *Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*p.comms.Load()), func(each *Comm) bool { return each == c })
	p.comms.Store(&list)
}

// Close ends the thread and waits for it.
func (p *Progress) Close() {
	p.mu.Lock()
	started := p.started
	p.closed.Store(true)
	p.mu.Unlock()
	if started {
		p.word.Add(1)
		park.Wake(&p.word, 1)
		p.urges.Add(1)
		park.Wake(&p.urges, 1)
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
		seen, urged := p.word.Load(), p.urges.Load()
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
				p.sleep(seen, &pace)
				pace.Reset()
			}
		case !now.attended && vain >= glances:
			p.idle(seen)
			pace.Reset()
		default:
			p.nap(urged, nap)
			nap = min(nap+nap/8, longestNap)
			vain++
			pace.Reset()
		}
	}
}

// idle sleeps until the next notification.
func (p *Progress) idle(seen uint32) {
	p.state.Store(progressIdle)
	if p.word.Load() == seen && !p.closed.Load() {
		park.Wait(&p.word, seen, -1)
	}
	p.state.Store(progressAwake)
}

// nap sleeps for d, or until there is an urgent operation that nobody waits for.
func (p *Progress) nap(urged uint32, d time.Duration) {
	p.state.Store(progressNap)
	if p.urges.Load() == urged && !p.closed.Load() {
		park.Wait(&p.urges, urged, d)
	}
	p.state.Store(progressAwake)
}

// A finding is what a pass over the Comms has found.
type finding struct {
	responsible bool // for Comms that are nobody else's to drive
	attended    bool // Comms that were left alone, because others have just been there
	moved       bool
	deadline    int64
}

// pass gives every Comm that nobody waits on one turn. One whose lock is held is not this thread's: the holder hands it over. The last pass
// before a sleep takes what seems attended, too, since nobody looks again until an event comes.
func (p *Progress) pass(pace *park.Spinner, last bool) (found finding) {
	found.deadline = math.MaxInt64
	for _, c := range *p.comms.Load() {
		if c.pending.Load() == 0 || c.waiting.Load() != 0 || c.lock.Load() != 0 {
			continue
		}
		if c.urgent.Load() == 0 && !c.glimpse() && !last {
			found.attended = true
			continue
		}
		if !c.lock.CompareAndSwap(0, 1) {
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
		// Somebody came while this thread held the lock; or the Comm is being closed, and this was its last turn here.
		if c.sleepers.Load() != 0 || c.stop.Load() != nil {
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
	ended := c.Seq() + c.messages.Load() + c.straight.Load() - uint64(c.pending.Load())
	same := c.glimpsed == ended
	c.glimpsed = ended
	return same
}

// sleep waits for the bell, after one more look.
func (p *Progress) sleep(seen uint32, pace *park.Spinner) {
	p.state.Store(progressBell)
	ticket := p.bell.Prepare()
	for _, each := range *p.pollers.Load() {
		each.Arm()
	}
	found := p.pass(pace, true)
	if !found.responsible || found.moved || p.word.Load() != seen || p.closed.Load() {
		p.bell.Cancel()
	} else {
		p.bell.Sleep(ticket, until(found.deadline))
	}
	p.state.Store(progressAwake)
}

// completions counts operations that ended, for the thread that completes futures.
type completions struct {
	count    atomic.Uint32
	sleepers atomic.Int32
}

// Completions counts the posted (not the run) operations of this process that have ended.
var Completions completions

func (x *completions) add() {
	x.count.Add(1)
	if x.sleepers.Load() != 0 {
		park.Wake(&x.count, 1<<30)
	}
}

// Count is the number of ends so far, modulo 2³².
func (x *completions) Count() uint32 { return x.count.Load() }

// Wait sleeps until the count differs from seen, at most d (for ever if negative). It may return early.
func (x *completions) Wait(seen uint32, d time.Duration) {
	x.sleepers.Add(1)
	if x.count.Load() == seen {
		park.Wait(&x.count, seen, d)
	}
	x.sleepers.Add(-1)
}

// Interrupt has those who are inside Wait return.
func (x *completions) Interrupt() { x.add() }

package exec

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
)

// Progress drives the Comms of a process whose operations nobody waits for. Its thread starts with the first such
// operation, and sleeps whenever there is none.
type Progress struct {
	bell    *park.Bell
	pollers []transport.Poller

	word  atomic.Uint32 // counts notifications
	state atomic.Uint32

	mu      sync.Mutex
	started bool
	closed  atomic.Bool
	ended   chan struct{}
	comms   atomic.Pointer[[]*Comm]
}

const (
	progressAwake uint32 = iota
	progressIdle         // sleeps on word: nothing to drive
	progressBell         // sleeps on the bell: what it drives waits for peers
)

// NewProgress makes the progress thread of a process, not started yet.
func NewProgress(bell *park.Bell, pollers []transport.Poller) *Progress {
	p := &Progress{bell: bell, pollers: pollers, ended: make(chan struct{})}
	p.comms.Store(&[]*Comm{})
	return p
}

// notify asks the thread to look at c.
func (p *Progress) notify(c *Comm) {
	if !slices.Contains(*p.comms.Load(), c) {
		p.add(c)
	}
	p.word.Add(1)
	switch p.state.Load() {
	case progressIdle:
		park.Wake(&p.word, 1)
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
		p.bell.Ring()
		<-p.ended
	}
}

func (p *Progress) run() {
	defer close(p.ended)
	pace := park.Spinner{Background: true}
	for !p.closed.Load() {
		seen := p.word.Load()
		responsible, moved, _ := p.pass(&pace, (*Comm).advance)
		switch {
		case !responsible:
			p.state.Store(progressIdle)
			if p.word.Load() == seen && !p.closed.Load() {
				park.Wait(&p.word, seen, -1)
			}
			p.state.Store(progressAwake)
			pace.Reset()
		case moved:
			pace.Reset()
		case !pace.Turn():
			p.sleep(seen, &pace)
			pace.Reset()
		}
	}
}

// pass gives every Comm that nobody waits on one turn.
func (p *Progress) pass(pace *park.Spinner, advance func(*Comm) bool) (responsible, moved bool, deadline int64) {
	deadline = math.MaxInt64
	for _, c := range *p.comms.Load() {
		if c.pending.Load() == 0 || c.waiting.Load() != 0 {
			continue
		}
		responsible = true
		if !c.lock.CompareAndSwap(0, 1) {
			continue
		}
		m := advance(c)
		if !m && !pace.Spinning() {
			m = c.look()
		}
		deadline = min(deadline, c.nextDeadline())
		c.unlock()
		// Somebody came while this thread held the lock; or the Comm is being closed, and this was its last turn here.
		if c.sleepers.Load() != 0 || c.stop.Load() != nil {
			c.handOver()
		}
		moved = moved || m
	}
	if responsible {
		for _, each := range p.pollers {
			moved = each.Poll() || moved
		}
	}
	return responsible, moved, deadline
}

// sleep waits for the bell, after one more look.
func (p *Progress) sleep(seen uint32, pace *park.Spinner) {
	p.state.Store(progressBell)
	ticket := p.bell.Prepare()
	for _, each := range p.pollers {
		each.Arm()
	}
	responsible, moved, deadline := p.pass(pace, (*Comm).advanceAll)
	if !responsible || moved || p.word.Load() != seen || p.closed.Load() {
		p.bell.Cancel()
	} else {
		p.bell.Sleep(ticket, until(deadline))
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

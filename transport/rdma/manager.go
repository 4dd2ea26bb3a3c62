package rdma

import (
	"sync"
	"sync/atomic"
	"time"
)

// manager is the goroutine of a fabric that makes and ends connections and links, so that threads
// that send and receive do not have to. It owns the state of pairs.
type manager struct {
	f         *Fabric
	pending   atomic.Int32 // what waits for completions, although perhaps no thread polls
	mu        sync.Mutex
	jobs      []func()
	scheduled map[*pair]bool
	ended     bool
	woken     chan struct{}
	done      chan struct{}
}

func newManager(f *Fabric) *manager {
	m := &manager{f: f, scheduled: map[*pair]bool{}, woken: make(chan struct{}, 1), done: make(chan struct{})}
	go m.run()
	return m
}

// do has the manager call a function, unless it has ended.
func (m *manager) do(job func()) {
	m.mu.Lock()
	m.jobs = append(m.jobs, job)
	m.mu.Unlock()
	m.wake()
}

// call is do, and waits.
func (m *manager) call(job func()) {
	done := make(chan struct{})
	m.do(func() {
		defer close(done)
		job()
	})
	select {
	case <-done:
	case <-m.done:
	}
}

// schedule has the manager look at a pair.
func (m *manager) schedule(p *pair) {
	m.mu.Lock()
	m.scheduled[p] = true
	m.mu.Unlock()
	m.wake()
}

func (m *manager) wake() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// The pauses after which the manager looks again by itself: at what waits for something that no
// completion announces, and at whether peers are there.
const (
	soon  = 2 * time.Millisecond
	later = 250 * time.Millisecond
)

func (m *manager) run() {
	defer close(m.done)
	timer := time.NewTimer(later)
	last, spare := time.Now(), map[*pair]bool{}
	var pairs []*pair
	for {
		if m.pending.Load() > 0 {
			m.f.arm()
			m.f.drain()
		}
		select {
		case <-m.woken:
		case <-timer.C:
		}
		m.mu.Lock()
		jobs, scheduled, ended := m.jobs, m.scheduled, m.ended
		clear(spare)
		m.jobs, m.scheduled, spare = nil, spare, scheduled // nothing is allocated while nothing happens
		m.mu.Unlock()
		for _, job := range jobs {
			job()
		}
		if ended {
			return
		}
		all := time.Since(last) >= later
		if all {
			last = time.Now()
			for _, a := range m.f.adapters() {
				a.renew()
			}
		}
		pause, byTCP := later, false
		pairs = m.f.appendPairs(pairs[:0])
		for _, p := range pairs {
			if all || scheduled[p] || p.retrySoon {
				p.advance()
			}
			if p.retrySoon {
				pause = soon
			}
			byTCP = byTCP || !p.works() && !p.closed.Load()
		}
		m.f.byTCP.Store(byTCP)
		timer.Reset(pause)
	}
}

// stop ends the goroutine, after the jobs that it has.
func (m *manager) stop() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.wake()
	<-m.done
}

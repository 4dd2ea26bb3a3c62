package pgbackend

import (
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl"
)

// Operation is what a Queue watches: a ccl.Work, a Sparse, or what the Watch of a ccl.DeviceWork
// returns.
type Operation interface {
	// Done reports whether the operation has ended, and its error. It never waits.
	Done() (bool, error)
}

// A Queue decides what the helper threads of a process do, and how many of them there are. An entry
// is a token, a number chosen by the caller. It is due when all of its operations have ended (then
// futures are completed, and results are copied to their destination), or at once if it has no
// operations (hooks). Go cannot run the code behind a token, so threads of the caller call Next for
// the next one.
//
// That code may wait for other operations, and for other entries. So while one thread runs it,
// another one watches, and one more is kept in reserve: Watch and Next report when the caller must
// start a thread, and Next tells a thread to end when there are enough.
type Queue struct {
	mu       sync.Mutex
	turn     *sync.Cond // for the thread in reserve
	changed  *sync.Cond // for Settle and Stop
	entries  []entry    // in the order of Watch
	underway map[uint64]entry
	watching bool // a thread inside Next watches the entries
	reserve  bool // another thread inside Next waits for its turn
	stopped  bool
}

// NewQueue makes an empty Queue.
func NewQueue() *Queue {
	q := &Queue{underway: map[uint64]entry{}}
	q.turn, q.changed = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

type entry struct {
	token uint64
	ops   []Operation
}

func (e *entry) hook() bool { return len(e.ops) == 0 }

func (e *entry) due() bool {
	for _, op := range e.ops {
		if done, _ := op.Done(); !done {
			return false
		}
	}
	return true
}

// Watch adds an entry, unless all of its operations have ended already: watched is false then. The
// operations must stay valid until Next has returned the token. thread reports that the caller must
// start a thread that calls Next. A stopped Queue forgets the entry and never returns its token.
func (q *Queue) Watch(token uint64, ops []Operation) (watched, thread bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := entry{token, ops}
	switch {
	case !e.hook() && e.due():
		return false, false
	case q.stopped:
		return true, false
	}
	q.entries = append(q.entries, e)
	switch {
	case q.watching && e.hook():
		ccl.InterruptCompletions() // the watching thread sleeps until an operation ends
	case !q.watching:
		q.turn.Signal()
	}
	return true, !q.watching && !q.reserve
}

// Next waits for the next entry that is due and returns its token, or 0 if the calling thread is no
// longer needed. last is the token that the thread received before and has finished with, or 0.
// thread reports that another thread must be started before the calling one goes on; otherwise no
// thread watches the remaining entries.
func (q *Queue) Next(last uint64) (token uint64, thread bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last != 0 {
		delete(q.underway, last)
		q.changed.Broadcast()
	}
	for {
		if !q.stopped && (q.watching || len(q.entries) == 0) {
			if q.reserve {
				return 0, false // one is enough
			}
			q.reserve = true
			for !q.stopped && (q.watching || len(q.entries) == 0) {
				q.turn.Wait()
			}
			q.reserve = false
		}
		seen := ccl.CompletionCount() // read before the check, so that later completions are noticed
		if i := slices.IndexFunc(q.entries, func(e entry) bool { return e.due() }); i >= 0 {
			return q.give(i)
		}
		if q.stopped {
			q.changed.Broadcast()
			return 0, false
		}
		q.watching = true
		q.mu.Unlock()
		ccl.WaitCompletions(seen, -1)
		q.mu.Lock()
		q.watching = false
	}
}

func (q *Queue) give(i int) (token uint64, thread bool) {
	e := q.entries[i]
	q.entries = slices.Delete(q.entries, i, i+1)
	q.underway[e.token] = e
	if len(q.entries) > 0 {
		q.turn.Signal()
	}
	return e.token, len(q.entries) > 0 && !q.reserve && !q.stopped
}

// Settle waits until no entry is due or running, for at most d, and reports whether that is so.
// With hooks, only entries without operations count. own is the entry that the calling thread is
// running, or 0; it does not count. If own is a hook, Settle with hooks does not wait at all.
func (q *Queue) Settle(own uint64, hooks bool, d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e, found := q.underway[own]; hooks && found && e.hook() {
		return true
	}
	counts := func(e *entry) bool { return e.token != own && (!hooks || e.hook()) }
	return q.until(d, func() bool {
		for _, e := range q.underway {
			if counts(&e) {
				return false
			}
		}
		return q.stopped || !slices.ContainsFunc(q.entries, func(e entry) bool { return counts(&e) && e.due() })
	})
}

// Stop ends the threads and waits, for at most d, until they have left Next and finished their
// entries. Entries that are due afterwards are returned to the threads that call Next; other
// entries stay where they are for good. Watch no longer adds entries.
func (q *Queue) Stop(d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	ccl.InterruptCompletions()
	q.turn.Signal()
	return q.until(d, func() bool { return !q.watching && !q.reserve && len(q.underway) == 0 })
}

// until waits, for at most d, for a condition that can become true only when changed is signalled.
func (q *Queue) until(d time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(d)
	timer := time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})
	defer timer.Stop()
	for !holds() {
		if !time.Now().Before(deadline) {
			return false
		}
		q.changed.Wait()
	}
	return true
}

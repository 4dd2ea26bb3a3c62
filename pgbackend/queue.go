package pgbackend

import (
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl"
)

// Operation is what a Queue watches: a ccl.Work, or a Sparse.
type Operation interface {
	// Done reports whether the operation has ended, and how. It never waits.
	Done() (bool, error)
}

// A Queue decides what the helper threads of a process have to do, and how many of them there are.
// An entry is a number of the caller's, its token: it is due when all of its operations have ended
// (then futures are completed, and results copied to where they belong), or at once if it has none
// (hooks). Go cannot run the code behind a token, so threads of the caller ask for it by Next.
//
// That code may wait for other operations, and for other entries. So while a thread runs it another
// one watches, and one is kept in reserve: threads are started when Watch or Next say that one is
// needed, and end when Next says that there are enough.
type Queue struct {
	mu       sync.Mutex
	turn     *sync.Cond // of the thread in reserve
	changed  *sync.Cond // for Settle and Stop
	entries  []entry    // in the order of Watch
	underway map[uint64]entry
	watching bool // a thread is inside Next, looking after the entries
	reserve  bool // another one is, and waits for its turn
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

// Watch adds an entry, unless its operations have ended already: watched is false then. The
// operations must stay valid until Next has given the token. thread says that a thread has to be
// started, to call Next. A stopped Queue forgets the entry, whose token is never given.
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
		ccl.InterruptCompletions() // the thread that watches sleeps until an operation ends
	case !q.watching:
		q.turn.Signal()
	}
	return true, !q.watching && !q.reserve
}

// Next waits for the next entry that is due, and gives its token; 0 if the calling thread is not
// needed any more. last is what it was given before, which it has done, or 0. thread says that
// another thread has to be started before the calling one goes on: nobody looks after the other
// entries otherwise.
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
		seen := ccl.CompletionCount() // before the look, so that what ends after it is noticed
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

// Settle waits until no entry is due or under way, for d at most, and reports whether that is so.
// With hooks only those count that have no operations. own is the entry that the calling thread is
// at itself, which does not count, or 0; where that is a hook, it does not wait for others.
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

// Stop ends the threads, and waits until they have left Next and done what they were given, for d
// at most. What is due then is given to who calls Next; other entries stay where they are for good,
// and so does what comes later.
func (q *Queue) Stop(d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	ccl.InterruptCompletions()
	q.turn.Signal()
	return q.until(d, func() bool { return !q.watching && !q.reserve && len(q.underway) == 0 })
}

// until waits for a condition, which holds when something has changed, for d at most.
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

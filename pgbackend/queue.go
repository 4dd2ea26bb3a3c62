package pgbackend

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/internal/park"
)

// Operation is what a Queue watches: a ccl.Work, a ccl.DeviceWork, a Sparse or a Task.
type Operation interface {
	// OnEnd has a function called once when the operation ends. It reports false, and never calls
	// the function, if the operation has ended already. The function must not wait.
	OnEnd(func()) bool
}

// A Queue decides what the helper threads of a process do, and how many of them there are. An entry
// is a token, a number chosen by the caller. It is due when all of its operations have ended (then
// futures are completed, and results are copied to their destination), or at once if it has no
// operations (hooks). Go cannot run the code behind a token, so threads of the caller call Next for
// the next one.
//
// Nothing looks for what is due: the end of an operation adds its entry to a list, and wakes one
// thread. So the cost of an entry does not depend on how many others there are.
//
// The code behind a token may wait for other operations, and for other entries. So while one thread
// runs it, another one is inside Next, and one more is kept in reserve: Watch and Next report when
// the caller must start a thread, and Next tells a thread to end when there are enough.
type Queue struct {
	ended atomic.Pointer[entry] // due, but not in the list due yet; the latest first
	bell  *park.Doorbell        // for the threads that sleep inside Next

	mu       sync.Mutex
	changed  *sync.Cond // for Settle and Stop
	due      entries    // in the order in which they became due
	waiting  int        // entries that were not due when they were last looked at
	underway map[uint64]*entry
	hooks    int // in underway
	idle     int // threads inside Next
	stopped  bool
}

// mostIdle is how many threads are kept inside Next: one that is needed, and one in reserve.
const mostIdle = 2

// NewQueue makes an empty Queue.
func NewQueue() *Queue {
	q := &Queue{underway: map[uint64]*entry{}, bell: park.NewDoorbell()}
	q.changed = sync.NewCond(&q.mu)
	return q
}

type entry struct {
	token uint64
	hook  bool
	left  atomic.Int32 // operations that have not ended; one more until Watch has added the entry
	next  *entry
}

// entries is a list of entries.
type entries struct {
	first, last  *entry
	count, hooks int
}

func (l *entries) push(e *entry) {
	e.next = nil
	if l.first == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.count++
	l.hooks += hooks(e)
}

func (l *entries) pop() *entry {
	e := l.first
	l.first = e.next
	l.count--
	l.hooks -= hooks(e)
	return e
}

// hooks is 1 for a hook.
func hooks(e *entry) int {
	if e.hook {
		return 1
	}
	return 0
}

// Watch adds an entry, unless all of its operations have ended already: watched is false then. The
// operations must stay valid until Next has returned the token. thread reports that the caller must
// start a thread that calls Next. A stopped Queue forgets the entry and never returns its token.
func (q *Queue) Watch(token uint64, ops []Operation) (watched, thread bool) {
	e := &entry{token: token, hook: len(ops) == 0}
	e.left.Store(int32(len(ops)) + 1)
	for _, op := range ops {
		if !op.OnEnd(func() { q.less(e) }) {
			e.left.Add(-1)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !e.hook && e.left.Load() == 1:
		return false, false
	case q.stopped:
		return true, false // it never becomes due
	case e.left.Add(-1) > 0:
		q.waiting++
	case e.hook:
		q.due.push(e)
		q.bell.RingOne()
	default: // the last one has ended just now
		return false, false
	}
	return true, q.idle == 0
}

// less is called when an operation of an entry has ended.
func (q *Queue) less(e *entry) {
	if e.left.Add(-1) > 0 {
		return
	}
	for {
		e.next = q.ended.Load()
		if q.ended.CompareAndSwap(e.next, e) {
			q.bell.RingOne()
			return
		}
	}
}

// collect moves the entries that have become due to the list. The caller holds mu.
func (q *Queue) collect() {
	if q.ended.Load() == nil {
		return
	}
	var first *entry
	for e := q.ended.Swap(nil); e != nil; {
		next := e.next
		e.next = first
		first, e = e, next
	}
	for first != nil {
		e := first
		first = e.next
		q.waiting--
		q.due.push(e)
	}
}

// Next waits for the next entry that is due and returns its token, or 0 if the calling thread is no
// longer needed. last is the token that the thread received before and has finished with, or 0.
// thread reports that another thread must be started before the calling one goes on; otherwise no
// thread would be inside Next for the remaining entries.
func (q *Queue) Next(last uint64) (token uint64, thread bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.underway[last]; e != nil {
		delete(q.underway, last)
		q.hooks -= hooks(e)
		q.changed.Broadcast()
	}
	for q.idle++; ; {
		ticket := q.bell.Prepare()
		q.collect()
		enough := q.stopped || q.idle > mostIdle || q.idle > 1 && q.waiting == 0
		if q.due.count == 0 && !enough {
			q.mu.Unlock()
			q.bell.Sleep(ticket, -1)
			q.mu.Lock()
			continue
		}
		q.bell.Cancel()
		q.idle--
		if q.due.count > 0 {
			return q.next()
		}
		q.changed.Broadcast()
		return 0, false
	}
}

// next removes and returns the first entry that is due.
func (q *Queue) next() (token uint64, thread bool) {
	e := q.due.pop()
	q.underway[e.token] = e
	q.hooks += hooks(e)
	if q.due.count > 0 {
		q.bell.RingOne()
	}
	return e.token, q.due.count+q.waiting > 0 && q.idle == 0 && !q.stopped
}

// Settle waits until no entry is due or running, for at most d, and reports whether that is so.
// With hooks, only entries without operations count. own is the entry that the calling thread is
// running, or 0; it does not count. If own is a hook, Settle with hooks does not wait at all.
func (q *Queue) Settle(own uint64, hooks bool, d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.underway[own]
	if hooks && e != nil && e.hook {
		return true
	}
	return q.until(d, func() bool {
		q.collect()
		due, running := q.due.count, len(q.underway)
		if hooks {
			due, running = q.due.hooks, q.hooks
		} else if q.underway[own] != nil {
			running--
		}
		return running == 0 && (due == 0 || q.stopped)
	})
}

// Stop ends the threads and waits, for at most d, until they have left Next and finished their
// entries. Entries that are due afterwards are returned to the threads that call Next; other
// entries stay where they are for good. Watch no longer adds entries.
func (q *Queue) Stop(d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.bell.Ring()
	return q.until(d, func() bool { return q.idle == 0 && len(q.underway) == 0 })
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

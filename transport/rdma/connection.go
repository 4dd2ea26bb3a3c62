package rdma

import (
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// connection is a queue pair between two processes. Channels of all links use it.
type connection struct {
	path *path
	a    *adapter
	qp   verbs.Pair

	gid      verbs.GID  // of this side, as it was said to the peer
	lid      uint16     // also
	inline   int        // bytes that a write may carry inline
	sequence uint32     // of the first packet
	pool     remotePool // of the peer

	probed  atomic.Bool                // the peer's trial has arrived
	tried   atomic.Bool                // this side's trial has completed
	broken  atomic.Pointer[brokenness] // why it does not work any more
	claimed atomic.Int32               // writes that may be posted, or were and are not complete

	mu      sync.Mutex
	closed  bool
	ended   atomic.Bool   // the queue pair is gone: the adapter reads nothing for it any more
	posted  uint64        // writes so far; the number of each is its cookie
	done    atomic.Uint64 // writes that are complete
	since   int           // writes since the last one that completes
	one     [1]verbs.Write
	fences  []fence
	fencing uint64  // the write that is posted for them, 0 for none
	waiting *waiter // those that wait for room
}

type brokenness struct{ err error }

// waiter is a channel that waits for room, or does not. Each channel has one for each path.
type waiter struct {
	channel *channel
	waits   bool // guarded by the connection's mu, as is after
	after   *waiter
}

// fence calls a function when the writes up to a number are complete.
type fence struct {
	at uint64
	do func(complete bool)
}

// claim reserves room for one write, which post uses; false if there is none.
func (c *connection) claim() bool {
	if c.claimed.Add(1) > posted-1 { // one is left for fences
		c.claimed.Add(-1)
		return false
	}
	return true
}

// disclaim gives back what claim has reserved.
func (c *connection) disclaim() { c.claimed.Add(-1) }

// up reports whether fragments take the connection.
func (c *connection) up() bool { return c.path.up.Load() == c }

// works reports whether writes may still arrive.
func (c *connection) works() bool { return c.broken.Load() == nil }

// post posts a write for which there is room, and returns its number: the write is complete when
// done has come to that. What fails is known by broken.
func (c *connection) post(w verbs.Write) uint64 {
	c.mu.Lock()
	err := c.postLocked(w)
	number := c.posted
	c.mu.Unlock()
	if err != nil {
		c.fail(err)
	}
	return number
}

func (c *connection) postLocked(w verbs.Write) error {
	if c.closed || !c.works() {
		return nil
	}
	c.posted++
	if c.since++; c.since >= completeEach || w.Complete {
		c.since, w.Complete = 0, true
	}
	w.Cookie = c.posted
	c.one[0] = w
	_, err := c.qp.Post(c.one[:])
	return err
}

// complete handles the completion of a write, and with it of all writes before.
func (c *connection) complete(cookie uint64) {
	c.mu.Lock()
	done := c.done.Load()
	if cookie <= done || cookie > c.posted {
		c.mu.Unlock()
		return
	}
	c.claimed.Add(-int32(cookie - done))
	c.done.Store(cookie)
	var due []fence
	var err error
	if c.fencing > 0 && cookie >= c.fencing {
		c.fencing = 0
		n := 0
		for n < len(c.fences) && c.fences[n].at <= cookie {
			n++
		}
		due, c.fences = c.fences[:n:n], c.fences[n:]
		err = c.fenceLocked()
	}
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, f := range due {
		f.do(true)
	}
	if err != nil {
		c.fail(err)
	}
	for waiting != nil {
		c.mu.Lock()
		w := waiting
		waiting = w.after
		w.after, w.waits = nil, false
		c.mu.Unlock()
		w.channel.resume()
	}
}

// wait has a channel resume when there may be room, unless the connection has broken.
func (c *connection) wait(of *channel) {
	w := &of.waiters[c.path.number]
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.waits && c.works() {
		w.waits, w.after, c.waiting = true, c.waiting, w
	}
}

// tell posts an immediate for which room was claimed.
func (c *connection) tell(immediate uint32) {
	c.post(verbs.Write{Tell: true, Immediate: immediate})
}

// fence has do called once everything that was posted so far is complete, with true, or will never
// be, with false. It may be called at once.
func (c *connection) fence(do func(complete bool)) {
	c.mu.Lock()
	idle, ended := c.done.Load() == c.posted, c.closed || !c.works()
	var err error
	if !idle && !ended {
		c.fences = append(c.fences, fence{c.posted, do})
		err = c.fenceLocked()
	}
	c.mu.Unlock()
	if idle || ended {
		do(!ended)
	}
	if err != nil {
		c.fail(err)
	}
}

// fenceLocked posts a write that completes, if fences wait and none is under way: there is room for
// one. A write of nothing needs no memory of the peer.
func (c *connection) fenceLocked() error {
	if len(c.fences) == 0 || c.fencing > 0 {
		return nil
	}
	c.claimed.Add(1)
	err := c.postLocked(verbs.Write{Complete: true})
	c.fencing = c.posted
	return err
}

// fail notes that the connection does not work. The manager does the rest. When it returns, nothing
// arrives any more, whoever was first.
func (c *connection) fail(err error) {
	c.mu.Lock()
	if !c.broken.CompareAndSwap(nil, &brokenness{err}) {
		c.mu.Unlock()
		return
	}
	fences := c.fences
	c.fences = nil
	for w := c.waiting; w != nil; w = c.waiting { // they may wait for the next connection
		c.waiting = w.after
		w.after, w.waits = nil, false
	}
	if !c.closed {
		c.qp.Fail()
	}
	c.mu.Unlock()
	for _, f := range fences {
		f.do(false)
	}
	c.a.f.opts.Doorbell.Ring()
	c.path.pair.schedule()
}

// close destroys the queue pair: nothing of the peer arrives any more. Nobody posts after that.
func (c *connection) close() error {
	c.fail(errClosed)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	defer c.ended.Store(true) // also if it refuses: it was told to fail before
	return c.qp.Close()
}

package cudatest

import (
	"iter"
	"slices"
	"time"
)

// queue is a hardware queue of a device. What waits at its head holds up everything behind it.
type queue struct {
	device  *device
	urgency int
	index   int
	pending []*operation
	rank    uint64 // of those that can go on, the highest does
}

// head returns the operation that is next. Those of streams that are held do not count: they stand
// for a kernel that takes long, and kernels of several streams are executed at once.
func (q *queue) head() *operation {
	for _, op := range q.pending {
		if !op.stream.held {
			return op
		}
	}
	return nil
}

// pending iterates over everything that has not ended.
func (d *Driver) pending() iter.Seq[*operation] {
	return func(yield func(*operation) bool) {
		for q := range d.queues() {
			for _, op := range q.pending {
				if !yield(op) {
					return
				}
			}
		}
	}
}

func (d *Driver) queues() iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		for _, dev := range d.devices {
			for q := range dev.all() {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// all iterates over the queues of a device, with those of graphs.
func (dev *device) all() iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		for _, kind := range dev.queues {
			for _, q := range kind {
				if !yield(q) {
					return
				}
			}
		}
		for _, q := range dev.lanes {
			if !yield(q) {
				return
			}
		}
	}
}

// How the scheduler waits.
const (
	lookAgain  = time.Millisecond // for words that another process may store
	sometimes  = 8                // one operation in so many is followed by a pause
	reordering = 4                // one in so many changes the rank of its queue
)

// schedule executes operations until Close.
func (d *Driver) schedule() {
	defer close(d.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.letGo()
	for !d.closed {
		d.letGo()
		wait := time.Duration(0)
		if op := d.pick(); op != nil {
			d.execute(op)
			if d.random.IntN(sometimes) > 0 || d.o.Delay <= 0 {
				continue
			}
			wait = time.Duration(d.random.Int64N(int64(d.o.Delay)) + 1)
			d.mu.Unlock()
			time.Sleep(wait)
			d.mu.Lock()
			continue
		}
		wait = d.idle()
		d.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-d.wake:
		case <-timer.C:
		}
		d.mu.Lock()
	}
}

// any reports whether anything can be executed.
func (d *Driver) any() bool {
	for q := range d.queues() {
		if op := q.head(); op != nil && op.work.ready(d) {
			return true
		}
	}
	return false
}

// pick returns what is executed next, nil if nothing can be.
func (d *Driver) pick() *operation {
	var best *queue
	for q := range d.queues() {
		if op := q.head(); op != nil && (best == nil || q.rank > best.rank) && op.work.ready(d) {
			best = q
		}
	}
	if best == nil {
		return nil
	}
	op := best.head()
	if d.random.IntN(reordering) == 0 {
		best.rank = d.random.Uint64()
	}
	return op
}

// execute executes an operation.
func (d *Driver) execute(op *operation) {
	s := op.stream
	s.agent.clock.join(op.known)
	s.agent.clock.set(s.agent.index, uint64(op.n))
	if op.work.run(d, op); !op.dropped {
		at := slices.Index(s.queue.pending, op)
		s.queue.pending = slices.Delete(s.queue.pending, at, at+1)
		s.pending--
		if d.o.Trace != nil {
			d.o.Trace(op.String() + ": " + op.work.text(d))
		}
	}
	d.stir()
}

// idle reports a deadlock, and returns how long the scheduler may sleep.
func (d *Driver) idle() time.Duration {
	wait, any := time.Hour, false
	for op := range d.pending() {
		if op.stream.held {
			return wait
		}
		any = true
		if _, ok := op.work.(*wordWork); ok && op.stream.queue.head() == op {
			wait = lookAgain
		}
	}
	if !any || d.stuck || d.o.Stuck < 0 {
		return wait
	}
	left := d.o.Stuck - time.Since(d.seen)
	if left > 0 {
		return min(wait, left)
	}
	d.stuck = true
	text := d.blocked()
	d.report(Deadlock, text, "every stream that has work waits, for %v now:\n%s", d.o.Stuck, text)
	return wait
}

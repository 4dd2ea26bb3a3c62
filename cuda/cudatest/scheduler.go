package cudatest

import (
	"iter"
	"time"
)

// pending iterates over everything that has not ended.
func (d *Driver) pending() iter.Seq[*operation] {
	return func(yield func(*operation) bool) {
		for q := range d.queues() {
			for _, op := range q.started {
				if !yield(op) {
					return
				}
			}
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
			for _, q := range dev.queues {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// How the scheduler waits.
const (
	lookAgain  = time.Millisecond // for words that another process may store
	sometimes  = 8                // one operation in this number is followed by a pause
	reordering = 4                // one in this number changes the rank of its queue
)

// schedule executes operations until Close.
func (d *Driver) schedule() {
	defer close(d.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.releaseDue()
	for !d.closed {
		d.releaseDue()
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
		if q.next() != nil {
			return true
		}
	}
	return false
}

// pick returns what is executed next, nil if nothing can be.
func (d *Driver) pick() *operation {
	var best *queue
	for q := range d.queues() {
		if (best == nil || q.rank > best.rank) && q.next() != nil {
			best = q
		}
	}
	if best == nil {
		return nil
	}
	op := best.next()
	if d.random.IntN(reordering) == 0 {
		best.rank = d.random.Uint64()
	}
	return op
}

// execute executes an operation, or a step of a table.
func (d *Driver) execute(op *operation) {
	s := op.stream
	s.agent.clock.join(op.known)
	s.agent.clock.set(s.agent.index, uint64(op.n))
	d.spend(op)
	op.work.run(d, op)
	if w, ok := op.work.(*runWork); ok && !w.ended() {
		if !op.dropped && !op.begun {
			s.queue.start(op)
		}
		d.noteProgress()
		return
	}
	if !op.dropped {
		s.queue.remove(op)
		s.pending--
		if d.o.Trace != nil {
			d.o.Trace(op.String() + ": " + op.work.text(d))
		}
	}
	d.noteProgress()
}

// looksAtWords reports whether work waits for something that another process may store.
func looksAtWords(w work) bool {
	switch w.(type) {
	case *wordWork, *runWork:
		return true
	}
	return false
}

// idle reports a deadlock, and returns how long the scheduler may sleep.
func (d *Driver) idle() time.Duration {
	wait, any := time.Hour, false
	for op := range d.pending() {
		if op.stream.held {
			return wait
		}
		any = true
		if looksAtWords(op.work) && (op.begun || op.stream.queue.head() == op) {
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
	d.moved.Broadcast()
	text := d.blocked()
	d.report(Deadlock, text, "every stream that has work waits, for %v now:\n%s", d.o.Stuck, text)
	return wait
}

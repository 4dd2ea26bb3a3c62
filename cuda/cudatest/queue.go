package cudatest

import "slices"

// queue is a hardware queue of a process on a device. The operations of its streams leave it in the
// order in which they were enqueued, each when it begins. So what waits at its head, for a word, an
// event, or for what has begun in its own stream, holds up everything behind it.
type queue struct {
	device  *device
	of      *context // the process, with Options.Apart
	index   int
	pending []*operation // that have not begun
	started []*operation // tables that have begun: what comes behind them may begin
	rank    uint64       // of those that can go on, the highest does
}

// channels are the queues of a process on a device.
type channels struct {
	queues []*queue
	made   int // streams
}

// nextQueue returns the queue of the next stream that a context makes.
func (d *Driver) nextQueue(c *context) *queue {
	q := &queue{device: c.device}
	shares := &c.device.shares
	if d.o.Apart {
		q.of, shares = c, &c.shares
	}
	q.index = shares.made
	shares.made++
	if d.o.Queues > 0 && q.index >= d.o.Queues {
		return shares.queues[q.index%d.o.Queues]
	}
	if d.o.Queues > 0 {
		shares.queues = append(shares.queues, q)
	}
	q.rank = d.random.Uint64()
	c.device.queues = append(c.device.queues, q)
	return q
}

// forget forgets the queue of a stream that is gone, if it had one of its own.
func (d *Driver) forget(s *stream) {
	if d.o.Queues == 0 {
		s.device.queues = slices.DeleteFunc(s.device.queues, func(q *queue) bool { return q == s.queue })
	}
}

// head returns the operation that is next, or nil: a stream that is held stands for a kernel that
// takes long.
func (q *queue) head() *operation {
	if len(q.pending) == 0 {
		return nil
	}
	op := q.pending[0]
	if op.stream.held || op.stream.running != nil {
		return nil
	}
	return op
}

// next returns an operation that can begin or go on, or nil.
func (q *queue) next() *operation {
	for _, op := range q.started {
		if !op.stream.held && op.work.ready(op.stream.c.d) {
			return op
		}
	}
	if op := q.head(); op != nil && op.work.ready(op.stream.c.d) {
		return op
	}
	return nil
}

// start takes a table out of what waits.
func (q *queue) start(op *operation) {
	op.begun, op.stream.running = true, op
	q.pending = q.pending[1:]
	q.started = append(q.started, op)
}

// remove takes out an operation that has ended.
func (q *queue) remove(op *operation) {
	if !op.begun {
		q.pending = q.pending[1:]
		return
	}
	op.stream.running = nil
	at := slices.Index(q.started, op)
	q.started = slices.Delete(q.started, at, at+1)
}

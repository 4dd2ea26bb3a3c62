package cudatest

import "time"

// process is what the contexts of a process have in common.
type process struct {
	waiter int // with Options.FreeBlocks: the thread whose call waits for all streams; 0 for none
}

func (c *context) processOf() *process {
	if c.d.o.Apart {
		return &c.process
	}
	return &c.d.process
}

// pass waits until no other thread of the process is in a call that waits for all streams.
func (c *context) pass() {
	p := c.processOf()
	for p.waiter != 0 && p.waiter != threadID() && !c.d.closed {
		c.d.moved.Wait()
	}
}

// mayWait is called by what may wait on a GPU for all streams. It reports that some of them wait
// and do not go on in some time, or with Options.FreeBlocks, waits for them itself.
func (c *context) mayWait(call string) {
	d := c.d
	if d.o.FreeBlocks {
		c.waitForStreams()
		return
	}
	op := c.waiting()
	if op == nil || d.o.Pending {
		return
	}
	begin := time.Now()
	again := time.AfterFunc(patience, d.moved.Broadcast)
	defer again.Stop()
	for ; op != nil && time.Since(begin) < patience && !d.closed; op = c.waiting() {
		d.moved.Wait()
	}
	if op != nil {
		d.misuse("%s, which may wait for all streams, while %s waits: %s", call, op, op.work.text(d))
	}
}

// patience is how long streams may wait while a call does that may wait for them: others of the
// process may be about to let them go, without the driver.
const patience = time.Second

// waiting returns something that waits in a stream of the process, or nil.
func (c *context) waiting() *operation {
	for op := range c.d.pending() {
		if op.stream.c.processOf() == c.processOf() && !op.work.ready(c.d) {
			return op
		}
	}
	return nil
}

// waitForStreams waits until what the process has enqueued so far has ended, or until that is
// reported as a deadlock.
func (c *context) waitForStreams() {
	d, p := c.d, c.processOf()
	last := map[*stream]int{}
	for op := range d.pending() {
		if op.stream.c.processOf() == p {
			last[op.stream] = op.stream.enqueued
		}
	}
	if len(last) == 0 {
		return
	}
	p.waiter = threadID()
	for s, n := range last {
		for s.oldest() <= n && !d.closed && !d.stuck {
			d.moved.Wait()
		}
	}
	p.waiter = 0
	d.moved.Broadcast()
}

// Freeing returns in how many processes a call waits for all streams.
func (d *Driver) Freeing() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []*process{&d.process}
	for _, c := range d.contexts {
		all = append(all, &c.process)
	}
	for _, p := range all {
		if p.waiter != 0 {
			n++
		}
	}
	return n
}

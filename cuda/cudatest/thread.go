package cudatest

import (
	"runtime"
	"slices"
)

// thread is a thread that has entered contexts. The goroutine is tied to it meanwhile.
type thread struct{ entered []entry }

type entry struct {
	c       *context
	relaxed bool
}

func (t *thread) relaxed() bool {
	return t != nil && slices.ContainsFunc(t.entered, func(e entry) bool { return e.relaxed })
}

// Enter ties the goroutine to its thread. It works with lost devices, too.
func (c *context) Enter(relaxed bool) error {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	c.pass()
	if err := d.fails("cuCtxPushCurrent"); err != nil {
		return err
	}
	if c.released {
		d.misuse("Enter of context %d after its Release", c.index)
		return gone("cuCtxPushCurrent")
	}
	runtime.LockOSThread()
	id := threadID()
	if d.threads[id] == nil {
		d.threads[id] = &thread{}
	}
	d.threads[id].entered = append(d.threads[id].entered, entry{c, relaxed})
	return nil
}

// Leave undoes the last Enter of this goroutine.
func (c *context) Leave() {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	c.pass()
	id := threadID()
	t := d.threads[id]
	if t == nil {
		d.misuse("Leave of context %d without Enter", c.index)
		return
	}
	last := len(t.entered) - 1
	if t.entered[last].c != c {
		d.misuse("Leave of context %d, but this goroutine has entered context %d last",
			c.index, t.entered[last].c.index)
		return
	}
	t.entered = t.entered[:last]
	if last == 0 {
		delete(d.threads, id)
	}
	runtime.UnlockOSThread()
}

// begin checks whether a call is legal here and now.
func (c *context) begin(call string, waits bool) error {
	d := c.d
	c.pass()
	t := d.threads[threadID()]
	if t == nil || t.entered[len(t.entered)-1].c.device != c.device {
		d.misuse("%s outside of Enter and Leave of context %d", call, c.index)
		if !d.closed {
			return failure(call, invalidContext)
		}
	}
	if c.released {
		d.misuse("%s after Release of context %d", call, c.index)
		return gone(call)
	}
	if err := d.fails(call); err != nil {
		return err
	}
	if c.device.lost != 0 {
		return failure(call, c.device.lost)
	}
	if waits && len(d.captures) > 0 && !t.relaxed() {
		for _, capture := range d.captures {
			capture.invalid = true
		}
		return failure(call, captureForbids)
	}
	return nil
}

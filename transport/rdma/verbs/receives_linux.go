//go:build (amd64 || arm64) && !nordma

package verbs

import "github.com/goccl/goccl/ccl/fault"

// posting is a list of receives, all alike, and which one was refused.
type posting struct {
	list [64]cReceive
	bad  uintptr
}

// receives implements Receives.
type receives struct {
	context   *context
	handle    uintptr // ibv_srq, 0 once it is closed
	entries   int
	memory    *posting
	arguments arguments
}

// NewReceives implements Context.
func (c *context) NewReceives(entries int) (Receives, error) {
	const most = 1 << 30
	if entries < 1 || entries > most {
		return nil, fault.New(fault.Invalid, "rdma: a shared receive queue of %d entries", entries)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	q := &receives{context: c, entries: entries}
	if err := q.make(entries); err != nil {
		_ = q.release()
		c.end()
		return nil, err
	}
	return q, nil
}

func (q *receives) make(entries int) error {
	c := q.context
	var err error
	if q.memory, err = newBlock[posting](); err != nil {
		return err
	}
	list := &q.memory.list
	for index := range list {
		list[index].cookie = NoCookie
		if index+1 < len(list) {
			list[index].next = addressOf(&list[index+1])
		}
	}
	// Entries have no memory, but some adapters make no queue of entries that can have none.
	init := cReceivesInit{cookie: addressOf(q.memory), entries: uint32(entries), pieces: 1}
	handle, errno := c.createSRQ(c.domain, &init)
	if errno != 0 {
		return refused(errno, "a shared receive queue of %d entries of %s", entries, c.name)
	}
	q.handle = handle
	memory := at[cReceives](handle)
	return fits(
		field{"ibv_srq.context", uint64(memory.context), uint64(c.handle)},
		field{"ibv_srq.srq_context", uint64(memory.cookie), uint64(init.cookie)},
		field{"ibv_srq.pd", uint64(memory.domain), uint64(c.domain)},
	)
}

// release gives back what make has got.
func (q *receives) release() error {
	if q.handle != 0 {
		if errno := q.context.destroySRQ(q.handle); errno != 0 {
			return refused(errno, "the end of a shared receive queue of %s", q.context.name)
		}
		q.handle = 0
	}
	freeBlock(q.memory)
	q.memory = nil
	return nil
}

// Post implements Receives.
func (q *receives) Post(n int) error {
	if q.handle == 0 {
		return errClosed("shared receive queue")
	}
	list := &q.memory.list
	for n > 0 {
		// A list is as long as what follows its first entry.
		now := min(n, len(list))
		first := addressOf(&list[len(list)-now])
		if code := q.arguments.call(q.context.do.postReceives, q.handle, first, addressOf(&q.memory.bad)); code != 0 {
			return fault.Wrap(fault.System, refusal(uintptr(code), 0),
				"rdma: a shared receive queue of %s, which was made for %d entries, does not take %d more", q.context.name,
				q.entries, n)
		}
		n -= now
	}
	return nil
}

// Close implements Receives.
func (q *receives) Close() error {
	if q.handle == 0 {
		return errClosed("shared receive queue")
	}
	if err := q.release(); err != nil {
		return err
	}
	q.context.end()
	return nil
}

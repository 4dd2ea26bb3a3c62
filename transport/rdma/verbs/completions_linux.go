//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"math/bits"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// polled is what one call of C takes from a completion queue, and where it tells of a notice.
type polled struct {
	entries [32]cCompletion
	queue   uintptr
	cookie  uintptr
}

// completions implements Completions.
type completions struct {
	context    *context
	channel    uintptr // ibv_comp_channel
	descriptor int
	handle     uintptr // ibv_cq, 0 once it is closed
	entries    int
	memory     *polled
	arguments  arguments
}

// NewCompletions implements Context.
func (c *context) NewCompletions(entries int) (Completions, error) {
	const most = 1 << 30
	if entries < 1 || entries > most {
		return nil, fault.New(fault.Invalid, "rdma: a completion queue of %d entries", entries)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	q := &completions{context: c}
	if err := q.make(entries); err != nil {
		_ = q.release()
		c.end()
		return nil, err
	}
	return q, nil
}

func (q *completions) make(entries int) error {
	c := q.context
	var err error
	if q.memory, err = newBlock[polled](); err != nil {
		return err
	}
	channel, errno := c.createChannel(c.handle)
	if errno != 0 {
		return refused(errno, "a completion channel of %s", c.name)
	}
	q.channel = channel
	descriptor := at[cChannel](channel).descriptor
	if file := c.files(descriptor); file != eventFile {
		return misfit("ibv_comp_channel.fd", uint64(uint32(descriptor)), "a descriptor of "+eventFile)
	}
	q.descriptor = int(descriptor)
	if err := unix.SetNonblock(q.descriptor, true); err != nil {
		return fault.Wrap(fault.System, err, "rdma: the descriptor of completions of %s", c.name)
	}
	cookie := addressOf(q.memory)
	handle, errno := c.createCQ(c.handle, entries, cookie, channel)
	if errno != 0 {
		return refused(errno, "a completion queue of %d entries of %s", entries, c.name)
	}
	q.handle = handle
	memory := at[cCompletions](handle)
	q.entries = int(memory.entries)
	if q.entries < entries {
		return misfit("ibv_cq.cqe", uint64(uint32(memory.entries)), "as many entries as asked for")
	}
	return fits(
		field{"ibv_comp_channel.context", uint64(at[cChannel](channel).context), uint64(c.handle)},
		field{"ibv_cq.context", uint64(memory.context), uint64(c.handle)},
		field{"ibv_cq.channel", uint64(memory.channel), uint64(channel)},
		field{"ibv_cq.cq_context", uint64(memory.cookie), uint64(cookie)},
	)
}

// release gives back what make has got.
func (q *completions) release() error {
	if q.handle != 0 {
		if errno := q.context.destroyCQ(q.handle); errno != 0 {
			return refused(errno, "the end of a completion queue of %s", q.context.name)
		}
		q.handle = 0
	}
	if q.channel != 0 {
		if errno := q.context.destroyChannel(q.channel); errno != 0 {
			return refused(errno, "the end of a completion channel of %s", q.context.name)
		}
		q.channel = 0
	}
	freeBlock(q.memory)
	q.memory = nil
	return nil
}

// Entries implements Completions.
func (q *completions) Entries() int { return q.entries }

// Descriptor implements Completions.
func (q *completions) Descriptor() int { return q.descriptor }

// Poll implements Completions.
func (q *completions) Poll(into []Completion) (int, error) {
	if q.handle == 0 {
		return 0, errClosed("completion queue")
	}
	done := 0
	for done < len(into) {
		ask := min(len(into)-done, len(q.memory.entries))
		n := int(q.arguments.call(q.context.do.poll, q.handle, uintptr(ask), addressOf(&q.memory.entries[0])))
		if n < 0 || n > ask {
			return done, fault.New(fault.System, "rdma: poll of a completion queue of %s returned %d", q.context.name, n)
		}
		for index := range n {
			into[done] = q.memory.entries[index].completion()
			done++
		}
		if n < ask {
			break
		}
	}
	return done, nil
}

func (c *cCompletion) completion() Completion {
	result := Completion{Cookie: c.cookie, Pair: c.pair, Status: Status(c.status), Vendor: c.vendor}
	switch {
	case result.Status != Success || c.kind&kindReceive == 0: // the kind of one that failed is undefined
	case c.kind == kindArrival:
		result.Arrival, result.Immediate, result.Bytes = true, bits.ReverseBytes32(c.immediate), c.bytes
	default: // the peer sent what is no write: its pair is not one of ours
		result.Status = General
	}
	return result
}

// Arm implements Completions.
func (q *completions) Arm() error {
	if q.handle == 0 {
		return errClosed("completion queue")
	}
	if code := q.arguments.call(q.context.do.arm, q.handle, 0, 0); code != 0 {
		return refused(refusal(uintptr(code), 0), "notices of a completion queue of %s", q.context.name)
	}
	return nil
}

// Take implements Completions.
func (q *completions) Take() error {
	if q.handle == 0 {
		return errClosed("completion queue")
	}
	runtime.LockOSThread() // errno is the thread's
	defer runtime.UnlockOSThread()
	l := q.context.library
	errno := l.threadErrno()
	taken := uintptr(0)
	code := syscall.EINTR
	for code == syscall.EINTR || code == 0 {
		*errno = 0
		if q.arguments.call(l.at[getCQEvent], q.channel, addressOf(&q.memory.queue), addressOf(&q.memory.cookie)) == 0 {
			taken, code = taken+1, 0
		} else {
			code = syscall.Errno(*errno)
			if code == 0 {
				code = syscall.EIO
			}
		}
	}
	if taken > 0 { // or the queue could never be destroyed
		q.arguments.call(l.at[ackCQEvents], q.handle, taken, 0)
	}
	if code != syscall.EAGAIN {
		return refused(code, "notices of a completion queue of %s", q.context.name)
	}
	return nil
}

// Close implements Completions.
func (q *completions) Close() error {
	if q.channel == 0 {
		return errClosed("completion queue")
	}
	if err := q.release(); err != nil {
		return err
	}
	q.context.end()
	return nil
}

package verbstest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// completions is a completion queue.
type completions struct {
	c     *context
	using atomic.Bool // by a thread

	mu     sync.Mutex // guards what follows. The engine takes it only when it has a completion.
	ring   []entry
	put    uint64 // completions so far
	taken  uint64
	armed  bool
	broken bool // it has overflowed
	closed bool
	killed bool
	bell   *bell
	random *rand.Rand
}

// entry is a completion in the queue.
type entry struct {
	verbs.Completion
	freed *atomic.Uint64 // counts what it frees, when it is polled
	frees uint64
}

// late is a notice that the engine gives later.
type late struct {
	at time.Time
	q  *completions
}

func (q *completions) String() string {
	return fmt.Sprintf("%s: completion queue of %d", q.c, len(q.ring))
}

func (c *context) NewCompletions(entries int) (verbs.Completions, error) {
	defer c.end()
	if err := c.begin("NewCompletions"); err != nil {
		return nil, err
	}
	n := c.a.h.n
	switch {
	case entries < 1:
		return nil, fault.Wrap(fault.System, unix.EINVAL, "NewCompletions with %d entries", entries)
	case entries > n.o.Entries:
		return nil, full("NewCompletions", unix.EINVAL, n.o.Entries, "entries")
	}
	b, err := newBell()
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "NewCompletions")
	}
	n.streams++
	q := &completions{c: c, ring: make([]entry, entries), bell: b, random: rand.New(rand.NewPCG(n.o.Seed, n.streams))}
	c.completions[q] = true
	return q, nil
}

func (q *completions) Entries() int { return len(q.ring) }

// begin is the beginning of a call that one thread at a time may make. It returns with q.mu, also
// with an error. It takes no lock that the engine takes without a completion.
func (q *completions) begin(call string) error {
	if !q.using.CompareAndSwap(false, true) {
		q.c.a.h.n.reports.mistake("%s: %s while another thread uses it", q, call)
	}
	err := q.c.a.h.refuses(call)
	q.mu.Lock()
	switch {
	case q.killed:
		return dead()
	case q.closed:
		return q.c.misuse("%s: %s after Close", q, call)
	case q.broken && err == nil:
		return fault.Wrap(fault.System, unix.EIO, "%s: the queue has overflowed", call)
	}
	return err
}

func (q *completions) Poll(into []verbs.Completion) (int, error) {
	err := q.begin("Poll")
	defer q.leave()
	if err != nil {
		return 0, err
	}
	k := 0
	for ; k < len(into) && q.taken < q.put; k++ {
		e := &q.ring[q.taken%uint64(len(q.ring))]
		into[k] = e.Completion
		e.freed.Add(e.frees)
		q.taken++
	}
	return k, nil
}

// forget takes the completions of a pair out of the queue.
func (q *completions) forget(pair uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	put, size := q.taken, uint64(len(q.ring))
	for i := q.taken; i < q.put; i++ {
		if e := q.ring[i%size]; e.Pair == pair {
			e.freed.Add(e.frees)
		} else {
			q.ring[put%size] = e
			put++
		}
	}
	q.put = put
}

func (q *completions) leave() {
	q.mu.Unlock()
	q.using.Store(false)
}

// Arm may or may not give a notice at once if there is something already: the seed chooses.
func (q *completions) Arm() error {
	err := q.begin("Arm")
	defer q.leave()
	if err != nil {
		return err
	}
	q.armed = true
	if q.taken < q.put && q.random.IntN(2) == 0 {
		q.armed = false
		q.bell.ring()
	}
	return nil
}

func (q *completions) Descriptor() int { return q.bell.read }

func (q *completions) Take() error {
	err := q.begin("Take")
	defer q.leave()
	if err != nil {
		return err
	}
	q.bell.hush()
	return nil
}

// push adds a completion, with Network.mu.
func (q *completions) push(c verbs.Completion, freed *atomic.Uint64, frees uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.c.a.h.n
	switch {
	case q.closed || q.broken || q.killed:
		return
	case q.put-q.taken == uint64(len(q.ring)):
		q.broken = true
		n.reports.mistake("%s has overflowed", q)
		q.c.raise(verbs.Event{Kind: verbs.CompletionsFailed})
		for _, p := range q.c.pairs() {
			if p.o.Completions == q {
				p.state.Store(failed)
			}
		}
		q.bell.ring()
		return
	}
	q.ring[q.put%uint64(len(q.ring))] = entry{c, freed, frees}
	q.put++
	if q.armed {
		q.armed = false
		n.notice(q)
	}
}

func (q *completions) Close() error {
	defer q.c.end()
	if err := q.c.enter("Completions.Close"); err != nil {
		return err
	}
	if q.closed {
		return q.c.misuse("a second Close of %s", q)
	}
	for _, p := range q.c.pairs() {
		if p.o.Completions == q {
			q.c.a.h.n.reports.mistake("Close of %s before that of %s", q, p)
			return fault.Wrap(fault.System, unix.EBUSY, "closing a completion queue that has pairs")
		}
	}
	if q.using.Load() {
		q.c.a.h.n.reports.mistake("Close of %s while another thread uses it", q)
	}
	delete(q.c.completions, q)
	q.end()
	return nil
}

// end gives the descriptor back.
func (q *completions) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.bell.close()
}

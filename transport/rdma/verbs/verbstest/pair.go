package verbstest

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// The states of a pair.
const (
	fresh = int32(iota)
	connected
	failed
	gone // closed, or its process was killed
)

// pair is a queue pair. Its writes are counted: freed <= acked <= sent <= posted.
type pair struct {
	c      *context
	number uint32
	o      verbs.PairOptions
	state  atomic.Int32
	own    verbs.Connection

	posting sync.Mutex
	ring    []posted
	posted  atomic.Uint64
	sent    uint64        // that have arrived at the peer, or will end with an error
	acked   uint64        // that have ended
	told    uint64        // of which a completion is in the queue, or of a later one
	freed   atomic.Uint64 // of which it was polled

	copied  bool      // the memory of the next one to be sent
	stopped bool      // the last one that was sent ends with an error
	silent  time.Time // since when there is no answer
	unready time.Time // since when the peer has no entry in its receive queue
}

// posted is a write that was posted.
type posted struct {
	verbs.Write
	bytes  int
	status verbs.Status
	sum    uint64 // of the source
	inline []byte
}

func (p *pair) String() string { return fmt.Sprintf("%s: pair %d", p.c, p.number) }

func (p *pair) at(i uint64) *posted { return &p.ring[i%uint64(len(p.ring))] }

func (c *context) NewPair(o verbs.PairOptions) (verbs.Pair, error) {
	defer c.end()
	if err := c.begin("NewPair"); err != nil {
		return nil, err
	}
	n := c.a.h.n
	q, ok1 := o.Completions.(*completions)
	r, ok2 := o.Receives.(*receives)
	switch {
	case !ok1 || !ok2 || !c.completions[q] || !c.receives[r]:
		return nil, c.misuse("%s: NewPair with queues of others, or that are closed", c)
	case o.Posted < 1 || o.Inline < 0:
		return nil, fault.Wrap(fault.System, unix.EINVAL, "NewPair for %d writes, %d bytes inline", o.Posted, o.Inline)
	case o.Posted > n.o.Posted:
		return nil, full("NewPair", unix.EINVAL, n.o.Posted, "writes that are posted")
	case o.Inline > n.o.Inline:
		return nil, full("NewPair", unix.EINVAL, n.o.Inline, "bytes inline")
	case len(c.a.pairs) >= n.o.Pairs:
		return nil, full("NewPair", unix.ENOMEM, n.o.Pairs, "pairs")
	}
	c.a.number = (c.a.number + 1) % (1 << 24)
	p := &pair{c: c, number: c.a.number, o: o, ring: make([]posted, o.Posted)}
	inline := make([]byte, o.Posted*o.Inline)
	for i := range p.ring {
		p.ring[i].inline = inline[i*o.Inline:][:o.Inline:o.Inline]
	}
	c.a.pairs[p.number] = p
	n.pairs = append(n.pairs, p)
	return p, nil
}

func (p *pair) Number() uint32 { return p.number }
func (p *pair) Inline() int    { return p.o.Inline }

// begin is the beginning of a call. It returns with mu, also with an error.
func (p *pair) begin(call string) error {
	p.c.a.h.n.mu.Lock()
	return p.open(call)
}

// open returns why a call fails.
func (p *pair) open(call string) error {
	if err := p.c.open(call); err != nil {
		return err
	}
	if p.state.Load() == gone {
		return p.c.misuse("%s: %s after Close", p, call)
	}
	return nil
}

func (p *pair) Connect(own verbs.Connection) error {
	defer p.c.end()
	if err := p.begin("Connect"); err != nil {
		return err
	}
	port := p.c.a.port(own.Port)
	t := own.Timing
	switch {
	case p.state.Load() != fresh:
		return p.invalid("it was connected before")
	case port == nil:
		return p.invalid("the adapter has no port %d", own.Port)
	case gid(port, own.GID) == nil:
		return p.invalid("port %d has no GID %d", own.Port, own.GID)
	case own.MTU > port.MTU || !slices.Contains([]int{256, 512, 1024, 2048, 4096}, own.MTU):
		return p.invalid("the MTU %d is not one of port %d", own.MTU, own.Port)
	case t.Timeout > 31 || t.Retries > 7 || t.NotReady > 7:
		return p.invalid("the timing %+v is out of range", t)
	case own.Sequence >= 1<<24 || own.Remote.Sequence >= 1<<24 || own.Remote.Pair >= 1<<24:
		return p.invalid("a number has more than 24 bits: %+v", own)
	case port.Ethernet && own.Remote.GID == [16]byte{}:
		return p.invalid("on Ethernet the peer has a GID")
	}
	p.own = own
	p.state.Store(connected)
	p.c.a.h.n.wake()
	return nil
}

func (p *pair) invalid(format string, args ...any) error {
	return fault.Wrap(fault.System, unix.EINVAL, "Connect of %s: %s", p, fmt.Sprintf(format, args...))
}

func gid(port *verbs.Port, index int) *verbs.GID {
	for i := range port.GIDs {
		if port.GIDs[i].Index == index {
			return &port.GIDs[i]
		}
	}
	return nil
}

// Post takes no lock that the engine takes.
func (p *pair) Post(writes []verbs.Write) (int, error) {
	p.posting.Lock()
	defer p.posting.Unlock()
	if err := p.open("Pair.Post"); err != nil {
		return 0, err
	}
	defer p.c.a.h.n.wake()
	for i := range writes {
		if err := p.post(&writes[i]); err != nil {
			return i, err
		}
	}
	return len(writes), nil
}

func (p *pair) post(w *verbs.Write) error {
	bytes := uint64(w.From[0].Bytes) + uint64(w.From[1].Bytes)
	switch {
	case p.state.Load() == fresh:
		return fault.Wrap(fault.System, unix.EINVAL, "Post to %s, which is not connected", p)
	case w.Inline && bytes > uint64(p.o.Inline):
		return full("Post", unix.EINVAL, p.o.Inline, "bytes inline")
	case p.posted.Load()-p.freed.Load() >= uint64(len(p.ring)):
		return full("Post", unix.ENOMEM, len(p.ring), "writes that are posted and not complete")
	}
	s := p.at(p.posted.Load())
	*s = posted{Write: *w, bytes: int(bytes), inline: s.inline}
	if w.Inline {
		s.inline = s.inline[:copy(s.inline[:cap(s.inline)], memoryAt(w.From[0].At, w.From[0].Bytes))]
		s.inline = append(s.inline, memoryAt(w.From[1].At, w.From[1].Bytes)...)
	}
	s.status = p.c.a.h.nextWrite(w)
	if s.sum = 0; !w.Inline {
		s.sum = p.sum(s)
	}
	p.posted.Add(1)
	return nil
}

// source returns the memory that a write reads, if all of it is registered.
func (p *pair) source(s *posted) (from [2][]byte, ok bool) {
	if s.Inline {
		return [2][]byte{s.inline}, true
	}
	for i, piece := range s.From {
		if piece.Bytes == 0 {
			continue
		}
		r := (*region)(nil)
		if from[i], r = p.c.find(p.c.local, piece.Key, piece.At, piece.Bytes); r == nil {
			return from, false
		}
		if r.freed() {
			return from, false
		}
	}
	return from, true
}

// tellFreed reports a write that reads memory of a device that was freed.
func (p *pair) tellFreed(s *posted) {
	for _, piece := range s.From {
		if _, r := p.c.find(p.c.local, piece.Key, piece.At, piece.Bytes); r != nil && r.freed() {
			p.c.a.h.n.reports.mistake("%s: a write reads memory of a device that was freed: cookie %x", p, s.Cookie)
		}
	}
}

var hashSeed = maphash.MakeSeed()

// sum is of what a write reads, 0 if that is not registered.
func (p *pair) sum(s *posted) (sum uint64) {
	from, ok := p.source(s)
	if !ok {
		return 0
	}
	mapped(func() { sum = maphash.Bytes(hashSeed, from[0])*3 + maphash.Bytes(hashSeed, from[1]) })
	return sum
}

// reads reports whether a write that has not completed reads a region.
func (p *pair) reads(r *region) bool {
	for i := p.told; i < p.posted.Load(); i++ {
		s := p.at(i)
		for _, piece := range s.From {
			if piece.Bytes > 0 && !s.Inline && piece.Key == r.local {
				return true
			}
		}
	}
	return false
}

func (p *pair) Fail() error {
	defer p.c.end()
	if err := p.begin("Fail"); err != nil {
		return err
	}
	p.state.Store(failed)
	p.c.a.h.n.wake()
	return nil
}

// Close waits until nobody copies from or to memory for the pair. Its completions may stay in the
// queue or go, as with the adapters that there are: the seed chooses.
func (p *pair) Close() error {
	defer p.c.end()
	if err := p.begin("Pair.Close"); err != nil {
		return err
	}
	p.vanish()
	if p.c.a.h.n.random.IntN(2) == 0 {
		p.o.Completions.(*completions).forget(p.number)
	}
	return nil
}

// vanish takes a pair away, and what was posted with it.
func (p *pair) vanish() {
	n := p.c.a.h.n
	n.settle()
	p.state.Store(gone)
	delete(p.c.a.pairs, p.number)
	n.pairs = slices.DeleteFunc(n.pairs, func(other *pair) bool { return other == p })
}

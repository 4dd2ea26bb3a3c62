package inproc

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/outbox"
	"github.com/goccl/goccl/transport/ring"
)

// poolBytes is the memory for large fragments. Pages are allocated only where they are used.
const poolBytes = 16 << 20

// Fabric joins the ranks of this process with each other.
type Fabric struct {
	// Arena returns the registered memory of the process, nil for none. It is set before the first
	// Connect.
	Arena func() *mem.Arena

	doorbell *park.Doorbell
	address  []byte
	ended    chan struct{} // closed by Close
	running  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	told    outbox.Queue[*link] // control messages, by the end that receives them
	telling bool                // a goroutine hands them out
	block   *mem.Block          // memory of the pool, allocated for the first link
	pool    *ring.Pool
	waiting map[key]*meeting
	given   int // of waiting, those with a why
	links   map[*link]struct{}
}

// key identifies a session and its two ranks, the same from both ends.
type key struct {
	id        [16]byte
	low, high int
}

// meeting is a session of which only one end has called Connect.
type meeting struct {
	session transport.Session // of the end that waits
	met     chan struct{}     // closed when link or err is set
	link    *link
	err     error
	why     []byte // the end that waited has given up for a reason
}

// mostGiven is the number of sessions for which a late end learns why the other one has given up.
const mostGiven = 4096

var _ transport.Fabric = (*Fabric)(nil)

// New returns the fabric of a process. The doorbell is that process's; it is rung for every rank.
func New(doorbell *park.Doorbell) *Fabric {
	f := &Fabric{doorbell: doorbell, ended: make(chan struct{}), waiting: map[key]*meeting{},
		links: map[*link]struct{}{}}
	f.address = append([]byte("goccl inproc "), make([]byte, 16)...)
	rand.Read(f.address[len(f.address)-16:])
	return f
}

// Name returns "inproc".
func (f *Fabric) Name() string { return "inproc" }

// Address returns a random value: a process that finds its own value is the same process.
func (f *Fabric) Address() []byte { return bytes.Clone(f.address) }

// Reaches reports whether the address is this fabric's own.
func (f *Fabric) Reaches(peer []byte) bool { return bytes.Equal(f.address, peer) }

// SharesMemory returns true: ranks of one process share all of its memory.
func (f *Fabric) SharesMemory() bool { return true }

// Locate returns none: the path leads through no network.
func (f *Fabric) Locate([]byte) []netip.Addr { return nil }

// Connect waits for the other end of the session and opens the link.
func (f *Fabric) Connect(ctx context.Context, peer []byte, s transport.Session) (transport.Link, error) {
	switch {
	case !f.Reaches(peer):
		return nil, fault.Peer(fault.NotSupported, s.Peer, "inproc: the address is not of this process")
	case s.Channels < 1 || s.Channels > transport.MaxChannels:
		return nil, fault.Peer(fault.Invalid, s.Peer,
			"inproc: %d channels; a link has 1 to %d", s.Channels, transport.MaxChannels)
	case s.Rank < 0 || s.Peer < 0 || s.Rank == s.Peer:
		return nil, fault.New(fault.Invalid, "inproc: no link joins rank %d with rank %d", s.Rank, s.Peer)
	}
	var err error
	if s.Share, err = copies(&s); err != nil {
		return nil, err
	}
	s.Note = bytes.Clone(s.Note)
	l, m, err := f.meet(s)
	if m != nil {
		select {
		case <-m.met:
		case <-f.ended:
		case <-ctx.Done():
		}
		l, err = f.result(ctx, m)
	}
	if err != nil {
		closeAll(s.Share) // of no link
		return nil, err
	}
	return l, nil
}

// meet finds the other end of a session, or registers this one to wait for it: one of the three
// results is set.
func (f *Fabric) meet(s transport.Session) (*link, *meeting, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, errClosed()
	}
	k := key{s.ID, min(s.Rank, s.Peer), max(s.Rank, s.Peer)}
	m := f.waiting[k]
	if m != nil && m.why != nil {
		delete(f.waiting, k)
		f.given--
		if m.session.Rank != s.Rank {
			e := fault.Peer(fault.PeerLeft, s.Peer, "inproc: rank %d has given up", s.Peer)
			e.Left = m.why
			return nil, nil, e
		}
		m = nil // the same end makes another attempt
	}
	if m == nil {
		m = &meeting{session: s, met: make(chan struct{})}
		f.waiting[k] = m
		return nil, m, nil
	}
	o := m.session
	if o.Rank == s.Rank {
		return nil, nil, fault.Peer(fault.Invalid, s.Peer,
			"inproc: rank %d is being linked with it already", s.Rank)
	}
	delete(f.waiting, k)
	defer close(m.met)
	if mine, theirs := s.Window.Size(), o.Window.Size(); mine != theirs {
		m.err = fault.Peer(fault.Mismatch, o.Peer,
			"inproc: a window of %d bytes here, of %d there", theirs, mine)
		return nil, nil, fault.Peer(fault.Mismatch, s.Peer,
			"inproc: a window of %d bytes here, of %d there", mine, theirs)
	}
	if o.Key != s.Key {
		m.err = fault.Peer(fault.Invalid, o.Peer, "inproc: the ranks have different keys for this group")
		return nil, nil, fault.Peer(fault.Invalid, s.Peer, "inproc: the ranks have different keys for this group")
	}
	if o.Channels != s.Channels {
		m.err = fault.Peer(fault.Mismatch, o.Peer,
			"inproc: %d channels here, %d there", o.Channels, s.Channels)
		return nil, nil, fault.Peer(fault.Mismatch, s.Peer,
			"inproc: %d channels here, %d there", s.Channels, o.Channels)
	}
	if err := f.makePool(); err != nil {
		m.err = err
		return nil, nil, err
	}
	mine, theirs := f.join(s, o)
	m.link = theirs
	return mine, nil, nil
}

// result returns the outcome for the end that came first. A link that was opened when its context
// ended is not lost.
func (f *Fabric) result(ctx context.Context, m *meeting) (*link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := m.session
	switch {
	case m.link != nil:
		return m.link, nil
	case m.err != nil:
		return nil, m.err
	case f.closed:
		return nil, errClosed()
	}
	if m.why = transport.Why(ctx); len(m.why) > 0 && f.given < mostGiven {
		f.given++
	} else {
		delete(f.waiting, key{s.ID, min(s.Rank, s.Peer), max(s.Rank, s.Peer)})
	}
	code := fault.Timeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = fault.Aborted
	}
	err := fault.Peer(code, s.Peer,
		"inproc: rank %d, in this process, has not come to make this group yet", s.Peer)
	err.Cause = ctx.Err()
	return nil, err
}

func errClosed() error { return fault.New(fault.Closed, "inproc: the fabric is closed") }

// makePool makes the pool for the first link. It is called with the lock held.
func (f *Fabric) makePool() error {
	if f.pool != nil {
		return nil
	}
	block, err := mem.Alloc(poolBytes)
	if err != nil {
		return err
	}
	f.block, f.pool = block, ring.NewPool(block.Bytes())
	return nil
}

// Close ends all links and the fabric. No rank may still use them.
func (f *Fabric) Close() error {
	first := f.end()
	f.running.Wait()
	if !first || f.block == nil {
		return nil
	}
	return f.block.Free()
}

// end closes all links. It reports whether that was still to be done.
func (f *Fabric) end() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.closed = true
	close(f.ended)
	for l := range f.links {
		l.close(nil)
	}
	f.doorbell.Ring()
	return true
}

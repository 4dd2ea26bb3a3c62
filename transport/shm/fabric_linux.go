package shm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
	"github.com/goccl/goccl/transport/unproven"
	"golang.org/x/sys/unix"
)

const doorbellPage = 4096

// Fabric joins this process with other processes of the same host and user.
type Fabric struct {
	options  Options
	self     address
	user     uint32 // that processes of the same user belong to, as this process sees it
	doorbell *park.Doorbell
	page     *mem.Segment // holds the doorbell; it outlives the fabric, because threads may sleep on it
	listen   *net.UnixListener
	silent   *unproven.Conns // accepted connections that have not sent a hello
	ended    chan struct{}   // closed by Close
	running  sync.WaitGroup
	lack     atomic.Pointer[transport.Lack] // what accepting connections lacks

	mu        sync.Mutex // guards everything below, and the processes and links: control plane only
	closed    bool
	segment   *mem.Segment // of the pool, made for the first connection
	pool      *ring.Pool
	arena     *mem.Arena      // of the process, nil for none; set together with the pool
	processes map[id]*process // peers with a living connection
	dialling  map[id]bool
	refused   map[id]error          // why processes that have dialled could not be joined
	denied    map[id]error          // processes that this one may not connect to, and why
	barred    map[id]*barrier       // processes that this one cannot share memory with, and why
	changed   chan struct{}         // closed and replaced when processes, dialling or refused change
	links     map[*link]struct{}    // not yet closed
	given     map[sessionKey][]byte // given up without a connection to the peer, and why
	parted    map[sessionKey]parted // given up by a peer that is gone, before Connect was called
}

var _ transport.Fabric = (*Fabric)(nil)

// NewDoorbell returns a new page with the doorbell of a process, for Options.Doorbell.
func NewDoorbell() (*mem.Segment, error) { return mem.NewSegment("goccl-doorbell", doorbellPage) }

// New returns the fabric of this process. It opens the socket that peers connect to, and makes a
// doorbell if the options have none.
func New(opts Options) (*Fabric, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	self, err := ownAddress()
	if err != nil {
		return nil, err
	}
	page := opts.Doorbell
	if page == nil {
		if page, err = NewDoorbell(); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unixpacket", socketOf(&self))
	if err != nil {
		if page != opts.Doorbell {
			page.Free()
		}
		return nil, fault.Wrap(fault.System, err, "shm: no unix socket can be opened")
	}
	f := &Fabric{options: opts, self: self, user: uint32(os.Geteuid()), page: page,
		doorbell: park.DoorbellAt(page.Bytes()), listen: l,
		ended: make(chan struct{}), processes: map[id]*process{}, dialling: map[id]bool{},
		refused: map[id]error{}, denied: map[id]error{}, barred: map[id]*barrier{},
		changed: make(chan struct{}), links: map[*link]struct{}{}, given: map[sessionKey][]byte{},
		parted: map[sessionKey]parted{}, silent: unproven.New(maxHandshakes)}
	opts.Track(descriptor(l), true)
	f.running.Add(1)
	go f.accept()
	return f, nil
}

// ownAddress determines where this process runs.
func ownAddress() (a address, err error) {
	place, err := probe.Place("/")
	if err == nil {
		var boot []byte
		boot, err = hex.DecodeString(strings.ReplaceAll(place.Machine, "-", ""))
		if err == nil && copy(a.Boot[:], boot) != len(a.Boot) {
			err = fmt.Errorf("boot id %q", place.Machine)
		}
	}
	if err != nil {
		return a, fault.Wrap(fault.NotSupported, err, "shm")
	}
	a.Network, a.UID, a.PID = place.Network, place.User, uint32(os.Getpid())
	rand.Read(a.ID[:])
	rand.Read(a.Socket[:])
	return a, nil
}

func socketOf(a *address) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@goccl-" + hex.EncodeToString(a.Socket[:])}
}

// Doorbell returns the doorbell of this process. It works after Close, too.
func (f *Fabric) Doorbell() *park.Doorbell { return f.doorbell }

// Name returns "shm".
func (f *Fabric) Name() string { return "shm" }

// Address identifies the host of this process and the process on it.
func (f *Fabric) Address() []byte { return f.self.encode() }

// Reaches reports whether the peer runs on the same kernel, in the same network namespace, as the
// same user. A process does not reach itself: inproc serves that case.
func (f *Fabric) Reaches(peer []byte) bool {
	a, ok := parseAddress(peer)
	return ok && f.self.reaches(&a)
}

// SharesMemory returns true.
func (f *Fabric) SharesMemory() bool { return true }

// Locate returns none: the path leads through no network.
func (f *Fabric) Locate([]byte) []netip.Addr { return nil }

// Connect opens a link to a rank of another process.
func (f *Fabric) Connect(ctx context.Context, peer []byte, s transport.Session) (transport.Link, error) {
	a, ok := parseAddress(peer)
	switch {
	case !ok:
		return nil, fault.Peer(fault.Invalid, s.Peer, "shm: its address is not one of this version of goccl")
	case !f.self.reaches(&a):
		return nil, fault.Peer(fault.NotSupported, s.Peer,
			"shm: it runs on another host, in another network namespace, for another user, or is this process")
	case s.Channels < 1 || s.Channels > transport.MaxChannels:
		return nil, fault.Peer(fault.Invalid, s.Peer,
			"shm: %d channels; a link has 1 to %d", s.Channels, transport.MaxChannels)
	case s.Window != nil && s.Window.Segment() == nil:
		return nil, fault.New(fault.Invalid, "shm: the window of rank %d is private to this process", s.Rank)
	case s.Rank < 0 || s.Peer < 0 || s.Rank == s.Peer || int64(max(s.Rank, s.Peer)) > 1<<31:
		return nil, fault.New(fault.Invalid, "shm: no link joins rank %d with rank %d", s.Rank, s.Peer)
	}
	if err := transport.CheckShare(s.Share, s.Note); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "shm: rank %d", s.Rank)
	}
	f.mu.Lock()
	delete(f.given, keyOf(&s))
	gone, told := f.parted[keyOf(&s)]
	delete(f.parted, keyOf(&s))
	f.mu.Unlock()
	if told {
		return nil, gone.process.left(s.Peer, gone.why)
	}
	for {
		p, err := f.reach(ctx, &a, &s)
		if err != nil {
			if why := transport.Why(ctx); len(why) > 0 {
				f.excuse(&a, &s, why)
			}
			return nil, err
		}
		l, err := p.open(ctx, s)
		if err == nil || !p.anew(err) {
			return l, err
		}
		select { // that attempt to connect was given up, but another may come; if none does, reach says why
		case <-time.After(redialPause):
		case <-ctx.Done():
		}
	}
}

// anew reports whether an error only says that a connection has ended: its process lives, and may
// connect again.
func (p *process) anew(err error) bool {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	return p.dead != nil && !p.ended && !p.fabric.closed && errors.Is(err, fault.PeerLost)
}

// parted is what a peer process has said of a session.
type parted struct {
	process *process
	why     []byte
}

const (
	mostGiven    = 4096            // sessions for which a late side learns why they were given up
	farewellSpan = 5 * time.Second // for connecting with such a peer, if this side dials
)

// excuse remembers for a peer that comes late why a session was given up.
func (f *Fabric) excuse(a *address, s *transport.Session, why []byte) {
	k := keyOf(s)
	f.mu.Lock()
	for old := range f.given {
		if len(f.given) < mostGiven {
			break
		}
		delete(f.given, old)
	}
	f.given[k] = why
	p := f.processes[a.ID]
	var late *arrival
	if p != nil { // since the attempt ended
		late = p.arrivals[k]
		delete(p.arrivals, k)
	} else if f.dials(a.ID) && !f.closed {
		f.running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), farewellSpan)
			defer cancel()
			f.running.Go(func() {
				select {
				case <-f.ended:
					cancel()
				case <-ctx.Done():
				}
			})
			f.reach(ctx, a, s)
		})
	}
	f.mu.Unlock()
	if late != nil {
		closeAll(late.fds)
		p.send(newVain(late.Serial, why))
	}
}

// saidOf returns why a session was given up, or nil.
func (f *Fabric) saidOf(k sessionKey) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.given[k]
}

// dials reports whether this side makes the connection to a process: that with the smaller id does,
// and the other one only where it may not.
func (f *Fabric) dials(peer id) bool { return bytes.Compare(f.self.ID[:], peer[:]) < 0 }

// The side that waits to be dialled tries itself, at first after firstProbe, then after pauses of
// up to probePeriod: the other one may be gone, or may not connect. If neither may, that is certain
// after deniedSpan.
const (
	firstProbe  = 40 * time.Millisecond
	probePeriod = 300 * time.Millisecond
	deniedSpan  = time.Second
)

// reach finds or makes the connection to a process. One side dials, the other waits for it, and
// dials as well if that takes long.
func (f *Fabric) reach(ctx context.Context, a *address, s *transport.Session) (*process, error) {
	first, pause, next := f.dials(a.ID), redialPause, time.Now()
	missing := "has not connected to this one; it may not have come to make the group yet"
	if !first {
		pause = firstProbe
		next = next.Add(pause)
	}
	var denied time.Time // since when this side knows that it may not connect
	for {
		if err := f.lack.Load().Fault("shm: this process cannot take connections"); err != nil {
			return nil, err
		}
		now := time.Now()
		f.mu.Lock()
		p, closed, changed := f.processes[a.ID], f.closed, f.changed
		if p != nil {
			p.meets(a)
		}
		refused := f.refused[a.ID]
		delete(f.refused, a.ID)
		if f.denied[a.ID] != nil && denied.IsZero() {
			denied = now
		}
		if p == nil && !denied.IsZero() && now.Sub(denied) >= deniedSpan {
			f.barLocked(a.ID, fmt.Sprintf("this process may not connect to its process %d (%v), nor has that one "+
				"connected to this one", a.PID, f.denied[a.ID]))
		}
		barred := f.barred[a.ID]
		mine := p == nil && barred == nil && !closed && !f.dialling[a.ID] && !now.Before(next) && ctx.Err() == nil
		if mine {
			f.dialling[a.ID] = true
		}
		f.mu.Unlock()
		switch {
		case closed:
			return nil, errClosed()
		case p != nil:
			return p, nil
		case barred != nil:
			return nil, barred.at(s.Peer)
		case refused != nil:
			return nil, refused
		case mine:
			p, again, err := f.dial(ctx, a, s)
			f.mu.Lock()
			delete(f.dialling, a.ID)
			if p != nil {
				p.meets(a)
			}
			if again == nil {
				f.announce()
			}
			f.mu.Unlock()
			if again == nil {
				return p, err
			}
			if first && ctx.Err() == nil { // an attempt that ends with ctx says less than an answer before it
				missing = "has not answered: " + again.Error()
			}
			next = time.Now().Add(pause)
			if !first || !denied.IsZero() {
				pause = min(2*max(pause, firstProbe), probePeriod)
			}
			continue
		}
		wait := max(next.Sub(now), redialPause)
		if !denied.IsZero() {
			wait = min(wait, max(deniedSpan-now.Sub(denied), 0))
		}
		select {
		case <-changed:
		case <-f.ended:
		case <-ctx.Done():
			if f.refuses(a) { // which counts, although nobody waits for it any more
				return nil, errGone(s, a)
			}
			return nil, errMissing(ctx, s, fmt.Sprintf("its process %d %s", a.PID, missing))
		case <-time.After(wait):
		}
	}
}

// refuses reports whether no process listens at an address, or only a forked child of one that
// has ended.
func (f *Fabric) refuses(a *address) bool {
	conn, err := net.DialUnix("unixpacket", nil, socketOf(a))
	if err != nil {
		return errors.Is(err, unix.ECONNREFUSED)
	}
	defer conn.Close()
	pid, err := f.owner(conn)
	if err != nil {
		return false
	}
	life := f.lifeAt(conn, pid)
	defer life.close()
	return life.isOver()
}

// barrier is why memory cannot be shared with a process.
type barrier string

// at returns the error of a link to a rank of that process.
func (b *barrier) at(rank int) *fault.Error {
	e := fault.Peer(fault.NotSupported, rank, "shm: %s", string(*b))
	e.Refused = true
	return e
}

// Error is what the process is told.
func (b *barrier) Error() string { return string(*b) }

// Is makes it an error of the class.
func (b *barrier) Is(target error) bool { return target == fault.NotSupported }

// bar notes that memory cannot be shared with a process. That stays, so that both sides notice, and
// the first reason counts.
func (f *Fabric) bar(peer id, why string) *barrier {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.barLocked(peer, why)
}

func (f *Fabric) barLocked(peer id, why string) *barrier {
	if f.barred[peer] == nil {
		b := barrier(why)
		f.barred[peer] = &b
		f.announce()
	}
	return f.barred[peer]
}

// announce wakes the callers of reach after a change. It is called with the lock held.
func (f *Fabric) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func errGone(s *transport.Session, a *address) error {
	e := fault.Peer(fault.PeerLost, s.Peer, "shm: nobody listens at the address of its process %d; it may have ended or "+
		"given up, or run on another machine with the same boot id, a clone, which needs GOCCL_TRANSPORT=tcp", a.PID)
	e.Dead = true
	return e
}

func errClosed() error { return fault.New(fault.Closed, "shm: the fabric is closed") }

// errMissing returns the error of a Connect whose context has ended.
func errMissing(ctx context.Context, s *transport.Session, missing string) error {
	code := fault.Timeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = fault.Aborted
	}
	err := fault.Peer(code, s.Peer, "shm: %s", missing)
	err.Cause = ctx.Err()
	return err
}

// makePool makes the pool of this process when the first connection needs it, and looks up its
// arena.
func (f *Fabric) makePool() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errClosed()
	}
	if f.pool != nil {
		return nil
	}
	s, err := mem.NewSegment("goccl-pool", f.options.PoolBytes)
	if err != nil {
		return err
	}
	if f.options.Arena != nil {
		f.arena = f.options.Arena()
	}
	f.segment, f.pool = s, ring.NewPool(s.Bytes())
	return nil
}

// Close ends all links and the fabric. No thread may still use the links.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	close(f.ended)
	f.silent.Close()
	// Links of lost connections are closed here too, and the memory behind them is released.
	byes := map[*process][]uint64{}
	for _, p := range f.processes {
		byes[p] = p.endOpenings(errClosed())
	}
	for l := range f.links {
		l.closeLocked()
		if l.unsent == 0 {
			byes[l.process] = append(byes[l.process], l.serial)
		}
	}
	f.mu.Unlock()
	f.options.Track(descriptor(f.listen), false)
	f.listen.Close()
	deadline := time.Now().Add(sendSpan)
	for p, serials := range byes {
		for _, serial := range serials {
			p.send(newBye(serial, nil))
		}
		p.linger(deadline)
		p.close() // its reader cleans up the rest
	}
	f.running.Wait()
	f.doorbell.Ring()
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.page.CloseFD()
	if f.segment != nil {
		err = errors.Join(err, f.segment.Free())
	}
	return err
}

package shm

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/outbox"
	"github.com/goccl/goccl/transport/ring"
	"golang.org/x/sys/unix"
)

// maxArrivals bounds the opens of a peer that no local Connect has answered yet; each holds
// descriptors.
const maxArrivals = 4096

// process is the connection to one peer process and the memory of that process that is mapped here.
// The fabric's lock guards the fields that change.
type process struct {
	fabric   *Fabric
	conn     *net.UnixConn
	fd       int // of conn
	ending   sync.Once
	life     *life
	pid      int  // as this process sees it, 0 if it does not; from then on as the peer sees itself
	apart    bool // the two see different numbers
	mine     *hello
	theirs   *hello
	page     *mem.Segment
	doorbell *park.Doorbell
	pool     *mem.Segment
	arena    *mem.Arena // the peer's, nil unless both have one

	refs     int    // the connection and each link whose memory is mapped
	dead     error  // why the connection has ended; nil while it works
	story    string // what has become of the process then
	ended    bool   // it is known to be over
	serial   uint64
	openings map[sessionKey]*opening // Connects of this side that wait for the peer's open
	arrivals map[sessionKey]*arrival // opens of the peer that wait for Connects of this side
	links    map[uint64]*link        // by the serial number of the peer's open

	poke   chan struct{} // wakes the goroutine that sends control messages
	told   outbox.Queue[*link]
	unsent int    // those that have not been sent, and the byes behind them
	heard  uint64 // control messages of the peer that have been handled
	acked  uint64 // as many of them as the peer was told of
}

// opening is a Connect of this side. It stays among the openings until it is confirmed or has
// failed.
type opening struct {
	session   transport.Session
	serial    uint64
	ring      *mem.Segment
	slot      int           // size of its private slots
	wake      chan struct{} // holds one token after a change of a field below
	link      *link         // made from the peer's open; usable once it is confirmed
	confirmed bool          // the peer has joined the same two opens
	err       error
	refusal   *refuse // for the peer, if its open cannot be joined
}

// meets notes what the peer has said of itself. It is called with the lock held.
func (p *process) meets(a *address) {
	if p.pid != int(a.PID) {
		p.pid, p.apart = int(a.PID), true
	}
}

// who names the process in messages.
func (p *process) who() string {
	if p.apart {
		return fmt.Sprintf("process %d on this host, as its PID namespace counts,", p.pid)
	}
	return fmt.Sprintf("process %d on this host", p.pid)
}

// changed wakes the Connect that waits.
func (w *opening) changed() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// arrival is an open of the peer.
type arrival struct {
	open
	fds []int
	why []byte // the peer has given up since, and says why
}

// open joins a session over this connection.
func (p *process) open(ctx context.Context, s transport.Session) (transport.Link, error) {
	slot := p.slotBytes()
	own, err := mem.NewSegment("goccl-ring", s.Channels*ring.AreaBytes(slot))
	if err != nil {
		return nil, err
	}
	w := &opening{session: s, ring: own, slot: slot, wake: make(chan struct{}, 1)}
	if err := p.begin(w); err != nil {
		own.Free()
		return nil, err
	}
	o := &open{Serial: w.serial, Session: s.ID, Rank: uint32(s.Rank), Peer: uint32(s.Peer),
		Channels: uint32(s.Channels), Slot: uint32(slot), Window: uint64(s.Window.Size()),
		Share: uint32(len(s.Share)), Length: uint32(len(s.Note))}
	copy(o.Note[:], s.Note)
	o.MAC = o.seal(s.Key, p.mine, p.theirs)
	fds := []int{own.FD()}
	if s.Window != nil {
		fds = append(fds, s.Window.Segment().FD())
	}
	if err := p.send(o, append(fds, s.Share...)...); foreign(err) {
		p.unshared(w, err)
	}
	own.CloseFD()
	for told := uint64(0); ; {
		p.fabric.mu.Lock()
		over, theirs := w.confirmed || w.err != nil, told
		if w.link != nil {
			theirs = w.link.theirs
		}
		p.fabric.mu.Unlock()
		if theirs != told { // after this side's open, which the peer must receive first
			told = theirs
			p.send(&joined{w.serial, theirs})
		}
		if over {
			return p.finish(ctx, w)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return p.finish(ctx, w)
		}
	}
}

// fullSessions is the number of sessions of two processes whose rings have private slots of the
// largest size. Further sessions have small slots: larger payloads travel in the pool, which all
// share.
const fullSessions = 8

// slotBytes returns the size of the private slots for the ring of one more session.
func (p *process) slotBytes() int {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	if len(p.links)+len(p.openings) < fullSessions {
		return ring.SlotBytes
	}
	return ring.LeastSlot
}

// begin registers an opening, and joins it if the peer's open has already arrived.
func (p *process) begin(w *opening) error {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	s, k := &w.session, keyOf(&w.session)
	switch {
	case f.closed:
		return errClosed()
	case p.dead != nil:
		return p.lostError(s.Peer)
	case p.openings[k] != nil:
		return fault.Peer(fault.Invalid, s.Peer,
			"shm: rank %d is being linked with it already", s.Rank)
	}
	p.serial++
	w.serial = p.serial
	p.openings[k] = w
	switch a := p.arrivals[k]; {
	case a == nil:
	case a.why != nil:
		delete(p.arrivals, k)
		p.fail(w, p.left(s.Peer, a.why))
	default:
		p.join(w, a)
	}
	return nil
}

// left returns the error of a peer that has left.
func (p *process) left(rank int, why []byte) *fault.Error {
	e := fault.Peer(fault.PeerLeft, rank, "shm: %s has left the group", p.who())
	e.Left = why
	return e
}

// finish returns the result of an opening. A link that was confirmed when its context ended is not
// lost.
func (p *process) finish(ctx context.Context, w *opening) (transport.Link, error) {
	f := p.fabric
	f.mu.Lock()
	s := &w.session
	if !w.confirmed && w.err == nil {
		p.fail(w, errMissing(ctx, s, fmt.Sprintf(
			"%s is connected, but has not come to make this group yet", p.who())))
	}
	f.mu.Unlock()
	if w.confirmed {
		return w.link, nil
	}
	w.ring.Free()
	if w.refusal != nil {
		p.send(w.refusal)
	}
	p.send(newBye(w.serial, transport.Why(ctx)))
	return nil, w.err
}

// unshared ends an opening whose descriptors cannot be sent. Nor was its open.
func (p *process) unshared(w *opening, cause error) {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	s := &w.session
	err := fault.Wrap(fault.Invalid, cause, "shm: rank %d cannot share descriptors %v", s.Rank, s.Share)
	if w.link != nil { // the peer's open will be joined by no other
		w.refusal = newRefuse(w.link.theirs, int(err.Code), err.Error())
	}
	p.fail(w, err)
}

// fail ends an opening. It is called with the lock held.
func (p *process) fail(w *opening, err error) {
	w.err = err
	delete(p.openings, keyOf(&w.session))
	p.retract(w)
	w.changed()
}

// retract takes back the link of an opening that was not confirmed. It is called with the lock
// held.
func (p *process) retract(w *opening) {
	if w.link != nil {
		w.link.unmap()
		w.link = nil
	}
}

// join makes the link of a session that both sides have opened. It is called with the lock held.
func (p *process) join(w *opening, a *arrival) {
	s := &w.session
	delete(p.arrivals, keyOf(s))
	defer func() { closeAll(a.fds) }()
	var peer, window *mem.Segment
	var err error
	want := a.seal(s.Key, p.theirs, p.mine)
	switch {
	case !hmac.Equal(want[:], a.MAC[:]):
		err = fault.Peer(fault.Invalid, s.Peer, "shm: %s has another key for this group; do all "+
			"ranks use the same store?", p.who())
	case int(a.Channels) != s.Channels:
		err = fault.Peer(fault.Mismatch, s.Peer,
			"shm: %d channels here, and %d in %s; all ranks need the same options", s.Channels, a.Channels, p.who())
	case a.Window != uint64(s.Window.Size()):
		err = fault.Peer(fault.Mismatch, s.Peer, "shm: a window of %d bytes here, and of %d in %s; all ranks need the "+
			"same options", s.Window.Size(), a.Window, p.who())
	case !ring.CheckSlot(int(a.Slot)):
		err = fault.Peer(fault.Internal, s.Peer,
			"shm: the slots of %s have %d bytes", p.who(), a.Slot)
	case p.links[a.Serial] != nil:
		err = fault.Peer(fault.Internal, s.Peer, "shm: %s uses a serial number twice", p.who())
	default:
		if peer, err = mem.MapSegment(a.fds[0], s.Channels*ring.AreaBytes(int(a.Slot))); err == nil && a.Window > 0 {
			if window, err = mem.MapSegment(a.fds[1], s.Window.Size()); err != nil {
				peer.Free()
			}
		}
	}
	if err != nil {
		code, text := fault.Internal, err.Error()
		var e *fault.Error
		if errors.As(err, &e) {
			code, text = e.Code, e.Text
		}
		if forbids(err) {
			b := p.fabric.barLocked(p.theirs.From, err.Error())
			code, text, err = fault.NotSupported, b.Error(), b.at(s.Peer)
		}
		w.refusal = newRefuse(a.Serial, int(code), text)
		p.fail(w, err)
		return
	}
	w.link = p.newLink(w, a, peer, window)
	w.link.note, w.link.shared = a.note(), a.fds[a.own():]
	a.fds = a.fds[:a.own()]
	w.changed()
}

// confirm is called with the lock held when the peer has joined two opens.
func (p *process) confirm(m *joined) {
	l := p.links[m.From]
	if l == nil || l.opening == nil || l.serial != m.To {
		return // for an opening that was taken back meanwhile
	}
	w := l.opening
	l.opening = nil
	w.confirmed = true
	delete(p.openings, keyOf(&w.session))
	p.fabric.links[l] = struct{}{}
	w.changed()
}

// closed is called with the lock held when the peer has closed what it opened with a serial number,
// or says that it will not open what this side has opened.
func (p *process) closed(m *bye) {
	if m.Serial == 0 {
		for _, w := range p.openings {
			if w.serial == m.To {
				p.fail(w, p.left(w.session.Peer, m.why()))
			}
		}
		return
	}
	for k, a := range p.arrivals {
		if a.Serial != m.Serial {
			continue
		}
		closeAll(a.fds)
		a.fds = nil
		if a.why = m.why(); len(a.why) == 0 {
			delete(p.arrivals, k)
		}
	}
	l := p.links[m.Serial]
	if l == nil {
		return
	}
	left := p.left(l.session.Peer, m.why())
	switch {
	case l.opening != nil && len(left.Left) > 0: // the peer has given up for good
		p.fail(l.opening, left)
	case l.opening != nil: // the peer's Connect gave up; this side's waits for another
		w := l.opening
		p.retract(w)
		if a := p.arrivals[keyOf(&w.session)]; a != nil {
			p.join(w, a)
		}
	default:
		l.gone(left)
	}
}

// send sends a message. If that fails the connection is of no use, and its reader ends it: at once,
// or, if the peer has closed its end, after what it had sent before. A foreign descriptor that
// cannot be sent is the affair of its caller.
func (p *process) send(message any, fds ...int) error {
	p.conn.SetWriteDeadline(time.Now().Add(sendSpan))
	err := sendPacket(p.conn, message, fds...)
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) && !foreign(err) {
		p.close()
	}
	return err
}

// foreign reports whether a message was not sent because of a descriptor that came from outside of
// this package: it is not open, or cannot be passed on.
func foreign(err error) bool { return errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL) }

// close ends the connection.
func (p *process) close() {
	p.ending.Do(func() {
		p.fabric.options.Track(p.fd, false)
		p.conn.Close()
	})
}

// watch ends the connection when the peer has died, although a forked child of it may keep the
// other end open. What the peer had sent before is still read.
func (p *process) watch() {
	if p.life.wait() {
		p.conn.CloseRead()
	}
}

// read handles the peer's messages until the connection ends.
func (p *process) read() {
	defer p.fabric.running.Done()
	packet := make([]byte, maxMessage)
	for {
		message, fds, err := receivePacket(p.conn, packet)
		if err == nil {
			err = p.handle(message, fds)
		}
		if err != nil {
			p.lost(err)
			return
		}
	}
}

func (p *process) handle(message any, fds []int) error {
	if m, ok := message.(*control); ok {
		p.hear(m)
		return nil
	}
	if m, ok := message.(*open); ok {
		if why := p.fabric.saidOf(m.key()); why != nil {
			closeAll(fds)
			p.send(newVain(m.Serial, why))
			return nil
		}
	}
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	switch m := message.(type) {
	case *open:
		return p.arrived(&arrival{open: *m, fds: fds})
	case *bye:
		p.closed(m)
	case *joined:
		p.confirm(m)
	case *refuse:
		if m.Serial == 0 {
			return &refusal{m.code(), fmt.Sprintf("%s refuses this one: %q", p.who(), m.text())}
		}
		p.refused(m)
	case *heard:
		return p.acknowledged(m)
	default:
		closeAll(fds)
		return &protocolError{fmt.Errorf("%T after the handshake", m)}
	}
	return nil
}

// arrived is called with the lock held when an open of the peer has arrived.
func (p *process) arrived(a *arrival) error {
	k := a.key()
	if old := p.arrivals[k]; old != nil {
		closeAll(old.fds)
	} else if len(p.arrivals) == maxArrivals {
		closeAll(a.fds)
		return &protocolError{fmt.Errorf("%d sessions that nobody here has asked for", maxArrivals)}
	}
	p.arrivals[k] = a
	if w := p.openings[k]; w != nil && w.link == nil {
		p.join(w, a)
	}
	return nil
}

// refused is called with the lock held when the peer has refused an open of this side.
func (p *process) refused(m *refuse) {
	code := m.code()
	for _, w := range p.openings {
		if w.serial == m.Serial && code == fault.NotSupported {
			p.fail(w, p.fabric.barLocked(p.theirs.From, fmt.Sprintf(
				"%s refuses this one: %q", p.who(), m.text())).at(w.session.Peer))
		} else if w.serial == m.Serial {
			p.fail(w, fault.Peer(code, w.session.Peer,
				"shm: %s refuses this group: %q", p.who(), m.text()))
		}
	}
	for _, l := range p.links {
		if l.serial == m.Serial {
			l.gone(fault.Peer(code, l.session.Peer,
				"shm: %s refuses this group: %q", p.who(), m.text()))
		}
	}
}

// lost ends everything that used the connection.
func (p *process) lost(cause error) {
	p.close()
	f := p.fabric
	story := p.life.story(errors.Is(cause, errEnd), f.ended)
	ended := p.life.isOver()
	p.life.close()
	f.mu.Lock()
	p.dead, p.story, p.ended = cause, story, ended
	if r := (&refusal{}); errors.As(cause, &r) && r.code == fault.NotSupported {
		f.barLocked(p.theirs.From, "its "+r.text)
	}
	if f.processes[p.theirs.From] == p {
		delete(f.processes, p.theirs.From)
		f.announce()
	}
	for _, w := range p.openings {
		p.fail(w, p.lostError(w.session.Peer))
	}
	for k, a := range p.arrivals {
		delete(p.arrivals, k)
		closeAll(a.fds)
		if len(a.why) > 0 && len(f.parted) < mostGiven {
			f.parted[k] = parted{p, a.why}
		}
	}
	for _, l := range p.links {
		l.gone(p.lostError(l.session.Peer))
	}
	p.unref()
	f.mu.Unlock()
	p.nudge()
	f.doorbell.Ring()
}

// lostError returns the error that a link to a rank gets from the end of the connection.
func (p *process) lostError(rank int) *fault.Error {
	if r := (&refusal{}); errors.As(p.dead, &r) {
		if barred := p.fabric.barred[p.theirs.From]; barred != nil {
			return barred.at(rank)
		}
		return fault.Peer(r.code, rank, "shm: its %s", r.text)
	}
	var wrong *protocolError
	if errors.As(p.dead, &wrong) {
		return fault.Peer(fault.Internal, rank, "shm: the connection to %s was given up: %v", p.who(), wrong)
	}
	if transport.Lacks(p.dead) {
		return fault.Wrap(fault.System, p.dead, "shm: this process has given up the connection to %s", p.who())
	}
	e := fault.Peer(fault.PeerLost, rank, "shm: %s %s", p.who(), p.story)
	e.Dead, e.Seen = p.ended, p.ended
	if !errors.Is(p.dead, errEnd) {
		e.Cause = p.dead
	}
	return e
}

// endOpenings fails all openings and returns the serial numbers to take back. It is called with the
// lock held.
func (p *process) endOpenings(err error) (serials []uint64) {
	for _, w := range p.openings {
		p.fail(w, err)
		serials = append(serials, w.serial)
	}
	return serials
}

// unref drops one use of the peer's memory and unmaps it after the last.
func (p *process) unref() {
	if p.refs--; p.refs == 0 {
		p.discard()
	}
}

// discard unmaps the peer's memory.
func (p *process) discard() {
	p.life.close() // of a process that was never installed
	p.page.Free()
	if p.pool != nil {
		p.pool.Free()
	}
	p.arena.Close()
}

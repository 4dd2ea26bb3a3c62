package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"golang.org/x/sys/unix"
)

const (
	helloSpan     = 500 * time.Millisecond // for the hello of a process that has dialled, which sends it at once
	handshakeSpan = 10 * time.Second       // for the answer
	maxHandshakes = 64                     // accepted connections without a hello; one more closes the oldest
	maxRefused    = 256                    // refused processes that are remembered
	redialPause   = 5 * time.Millisecond
)

// dial tries to connect to a process, for the session that needs it first. If again is set, a later
// attempt may succeed: the process was short of places, or it is ending, or it dials itself. It may
// also do so if this process may not, which is then noted.
func (f *Fabric) dial(ctx context.Context, a *address, s *transport.Session) (p *process, again, err error) {
	f.mu.Lock()
	denied := f.denied[a.ID]
	f.mu.Unlock()
	if denied != nil {
		if f.refuses(a) {
			return nil, nil, errGone(s, a)
		}
		return nil, denied, nil
	}
	p, err = f.dialOnce(ctx, a)
	var typed *fault.Error
	var refused *refusal
	var denial *denial
	switch {
	case err == nil:
		return p, nil, nil
	case ctx.Err() != nil || passing(err):
		return nil, err, nil
	case errors.As(err, &refused) && refused.code != fault.NotSupported:
		return nil, nil, fault.Peer(refused.code, s.Peer, "shm: its %s", refused.text)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, nil, errGone(s, a)
	case transport.Lacks(err):
		return nil, nil, fault.Wrap(fault.System, err, "shm: this process cannot connect")
	case errors.As(err, &denial):
		f.mu.Lock()
		f.denied[a.ID] = denial.cause
		f.mu.Unlock()
		return nil, err, nil
	case refused != nil:
		return nil, nil, f.bar(a.ID, "its "+refused.text).at(s.Peer)
	case forbids(err):
		return nil, nil, f.bar(a.ID, text(err)).at(s.Peer)
	case errors.As(err, &typed):
		return nil, nil, err
	}
	e := fault.Peer(fault.System, s.Peer, "shm: its process %d cannot be joined", a.PID)
	e.Cause = err
	return nil, nil, e
}

// passing reports whether another attempt may succeed: the connection has ended, or the peer's
// queue of connections is full, or it has not answered, since it is stopped, say.
func passing(err error) bool {
	again := []error{errEnd, unix.ECONNRESET, unix.EPIPE, unix.EAGAIN, os.ErrDeadlineExceeded}
	return slices.ContainsFunc(again, func(e error) bool { return errors.Is(err, e) })
}

// forbids reports whether an error says that the system does not let two processes share memory:
// they belong to different users, say, or a security module keeps descriptors from them.
func forbids(err error) bool {
	return errors.Is(err, fault.NotSupported) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// text returns what an error says, without the names of this package and of its class.
func text(err error) string { return strings.TrimPrefix(err.Error(), "shm: ") }

// denial is why this process may not connect to another one.
type denial struct{ cause error }

func (d *denial) Error() string { return "this process may not connect to it: " + d.cause.Error() }

func (f *Fabric) dialOnce(ctx context.Context, a *address) (*process, error) {
	if f.options.Deny != nil {
		if err := f.options.Deny(a.encode()); err != nil {
			return nil, &denial{err}
		}
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixpacket", socketOf(a).Name)
	switch {
	case err == nil:
	case ctx.Err() != nil || passing(err) || errors.Is(err, unix.ECONNREFUSED) || transport.Lacks(err):
		return nil, err
	default:
		return nil, &denial{err}
	}
	conn := nc.(*net.UnixConn)
	conn.SetDeadline(time.Now().Add(handshakeSpan))
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	p, err := f.meet(conn, a.ID)
	if stop() && err == nil {
		err = f.install(p)
	} else if err == nil {
		p.discard()
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// meet exchanges hellos with the process that was dialled.
func (f *Fabric) meet(conn *net.UnixConn, expected id) (p *process, err error) {
	pid, err := f.owner(conn)
	if err != nil {
		return nil, err
	}
	life := f.lifeAt(conn, pid)
	defer func() {
		if p == nil {
			life.close()
		}
	}()
	if life.isOver() { // a forked child of it listens, and will never answer
		return nil, unix.ECONNREFUSED
	}
	mine, err := f.introduce(expected)
	if err == nil {
		err = f.sendHello(conn, mine)
	}
	if err != nil {
		return nil, err
	}
	theirs, fds, err := f.receiveHello(conn, pid, expected)
	if err != nil {
		return nil, err
	}
	defer closeAll(fds)
	p, err = f.mapProcess(conn, life, pid, mine, theirs, fds)
	if err != nil && forbids(err) {
		refuseBy(conn, err)
	}
	return p, err
}

// refuseBy tells the process at the other end why it cannot be joined.
func refuseBy(conn *net.UnixConn, err error) {
	code := fault.System
	if e := (&fault.Error{}); errors.As(err, &e) {
		code = e.Code
	}
	if forbids(err) {
		code = fault.NotSupported
	}
	sendPacket(conn, newRefuse(0, int(code), text(err)))
}

// accept takes connections from processes with smaller ids until the fabric is closed.
func (f *Fabric) accept() {
	defer f.running.Done()
	for {
		conn, err := f.listen.AcceptUnix()
		if err != nil {
			f.lack.Store(f.lack.Load().Again(err))
			select {
			case <-f.ended:
				return
			case <-time.After(20 * time.Millisecond): // out of descriptors, or the peer has already gone
				continue
			}
		}
		conn.SetDeadline(time.Now().Add(helloSpan))
		pid, err := f.owner(conn)
		if err != nil { // of another user, who takes no place from peers; a peer has to know it, though
			refuseBy(conn, err)
			conn.Close()
			continue
		}
		f.silent.Add(conn)
		f.running.Go(func() { f.welcome(conn, pid) })
	}
}

// welcome makes a process of an accepted connection, or closes it. Until the connection has sent a
// hello that only a peer can send, it costs no memory.
func (f *Fabric) welcome(conn *net.UnixConn, pid int) {
	theirs, fds, err := f.receiveHello(conn, pid, id{})
	defer closeAll(fds)
	if !f.silent.Remove(conn) || err != nil {
		f.lack.Store(f.lack.Load().Again(err))
		conn.Close()
		return
	}
	conn.SetDeadline(time.Now().Add(handshakeSpan))
	if err := f.answer(conn, pid, theirs, fds); err != nil {
		conn.Close()
	}
}

// answer completes the handshake with a peer. A peer that cannot be joined receives a refusal. That
// which is to be dialled is answered only if it may not be.
func (f *Fabric) answer(conn *net.UnixConn, pid int, theirs *hello, fds []int) error {
	f.mu.Lock()
	barred, denied := f.barred[theirs.From], f.denied[theirs.From]
	f.mu.Unlock()
	if barred != nil {
		refuseBy(conn, barred)
		return barred
	}
	if denied == nil && f.dials(theirs.From) {
		return errEnd
	}
	life := f.lifeAt(conn, pid)
	mine, err := f.introduce(theirs.From)
	var p *process
	if err == nil {
		p, err = f.mapProcess(conn, life, pid, mine, theirs, fds)
	}
	if err != nil {
		life.close()
		refuseBy(conn, err)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.refused)+len(f.barred) >= maxRefused {
			return err
		}
		if forbids(err) {
			f.barLocked(theirs.From, text(err))
		} else {
			f.refused[theirs.From] = err
			f.announce()
		}
		return err
	}
	if err := f.sendHello(conn, mine); err != nil {
		p.discard()
		return err
	}
	return f.install(p)
}

// refusal is the answer of a process that cannot be joined.
type refusal struct {
	code fault.Code
	text string
}

func (r *refusal) Error() string { return r.text }

// owner returns the process at the other end, if it belongs to the same user.
func (f *Fabric) owner(conn *net.UnixConn) (pid int, err error) {
	cred, err := credentials(conn)
	if err == nil && cred.Uid != f.user {
		err = fault.New(fault.NotSupported, "process %d belongs to user %d, this one to %d",
			cred.Pid, cred.Uid, f.user)
	}
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// lifeAt returns the life of the process at the other end, nil if the kernel has none.
func (f *Fabric) lifeAt(conn *net.UnixConn, pid int) *life {
	if f.options.blind {
		return nil
	}
	return newLife(conn, pid)
}

// introduce returns the hello of this process for a peer. The first call makes the pool.
func (f *Fabric) introduce(to id) (*hello, error) {
	if err := f.makePool(); err != nil {
		return nil, err
	}
	h := &hello{Layout: ownLayout, From: f.self.ID, To: to,
		PoolBytes: uint64(f.options.PoolBytes), ArenaBytes: uint64(f.arena.Size())}
	copy(h.Magic[:], helloMagic)
	rand.Read(h.Challenge[:])
	return h, nil
}

// receiveHello waits for the peer's hello and checks that it comes from the expected process, or
// from any process if expected is zero. The descriptors then belong to the caller.
func (f *Fabric) receiveHello(conn *net.UnixConn, pid int, expected id) (*hello, []int, error) {
	message, fds, err := receivePacket(conn, make([]byte, maxMessage))
	if err != nil {
		return nil, nil, err
	}
	switch m := message.(type) {
	case *hello:
		if expected == (id{}) {
			expected = m.From
		}
		if err = m.check(expected, f.self.ID); err == nil {
			return m, fds, nil
		}
		sendPacket(conn, newRefuse(0, int(fault.Mismatch), err.Error()))
		err = fault.New(fault.Mismatch, "shm: process %d cannot be joined: %v", pid, err)
	case *refuse:
		err = &refusal{m.code(), fmt.Sprintf("process %d refuses this one: %q", pid, m.text())}
	default:
		err = fault.New(fault.Internal, "shm: process %d begins with %T", pid, message)
	}
	closeAll(fds)
	return nil, nil, err
}

// mapProcess maps the segments that came with the hello of a peer.
func (f *Fabric) mapProcess(conn *net.UnixConn, life *life, pid int, mine, theirs *hello, fds []int) (
	p *process, err error) {
	p = &process{fabric: f, conn: conn, fd: descriptor(conn), life: life, pid: pid, mine: mine, theirs: theirs,
		refs: 1, poke: make(chan struct{}, 1),
		openings: map[sessionKey]*opening{}, arrivals: map[sessionKey]*arrival{}, links: map[uint64]*link{}}
	if err = f.options.forbid; err != nil {
		return nil, err
	}
	if p.page, err = mem.MapSegment(fds[0], doorbellPage); err != nil {
		return nil, err
	}
	p.doorbell = park.DoorbellAt(p.page.Bytes())
	p.pool, err = mem.MapSegment(fds[1], int(theirs.PoolBytes))
	// A process without an arena lends nothing, and need not see the arenas of others.
	if err == nil && mine.ArenaBytes > 0 && theirs.ArenaBytes > 0 {
		p.arena, err = mem.MapArena(fds[2], int(theirs.ArenaBytes))
	}
	if err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

// sendHello holds the lock so that Close does not close the descriptors meanwhile.
func (f *Fabric) sendHello(conn *net.UnixConn, h *hello) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errClosed()
	}
	fds := []int{f.page.FD(), f.segment.FD()}
	if h.ArenaBytes > 0 {
		fds = append(fds, f.arena.FD())
	}
	return sendPacket(conn, h, fds...)
}

// install registers a connection as the one to its process and starts to read it.
func (f *Fabric) install(p *process) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		p.discard()
		return errClosed()
	}
	if barred := f.barred[p.theirs.From]; barred != nil { // meanwhile
		refuseBy(p.conn, barred)
		p.discard()
		return barred
	}
	// A process dials again only after it has lost its earlier connection, though this side may not
	// know of the loss yet.
	if old := f.processes[p.theirs.From]; old != nil {
		old.close()
	}
	p.conn.SetDeadline(time.Time{})
	f.options.Track(p.fd, true)
	f.processes[p.theirs.From] = p
	f.announce()
	f.running.Add(1)
	go p.read()
	f.running.Go(p.speak)
	if p.life != nil {
		f.running.Go(p.watch)
	}
	return nil
}

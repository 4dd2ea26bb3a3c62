package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
	"golang.org/x/sys/unix"
)

const (
	handshakeSpan = 10 * time.Second
	maxHandshakes = 64 // accepted connections that have not said hello
)

// dial connects to a process for the session that needs it first.
func (f *Fabric) dial(ctx context.Context, a *address, s *transport.Session) (*process, error) {
	if err := f.makePool(); err != nil {
		return nil, err
	}
	conn, err := dialSocket(ctx, a)
	if err == nil {
		conn.SetDeadline(time.Now().Add(handshakeSpan))
		stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
		var p *process
		p, err = f.greet(conn, a.ID)
		if stop() && err == nil {
			err = f.install(p)
		} else if err == nil {
			p.discard()
			err = ctx.Err()
		}
		if err == nil {
			return p, nil
		}
		conn.Close()
	}
	var typed *fault.Error
	switch {
	case errors.As(err, &typed):
		return nil, err
	case ctx.Err() != nil:
		return nil, errMissing(ctx, s, fmt.Sprintf("its process %d has not answered: %v", a.PID, err))
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fault.Peer(fault.PeerLost, s.Peer, "shm: its process %d is gone: nobody listens at its address", a.PID)
	case errors.Is(err, errEnd), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return nil, fault.Peer(fault.PeerLost, s.Peer, "shm: its process %d ended the connection before it was set up", a.PID)
	}
	e := fault.Peer(fault.System, s.Peer, "shm: its process %d cannot be joined", a.PID)
	e.Cause = err
	return nil, e
}

// dialSocket connects, and waits where the peer's queue of connections is full.
func dialSocket(ctx context.Context, a *address) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unixpacket", socketOf(a).Name)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// accept takes the connections of processes with smaller ids, until the fabric is closed.
func (f *Fabric) accept() {
	defer f.running.Done()
	places := make(chan struct{}, maxHandshakes)
	for {
		conn, err := f.listen.AcceptUnix()
		if err != nil {
			select {
			case <-f.ended:
				return
			case <-time.After(20 * time.Millisecond): // out of descriptors, or the peer has gone already
				continue
			}
		}
		f.mu.Lock()
		closed := f.closed
		f.greeting[conn] = struct{}{}
		f.mu.Unlock()
		if closed {
			conn.Close()
			return
		}
		places <- struct{}{}
		f.running.Add(1)
		go func() {
			defer f.running.Done()
			f.welcome(conn)
			<-places
		}()
	}
}

// welcome makes a process of an accepted connection, or closes it.
func (f *Fabric) welcome(conn *net.UnixConn) {
	err := f.makePool()
	if err == nil {
		conn.SetDeadline(time.Now().Add(handshakeSpan))
		var p *process
		if p, err = f.greet(conn, id{}); err == nil {
			err = f.install(p)
		}
	}
	f.mu.Lock()
	delete(f.greeting, conn)
	f.mu.Unlock()
	if err != nil {
		conn.Close()
	}
}

// greet exchanges hellos. The side that dialled says which process it expects and speaks first.
func (f *Fabric) greet(conn *net.UnixConn, expected id) (*process, error) {
	cred, err := credentials(conn)
	if err != nil {
		return nil, err
	}
	if cred.Uid != f.self.UID {
		return nil, fault.New(fault.Invalid, "shm: process %d belongs to user %d, this one to %d", cred.Pid, cred.Uid, f.self.UID)
	}
	mine := &hello{Layout: ownLayout, From: f.self.ID, To: expected, PoolBytes: uint64(f.options.PoolBytes),
		ArenaBytes: uint64(f.arena.Size())}
	copy(mine.Magic[:], helloMagic)
	rand.Read(mine.Challenge[:])
	dialled := expected != id{}
	if dialled {
		if err := f.sendHello(conn, mine); err != nil {
			return nil, err
		}
	}
	message, fds, err := receivePacket(conn)
	if err != nil {
		return nil, err
	}
	defer closeAll(fds)
	theirs, ok := message.(*hello)
	if !ok {
		if r, ok := message.(*refuse); ok {
			return nil, fault.New(fault.Mismatch, "shm: process %d refuses this one: %q", cred.Pid, r.text())
		}
		return nil, fault.New(fault.Internal, "shm: process %d begins with %T", cred.Pid, message)
	}
	if !dialled {
		expected = theirs.From
	}
	if err := theirs.check(expected, f.self.ID); err != nil {
		sendPacket(conn, newRefuse(0, int(fault.Mismatch), err.Error()))
		return nil, fault.New(fault.Mismatch, "shm: process %d cannot be joined: %v", cred.Pid, err)
	}
	p := &process{fabric: f, conn: conn, pid: int(cred.Pid), mine: mine, theirs: theirs, refs: 1,
		openings: map[sessionKey]*opening{}, arrivals: map[sessionKey]*arrival{}, links: map[uint64]*link{}}
	if p.page, err = mem.MapSegment(fds[0], bellPage); err != nil {
		return nil, err
	}
	p.bell = park.BellAt(p.page.Bytes())
	if p.pool, err = mem.MapSegment(fds[1], int(theirs.PoolBytes)); err != nil {
		p.discard()
		return nil, err
	}
	// Who has none lends nothing, and need not see what others have.
	if mine.ArenaBytes > 0 && theirs.ArenaBytes > 0 {
		if p.arena, err = mem.MapArena(fds[2], int(theirs.ArenaBytes)); err != nil {
			p.discard()
			return nil, err
		}
	}
	if !dialled {
		mine.To = theirs.From
		if err := f.sendHello(conn, mine); err != nil {
			p.discard()
			return nil, err
		}
	}
	return p, conn.SetDeadline(time.Time{})
}

// sendHello holds the lock, so that Close does not close the descriptors meanwhile.
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

// install makes a connection that has been set up the one to its process, and starts to read it.
func (f *Fabric) install(p *process) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		p.discard()
		return errClosed()
	}
	// A process dials again only after it has lost the connection before, though this side may not know yet.
	if old := f.processes[p.theirs.From]; old != nil {
		old.conn.Close()
	}
	f.processes[p.theirs.From] = p
	f.announce()
	f.running.Add(1)
	go p.read()
	return nil
}

package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// prefix begins the names of the sockets. The number of the process and its namespace follow:
// containers may share sockets, and yet have processes with equal numbers.
const prefix = "@goccl-top-"

func socketOf(pid int, namespace uint64) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("%s%d-%d", prefix, pid, namespace)}
}

// namespace returns the namespace in which this process has its number, 0 if that is unknown.
func namespace() uint64 {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	if stat == nil {
		return 0
	}
	return stat.Ino
}

// Server answers those who ask.
type Server struct {
	listen   *net.UnixListener
	snapshot func() *Process
	track    func(fd int, open bool)
	span     time.Duration // for an answer to be read
	places   chan struct{}
	one      sync.Mutex // one snapshot at a time
	ended    sync.WaitGroup
}

// Serve begins to serve snapshots of this process. track is called with true for each socket that a
// forked child must close, or the child would be asked instead of this process, and with false
// before it is closed here; it may be nil.
func Serve(snapshot func() *Process, track func(fd int, open bool)) (*Server, error) {
	return serve(snapshot, track, answerSpan)
}

func serve(snapshot func() *Process, track func(fd int, open bool), span time.Duration) (*Server, error) {
	listen, err := net.ListenUnix("unix", socketOf(os.Getpid(), namespace()))
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "no socket for goccl top can be opened")
	}
	if track == nil {
		track = func(int, bool) {}
	}
	s := &Server{listen: listen, snapshot: snapshot, track: track, span: span,
		places: make(chan struct{}, mostAsking)}
	track(descriptor(listen), true)
	s.ended.Go(s.accept)
	return s, nil
}

// Close ends the service. Answers under way may still come.
func (s *Server) Close() error {
	s.track(descriptor(s.listen), false)
	err := s.listen.Close()
	s.ended.Wait()
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.listen.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptor is left
			time.Sleep(trouble)
			continue
		case !friend(conn, os.Geteuid()):
			conn.Close()
			time.Sleep(strangeSpan) // whoever connects all the time gets no more of this process
			continue
		}
		select {
		case s.places <- struct{}{}:
			s.track(descriptor(conn), true)
			go s.answer(conn)
		default:
			conn.Close()
		}
	}
}

func (s *Server) answer(conn *net.UnixConn) {
	defer func() {
		recover() // a snapshot that cannot be made is not answered; the process goes on
		s.track(descriptor(conn), false)
		conn.Close()
		<-s.places
	}()
	s.one.Lock()
	p := func() *Process {
		defer s.one.Unlock()
		return s.snapshot()
	}()
	p.Fit()
	conn.SetDeadline(time.Now().Add(s.span))
	json.NewEncoder(conn).Encode(p)
}

// friend reports whether the process at the other end belongs to the user, or to root.
func friend(conn *net.UnixConn, user int) bool {
	cred, err := credentials(conn)
	return err == nil && (int(cred.Uid) == user || cred.Uid == 0)
}

func credentials(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, failed)
}

func descriptor(c syscall.Conn) int {
	fd := -1
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(s uintptr) { fd = int(s) })
	}
	return fd
}

//go:build !pollfd

package tcp

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Events that an armed connection waits for. It always waits for the end of the peer's direction.
const (
	waitIn  = unix.EPOLLIN
	waitOut = unix.EPOLLOUT
	waitEnd = unix.EPOLLRDHUP
)

// watch is the poller's state of a connection.
type watch struct {
	mu    sync.Mutex
	armed atomic.Uint32 // waitIn, waitOut: what the kernel will report once
	on    bool
}

// poller waits for events of all connections with one goroutine. Each event is reported once
// (EPOLLONESHOT) and then armed again by the thread that goes to sleep, so that a busy process does
// not wake the goroutine.
type poller struct {
	f     *Fabric
	armed int // epoll instance that the goroutine waits on
	state int // epoll instance that reports without waiting which connections have data
	wake  int // eventfd that ends the goroutine
	done  chan struct{}
}

const wakeSlot = -1

func newPoller(f *Fabric) (*poller, error) {
	p := &poller{f: f, armed: -1, state: -1, wake: -1, done: make(chan struct{})}
	var err error
	if p.armed, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		if p.state, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
			if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
				err = unix.EpollCtl(p.armed, unix.EPOLL_CTL_ADD, p.wake, &unix.EpollEvent{Events: waitIn, Fd: wakeSlot})
			}
		}
	}
	if err != nil {
		p.release()
		return nil, err
	}
	go p.run()
	return p, nil
}

func (p *poller) release() {
	for _, fd := range []int{p.armed, p.state, p.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// close ends the goroutine. No connection is left by then.
func (p *poller) close() {
	one := [8]byte{1}
	unix.Write(p.wake, one[:])
	<-p.done
	p.release()
}

func (p *poller) run() {
	defer close(p.done)
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(p.armed, events[:], -1)
		if err != nil && err != unix.EINTR {
			return // cannot happen: the descriptor stays open until close
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == wakeSlot {
				return
			}
			if c := connAt(*p.f.table.Load(), e.Fd); c != nil {
				p.f.serve(c, e.Events&(waitEnd|unix.EPOLLHUP|unix.EPOLLERR) != 0)
			}
		}
	}
}

// connAt returns the connection of an event. The slot may have a new owner by now, to which a
// spurious event does no harm.
func connAt(table []*conn, slot int32) *conn {
	if int(slot) >= len(table) {
		return nil
	}
	return table[slot]
}

func (p *poller) add(c *conn) error {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	err := unix.EpollCtl(p.state, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: waitIn, Fd: int32(c.slot)})
	if err == nil {
		err = unix.EpollCtl(p.armed, unix.EPOLL_CTL_ADD, c.fd,
			&unix.EpollEvent{Events: waitEnd | unix.EPOLLONESHOT, Fd: int32(c.slot)})
	}
	c.watch.on = err == nil
	return err
}

func (p *poller) remove(c *conn) {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	if c.watch.on {
		c.watch.on = false
		unix.EpollCtl(p.state, unix.EPOLL_CTL_DEL, c.fd, nil)
		unix.EpollCtl(p.armed, unix.EPOLL_CTL_DEL, c.fd, nil)
	}
}

// arm makes the next event of c ring the doorbell.
func (p *poller) arm(c *conn) {
	want := uint32(waitIn)
	if c.backlog.Load() {
		want |= waitOut
	}
	if want&^c.watch.armed.Load() != 0 {
		p.set(c, want)
	}
}

// armOut makes the goroutine write when the socket takes more.
func (p *poller) armOut(c *conn) {
	if c.watch.armed.Load()&waitOut == 0 {
		p.set(c, waitOut)
	}
}

// rearm continues to wait after an event: always for the peer's end, and for more if the connection
// has work in the background, or was left with a backlog.
func (p *poller) rearm(c *conn) {
	p.set(c, c.unattended())
}

func (p *poller) set(c *conn, want uint32) {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	want |= c.watch.armed.Load()
	if !c.watch.on {
		return
	}
	c.watch.armed.Store(want)
	unix.EpollCtl(p.armed, unix.EPOLL_CTL_MOD, c.fd,
		&unix.EpollEvent{Events: want | waitEnd | unix.EPOLLONESHOT, Fd: int32(c.slot)})
}

// scan reads and writes on those of many connections that have something to move.
func (p *poller) scan(table []*conn) bool {
	moved := false
	var events [64]unix.EpollEvent
	n, _ := unix.EpollWait(p.state, events[:], 0)
	for _, e := range events[:max(n, 0)] {
		if c := connAt(table, e.Fd); c != nil && c.progress() {
			moved = true
		}
	}
	for _, c := range table {
		if c != nil && c.pending() && c.flush() {
			moved = true
		}
	}
	return moved
}

//go:build !pollfd

package tcp

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Events that an armed socket waits for. It always waits for the end of the peer's direction.
const (
	waitIn  = unix.EPOLLIN
	waitOut = unix.EPOLLOUT
	waitEnd = unix.EPOLLRDHUP
)

// watch is the poller's state of a socket.
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
			if k := socketAt(*p.f.table.Load(), e.Fd); k != nil {
				p.f.serve(k, e.Events&(waitEnd|unix.EPOLLHUP|unix.EPOLLERR) != 0)
			}
		}
	}
}

// socketAt returns the socket of an event. The slot may have a new owner by now, to which a
// spurious event does no harm.
func socketAt(table []*socket, slot int32) *socket {
	if int(slot) >= len(table) {
		return nil
	}
	return table[slot]
}

func (p *poller) add(k *socket) error {
	k.watch.mu.Lock()
	defer k.watch.mu.Unlock()
	err := unix.EpollCtl(p.state, unix.EPOLL_CTL_ADD, k.fd, &unix.EpollEvent{Events: waitIn, Fd: int32(k.slot)})
	if err == nil {
		err = unix.EpollCtl(p.armed, unix.EPOLL_CTL_ADD, k.fd,
			&unix.EpollEvent{Events: waitEnd | unix.EPOLLONESHOT, Fd: int32(k.slot)})
	}
	k.watch.on = err == nil
	return err
}

func (p *poller) remove(k *socket) {
	k.watch.mu.Lock()
	defer k.watch.mu.Unlock()
	if k.watch.on {
		k.watch.on = false
		unix.EpollCtl(p.state, unix.EPOLL_CTL_DEL, k.fd, nil)
		unix.EpollCtl(p.armed, unix.EPOLL_CTL_DEL, k.fd, nil)
	}
}

// arm makes the next event of k ring the doorbell.
func (p *poller) arm(k *socket) {
	want := uint32(waitIn)
	if k.blocked.Load() {
		want |= waitOut
	}
	if want&^k.watch.armed.Load() != 0 {
		p.set(k, want)
	}
}

// armOut makes the goroutine write when the socket takes more.
func (p *poller) armOut(k *socket) {
	if k.watch.armed.Load()&waitOut == 0 {
		p.set(k, waitOut)
	}
}

// rearm continues to wait after an event: always for the peer's end, and for more if the connection
// has work in the background, or was left with a backlog.
func (p *poller) rearm(k *socket) {
	p.set(k, k.unattended())
}

func (p *poller) set(k *socket, want uint32) {
	k.watch.mu.Lock()
	defer k.watch.mu.Unlock()
	want |= k.watch.armed.Load()
	if !k.watch.on {
		return
	}
	k.watch.armed.Store(want)
	unix.EpollCtl(p.armed, unix.EPOLL_CTL_MOD, k.fd,
		&unix.EpollEvent{Events: want | waitEnd | unix.EPOLLONESHOT, Fd: int32(k.slot)})
}

// scan reads and writes on those of many connections that have something to move.
func (p *poller) scan(table []*socket) bool {
	moved := false
	var events [64]unix.EpollEvent
	n, _ := unix.EpollWait(p.state, events[:], 0)
	for _, e := range events[:max(n, 0)] {
		if k := socketAt(table, e.Fd); k != nil && k.progress() {
			moved = true
		}
	}
	for _, k := range table {
		if k != nil && k.conn.pending() && k.conn.flush() {
			moved = true
		}
	}
	return moved
}

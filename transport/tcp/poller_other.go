//go:build !linux || pollfd

package tcp

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Events that an armed socket waits for.
const (
	waitIn  = unix.POLLIN
	waitOut = unix.POLLOUT
)

// watch is the poller's state of a socket.
type watch struct {
	armed atomic.Uint32 // waitIn, waitOut: what will be reported once
	off   atomic.Bool
}

// poller waits for events of all connections with one goroutine in poll(2). The goroutine calls
// poll again when a connection is armed.
type poller struct {
	f      *Fabric
	pipe   [2]int
	ending atomic.Bool
	poked  atomic.Bool // a byte is in the pipe
	once   sync.Once
	done   chan struct{}
}

func newPoller(f *Fabric) (*poller, error) {
	p := &poller{f: f, done: make(chan struct{})}
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		return nil, err
	}
	p.pipe = fds
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		unix.SetNonblock(fd, true)
	}
	go p.run()
	return p, nil
}

// poke makes the goroutine check the connections again.
func (p *poller) poke() {
	if !p.poked.Swap(true) {
		unix.Write(p.pipe[1], []byte{0})
	}
}

// close ends the goroutine. No connection is left by then.
func (p *poller) close() {
	p.once.Do(func() {
		p.ending.Store(true)
		p.poke()
		<-p.done
		unix.Close(p.pipe[0])
		unix.Close(p.pipe[1])
	})
}

func (p *poller) run() {
	defer close(p.done)
	var fds []unix.PollFd
	var sockets []*socket
	var junk [64]byte
	for !p.ending.Load() {
		fds = append(fds[:0], unix.PollFd{Fd: int32(p.pipe[0]), Events: waitIn})
		sockets = append(sockets[:0], nil)
		for _, k := range *p.f.table.Load() {
			if k != nil && !k.watch.off.Load() {
				fds = append(fds, unix.PollFd{Fd: int32(k.fd), Events: int16(k.watch.armed.Load())})
				sockets = append(sockets, k)
			}
		}
		if n, err := unix.Poll(fds, -1); n <= 0 || err != nil {
			continue
		}
		if fds[0].Revents != 0 {
			unix.Read(p.pipe[0], junk[:])
			// A poke before this line writes nothing, but the next round sees the change behind it.
			p.poked.Store(false)
		}
		for i, fd := range fds[1:] {
			// A socket that was closed meanwhile reports nonsense; its connection has ended.
			if k := sockets[i+1]; fd.Revents != 0 && !k.watch.off.Load() {
				p.f.serve(k, fd.Revents&(unix.POLLHUP|unix.POLLERR) != 0)
			}
		}
	}
}

func (p *poller) add(*socket) error {
	p.poke()
	return nil
}

func (p *poller) remove(k *socket) {
	k.watch.off.Store(true)
	p.poke()
}

// arm makes the next event of k ring the doorbell.
func (p *poller) arm(k *socket) {
	want := uint32(waitIn)
	if k.blocked.Load() {
		want |= waitOut
	}
	p.set(k, want)
}

// armOut makes the goroutine write when the socket takes more.
func (p *poller) armOut(k *socket) { p.set(k, waitOut) }

// rearm continues to wait after an event if the connection has work in the background, or was left
// with a backlog.
func (p *poller) rearm(k *socket) {
	if want := k.unattended(); want != 0 {
		p.set(k, want)
	}
}

func (p *poller) set(k *socket, want uint32) {
	if want&^k.watch.armed.Or(want) != 0 {
		p.poke()
	}
}

// scan reads and writes on all connections.
func (p *poller) scan(table []*socket) bool {
	moved := false
	for _, k := range table {
		if k != nil && k.progress() {
			moved = true
		}
	}
	return moved
}

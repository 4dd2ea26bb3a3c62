package verbstest

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bell is a descriptor that becomes readable.
type bell struct {
	read, write int
	mu          sync.RWMutex // guards closed
	closed      bool
	taken       [4096]byte
	waiting     [1]unix.PollFd
}

func newBell() (*bell, error) {
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		return nil, err
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		unix.SetNonblock(fd, true)
	}
	return &bell{read: fds[0], write: fds[1]}, nil
}

var ringing = [1]byte{1}

func (b *bell) ring() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.closed {
		unix.Write(b.write, ringing[:])
	}
}

// hush makes it quiet.
func (b *bell) hush() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for !b.closed {
		if k, err := unix.Read(b.read, b.taken[:]); k <= 0 && err != unix.EINTR {
			return
		}
	}
}

// wait waits until it rings, for a time.
func (b *bell) wait(most time.Duration) {
	b.waiting[0] = unix.PollFd{Fd: int32(b.read), Events: unix.POLLIN}
	unix.Poll(b.waiting[:], int((most+time.Millisecond-1)/time.Millisecond))
}

func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		unix.Close(b.read)
		unix.Close(b.write)
	}
}

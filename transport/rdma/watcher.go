//go:build unix

package rdma

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// watcher waits for the notices and events of an adapter.
type watcher struct {
	a          *adapter
	stop, wake *os.File // a pipe that ends it
	done       chan struct{}
}

func watch(a *adapter) (*watcher, error) {
	stop, wake, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "rdma: no pipe for %s", a.place)
	}
	w := &watcher{a, stop, wake, make(chan struct{})}
	go w.run(int(stop.Fd()), a.queue.Descriptor(), a.context.Events())
	return w, nil
}

func (w *watcher) run(stop, notices, events int) {
	defer close(w.done)
	all := []unix.PollFd{{Fd: int32(stop)}, {Fd: int32(notices)}, {Fd: int32(events)}}
	for i := range all {
		all[i].Events = unix.POLLIN
	}
	for {
		if _, err := unix.Poll(all, -1); err != nil && err != unix.EINTR && err != unix.EAGAIN {
			return // cannot happen: the descriptors stay open until close
		}
		if all[0].Revents != 0 {
			return
		}
		if all[1].Revents != 0 {
			w.a.notice()
		}
		if all[2].Revents != 0 {
			w.a.events()
		}
		if w.a.failed.Load() { // nobody takes what makes these readable
			all[1].Fd, all[2].Fd = -1, -1
		}
	}
}

func (w *watcher) close() {
	w.wake.Close()
	<-w.done
	w.stop.Close()
}

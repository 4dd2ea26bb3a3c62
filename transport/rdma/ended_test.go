package rdma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestFailedAdapter has an adapter fail with a notice on the way: nobody is woken for ever.
func TestFailedAdapter(t *testing.T) {
	x, y := two(t, network(t, verbstest.Options{}), 1, nil)
	a := x.f.adapters()[0]
	x.f.Arm()
	a.mu.Lock() // holds the notice up
	ch := y.link.Channel(0)
	ch.Commit(copy(ch.Reserve(5), "hello"), &transport.Meta{})
	notice := []unix.PollFd{{Fd: int32(a.queue.Descriptor()), Events: unix.POLLIN}}
	come, err := unix.Poll(notice, int(hang/time.Millisecond))
	require.Equal(t, 1, come, err)
	a.fail(fault.New(fault.System, "broken by the test"))
	a.mu.Unlock()
	require.Eventually(t, func() bool {
		ticket, begun := x.doorbell.Prepare(), time.Now()
		x.doorbell.Sleep(ticket, 100*time.Millisecond)
		return time.Since(begun) >= 100*time.Millisecond
	}, hang/10, time.Millisecond, "the doorbell rings and rings")
}

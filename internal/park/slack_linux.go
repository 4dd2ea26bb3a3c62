package park

import (
	"time"

	"golang.org/x/sys/unix"
)

// Slack allows timed waits of the calling thread to end up to d late. The caller has locked its
// goroutine to the thread.
func Slack(d time.Duration) {
	unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
}

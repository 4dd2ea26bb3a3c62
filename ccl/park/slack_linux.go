package park

import (
	"time"

	"golang.org/x/sys/unix"
)

// Slack lets timed waits of the calling thread end so much late, and no more. The caller has locked
// its goroutine to the thread.
func Slack(d time.Duration) {
	unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
}

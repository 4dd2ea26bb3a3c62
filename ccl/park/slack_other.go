//go:build !linux

package park

import "time"

// Slack lets timed waits of the calling thread end so much late, where the system has such a thing.
func Slack(time.Duration) {}

//go:build !linux

package park

import "time"

// Slack does nothing: this system has no timer slack.
func Slack(time.Duration) {}

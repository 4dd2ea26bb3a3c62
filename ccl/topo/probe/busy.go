package probe

import (
	"fmt"
	"strings"
	"time"
)

// Busy waits for a while, and returns which part of all cores of the machine was in use meanwhile;
// 0 where the system does not say.
func Busy(span time.Duration) float64 {
	before, ok := cpuTimes(word("/", "proc/stat"))
	if !ok {
		return 0
	}
	time.Sleep(span)
	after, ok := cpuTimes(word("/", "proc/stat"))
	if all := after.all - before.all; ok && all > 0 {
		return 1 - (after.idle-before.idle)/all
	}
	return 0
}

// times are of all cores, in the units of the kernel.
type times struct{ idle, all float64 }

// cpuTimes reads the first line of /proc/stat.
func cpuTimes(text string) (t times, ok bool) {
	const idle, waiting, guest = 3, 4, 8 // guests count as users already
	line, _, _ := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if len(words) < 5 || words[0] != "cpu" {
		return times{}, false
	}
	for i, w := range words[1:min(len(words), guest+1)] {
		var ticks float64
		if _, err := fmt.Sscan(w, &ticks); err != nil {
			return times{}, false
		}
		if t.all += ticks; i == idle || i == waiting {
			t.idle += ticks
		}
	}
	return t, true
}

//go:build !linux

package park

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Without futexes (macOS), all waits on words go through one table of this process; there, memory
// is not shared with other processes.
var table = struct {
	sync.Mutex
	waiters map[*atomic.Uint32]map[chan struct{}]bool
}{waiters: map[*atomic.Uint32]map[chan struct{}]bool{}}

// Wait sleeps while *word == val, for at most d (for ever if negative). It may return early;
// callers check again.
func Wait(word *atomic.Uint32, val uint32, d time.Duration) {
	woken := make(chan struct{}, 1)
	table.Lock()
	if word.Load() != val {
		table.Unlock()
		return
	}
	if table.waiters[word] == nil {
		table.waiters[word] = map[chan struct{}]bool{}
	}
	table.waiters[word][woken] = true
	table.Unlock()
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-woken:
		case <-timer.C:
		}
	} else {
		<-woken
	}
	table.Lock()
	delete(table.waiters[word], woken)
	if len(table.waiters[word]) == 0 {
		delete(table.waiters, word)
	}
	table.Unlock()
}

// Wake wakes up to n threads that wait on word.
func Wake(word *atomic.Uint32, n int) {
	table.Lock()
	defer table.Unlock()
	for woken := range table.waiters[word] {
		if n == 0 {
			return
		}
		n--
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}

func yield() { runtime.Gosched() }

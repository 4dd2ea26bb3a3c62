package park

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// measuredWakeCost is the time to put a thread to sleep and wake it, in nanoseconds; 0 until it has
// been measured.
var measuredWakeCost atomic.Int64

// Bounds on measured values: a loaded machine gives values that are too high.
const (
	leastWakeCost   = int64(4 * time.Microsecond)
	guessedWakeCost = int64(25 * time.Microsecond)
	mostWakeCost    = int64(50 * time.Microsecond)
)

// wakeCost is the time that sleeping costs a waiter, in nanoseconds.
func wakeCost() int64 {
	if cost := measuredWakeCost.Load(); cost != 0 {
		return cost
	}
	return guessedWakeCost
}

// calibrate measures what waiting costs on this machine, once, in about a millisecond.
var calibrate = sync.OnceFunc(func() {
	bareYield.Store(min(max(measureYield(32), leastBareYield), mostBareYield))
	cost := int64(measureWake(16))
	measuredWakeCost.Store(min(max(cost, leastWakeCost), mostWakeCost))
})

// enoughWakes is how many wakes are measured on a machine that is too busy for more: where many
// processes begin at the same time, each of them would keep a core awake for many milliseconds.
const (
	enoughWakes = 3
	wakesSpan   = 2 * time.Millisecond
)

// measureWake wakes a thread repeatedly from one that stays awake, as a ringer does, and returns
// the median of the times until the woken thread ran.
func measureWake(rounds int) time.Duration {
	const patience = time.Millisecond
	var ping, pong atomic.Uint32
	var ended atomic.Bool
	await := func(value uint32) {
		for start := now(); pong.Load() != value && now()-start < int64(patience); {
			Pause(turnPauses)
		}
	}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for seen := uint32(0); !ended.Load(); {
			Wait(&ping, seen, 10*time.Millisecond)
			seen = ping.Load()
			pong.Store(seen)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []time.Duration
	begun := now()
	for len(took) < rounds && (len(took) < enoughWakes || now()-begun < int64(wakesSpan)) {
		for start := now(); now()-start < int64(40*time.Microsecond); {
			Pause(turnPauses) // meanwhile the other thread falls asleep
		}
		start := time.Now()
		ping.Add(1)
		Wake(&ping, 1)
		await(uint32(len(took) + 1))
		took = append(took, time.Since(start))
	}
	ended.Store(true)
	ping.Add(1)
	Wake(&ping, 1)
	slices.Sort(took)
	return took[len(took)/2]
}

// measureYield returns the fastest of some yields: one during which no other thread took the core.
func measureYield(times int) int64 {
	least := mostBareYield
	for range times {
		t := now()
		yield()
		least = min(least, now()-t)
	}
	return least
}

package drill

import "time"

// A machine may stall for a moment: virtual machines are paused, and containers throttled. Whatever
// then takes too long says nothing about goccl. So a cell that has failed while the drill's own
// process stalled is run again.

const (
	stallBeat  = 10 * time.Millisecond
	leastStall = 150 * time.Millisecond // shorter ones are within the limits of the cells
	mostRuns   = 3
)

// watchStalls measures how late a sleeper wakes, until stop is called, which returns the longest
// time.
func watchStalls() (stop func() time.Duration) {
	end, longest := make(chan struct{}), make(chan time.Duration)
	last := time.Now()
	go func() {
		var worst time.Duration
		for ended := false; !ended; {
			select {
			case <-time.After(stallBeat):
			case <-end:
				ended = true
			}
			now := time.Now()
			worst = max(worst, now.Sub(last)-stallBeat)
			last = now
		}
		longest <- worst
	}()
	return func() time.Duration {
		close(end)
		return <-longest
	}
}

// fairly runs a cell again if it has failed while the machine stalled.
func fairly(perform func() *outcome) *outcome {
	var stalls []time.Duration
	for {
		stop := watchStalls()
		o := perform()
		stall := stop()
		o.Stalls = stalls
		if o.Passed || stall < leastStall || len(stalls) == mostRuns-1 {
			return o
		}
		stalls = append(stalls, stall)
	}
}

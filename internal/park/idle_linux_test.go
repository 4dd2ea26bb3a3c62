package park

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func processorTime(t *testing.T) time.Duration {
	var usage unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestSleepersUseNoProcessor checks that idle waits use no processor time, however many there are.
func TestSleepersUseNoProcessor(t *testing.T) {
	fresh(t)
	const sleepers = 64
	var end atomic.Bool
	var all sync.WaitGroup
	doorbells := make([]*Doorbell, sleepers)
	for i := range doorbells {
		doorbells[i] = NewDoorbell()
		all.Go(func() {
			s := Spinner{Background: i%2 == 0}
			for !end.Load() {
				if s.Turn() {
					continue
				}
				ticket := doorbells[i].Prepare()
				if end.Load() {
					doorbells[i].Cancel()
					return
				}
				doorbells[i].Sleep(ticket, -1)
				s.Reset()
			}
		})
	}
	for _, b := range doorbells {
		for b.sleepers.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(50 * time.Millisecond) // meanwhile the Go runtime takes back what the threads held
	before := processorTime(t)
	time.Sleep(time.Second)
	used := processorTime(t) - before
	end.Store(true)
	for _, b := range doorbells {
		b.Ring()
	}
	all.Wait()
	t.Logf("%d sleepers used %v in a second", sleepers, used)
	require.Less(t, used, 20*time.Millisecond)
}

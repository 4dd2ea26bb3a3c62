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

// Waits that have nothing to do use no processor time, however many there are.
func TestSleepersUseNoProcessor(t *testing.T) {
	fresh(t)
	const sleepers = 64
	var end atomic.Bool
	var all sync.WaitGroup
	bells := make([]*Bell, sleepers)
	for i := range bells {
		bells[i] = NewBell()
		all.Go(func() {
			s := Spinner{Background: i%2 == 0}
			for !end.Load() {
				if s.Turn() {
					continue
				}
				ticket := bells[i].Prepare()
				if end.Load() {
					bells[i].Cancel()
					return
				}
				bells[i].Sleep(ticket, -1)
				s.Reset()
			}
		})
	}
	for _, b := range bells {
		for b.sleepers.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(50 * time.Millisecond) // the Go runtime takes back what the threads held
	before := processorTime(t)
	time.Sleep(time.Second)
	used := processorTime(t) - before
	end.Store(true)
	for _, b := range bells {
		b.Ring()
	}
	all.Wait()
	t.Logf("%d sleepers used %v in a second", sleepers, used)
	require.Less(t, used, 20*time.Millisecond)
}

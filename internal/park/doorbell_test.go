package park

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRingWakesAll(t *testing.T) {
	mem := make([]byte, DoorbellSize)
	b, same := DoorbellAt(mem), DoorbellAt(mem)
	var event atomic.Bool
	var asleep sync.WaitGroup
	for range 8 {
		asleep.Go(func() {
			for !event.Load() {
				ticket := b.Prepare()
				if event.Load() {
					b.Cancel()
					return
				}
				b.Sleep(ticket, -1)
			}
		})
	}
	for b.sleepers.Load() != 8 {
		time.Sleep(time.Millisecond)
	}
	event.Store(true)
	same.Ring()
	asleep.Wait()
	require.Zero(t, b.sleepers.Load())
}

// TestNoRingIsLost checks that no ring is lost, wherever it falls between the sleeper's last check
// and its sleep.
func TestNoRingIsLost(t *testing.T) {
	const events = 5000
	to, from := NewDoorbell(), NewDoorbell()
	var sent, seen atomic.Uint32
	await := func(b *Doorbell, word *atomic.Uint32, value uint32) {
		for spinner := (Spinner{}); word.Load() != value; {
			if value%3 != 0 && spinner.Turn() { // for the other values it sleeps at once
				continue
			}
			ticket := b.Prepare()
			if word.Load() == value {
				b.Cancel()
				return
			}
			b.Sleep(ticket, -1)
			spinner.Reset()
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint32(events) {
			await(to, &sent, i+1)
			seen.Store(i + 1)
			from.Ring()
		}
	}()
	for i := range uint32(events) {
		sent.Store(i + 1)
		to.Ring()
		await(from, &seen, i+1)
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a ring was lost")
	}
}

func TestSleepEndsInTime(t *testing.T) {
	b := NewDoorbell()
	start := time.Now()
	b.Sleep(b.Prepare(), 20*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	b.Sleep(b.Prepare(), 0)
	require.Zero(t, b.sleepers.Load())
}

// TestCancelNeverGoesBelowZero checks a doorbell whose memory a peer has overwritten.
func TestCancelNeverGoesBelowZero(t *testing.T) {
	b := NewDoorbell()
	b.Prepare()
	b.sleepers.Store(0)
	b.Cancel()
	require.Zero(t, b.sleepers.Load())
	b.sleepers.Store(1 << 31)
	b.Ring()
	b.Sleep(b.Prepare(), time.Millisecond)
	require.Equal(t, uint32(1<<31), b.sleepers.Load())
}

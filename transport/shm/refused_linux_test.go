package shm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// twoOf returns two fabrics, of which first dials. Those that are denied may not connect.
func twoOf(t *testing.T, firstDenied, secondDenied bool) (first, second *Fabric) {
	first, second = newFabric(t), newFabric(t)
	if bytes.Compare(first.self.ID[:], second.self.ID[:]) > 0 {
		first, second = second, first
	}
	deny := func([]byte) error { return unix.EPERM }
	if firstDenied {
		first.options.Deny = deny
	}
	if secondDenied {
		second.options.Deny = deny
	}
	return first, second
}

// TestRefused has processes that may not connect, and come at the same time or not: two of which
// one may are linked, and if none may, both say so, also for later sessions, which fail at once.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ first, second bool }{{true, false}, {false, true}, {true, true}} {
		for _, late := range []string{"", "first", "second"} {
			t.Run(fmt.Sprintf("%v %v %s late", tt.first, tt.second, late), func(t *testing.T) {
				t.Parallel()
				none := tt.first && tt.second
				for try := 0; ; try++ {
					a, b := twoOf(t, tt.first, tt.second)
					refused := meetTwice(t, a, b, late)
					if refused == none {
						return
					}
					// A machine may be too busy for the one that may connect to do so in time.
					require.False(t, none || try == 3, "refused: %v", refused)
				}
			})
		}
	}
}

// meetTwice links two processes and then once more, and reports whether both are refused. If they
// are, the second time is short.
func meetTwice(t *testing.T, a, b *Fabric, late string) (refused bool) {
	for number := range 2 {
		begun := time.Now()
		la, lb, ea, eb := lagging(t, a, b, number, late)
		before := refused
		if refused = ea != nil || eb != nil; refused {
			isRefused(t, ea)
			isRefused(t, eb)
			if before {
				require.Less(t, time.Since(begun), lag+deniedSpan/2)
			}
			continue
		}
		require.NoError(t, la.Close())
		require.NoError(t, lb.Close())
	}
	return refused
}

const lag = 100 * time.Millisecond

func lagging(t *testing.T, a, b *Fabric, number int, late string) (la, lb transport.Link, ea, eb error) {
	ctx := within(t)
	var group sync.WaitGroup
	group.Go(func() {
		if late == "first" {
			time.Sleep(lag)
		}
		la, ea = a.Connect(ctx, b.Address(), session(number, 0, 1, 1))
	})
	group.Go(func() {
		if late == "second" {
			time.Sleep(lag)
		}
		lb, eb = b.Connect(ctx, a.Address(), session(number, 1, 0, 1))
	})
	group.Wait()
	return la, lb, ea, eb
}

func isRefused(t *testing.T, err error) {
	t.Helper()
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.ErrorIs(t, err, fault.NotSupported)
	require.True(t, f.Refused, "%v", err)
}

// TestRefusedLater has a process give up on one that comes later, and could connect: it is told.
func TestRefusedLater(t *testing.T) {
	a, b := twoOf(t, false, true)
	_, err := b.Connect(within(t), a.Address(), session(1, 1, 0, 1))
	isRefused(t, err)
	_, err = a.Connect(within(t), b.Address(), session(1, 0, 1, 1))
	isRefused(t, err)
	require.ErrorContains(t, err, "refuses this one")
}

// TestRefusedAtRandom has the two come at random moments around the one at which the other gives
// up: both are linked, or both are refused.
func TestRefusedAtRandom(t *testing.T) {
	tries := 30
	if testing.Short() {
		tries = 9
	}
	for try := range tries {
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			t.Parallel()
			a, b := twoOf(t, try%2 == 0, try%2 == 1)
			if try%3 == 0 {
				a, b = b, a
			}
			ctx := within(t)
			var ea, eb error
			var group sync.WaitGroup
			group.Go(func() {
				time.Sleep(deniedSpan - 20*time.Millisecond + rand.N(40*time.Millisecond))
				_, ea = a.Connect(ctx, b.Address(), session(1, 0, 1, 1))
			})
			_, eb = b.Connect(ctx, a.Address(), session(1, 1, 0, 1))
			group.Wait()
			if ea == nil || eb == nil {
				require.NoError(t, ea)
				require.NoError(t, eb)
				return
			}
			isRefused(t, ea)
			isRefused(t, eb)
		})
	}
}

// TestForbiddenMemory has a process that the system does not let map what it is given: both sides
// say so.
func TestForbiddenMemory(t *testing.T) {
	for _, who := range []string{"first", "second"} {
		t.Run(who, func(t *testing.T) {
			a, b := twoOf(t, false, false)
			if who == "first" {
				a.options.forbid = unix.EACCES
			} else {
				b.options.forbid = unix.EACCES
			}
			_, _, ea, eb := lagging(t, a, b, 1, "")
			isRefused(t, ea)
			isRefused(t, eb)
		})
	}
}

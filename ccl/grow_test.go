package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

// growing is the ways by which groups are tried that grow: newcomers come by TCP.
var growing = []string{"auto", "tcp"}

// addressOf returns the address of a group's rank.
func addressOf(t *testing.T, c *ccl.Communicator) string {
	t.Helper()
	text, err := c.Address()
	require.NoError(t, err)
	return text
}

// comes has newcomers join while f runs, by the addresses that they are given in turn. It returns
// their ranks.
func comes(t *testing.T, newcomers []*ccl.Node, opts ccl.GroupOptions, addresses []string, ranks int,
	f func(rank int) (*ccl.Communicator, error)) []*ccl.Communicator {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, deadline)
	defer cancel()
	all := make([]*ccl.Communicator, ranks+len(newcomers))
	each(t, len(all), func(i int) error {
		var c *ccl.Communicator
		var err error
		if i < ranks {
			c, err = f(i)
		} else {
			c, err = newcomers[i-ranks].Join(ctx, ccl.Config{Timeout: deadline, Options: opts},
				addresses[i%len(addresses)])
		}
		if err != nil {
			return err
		}
		if i < ranks && c.Rank() != i {
			return fmt.Errorf("rank %d is now rank %d", i, c.Rank())
		}
		all[i] = c
		return addUp(ctx, c)
	})
	byRank := make([]*ccl.Communicator, len(all))
	for _, c := range all {
		require.Equal(t, len(all), c.Size())
		require.Nil(t, byRank[c.Rank()], "rank %d is there twice", c.Rank())
		byRank[c.Rank()] = c
	}
	return byRank
}

// addUp adds up the ranks of a group, in short and long operations.
func addUp(ctx context.Context, c *ccl.Communicator) error {
	n := c.Size()
	for _, elements := range []int{1, 100_000} {
		x := make([]float32, elements)
		for i := range x {
			x[i] = float32(c.Rank() + i%3)
		}
		if err := ccl.AllReduce(ctx, c, x, x, ccl.Sum); err != nil {
			return err
		}
		for i := range x {
			if want := float32(n*(n-1)/2 + n*(i%3)); x[i] != want {
				return fmt.Errorf("WRONG SUM: %v, want %v", x[i], want)
			}
		}
	}
	return nil
}

// TestGrow: one and three newcomers come to four ranks, before these wait for them or later, and by
// whatever rank; then two more, and after a rank has been left out one more by the first address.
func TestGrow(t *testing.T) {
	for _, transport := range growing {
		for _, first := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", transport, first), func(t *testing.T) {
				opts := ccl.GroupOptions{Transport: transport}
				comms := join(t, nodes(t, 4, ccl.NodeOptions{}), opts, "four")
				ctx, cancel := context.WithTimeout(background, deadline)
				defer cancel()
				var addresses []string
				for _, c := range comms {
					addresses = append(addresses, addressOf(t, c))
				}
				grow := func(newcomers int) {
					of := comms
					comms = comes(t, nodes(t, newcomers, ccl.NodeOptions{}), opts, addresses, len(comms),
						func(rank int) (*ccl.Communicator, error) {
							time.Sleep(time.Duration(rank*(newcomers-1)) * 10 * time.Millisecond)
							next, err := of[rank].Grow(ctx, newcomers, deadline)
							if err == nil {
								defer of[rank].Close()
							}
							return next, err
						})
				}
				grow(first)
				grow(2)
				smaller := make([]*ccl.Communicator, len(comms))
				each(t, len(comms), func(rank int) error {
					if rank == 1 {
						return nil
					}
					next, _, err := comms[rank].Shrink(ctx, 1)
					if err == nil {
						smaller[next.Rank()] = next
					}
					return err
				})
				comms = smaller[:len(smaller)-1]
				addresses = addresses[:1]
				grow(1)
			})
		}
	}
}

// TestGrowWithoutNewcomers: a group that nobody comes to is what it was, and takes who comes later.
func TestGrowWithoutNewcomers(t *testing.T) {
	for _, transport := range growing {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			comms := join(t, nodes(t, 3, ccl.NodeOptions{}), opts, "three")
			ctx, cancel := context.WithTimeout(background, deadline)
			defer cancel()
			each(t, 3, func(rank int) error {
				for range 3 {
					next, err := comms[rank].Grow(ctx, 2, 0)
					if err != nil || next != comms[rank] {
						return fmt.Errorf("%v, %w", next, err)
					}
					if err := addUp(ctx, next); err != nil {
						return err
					}
				}
				return nil
			})
			// One of two comes within the time.
			comes(t, nodes(t, 1, ccl.NodeOptions{}), opts, []string{addressOf(t, comms[2])}, 3,
				func(rank int) (*ccl.Communicator, error) { return comms[rank].Grow(ctx, 2, 500*time.Millisecond) })
		})
	}
}

// TestGrowWaits: newcomers that are not taken wait for the next call, in the order in which they
// have come.
func TestGrowWaits(t *testing.T) {
	opts := ccl.GroupOptions{Transport: "tcp"}
	comms := join(t, nodes(t, 2, ccl.NodeOptions{}), opts, "two")
	ctx, cancel := context.WithTimeout(background, deadline)
	defer cancel()
	address := addressOf(t, comms[0])
	came := make(chan *ccl.Communicator, 2)
	for _, node := range nodes(t, 2, ccl.NodeOptions{}) {
		go func() {
			c, err := node.Join(ctx, ccl.Config{Timeout: deadline, Options: opts}, address)
			if err != nil {
				t.Error(err)
			}
			came <- c
		}()
	}
	for ranks := 2; ranks < 4; ranks++ {
		next := make([]*ccl.Communicator, ranks+1)
		each(t, ranks+1, func(rank int) (err error) {
			if rank == ranks {
				next[rank] = <-came
			} else {
				next[rank], err = comms[rank].Grow(ctx, 1, deadline)
			}
			if err == nil && next[rank].Size() != ranks+1 {
				err = fmt.Errorf("%d ranks", next[rank].Size())
			}
			if err != nil {
				return err
			}
			return ccl.Barrier(ctx, next[rank])
		})
		comms = next
	}
}

// TestGrowRefuses what cannot be: each time the text says why, and the group stays.
func TestGrowRefuses(t *testing.T) {
	opts := ccl.GroupOptions{Transport: "tcp"}
	comms := join(t, nodes(t, 2, ccl.NodeOptions{}), opts, "two")
	ctx, cancel := context.WithTimeout(background, deadline)
	defer cancel()
	stranger := nodes(t, 1, ccl.NodeOptions{})[0]

	_, err := comms[0].Grow(ctx, 0, 0)
	require.ErrorIs(t, err, ccl.Invalid)
	_, err = stranger.Join(ctx, ccl.Config{Timeout: deadline}, "10.0.0.1:29500")
	require.ErrorIs(t, err, ccl.Invalid)
	require.ErrorContains(t, err, `"10.0.0.1:29500" is not the address of a running group`)

	// Other options than those of the group.
	other := opts
	other.FastBF16 = true
	refused := make(chan error, 1)
	go func() {
		_, err := stranger.Join(ctx, ccl.Config{Timeout: deadline, Options: other}, addressOf(t, comms[1]))
		refused <- err
	}()
	each(t, 2, func(rank int) error {
		next, err := comms[rank].Grow(ctx, 1, 300*time.Millisecond)
		if err != nil || next != comms[rank] {
			return fmt.Errorf("%v, %w", next, err)
		}
		return addUp(ctx, next)
	})
	err = <-refused
	require.ErrorIs(t, err, ccl.Mismatch)
	require.ErrorContains(t, err, "options")

	// Ranks that ask for different numbers.
	errs := make([]error, 2)
	each(t, 2, func(rank int) error {
		_, errs[rank] = comms[rank].Grow(ctx, 1+rank, 0)
		return nil
	})
	for _, err := range errs {
		require.ErrorIs(t, err, ccl.Mismatch)
		require.ErrorContains(t, err, "newcomers")
	}

	// A rank that does not call is named; and then all can.
	short, stop := context.WithTimeout(background, 200*time.Millisecond)
	defer stop()
	_, err = comms[0].Grow(short, 1, 0)
	require.ErrorIs(t, err, ccl.Timeout)
	require.ErrorContains(t, err, "rank 1 is not in grow")
	_, err = comms[1].Grow(ctx, 1, 0)
	require.Error(t, err, "the other one has given up")
	each(t, 2, func(rank int) error {
		_, err := comms[rank].Grow(ctx, 1, 0)
		return err
	})

	// Without TCP there is no door.
	shm := join(t, nodes(t, 2, ccl.NodeOptions{}), ccl.GroupOptions{Transport: "shm"}, "shm")
	_, err = shm[0].Address()
	require.ErrorIs(t, err, ccl.NotSupported)
	require.ErrorContains(t, err, "GOCCL_TRANSPORT=shm")
}

// TestGrowTimeouts: a newcomer that nobody takes says what it has waited for.
func TestGrowTimeouts(t *testing.T) {
	opts := ccl.GroupOptions{Transport: "tcp"}
	all := nodes(t, 2, ccl.NodeOptions{})
	comms := join(t, all, opts, "two")
	address := addressOf(t, comms[0])
	stranger := nodes(t, 1, ccl.NodeOptions{})[0]
	waits := func() error {
		short, stop := context.WithTimeout(background, 300*time.Millisecond)
		defer stop()
		_, err := stranger.Join(short, ccl.Config{Timeout: deadline, Options: opts}, address)
		return err
	}
	err := waits()
	require.ErrorIs(t, err, ccl.Timeout)
	require.ErrorContains(t, err, "have not called grow")
	for _, node := range all {
		require.NoError(t, node.Close())
	}
	err = waits()
	require.ErrorIs(t, err, ccl.Timeout)
	require.ErrorContains(t, err, "cannot be reached")
}

// TestGrowLosesARank: a rank that leaves while the others grow ends that for all, and is named. The
// newcomer waits, and comes to those that are left.
func TestGrowLosesARank(t *testing.T) {
	const ranks, leaves = 4, 2
	for _, transport := range growing {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			all := nodes(t, ranks, ccl.NodeOptions{})
			comms := join(t, all, opts, "four")
			ctx, cancel := context.WithTimeout(background, deadline)
			defer cancel()
			go func() {
				time.Sleep(50 * time.Millisecond)
				all[leaves].Close()
			}()
			errs := make([]error, ranks)
			next := make([]*ccl.Communicator, ranks)
			comes(t, nodes(t, 1, ccl.NodeOptions{}), opts, []string{addressOf(t, comms[leaves])}, ranks-1,
				func(i int) (*ccl.Communicator, error) {
					rank := i
					if i >= leaves {
						rank++
					}
					if _, errs[rank] = comms[rank].Grow(ctx, 1, deadline); errs[rank] == nil {
						return nil, errors.New("it has grown without a rank")
					}
					smaller, _, err := comms[rank].Shrink(ctx, leaves)
					if err != nil {
						return nil, err
					}
					next[rank], err = smaller.Grow(ctx, 1, deadline)
					return next[rank], err
				})
			for rank, err := range errs {
				var f *ccl.Error
				if rank != leaves {
					require.ErrorAs(t, err, &f)
					require.Equal(t, []int{leaves}, f.Culprits(), "%v", err)
					require.True(t, strings.Contains(err.Error(), "grow"), "%v", err)
				}
			}
		})
	}
}

// TestGrowGivesUp: the time of one rank is over at a random moment, while the others call, or
// before, or when they are done. Nobody waits for it longer than that takes to tell; where none has
// grown, all do so in the next call, with the newcomer that waits.
func TestGrowGivesUp(t *testing.T) {
	const ranks = 3
	for _, transport := range growing {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			for i := range 4 {
				comms := join(t, nodes(t, ranks, ccl.NodeOptions{}), opts, "three")
				ctx, cancel := context.WithTimeout(background, deadline)
				defer cancel()
				coming, stays := context.WithCancel(ctx)
				defer stays()
				came := make(chan *ccl.Communicator, 1)
				newcomer, address := nodes(t, 1, ccl.NodeOptions{})[0], addressOf(t, comms[i%ranks])
				go func() {
					c, _ := newcomer.Join(coming, ccl.Config{Timeout: deadline, Options: opts}, address)
					came <- c
				}()
				moment := time.Duration(rand.IntN(int(60 * time.Millisecond)))
				var left atomic.Int32
				next, errs := make([]*ccl.Communicator, ranks), make([]error, ranks)
				each(t, ranks, func(rank int) error {
					mine, stop := context.WithCancel(ctx)
					defer stop()
					if rank == i%ranks {
						time.AfterFunc(moment, stop)
					} else {
						time.Sleep(time.Duration(rank*10) * time.Millisecond)
					}
					if next[rank], errs[rank] = comms[rank].Grow(mine, 1, deadline); errs[rank] != nil {
						left.Add(1)
					}
					return nil
				})
				switch left.Load() {
				case ranks:
					each(t, ranks, func(rank int) (err error) {
						next[rank], err = comms[rank].Grow(ctx, 1, deadline)
						return err
					})
					fallthrough
				case 0:
					each(t, ranks+1, func(rank int) error {
						if rank == ranks {
							return addUp(ctx, <-came)
						}
						return addUp(ctx, next[rank])
					})
				default: // it gave up when others were done, who learn of it in the new group
					ended := make(chan error, 1)
					go func() {
						var err error
						if c := <-came; c != nil {
							err = ccl.Barrier(ctx, c)
						}
						ended <- err
					}()
					each(t, ranks, func(rank int) error {
						if c := next[rank]; c != nil && ccl.Barrier(ctx, c) == nil {
							return fmt.Errorf("it has ended, although a rank has given up: %v", errs)
						}
						return nil
					})
					stays()
					<-ended
				}
			}
		})
	}
}

package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

// TestJoinEndsForOneReason has one rank of four not come, and another one soon cease to wait for
// it: the others, who have time, learn it from that one, and name the rank that did not come.
func TestJoinEndsForOneReason(t *testing.T) {
	const ranks, missing, hasty = 4, 2, 1
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			endpoints, addresses := opened(t, nodesFor(t, ranks, opts.Transport), opts)
			begun := time.Now()
			errs := outcomes(t, ranks, func(rank int) error {
				if rank == missing {
					return nil
				}
				span := deadline
				if rank == hasty {
					span = 2 * time.Second // links are made by then, also on a busy machine
				}
				ctx, cancel := context.WithTimeout(background, span)
				defer cancel()
				c, err := endpoints[rank].Join(ctx, addresses)
				if err == nil { // by TCP it is linked with its neighbours only
					err = ccl.Barrier(background, c)
				}
				return err
			})
			require.Less(t, time.Since(begun), deadline/2)
			for rank, err := range errs {
				if rank == missing {
					continue
				}
				var f *ccl.Error
				require.ErrorIs(t, err, ccl.Timeout, "rank %d", rank)
				require.ErrorAs(t, err, &f)
				require.Equal(t, []int{missing}, f.Culprits(), "rank %d: %v", rank, err)
				require.ErrorContains(t, err, "did not connect in time: rank 2", "rank %d", rank)
			}
		})
	}
}

// TestJoinOfADeadRank has the process of one rank end before the others join.
func TestJoinOfADeadRank(t *testing.T) {
	const ranks, dead = 3, 1
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			all := nodesFor(t, ranks, opts.Transport)
			endpoints, addresses := opened(t, all, opts)
			require.NoError(t, all[dead].Close())
			begun := time.Now()
			errs := outcomes(t, ranks, func(rank int) error {
				if rank == dead {
					return nil
				}
				ctx, cancel := context.WithTimeout(background, deadline)
				defer cancel()
				_, err := endpoints[rank].Join(ctx, addresses)
				return err
			})
			require.Less(t, time.Since(begun), 2*time.Second)
			for rank, err := range errs {
				var f *ccl.Error
				if rank != dead {
					require.ErrorIs(t, err, ccl.PeerLost)
					require.True(t, errors.As(err, &f))
					require.Equal(t, []int{dead}, f.Culprits(), "rank %d: %v", rank, err)
				}
			}
		})
	}
}

// TestJoinOfDeadRanks has the processes of several ranks end before the others join: all name all
// of them, also those that notice the end of one only.
func TestJoinOfDeadRanks(t *testing.T) {
	const ranks = 6
	for _, transport := range []string{"shm", "tcp", "auto"} {
		for _, dead := range [][]int{{1, 4}, {0, 1}, {1, 3, 5}, {0, 2, 3}} {
			t.Run(fmt.Sprintf("%s %v", transport, dead), func(t *testing.T) {
				t.Parallel()
				opts := ccl.GroupOptions{Transport: transport}
				all := nodesFor(t, ranks, opts.Transport)
				endpoints, addresses := opened(t, all, opts)
				for _, rank := range dead {
					require.NoError(t, all[rank].Close())
				}
				begun := time.Now()
				errs := outcomes(t, ranks, func(rank int) error {
					if slices.Contains(dead, rank) {
						return nil
					}
					time.Sleep(rand.N(50 * time.Millisecond))
					ctx, cancel := context.WithTimeout(background, deadline)
					defer cancel()
					c, err := endpoints[rank].Join(ctx, addresses)
					if err == nil {
						err = ccl.Barrier(background, c)
					}
					return err
				})
				require.Less(t, time.Since(begun), deadline/2)
				for rank, err := range errs {
					var f *ccl.Error
					if !slices.Contains(dead, rank) {
						require.ErrorIs(t, err, ccl.PeerLost, "rank %d", rank)
						require.True(t, errors.As(err, &f))
						require.Equal(t, dead, f.Culprits(), "rank %d: %v", rank, err)
					}
				}
			})
		}
	}
}

// opened returns an endpoint of each node, and their addresses.
func opened(t *testing.T, nodes []*ccl.Node, opts ccl.GroupOptions) (endpoints []*ccl.Endpoint, addresses [][]byte) {
	for rank, node := range nodes {
		e, err := node.Open(ccl.Config{Name: "joined", Rank: rank, Size: len(nodes), Timeout: deadline, Options: opts})
		require.NoError(t, err)
		endpoints, addresses = append(endpoints, e), append(addresses, e.Address())
	}
	return endpoints, addresses
}

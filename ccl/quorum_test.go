package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

// among runs f on some ranks of a group.
func among(t *testing.T, ranks int, some []int, f func(rank int) error) {
	t.Helper()
	each(t, ranks, func(rank int) error {
		if slices.Contains(some, rank) {
			return f(rank)
		}
		return nil
	})
}

// TestLeftOut: whoever was left out and asks later learns by whom, again and again, also when the
// others have ended.
func TestLeftOut(t *testing.T) {
	const ranks, out = 5, 3
	others := []int{0, 2, 4}
	for _, transport := range []string{"shm", "tcp"} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ended=%v", transport, ended), func(t *testing.T) {
				opts := ccl.GroupOptions{Transport: transport}
				all := nodes(t, ranks, ccl.NodeOptions{})
				comms := join(t, all, opts, "five")
				ctx, cancel := context.WithTimeout(background, deadline)
				defer cancel()
				among(t, ranks, others, func(rank int) error {
					next, _, err := comms[rank].Shrink(ctx, 1, out)
					if err != nil {
						return err
					}
					if err := ccl.Barrier(ctx, next); err != nil || !ended {
						return err
					}
					return all[rank].Close()
				})
				for _, without := range [][]int{nil, nil, {0, 1, 2, 4}} {
					_, _, err := comms[out].Shrink(ctx, without...)
					var f *ccl.Error
					require.ErrorAs(t, err, &f)
					require.ErrorIs(t, err, ccl.PeerLeft)
					require.Equal(t, others, f.Culprits())
					require.ErrorContains(t, err, "left out by ranks 0, 2, 4")
				}
			})
		}
	}
}

// TestLeftOutAfterAMissedQuorum: ranks that may not go on try again. By then the others have gone
// on, and tell them, whichever of their calls it is.
func TestLeftOutAfterAMissedQuorum(t *testing.T) {
	const ranks = 5
	most, few := []int{0, 1, 2}, []int{3, 4}
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			comms := join(t, nodes(t, ranks, ccl.NodeOptions{}), opts, "five")
			ctx, cancel := context.WithTimeout(background, deadline)
			defer cancel()
			for range 2 {
				among(t, ranks, few, func(rank int) error {
					_, _, err := comms[rank].Shrink(ctx, most...)
					require.ErrorContains(t, err, "may have gone on: ranks 0, 1, 2")
					return nil
				})
			}
			among(t, ranks, most, func(rank int) error {
				_, _, err := comms[rank].Shrink(ctx, few...)
				return err
			})
			for range 2 {
				among(t, ranks, few, func(rank int) error {
					_, _, err := comms[rank].Shrink(ctx)
					var f *ccl.Error
					require.ErrorIs(t, err, ccl.PeerLeft)
					require.ErrorAs(t, err, &f)
					require.Equal(t, most, f.Culprits())
					require.ErrorContains(t, err, "left out by ranks 0, 1, 2")
					return nil
				})
			}
		})
	}
}

// TestMajority: two halves leave each other out. That with the lowest rank goes on, and the other
// one only if it is told to.
func TestMajority(t *testing.T) {
	const ranks = 4
	halves := [][]int{{0, 1}, {2, 3}}
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			comms := join(t, nodes(t, ranks, ccl.NodeOptions{}), opts, "four")
			ctx, cancel := context.WithTimeout(background, deadline)
			defer cancel()
			shrinks := func(half int, quorum ccl.Quorum) func(rank int) error {
				return func(rank int) error {
					next, members, err := comms[rank].ShrinkWith(ctx, quorum, halves[1-half]...)
					if err != nil {
						return err
					}
					defer next.Close()
					if !slices.Equal(members, halves[half]) {
						return fmt.Errorf("members %v", members)
					}
					return ccl.Barrier(ctx, next)
				}
			}
			for _, quorum := range []ccl.Quorum{ccl.Majority, 3} {
				among(t, ranks, halves[1], func(rank int) error {
					err := shrinks(1, quorum)(rank)
					var f *ccl.Error
					if !errors.As(err, &f) || f.Code != ccl.PeerLost || !slices.Equal(f.Culprits(), halves[0]) {
						return fmt.Errorf("%w, want one that names %v", err, halves[0])
					}
					return nil
				})
			}
			among(t, ranks, halves[1], shrinks(1, 2))
			among(t, ranks, halves[1], shrinks(1, ccl.AnyQuorum))
			among(t, ranks, halves[0], shrinks(0, ccl.Majority))
			_, _, err := comms[0].ShrinkWith(ctx, -1)
			require.ErrorIs(t, err, ccl.Invalid)
		})
	}
}

// TestQuorumsDiffer: nobody goes on with a rank that has another one.
func TestQuorumsDiffer(t *testing.T) {
	const ranks = 3
	comms := join(t, nodes(t, ranks, ccl.NodeOptions{}), ccl.GroupOptions{}, "three")
	ctx, cancel := context.WithTimeout(background, deadline)
	defer cancel()
	each(t, ranks, func(rank int) error {
		_, _, err := comms[rank].ShrinkWith(ctx, ccl.Quorum(rank/2))
		if rank == 2 && err == nil || err != nil && !errors.Is(err, ccl.Mismatch) && !errors.Is(err, ccl.PeerLost) &&
			!errors.Is(err, ccl.PeerLeft) {
			return fmt.Errorf("%w, want a mismatch, or the loss of who found it", err)
		}
		return nil
	})
}

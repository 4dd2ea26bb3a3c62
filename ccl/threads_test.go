package ccl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl"
)

// Groups must never wait for each other: rank 0 does B.async, A.sync, B.wait, rank 1 B.async,
// B.wait, A.sync.
func TestGroupsDoNotWaitForEachOther(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{}
			if transport != "inproc" {
				opts.Transport = transport
			}
			members := nodesFor(t, 2, opts.Transport)
			if transport == "inproc" {
				members[1] = members[0]
			}
			a, b := join(t, members, opts, "a"), join(t, members, opts, "b")
			for range 50 {
				each(t, 2, func(rank int) error {
					x, y := input(rank, 100, 1), input(rank, 3000, 2)
					work, err := b[rank].Start(allReduceCall(y))
					if err != nil {
						return err
					}
					defer work.Free()
					if rank == 0 {
						if err := ccl.AllReduce(background, a[rank], x, x, ccl.Sum); err != nil {
							return err
						}
						err = work.Wait(background)
					} else {
						if err := work.Wait(background); err != nil {
							return err
						}
						err = ccl.AllReduce(background, a[rank], x, x, ccl.Sum)
					}
					if err != nil {
						return err
					}
					if err := same(x, sums(2, 100, 1)); err != nil {
						return err
					}
					return same(y, sums(2, 3000, 2))
				})
			}
		})
	}
}

// Sixteen threads wait on sixteen groups while a seventeenth calls: the call must not wait for
// them.
func TestManyWaiters(t *testing.T) {
	members := nodesFor(t, 2, "shm")
	var groups [17][]*ccl.Communicator
	for i := range groups {
		groups[i] = join(t, members, ccl.GroupOptions{Transport: "shm"}, fmt.Sprint("g", i))
	}
	release := make(chan struct{})
	done := make(chan error, 32)
	for i := range 16 {
		for rank := range 2 {
			go func() {
				if rank == 1 {
					<-release // so that rank 0's threads wait
				}
				done <- ccl.Barrier(background, groups[i][rank])
			}()
		}
	}
	start := time.Now()
	each(t, 2, func(rank int) error {
		for range 20 {
			x := input(rank, 10, 0)
			if err := ccl.AllReduce(background, groups[16][rank], x, x, ccl.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("20 calls beside 16 waiting threads: %v", time.Since(start))
	close(release)
	for range 32 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// The progress thread must finish Works that no thread waits for.
func TestNobodyWaits(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 2, ccl.GroupOptions{})
			each(t, 2, func(rank int) error {
				x := input(rank, 50_000, 0)
				work, err := comms[rank].Start(allReduceCall(x))
				if err != nil {
					return err
				}
				defer work.Free()
				for {
					seen := ccl.CompletionCount()
					done, err := work.Done()
					if err != nil {
						return err
					}
					if done {
						return same(x, sums(2, 50_000, 0))
					}
					ccl.WaitCompletions(seen, -1)
				}
			})
		})
	}
}

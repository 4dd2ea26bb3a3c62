package ccl_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/internal/park"
)

// Every collective must complete, whether waits sleep at once or spin for long.
func TestSpin(t *testing.T) {
	counts := []int{0, 1, 40_000}
	if testing.Short() {
		counts = []int{0, 3000}
	}
	defer park.SetSpin(-1)
	for _, spin := range []time.Duration{-1, 300 * time.Microsecond, 0} {
		t.Run(fmt.Sprint("spin=", spin), func(t *testing.T) {
			park.SetSpin(-1)
			for _, transport := range []string{"inproc", "shm"} {
				all := nodes(t, 3, ccl.NodeOptions{Spin: spin})
				opts := ccl.GroupOptions{Transport: transport}
				if transport == "inproc" {
					all, opts.Transport = slices.Repeat(all[:1], 3), "auto"
				}
				comms := join(t, all, opts, "test")
				each(t, 3, func(rank int) error {
					for root, n := range counts {
						if err := oneOfEach(comms[rank], n, root); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
	}
	before := park.LocalRanks()
	all := nodesFor(t, 2, "shm")
	comms := join(t, all, ccl.GroupOptions{Transport: "shm"}, "test")
	if got := park.LocalRanks(); got != before+2 {
		t.Errorf("%d ranks share the host, want %d", got, before+2)
	}
	for _, c := range comms {
		c.Close()
		c.Close()
	}
	if got := park.LocalRanks(); got != before {
		t.Errorf("%d ranks share the host after the group has ended, want %d", got, before)
	}
}

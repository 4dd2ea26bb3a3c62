package ccl_test

import (
	"testing"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/park"
)

// Every collective must complete, whether waits sleep at once or spin for long.
func TestSpin(t *testing.T) {
	counts := []int{0, 1, 40_000}
	if testing.Short() {
		counts = []int{0, 3000}
	}
	defer park.SetSpin(-1)
	for _, spin := range []string{"0", "300", ""} {
		t.Run("spin="+spin, func(t *testing.T) {
			park.SetSpin(-1)
			for _, transport := range []string{"inproc", "shm"} {
				comms := group(t, transport, 3, ccl.Options{Spin: spin})
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
	all := nodes(t, 2, ccl.Options{Transport: "shm"})
	comms := join(t, all, ccl.Options{Transport: "shm"}, "test")
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

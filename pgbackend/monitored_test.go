package pgbackend

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// each runs f on several ranks at the same time and returns their errors by rank.
func each(t *testing.T, groups []*Group, ranks []int, f func(g *Group) error) map[int]error {
	t.Helper()
	type end struct {
		rank int
		err  error
	}
	ends := make(chan end, len(ranks))
	for _, r := range ranks {
		go func() { ends <- end{r, f(groups[r])} }()
	}
	errs := map[int]error{}
	for range ranks {
		select {
		case e := <-ends:
			errs[e.rank] = e.err
		case <-time.After(forever):
			t.Fatal("HANG")
		}
	}
	return errs
}

func TestMonitoredBarrier(t *testing.T) {
	const short = 100 * time.Millisecond
	reached := "received errors while waiting for send/recv from rank 0."
	for name, c := range map[string]struct {
		size    int
		come    []int
		timeout time.Duration
		all     bool
		told    map[int]string // by rank: a part of its error
	}{
		"one rank":            {1, []int{0}, 0, false, nil},
		"two ranks":           {2, []int{0, 1}, forever, false, nil},
		"five ranks":          {5, []int{0, 1, 2, 3, 4}, forever, true, nil},
		"the group's timeout": {3, []int{0, 1, 2}, -1, false, nil},
		"one is missing": {3, []int{0, 2}, short, false, map[int]string{
			0: "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 100 ms (the first one", 2: reached,
		}},
		"one of all is missing": {3, []int{0, 1}, short, true, map[int]string{
			0: "Rank 2 failed to pass monitoredBarrier in 100 ms: timeout (rank 2): rank 2 is in no call", 1: reached,
		}},
		"the first of two": {4, []int{0, 2}, short, false, map[int]string{
			0: "Rank 1 failed to pass", 2: "Rank 1 failed to pass",
		}},
		"all that are missing": {4, []int{0, 2}, short, true, map[int]string{
			0: "Ranks 1, 3 failed to pass", 2: "Ranks 1, 3 failed to pass",
		}},
		"no time": {2, []int{0}, 0, false, map[int]string{
			0: "Rank 0 timed out in monitoredBarrier after 0 ms. No ranks",
		}},
		"rank 0 is missing": {3, []int{1, 2}, short, false, map[int]string{
			1: "Rank 1 successfully reached monitoredBarrier", 2: "rank 0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			groups := world(t, c.size, forever)
			patient := func(g *Group) error { // the other ranks wait for rank 0's verdict
				timeout := c.timeout
				if g.rank > 0 && len(c.told[0]) > 0 {
					timeout = forever
				}
				return g.MonitoredBarrier(timeout, c.all)
			}
			for rank, err := range each(t, groups, c.come, patient) {
				if c.told[rank] == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, fault.Timeout)
				require.ErrorContains(t, err, c.told[rank])
				require.ErrorContains(t, err,
					fault.Label(t.Name(), rank, c.size)+": monitored_barrier, seq 1: timeout: ")
			}
		})
	}
}

// A late rank learns that the barrier has failed, and messages left over from the failed barrier do
// not disturb the next one.
func TestMonitoredBarrierAfterAFailure(t *testing.T) {
	groups := world(t, 3, forever)
	first := each(t, groups, []int{0, 2}, func(g *Group) error {
		return g.MonitoredBarrier([]time.Duration{50 * time.Millisecond, 0, forever}[g.rank], false)
	})
	require.ErrorContains(t, first[0], "Rank 1 failed to pass")
	require.ErrorContains(t, first[2], "Rank 1 failed to pass")
	late := each(t, groups, []int{1}, func(g *Group) error { return g.MonitoredBarrier(forever, false) })
	require.ErrorContains(t, late[1], "Rank 1 failed to pass")
	for _, err := range each(t, groups, []int{0, 1, 2}, func(g *Group) error {
		return g.MonitoredBarrier(forever, false)
	}) {
		require.NoError(t, err)
	}
	for _, err := range each(t, groups, []int{0, 1, 2}, func(g *Group) error {
		return g.Run(&ccl.Call{Coll: dtype.Barrier})
	}) {
		require.NoError(t, err)
	}
}

// A rank that leaves or aborts counts as missing, and the message includes the reason.
func TestMonitoredBarrierOfRanksThatLeave(t *testing.T) {
	for name, c := range map[string]struct {
		leave  func(*Group) error
		reason string
	}{
		"closed":  {(*Group).Close, "left"},
		"aborted": {func(g *Group) error { return g.Abort("no") }, "aborted (rank 1): rank 1 reports: no"},
	} {
		t.Run(name, func(t *testing.T) {
			groups := world(t, 2, forever)
			require.NoError(t, c.leave(groups[1]))
			err := groups[0].MonitoredBarrier(forever, false)
			require.ErrorContains(t, err, "Rank 1 failed to pass monitoredBarrier")
			require.ErrorContains(t, err, c.reason)
			require.Error(t, groups[1].MonitoredBarrier(forever, false))
		})
	}
}

// A verdict from another process is read within its bounds.
func TestVerdictWithoutAZero(t *testing.T) {
	groups := world(t, 2, forever)
	w := start(t, groups[0], ccl.Call{
		Coll: dtype.Send, Root: 1, Tag: monitoredTag(0, 1),
		In: blockOf([]byte(strings.Repeat("A", verdictBytes))),
	})
	defer w.Free()
	err := groups[1].MonitoredBarrier(forever, false)
	end := "\n Original exception: " + strings.Repeat("A", verdictBytes) + " [goccl E3]"
	require.True(t, strings.HasSuffix(err.Error(), end), err.Error())
}

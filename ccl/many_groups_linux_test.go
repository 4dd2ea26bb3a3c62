package ccl_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/internal/mem"
)

// holding is the resources that this process holds: descriptors, and mapped segments by name. The
// page with the doorbell is left out, because it is never released.
type holding struct {
	descriptors     int
	mappings, bytes map[string]int
}

// holdsNoMore requires that the process holds what it held before and no more. Descriptors may be
// fewer: those of earlier tests may go away at any time.
func (before holding) holdsNoMore(t *testing.T, why string) {
	t.Helper()
	now := holdingNow(t)
	require.LessOrEqual(t, now.descriptors, before.descriptors, why)
	now.descriptors = before.descriptors
	require.Equal(t, before, now, why)
}

func holdingNow(t *testing.T) holding {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	h := holding{len(fds), map[string]int{}, map[string]int{}}
	for line := range strings.Lines(string(maps)) {
		_, name, found := strings.Cut(line, "/memfd:goccl-")
		if !found || strings.HasPrefix(name, "doorbell") {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		from, rest, _ := strings.Cut(line, "-")
		to, _, _ := strings.Cut(rest, " ")
		low, err1 := strconv.ParseUint(from, 16, 64)
		high, err2 := strconv.ParseUint(to, 16, 64)
		require.NoError(t, err1)
		require.NoError(t, err2)
		h.mappings[name]++
		h.bytes[name] += int(high - low)
	}
	return h
}

// TestManyGroups has the same processes make 64 groups. They take no more descriptors and large
// slots than one group, little more memory, and no processor time while no rank makes a call. All
// groups have windows, and work.
func TestManyGroups(t *testing.T) {
	const (
		ranks, groups = 2, 64
		mib           = 1 << 20
	)
	require.Eventually(t, func() bool { return len(holdingNow(t).mappings) == 0 }, deadline, time.Millisecond,
		"segments of other tests stay")
	opts := ccl.GroupOptions{Transport: "shm"}
	all := nodesFor(t, ranks, opts.Transport)
	comms := [][]*ccl.Communicator{join(t, all, opts, "first")}
	one, used := holdingNow(t), mem.InUse()
	require.Equal(t, map[string]int{
		"pool": 2 * ranks, "registered": 2 * ranks, "ring": 2 * ranks, "window": 2 * ranks,
	}, one.mappings, "each is mapped by both ranks")
	for len(comms) < groups {
		comms = append(comms, join(t, all, opts, fmt.Sprint(len(comms))))
	}
	many := holdingNow(t)
	require.LessOrEqual(t, many.descriptors, one.descriptors) // descriptors of other tests may just have gone
	require.Equal(t, map[string]int{
		"pool": 2 * ranks, "registered": 2 * ranks, "ring": 2 * ranks * groups, "window": 2 * ranks * groups,
	}, many.mappings)
	require.Equal(t, one.bytes["pool"], many.bytes["pool"])
	// A rank maps its own segments and those of its peer.
	require.LessOrEqual(t, many.bytes["ring"]/ranks/2, 5*mib/2)
	require.LessOrEqual(t, many.bytes["window"]/ranks/2, 32*mib)
	require.LessOrEqual(t, many.bytes["window"]/ranks/2, 16*one.bytes["window"]/ranks/2)
	t.Logf("a rank has %.1f MiB in one group, %.1f MiB in %d",
		float64(used)/ranks/mib, float64(mem.InUse())/ranks/mib, groups)

	calls := func(groups [][]*ccl.Communicator) {
		each(t, ranks, func(rank int) error {
			small, large := make([]float32, 2), make([]float32, 100_000)
			for i, group := range groups {
				for turn := range 4 {
					small[0], small[1] = float32(rank), float32(i+turn)
					if err := ccl.AllReduce(background, group[rank], small, small, ccl.Sum); err != nil {
						return err
					}
					if err := same(small, []float32{1, float32(2 * (i + turn))}); err != nil {
						return fmt.Errorf("group %d: %w", i, err)
					}
				}
				copy(large, input(rank, len(large), i))
				work, err := group[rank].Start(allReduceCall(large))
				if err != nil {
					return err
				}
				if err := work.Wait(background); err != nil {
					return err
				}
				work.Free()
				if i%16 == 15 {
					if err := same(large, sums(ranks, len(large), i)); err != nil {
						return fmt.Errorf("group %d: %w", i, err)
					}
				}
			}
			return nil
		})
	}
	calls(comms)
	many.holdsNoMore(t, "operations take nothing")
	quiet(t, 2*time.Second, 0.01)

	for _, group := range comms[1:] {
		for _, c := range group {
			require.NoError(t, c.Close())
		}
	}
	require.Eventually(t, func() bool { return mem.InUse() == used }, deadline, time.Millisecond,
		"memory of closed groups stays")
	one.holdsNoMore(t, "closed groups give all back")
	calls(comms[:1])
}

package park

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// alone gives the test a host without other groups, on which this process may run on the listed
// processors, and restores the real host afterwards.
func alone(t *testing.T, processors string) {
	t.Helper()
	host.mu.Lock()
	affinity, quota, files, root, ranks := host.affinity, host.quota, host.files, host.root, host.ranks
	host.ranks, host.quota = map[string]*rank{}, math.Inf(1)
	host.root = t.TempDir()
	host.affinity, _ = ParseCPUs(processors)
	host.allowed = func() CPUSet { return host.affinity }
	host.mu.Unlock()
	t.Cleanup(func() {
		host.mu.Lock()
		defer host.mu.Unlock()
		host.affinity, host.quota, host.files, host.root, host.ranks = affinity, quota, files, root, ranks
		host.allowed = Affinity
		crowd()
	})
}

func crowded() bool {
	host.mu.Lock()
	defer host.mu.Unlock()
	return host.crowded
}

// group returns n ranks of processes p0, p1, …, all of which may run on cores.
func group(n int, cores string) []Local {
	var all []Local
	for i := range n {
		all = append(all, Local{Process: fmt.Sprint("p", i), Cores: cores})
	}
	return all
}

func TestCoresOfThisSystem(t *testing.T) {
	require.GreaterOrEqual(t, Cores(), 1)
	require.LessOrEqual(t, Cores(), runtime.NumCPU())
	if runtime.GOOS == "linux" {
		require.Positive(t, Affinity().Count())
	}
}

func TestRanksOfSeveralGroups(t *testing.T) {
	alone(t, "0-3")
	require.Equal(t, 0, LocalRanks())
	eight := Join(group(8, "0-3"))
	require.Equal(t, 8, LocalRanks())
	require.True(t, crowded())
	two := Join(group(2, "0-3"))
	require.Equal(t, 8, LocalRanks(), "the two are among the eight")
	other := Join([]Local{{"p0", "0-3"}, {"p100", "0-3"}})
	require.Equal(t, 9, LocalRanks(), "p100 is in no other group")
	eight()
	eight() // a second call does nothing
	require.Equal(t, 3, LocalRanks())
	require.False(t, crowded())
	two()
	require.Equal(t, 2, LocalRanks())
	other()
	require.Equal(t, 0, LocalRanks())
	require.False(t, crowded())
}

func TestCrowding(t *testing.T) {
	bound := func(sets ...string) []Local {
		all := group(len(sets), "")
		for i, set := range sets {
			all[i].Cores = set
		}
		return all
	}
	for _, c := range []struct {
		name, mine string
		quota      float64
		local      []Local
		want       bool
	}{
		{"one rank", "0", math.Inf(1), group(1, "0"), false},
		{"as many as cores", "0-1", math.Inf(1), group(2, "0-1"), false},
		{"more than cores", "0-1", math.Inf(1), group(3, "0-1"), true},
		{"quota for all", "0-7", 4, group(4, "0-7"), false},
		{"quota for some", "0-7", 3.9, group(4, "0-7"), true},
		{"quota of half a core", "0-7", 0.5, group(2, "0-7"), true},
		{"a core each", "2", math.Inf(1), bound("0", "1", "2", "3"), false},
		{"all on one core", "2", math.Inf(1), bound("2", "2"), true},
		{"others crowd elsewhere", "2-3", math.Inf(1), bound("0", "0", "0", "2-3"), false},
		{"overlapping in part", "0-1", math.Inf(1), bound("0-1", "1-2", "2-3"), false},
		{"cores not known", "0-1", math.Inf(1), bound("", "", ""), true},
		{"cores that cannot be read", "0-1", math.Inf(1), bound("x", "0-", "0-1"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			alone(t, c.mine)
			defer Join(c.local)()
			host.mu.Lock()
			host.quota = c.quota
			crowd()
			host.mu.Unlock()
			require.Equal(t, c.want, crowded())
		})
	}
}

// TestLimitsAreReadAgain changes the limits while the process runs. A thread that is about to sleep
// notices, at most once a second.
func TestGranted(t *testing.T) {
	for _, c := range []struct {
		cores int
		quota float64
		want  int
	}{{4, math.Inf(1), 4}, {4, 2, 2}, {4, 1.9, 1}, {4, 0.1, 1}, {3, 64, 3}} {
		require.Equal(t, c.want, Granted(c.cores, c.quota), c)
	}
}

func TestLimitsAreReadAgain(t *testing.T) {
	alone(t, "0-3")
	root, _ := grow(t, `
-- proc/self/cgroup --
0::/
-- proc/self/mountinfo --
30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
-- sys/fs/cgroup/cpu.max --
max 100000
`)
	host.mu.Lock()
	host.root = root
	host.mu.Unlock()
	defer Join(group(4, "0-3"))()
	require.Equal(t, 4, Cores())
	require.False(t, crowded())
	require.NoError(t, os.WriteFile(filepath.Join(root, "sys/fs/cgroup/cpu.max"), []byte("200000 100000\n"), 0o600))
	reread(host.due.Load() - 1)
	require.Equal(t, 4, Cores(), "not due yet")
	reread(host.due.Load())
	require.Equal(t, 2, Cores())
	require.True(t, crowded())
	host.mu.Lock()
	host.affinity, _ = ParseCPUs("1")
	host.mu.Unlock()
	reread(host.due.Load())
	require.Equal(t, 1, Cores())

	// A wait rereads the limits before it sleeps.
	require.NoError(t, os.WriteFile(filepath.Join(root, "sys/fs/cgroup/cpu.max"), []byte("50000 100000\n"), 0o600))
	host.due.Store(now())
	s := Spinner{Background: true}
	for s.Turn() {
	}
	require.Greater(t, host.due.Load(), now())
	host.mu.Lock()
	defer host.mu.Unlock()
	require.Equal(t, 0.5, host.quota)
}

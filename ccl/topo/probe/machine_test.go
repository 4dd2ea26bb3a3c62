package probe

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
)

// system makes the files of testdata/NAME.txt in a new root. NAME.txt has prose, then "-- name --"
// and the content of each file.
func system(t *testing.T, name string) (root string) {
	text, err := os.ReadFile("testdata/" + name + ".txt")
	require.NoError(t, err)
	root = t.TempDir()
	_, files, found := strings.Cut(string(text), "\n-- ")
	require.True(t, found)
	for each := range strings.SplitSeq("\n"+files, "\n-- ") {
		name, content, found := strings.Cut(strings.TrimPrefix(each, "\n"), " --\n")
		require.True(t, found, each)
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(content+"\n"), 0o600))
	}
	return root
}

func node(id int, bytes int64, processors ...int) topo.Node {
	return topo.Node{ID: id, Processors: processors, Bytes: bytes}
}

func cache(level int, bytes int64, processors ...int) topo.Cache {
	return topo.Cache{Level: level, Bytes: bytes, Processors: processors}
}

func TestMachine(t *testing.T) {
	for _, c := range []struct {
		name string
		want topo.Machine
	}{
		{"two_sockets", topo.Machine{
			Processors: []int{0, 1, 2, 3, 4, 5, 6, 7},
			Nodes:      []topo.Node{node(0, 64<<30, 0, 1, 2, 3), node(1, 64<<30, 4, 5, 6, 7)},
			Caches: []topo.Cache{
				cache(1, 48<<10, 0), cache(1, 48<<10, 1), cache(1, 48<<10, 2), cache(1, 48<<10, 3),
				cache(1, 48<<10, 4), cache(1, 48<<10, 5), cache(1, 48<<10, 6), cache(1, 48<<10, 7),
				cache(2, 2<<20, 0), cache(2, 2<<20, 1), cache(2, 2<<20, 2), cache(2, 2<<20, 3),
				cache(2, 2<<20, 4), cache(2, 2<<20, 5), cache(2, 2<<20, 6), cache(2, 2<<20, 7),
				cache(3, 32<<20, 0, 1, 2, 3), cache(3, 32<<20, 4, 5, 6, 7),
			},
			Pages: topo.Pages{Anonymous: "madvise", Shared: "advise", Bytes: 2 << 20, Reserved: 512, Free: 500},
		}},
		{"bound_to_one_node", topo.Machine{
			Processors: []int{2, 3},
			Quota:      1.5,
			QuotaFile:  "sys/fs/cgroup/cpu.max",
			Limit:      2 << 30,
			LimitFile:  "sys/fs/cgroup/memory.max",
			Nodes:      []topo.Node{node(0, 8<<30, 0, 1), node(1, 8<<30, 2, 3)},
			Caches: []topo.Cache{cache(1, 48<<10, 2), cache(1, 48<<10, 3), cache(2, 2<<20, 2), cache(2, 2<<20, 3),
				cache(3, 32<<20, 2, 3)},
			Pages: topo.Pages{Anonymous: "never", Shared: "never", Bytes: 2 << 20},
		}},
		{"big_little", topo.Machine{
			Processors: []int{0, 1, 2, 3},
			Caches: []topo.Cache{cache(1, 32<<10, 0, 1), cache(1, 64<<10, 2, 3),
				cache(2, 256<<10, 0, 1), cache(2, 1<<20, 2, 3)},
			Pages: topo.Pages{Anonymous: "always", Bytes: 2 << 20},
		}},
		{"bare", topo.Machine{Processors: []int{0, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := system(t, c.name)
			m := Machine(root)
			if c.want.QuotaFile != "" {
				c.want.QuotaFile = filepath.Join(root, c.want.QuotaFile)
				c.want.LimitFile = filepath.Join(root, c.want.LimitFile)
			}
			require.Equal(t, c.want, *m)
		})
	}
}

func TestMachineThatShowsNothing(t *testing.T) {
	m := Machine(t.TempDir())
	require.Len(t, m.Processors, runtime.NumCPU())
	require.Empty(t, m.Nodes)
	require.Empty(t, m.Caches)
	require.Zero(t, m.Pages)
	require.Zero(t, m.Quota)
}

func TestLastCache(t *testing.T) {
	for name, want := range map[string]topo.Cache{
		"two_sockets": {Level: 3, Bytes: 32 << 20, Processors: []int{0, 1, 2, 3}},
		"big_little":  {Level: 2, Bytes: 256 << 10, Processors: []int{0, 1}},
		"bare":        {},
	} {
		require.Equal(t, want, LastCache(system(t, name)), name)
	}
	require.EqualValues(t, 32<<20, LastCache(system(t, "bound_to_one_node")).Bytes)
	require.Zero(t, LastCache(t.TempDir()))
}

func TestSmallestCacheAndHome(t *testing.T) {
	m := Machine(system(t, "big_little"))
	require.Equal(t, topo.Cache{Level: 2, Bytes: 256 << 10, Processors: []int{0, 1}}, m.Cache(2))
	require.Zero(t, m.Cache(3))
	home := Machine(system(t, "bound_to_one_node")).Home()
	require.Len(t, home, 1)
	require.Equal(t, 1, home[0].ID)
	require.Len(t, Machine(system(t, "two_sockets")).Home(), 2)
}

// TestFindings checks what goccl doctor reports of each machine.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		machine              string
		finding              func(*topo.Machine) topo.Finding
		state                topo.State
		value, hint, without string
	}{
		{"two_sockets", cores, topo.OK, "8 (processors 0-7)", "", "quota"},
		{"bound_to_one_node", cores, topo.Missing, "1.5 of processors 2-3, by ", "share one core", ""},
		{"bare", cores, topo.OK, "2 (processors 0-1)", "", ""},
		{"two_sockets", cacheFinding, topo.OK, "L1d 48 KiB, L2 2 MiB, L3 32 MiB (shared by 0-3)", "", ""},
		{"big_little", cacheFinding, topo.OK, "L1d 32 KiB (shared by 0-1), L2 256 KiB (shared by 0-1)", "", "L3"},
		{"bare", cacheFinding, topo.Info, "not told", "assumed", ""},
		{"two_sockets", nodeFinding, topo.Info,
			"0 (processors 0-3, 64 GiB), 1 (processors 4-7, 64 GiB)", "bind each rank to one", ""},
		{"bound_to_one_node", nodeFinding, topo.OK, "1 (processors 2-3, 8 GiB)", "", ""},
		{"bare", nodeFinding, topo.Info, "not told", "", ""},
	} {
		found := c.finding(Machine(system(t, c.machine)))
		require.Equal(t, c.state, found.State, "%s: %+v", c.machine, found)
		require.Contains(t, found.Value, c.value, c.machine)
		require.Contains(t, found.Hint, c.hint, c.machine)
		if c.hint == "" {
			require.Empty(t, found.Hint)
		}
		if c.without != "" {
			require.NotContains(t, found.Value, c.without)
		}
	}
}

// TestPageFinding checks what goccl doctor reports of huge pages, by the settings of each machine
// and the result of a trial.
func TestPageFinding(t *testing.T) {
	small := mem.HugePages{Why: "put together afterwards: invalid argument", Reserved: "no space left on device"}
	for _, c := range []struct {
		machine     string
		trial       mem.HugePages
		state       topo.State
		value, hint string
	}{
		{"two_sockets", mem.HugePages{Way: mem.Advised}, topo.OK,
			"2 MiB, private madvise, shared advise; in a trial shared memory got them, on advice; 512 reserved, 500 free (memfd gets them)", ""},
		{"two_sockets", small, topo.Missing, "got none (put together afterwards: invalid argument)", "compact_memory"},
		{"bound_to_one_node", small, topo.Missing,
			"shared never", "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"},
		{"bound_to_one_node", mem.HugePages{Way: mem.Collapsed, Reserved: "no space left on device"}, topo.OK,
			"shared never; in a trial shared memory got them, put together afterwards; 0 reserved, 0 free (memfd gets none: no space left on device)", ""},
		{"big_little", small, topo.Missing, "shared unknown", "shmem_enabled"},
		{"bare", small, topo.Info, "not supported", "small pages"},
	} {
		found := pageFinding(Machine(system(t, c.machine)), c.trial)
		require.Equal(t, c.state, found.State, "%s: %+v", c.machine, found)
		require.Contains(t, found.Value, c.value, c.machine)
		require.Contains(t, found.Hint, c.hint, c.machine)
		if c.hint == "" {
			require.Empty(t, found.Hint)
		}
	}
}

func TestHomeFinding(t *testing.T) {
	found := homeFinding(mem.Home{Nodes: 2, Node: 1})
	require.Equal(t, topo.OK, found.State)
	require.Contains(t, found.Value, "node 1")
	require.Empty(t, found.Hint)
	found = homeFinding(mem.Home{Nodes: 1, Node: -1, Why: "all memory is on one node"})
	require.Equal(t, topo.OK, found.State)
	require.Contains(t, found.Value, "one node")
	require.Empty(t, found.Hint)
	found = homeFinding(mem.Home{Nodes: 2, Node: -1, Why: "this process may run on nodes [0 1]"})
	require.Equal(t, topo.Info, found.State)
	require.Contains(t, found.Value, "nodes [0 1]")
	require.Contains(t, found.Hint, "numactl")
}

func TestQuotaBelowProcessors(t *testing.T) {
	found := cores(&topo.Machine{Processors: []int{0, 1, 2, 3}, Quota: 2.5, QuotaFile: "cpu.max"})
	require.Equal(t, topo.Info, found.State)
	require.Equal(t, "2.5 of processors 0-3, by cpu.max", found.Value)
	require.Contains(t, found.Hint, "control group")
	found = cores(&topo.Machine{Processors: []int{0, 1}, Quota: 8, QuotaFile: "cpu.max"})
	require.Equal(t, topo.OK, found.State)
	found = cores(&topo.Machine{Processors: []int{0, 1}, Quota: 1.9, QuotaFile: "cpu.max"})
	require.Equal(t, topo.Missing, found.State, "two ranks share one core")
}

// TestMemoryLimit reads both versions of control groups: the lowest of all groups counts.
func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		name, groups, mount string
		files               map[string]string
		want                int64
		file                string
	}{
		{"version 2", "0::/a/b", "/ /cg rw - cgroup2 cgroup rw",
			map[string]string{"cg/memory.max": "max", "cg/a/memory.max": "4096", "cg/a/b/memory.max": "8192"}, 4096,
			"cg/a/memory.max"},
		{"version 1", "5:memory:/a", "/ /m rw - cgroup cgroup rw,memory",
			map[string]string{"m/memory.limit_in_bytes": "9223372036854771712", "m/a/memory.limit_in_bytes": "777"},
			777, "m/a/memory.limit_in_bytes"},
		{"version 1, none", "5:memory:/", "/ /m rw - cgroup cgroup rw,memory",
			map[string]string{"m/memory.limit_in_bytes": "9223372036854771712"}, 0, ""},
		{"another controller", "5:cpu:/", "/ /m rw - cgroup cgroup rw,cpu",
			map[string]string{"m/memory.limit_in_bytes": "777"}, 0, ""},
		{"nonsense", "0::/", "/ /cg rw - cgroup2 cgroup rw", map[string]string{"cg/memory.max": "-5"}, 0, ""},
	} {
		root := t.TempDir()
		c.files["proc/self/cgroup"] = c.groups + "\n"
		c.files["proc/self/mountinfo"] = "36 35 98:0 " + c.mount + "\n"
		for name, text := range c.files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
		}
		bytes, file := memoryLimit(root)
		require.Equal(t, c.want, bytes, c.name)
		if c.file == "" {
			require.Empty(t, file, c.name)
		} else {
			require.Equal(t, filepath.Join(root, c.file), file, c.name)
		}
	}
	require.Equal(t, "; 2 GiB granted, by memory.max; /dev/shm holds 64 MiB",
		granted(&topo.Machine{Limit: 2 << 30, LimitFile: "memory.max", Shared: 64 << 20}))
	require.Empty(t, granted(&topo.Machine{}))
}

func TestCacheSize(t *testing.T) {
	for text, want := range map[string]int64{
		"48K": 48 << 10, "32M": 32 << 20, "1G": 1 << 30, "64": 64, "": 0, "K": 0, "x": 0, "-1K": 0, "1X": 0,
	} {
		require.Equal(t, want, cacheSize(text), text)
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 48 << 10: "48 KiB", 3 << 19: "1.5 MiB", 64 << 30: "64 GiB",
	} {
		require.Equal(t, want, size(bytes))
	}
}

func TestAttachFinding(t *testing.T) {
	refused := errors.New("operation not permitted")
	for _, c := range []struct {
		err         error
		scope       string
		state       topo.State
		value, hint string
	}{
		{nil, "", topo.OK, "reads a child", ""},
		{nil, "0", topo.OK, "ptrace_scope is 0", ""},
		{nil, "1", topo.Info, "ptrace_scope is 1", "PR_SET_PTRACER"},
		{nil, "2", topo.Missing, "ptrace_scope is 2", "CAP_SYS_PTRACE"},
		{nil, "3", topo.Missing, "ptrace_scope is 3", "CAP_SYS_PTRACE"},
		{refused, "", topo.Missing, "not permitted", "seccomp"},
		{refused, "1", topo.Missing, "not permitted", "seccomp"},
	} {
		found := attachFinding("a child", c.err, c.scope)
		require.Equal(t, c.state, found.State)
		require.Contains(t, found.Value, c.value)
		require.Contains(t, found.Hint, c.hint)
		if c.hint == "" {
			require.Empty(t, found.Hint)
		}
	}
}

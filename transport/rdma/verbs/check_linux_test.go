//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// TestOtherLayouts: a context in which anything is not where it should be is not used, and the
// error says what was found where.
func TestOtherLayouts(t *testing.T) {
	const device = 0x7000
	code := executable{{0x1000, 0x2000}, {0x4000, 0x5000}}
	file := map[int32]string{5: eventFile, 6: "/dev/infiniband/uverbs0"}
	for name, each := range map[string]struct {
		spoil func(c *cContext, size *uintptr)
		want  string
	}{
		"fits":          {func(*cContext, *uintptr) {}, ""},
		"old":           {func(c *cContext, _ *uintptr) { c.marker = 0 }, "ibv_context.abi_compat is 0x0"},
		"size":          {func(_ *cContext, size *uintptr) { *size = 8 }, "verbs_context.sz is 0x8"},
		"huge size":     {func(_ *cContext, size *uintptr) { *size = 1 << 40 }, "verbs_context.sz is 0x10000000000"},
		"device":        {func(c *cContext, _ *uintptr) { c.device++ }, "ibv_context.device is 0x7001"},
		"descriptor":    {func(c *cContext, _ *uintptr) { c.async = 6 }, `of "/dev/infiniband/uverbs0"`},
		"no descriptor": {func(c *cContext, _ *uintptr) { c.async = -1 }, "ibv_context.async_fd is 0xffffffff"},
		"commands":      {func(c *cContext, _ *uintptr) { c.command = 5 }, "ibv_context.cmd_fd is 0x5"},
		"vectors":       {func(c *cContext, _ *uintptr) { c.vectors = 0 }, "ibv_context.num_comp_vectors is 0x0"},
		"poll":          {func(c *cContext, _ *uintptr) { c.operations[opPoll] = 0 }, "ops.poll_cq is 0x0"},
		"arm":           {func(c *cContext, _ *uintptr) { c.operations[opArm] = 0x2000 }, "req_notify_cq is 0x2000"},
		"receives":      {func(c *cContext, _ *uintptr) { c.operations[opPostReceives] = 1 }, "post_srq_recv is 0x1"},
		"post":          {func(c *cContext, _ *uintptr) { c.operations[opPost] = 0x3000 }, "ops.post_send is 0x3000"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cContext{device: device, command: 6, async: 5, vectors: 2, marker: extended}
			c.operations[opPoll], c.operations[opArm] = 0x1000, 0x1fff
			c.operations[opPostReceives], c.operations[opPost] = 0x4000, 0x4abc
			size := uintptr(648)
			each.spoil(&c, &size)
			found, err := findOperations(&c, size, device, code, func(d int32) string { return file[d] })
			if each.want == "" {
				require.NoError(t, err)
				require.Equal(t, operations{0x1000, 0x1fff, 0x4000, 0x4abc}, found)
				return
			}
			require.ErrorIs(t, err, fault.NotSupported)
			require.ErrorContains(t, err, "libibverbs does not fit")
			require.ErrorContains(t, err, each.want)
		})
	}
}

func TestFits(t *testing.T) {
	require.NoError(t, fits(field{"a", 1, 1}, field{"b", 2, 2}))
	err := fits(field{"a", 1, 1}, field{"ibv_mr.addr", 0x10, 0x20})
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "ibv_mr.addr is 0x10, which is not 0x20")
}

func TestMaps(t *testing.T) {
	code := parseMaps([]byte(`55d0c0000000-55d0c0021000 r--p 00000000 08:01 42 /usr/bin/x
55d0c0021000-55d0c0100000 r-xp 00021000 08:01 42                         /usr/bin/x
7ffff0000000-7ffff0021000 rw-p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
nonsense
x-y r-xp
`))
	require.Equal(t, executable{{0x55d0c0021000, 0x55d0c0100000}, {0xffffffffff600000, 0xffffffffff601000}}, code)
	require.True(t, code.has(0x55d0c0021000))
	require.False(t, code.has(0x55d0c0100000))
	require.False(t, code.has(0x7ffff0000000))
	own, err := codeOfProcess()
	require.NoError(t, err)
	require.NotEmpty(t, own)
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte("1000-2000 r-xp 0 0:0 0 x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, r := range parseMaps(text) {
			if r[0] < r[1] && !(executable{r}).has(r[0]) {
				t.Errorf("%#x is not in %#x", r[0], r)
			}
		}
	})
}

func TestRefusal(t *testing.T) {
	for _, each := range []struct {
		result uintptr
		errno  syscall.Errno
		want   syscall.Errno
	}{
		{0, 0, 0},
		{0, syscall.EINVAL, 0}, // of something that failed on the way
		{uintptr(syscall.EBUSY), 0, syscall.EBUSY},
		{^uintptr(0), syscall.EAGAIN, syscall.EAGAIN},
		{1<<32 - 1, syscall.EAGAIN, syscall.EAGAIN}, // the upper half of the register is nobody's
		{^uintptr(0), 0, syscall.EIO},
	} {
		require.Equal(t, each.want, refusal(each.result, each.errno))
	}
	err := unopened(syscall.EACCES, "mlx5_0")
	require.ErrorIs(t, err, fault.System)
	require.ErrorIs(t, err, syscall.EACCES)
	require.ErrorContains(t, err, "adapter mlx5_0 cannot be opened")
	require.ErrorContains(t, err, "--device /dev/infiniband")
	require.ErrorContains(t, refused(syscall.ENOMEM, "x"), "RLIMIT_MEMLOCK is ")
}

// TestOtherLibraries: what is no libibverbs is not taken for one.
func TestOtherLibraries(t *testing.T) {
	_, err := open(filepath.Join(t.TempDir(), "libibverbs.so.1"))
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "was not found: install libibverbs")
	_, err = open("libc.so.6")
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "libc.so.6 has no ibv_fork_init")
}

func TestOpenKeepsItsResult(t *testing.T) {
	lib, err := Open()
	again, errAgain := Open()
	require.Equal(t, lib, again)
	require.Equal(t, err, errAgain)
}

func TestEventsSayOfWhat(t *testing.T) {
	pair := &cPair{number: 0xabcdef}
	of := map[EventKind]string{}
	for kind := range EventKind(len(events)) {
		e := cEvent{element: uint64(addressOf(pair)), kind: int32(kind)}
		if !ofPair(kind) {
			e.element = 3<<32 | 2 // of a port only the lower half is set
		}
		switch found := e.event(); {
		case found.Pair == 0xabcdef && found.Port == 0:
			of[kind] = "pair"
		case found.Pair == 0 && found.Port == 2:
			of[kind] = "port"
		default:
			require.Equal(t, Event{Kind: kind}, found)
		}
	}
	require.Equal(t, map[EventKind]string{1: "pair", 2: "pair", 3: "pair", 4: "pair", 5: "pair", 6: "pair", 7: "pair",
		16: "pair", 9: "port", 10: "port", 11: "port", 12: "port", 13: "port", 17: "port", 18: "port"}, of)
}

// TestCompletions: what an adapter reports becomes what the transport understands.
func TestCompletions(t *testing.T) {
	for _, each := range []struct {
		name string
		c    cCompletion
		want Completion
	}{
		{"write", cCompletion{cookie: 7, kind: 1, pair: 3, bytes: 9}, Completion{Cookie: 7, Pair: 3}},
		{"arrival", cCompletion{cookie: NoCookie, kind: kindArrival, immediate: 0x04030201, bytes: 5, pair: 4},
			Completion{Cookie: NoCookie, Pair: 4, Arrival: true, Immediate: 0x01020304, Bytes: 5}},
		{"failure", cCompletion{cookie: 8, status: 12, kind: kindArrival, vendor: 129, pair: 3},
			Completion{Cookie: 8, Pair: 3, Status: RetriesExceeded, Vendor: 129}},
		{"message of a stranger", cCompletion{cookie: NoCookie, kind: kindReceive, pair: 3},
			Completion{Cookie: NoCookie, Pair: 3, Status: General}},
	} {
		t.Run(each.name, func(t *testing.T) { require.Equal(t, each.want, each.c.completion()) })
	}
}

// TestKernelsWords reads what a kernel says of an adapter, from files made up.
func TestKernelsWords(t *testing.T) {
	l := &library{sysfs: t.TempDir()}
	write := func(path, text string) {
		path = filepath.Join(l.sysfs, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	link := func(path, to string) {
		require.NoError(t, os.MkdirAll(filepath.Join(l.sysfs, to), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(l.sysfs, path)), 0o755))
		require.NoError(t, os.Symlink(filepath.Join(l.sysfs, to), filepath.Join(l.sysfs, path)))
	}
	link("mlx5_0/device", "pci/0000:65:00.1")
	write("pci/0000:65:00.1/numa_node", "1\n")
	write("mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n")
	write("mlx5_0/ports/1/gid_attrs/types/3", "RoCE v2\n")
	write("mlx5_0/ports/1/gid_attrs/ndevs/3", "eth2\n")
	write("mlx5_0/ports/1/gid_attrs/types/2", "IB/RoCE v1\n")
	link("odd0/device", "virtual/odd")
	write("virtual/odd/numa_node", "-1\n")
	write("odd0/ports/1/rate", "soon")
	require.Equal(t, 1, l.nodeOf("mlx5_0"))
	require.Equal(t, "0000:65:00.1", l.busOf("mlx5_0"))
	require.Equal(t, 200_000, l.rateOf("mlx5_0", 1))
	for index, want := range map[int]GIDKind{3: RoCEv2, 2: RoCEv1, 1: RoCEv1} {
		kind, _ := l.gidOf("mlx5_0", 1, index, true)
		require.Equal(t, want, kind)
	}
	kind, of := l.gidOf("mlx5_0", 1, 3, true)
	require.Equal(t, RoCEv2, kind)
	require.Equal(t, "eth2", of)
	kind, _ = l.gidOf("mlx5_0", 1, 2, false)
	require.Equal(t, InfiniBand, kind)
	for _, nothing := range []string{"odd0", "none0"} {
		require.Equal(t, -1, l.nodeOf(nothing))
		require.Empty(t, l.busOf(nothing))
		require.Zero(t, l.rateOf(nothing, 1))
	}
}

func TestBlocks(t *testing.T) {
	b, err := newBlock[requests]()
	require.NoError(t, err)
	b.sends[len(b.sends)-1].key = 1
	freeBlock(b)
	freeBlock[requests](nil)
	text := []byte("rxe0\x00more")
	require.Equal(t, "rxe0", textAt(addressOf(&text[0]), 64))
	require.Equal(t, "rx", textAt(addressOf(&text[0]), 2))
	require.Empty(t, textAt(0, 64))
}

package mem

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files makes a root folder with the given files.
func files(t *testing.T, content map[string]string) (root string) {
	root = t.TempDir()
	for name, text := range content {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return root
}

// TestProbeHugePages goes through every setting of the kernel, with kernels that give huge pages,
// give small pages, or refuse the request.
func TestProbeHugePages(t *testing.T) {
	refused, none := errors.New("invalid argument"), errors.New("no space left on device")
	type answer struct {
		huge int
		err  error
	}
	yes, no, refusal := answer{hugeBytes, nil}, answer{0, nil}, answer{0, refused}
	for _, c := range []struct {
		name, setting, size string
		advised, collapsed  answer
		reserved            error
		want                HugePages
		tried               []HugeWay
	}{
		{"advice works", "always within_size [advise] never deny force", "2097152", yes, yes, none,
			HugePages{Advised, "", "advise", none.Error()}, []HugeWay{Advised}},
		{"always", "[always] within_size advise never deny force", "2097152", yes, yes, nil,
			HugePages{Advised, "", "always", ""}, []HugeWay{Advised}},
		{"within_size", "always [within_size] advise never deny force", "2097152", yes, no, nil,
			HugePages{Advised, "", "within_size", ""}, []HugeWay{Advised}},
		{"force", "always within_size advise never deny [force]", "2097152", yes, no, nil,
			HugePages{Advised, "", "force", ""}, []HugeWay{Advised}},
		{"advice does nothing, putting together does",
			"always within_size [advise] never deny force", "2097152", no, yes, none,
			HugePages{Collapsed, "", "advise", none.Error()}, []HugeWay{Advised, Collapsed}},
		{"half of it is not enough",
			"always within_size [advise] never deny force", "2097152", answer{hugeBytes / 2, nil}, refusal, none,
			HugePages{SmallPages, "on advice: the kernel gave small pages; put together afterwards: invalid argument",
				"advise", none.Error()},
			[]HugeWay{Advised, Collapsed}},
		{"never, but the kernel puts together",
			"always within_size advise [never] deny force", "2097152", yes, yes, none,
			HugePages{Collapsed, "", "never", none.Error()}, []HugeWay{Collapsed}},
		{"never, and an old kernel", "always within_size advise [never] deny force", "2097152", yes, refusal, none,
			HugePages{SmallPages, "put together afterwards: invalid argument", "never", none.Error()},
			[]HugeWay{Collapsed}},
		{"deny", "always within_size advise never [deny] force", "2097152", yes, refusal, none,
			HugePages{SmallPages, "put together afterwards: invalid argument", "deny", none.Error()},
			[]HugeWay{Collapsed}},
		{"no setting", "", "2097152", yes, no, none,
			HugePages{SmallPages, "put together afterwards: the kernel gave small pages", "", none.Error()},
			[]HugeWay{Collapsed}},
		{"larger pages", "[always] within_size advise never deny force", "536870912", yes, yes, none,
			HugePages{SmallPages, "huge pages of 524288 KiB are too large for segments", "always", none.Error()}, nil},
		{"no huge pages", "", "", yes, yes, none,
			HugePages{SmallPages, "this kernel has no transparent huge pages", "", none.Error()}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			content := map[string]string{}
			if c.size != "" {
				content["sys/kernel/mm/transparent_hugepage/hpage_pmd_size"] = c.size + "\n"
			}
			if c.setting != "" {
				content["sys/kernel/mm/transparent_hugepage/shmem_enabled"] = c.setting + "\n"
			}
			var tried []HugeWay
			got := probeHugePages(files(t, content), func(way HugeWay) (int, error) {
				tried = append(tried, way)
				a := map[HugeWay]answer{Advised: c.advised, Collapsed: c.collapsed}[way]
				return a.huge, a.err
			}, func() error { return c.reserved })
			require.Equal(t, c.want, got)
			require.Equal(t, c.tried, tried)
		})
	}
}

const smaps = `7f0000000000-7f0000200000 rw-s 00000000 00:01 7   /memfd:before (deleted)
Size:               2048 kB
ShmemPmdMapped:     2048 kB
7f0000200000-7f0000400000 rw-s 00000000 00:01 8   /memfd:ours (deleted)
Rss:                2048 kB
ShmemPmdMapped:     2048 kB
VmFlags: rd wr sh
7f0000400000-7f0000600000 rw-s 00200000 00:01 8   /memfd:ours, its other half (deleted)
ShmemPmdMapped:        0 kB
7f0000600000-7f0000800000 rw-s 00000000 00:01 9   /memfd:after (deleted)
ShmemPmdMapped:     2048 kB
`

func TestHugeIn(t *testing.T) {
	const base = 0x7f0000000000
	for _, c := range []struct {
		start, end uint64
		want       int
	}{
		{base + 2<<20, base + 4<<20, 2 << 20},
		{base + 2<<20, base + 6<<20, 2 << 20}, // in two pieces
		{base + 4<<20, base + 6<<20, 0},
		{base, base + 8<<20, 6 << 20},
		{base + 8<<20, base + 10<<20, 0},
		{0x1000, 0x2000, 0},
	} {
		require.Equal(t, c.want, hugeIn(strings.NewReader(smaps), c.start, c.end), "%x", c.start)
	}
	require.Zero(t, hugeIn(strings.NewReader(""), base, base+1))
	require.Zero(t, hugeIn(strings.NewReader("\nx-y rw-s\nShmemPmdMapped: 5 kB\nShmemPmdMapped:\n"), 0, 1<<63))
}

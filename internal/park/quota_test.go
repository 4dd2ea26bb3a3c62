package park

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuota reads the files of testdata/quota. Each is a made-up system: prose, a line "want CORES
// FILE" or "want none", and the files of the system.
func TestQuota(t *testing.T) {
	files, err := filepath.Glob("testdata/quota/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			root, prose := grow(t, string(text))
			want := regexp.MustCompile(`(?m)^want (\S+) ?(.*)$`).FindStringSubmatch(prose)
			require.NotNil(t, want, "%s does not say what is wanted", name)
			cores, file := Quota(root)
			if want[1] == "none" {
				require.True(t, math.IsInf(cores, 1), "%v by %s", cores, file)
				require.Empty(t, file)
				return
			}
			number, err := strconv.ParseFloat(want[1], 64)
			require.NoError(t, err)
			require.Equal(t, number, cores)
			require.Equal(t, filepath.Join(root, want[2]), file)
		})
	}
}

func TestQuotaOfThisSystem(t *testing.T) {
	cores, file := Quota("/")
	require.Greater(t, cores, 0.0)
	require.Equal(t, math.IsInf(cores, 1), file == "")
}

func FuzzQuota(f *testing.F) {
	f.Add("0::/a", "30 22 0:26 / /g rw - cgroup2 cgroup2 rw", "max 100000")
	f.Add("1:cpu:/a/../..", `30 22 0:26 /a /g\040h rw - cgroup cgroup rw,cpu`, "-1")
	f.Add("0::/", "30 22 0:26 / /g rw - cgroup2 cgroup2 rw", "9999999999999999999999 1")
	root := f.TempDir()
	require.NoError(f, os.MkdirAll(filepath.Join(root, "proc/self"), 0o700))
	require.NoError(f, os.MkdirAll(filepath.Join(root, "g"), 0o700))
	f.Fuzz(func(t *testing.T, groups, mounts, limit string) {
		for name, text := range map[string]string{
			"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, "g/cpu.max": limit} {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
		}
		for _, file := range quotaFiles(root) {
			require.True(t, strings.HasPrefix(file.quota, root+"/"), "%s lies outside", file.quota)
		}
		cores, _ := Quota(root)
		require.Greater(t, cores, 0.0)
	})
}

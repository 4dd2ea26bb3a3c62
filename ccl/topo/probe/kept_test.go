package probe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

func TestKeptRates(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	m := Machine("/")
	first := KeptRates(folder, m)
	require.Positive(t, first.Rates.One)
	require.WithinDuration(t, time.Now(), first.Measured, time.Minute)
	second := KeptRates(folder, m)
	require.True(t, first.Measured.Equal(second.Measured))
	require.Equal(t, first.Rates, second.Rates, "nobody measures again")
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 1)

	other := *m
	other.Processors = m.Processors[:1]
	other.Quota = 0.2
	require.NotZero(t, KeptRates(folder, &other).Rates.One)
	files, err = os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 2, "another part of the machine")

	path := filepath.Join(folder, files[0].Name())
	for _, text := range []string{"", "{", `{"goccl_rates":2,"rates":{"one_core":1,"all_cores":1}}`,
		`{"goccl_rates":1,"rates":{"one_core":-1,"all_cores":1}}`, `{"goccl_rates":1,"rates":{"one_core":2,"all_cores":1}}`} {
		for _, f := range files {
			require.NoError(t, os.WriteFile(filepath.Join(folder, f.Name()), []byte(text), 0o600))
		}
		require.Positive(t, KeptRates(folder, m).Rates.One, text)
		require.Less(t, 100, int(KeptRates(folder, m).Rates.One), text)
	}
	require.FileExists(t, path)

	nowhere := filepath.Join(path, "no folder")
	require.Positive(t, KeptRates(nowhere, m).Rates.One)
}

func TestUsable(t *testing.T) {
	for want, m := range map[int]*topo.Machine{
		4: {Processors: []int{0, 1, 2, 3}},
		2: {Processors: []int{0, 1, 2, 3}, Quota: 2},
		1: {Processors: []int{0, 1, 2, 3}, Quota: 0.1},
		3: {Processors: []int{0, 1, 2}, Quota: 64},
	} {
		require.Equal(t, want, usable(m))
	}
}

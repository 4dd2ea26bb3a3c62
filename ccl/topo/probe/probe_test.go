package probe

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

func TestHost(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	names := map[string]topo.Finding{}
	for _, f := range Host() {
		require.NotEmpty(t, f.Name)
		require.NotEmpty(t, f.Value, f.Name)
		require.Contains(t, []topo.State{topo.OK, topo.Missing, topo.Info}, f.State)
		require.NotContains(t, names, f.Name)
		names[f.Name] = f
	}
	for _, name := range []string{"system", "processor", "cores", "caches", "NUMA nodes", "memory placement",
		"memory", "memory rates", "huge pages", "shared memory", "cross-memory attach", "interfaces"} {
		require.Contains(t, names, name)
	}
	if runtime.GOOS == "linux" {
		require.Equal(t, topo.OK, names["shared memory"].State, "%+v", names["shared memory"])
	}
}

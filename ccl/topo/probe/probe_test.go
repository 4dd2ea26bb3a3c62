package probe

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

func TestHost(t *testing.T) {
	names := map[string]topo.Finding{}
	for _, f := range Host() {
		require.NotEmpty(t, f.Name)
		require.NotEmpty(t, f.Value, f.Name)
		require.Contains(t, []topo.State{topo.OK, topo.Missing, topo.Info}, f.State)
		require.NotContains(t, names, f.Name)
		names[f.Name] = f
	}
	for _, name := range []string{"system", "processor", "cores", "caches", "NUMA nodes", "memory placement", "memory",
		"huge pages", "shared memory", "cross-memory attach", "interfaces"} {
		require.Contains(t, names, name)
	}
	if runtime.GOOS == "linux" {
		require.Equal(t, topo.OK, names["shared memory"].State, "%+v", names["shared memory"])
	}
}

// TestLibraryThatIsNotThere asks for a library from many goroutines at once: although they change
// threads, each must get its own error.
func TestLibraryThatIsNotThere(t *testing.T) {
	const askers, times = 8, 50
	findings := make(chan topo.Finding)
	for range askers {
		go func() {
			for range times {
				findings <- library("nothing", []string{"libgoccl-there-is-no-such-library.so"}, "f", "install it")
			}
		}()
	}
	for range askers * times {
		f := <-findings
		require.Equal(t, topo.Missing, f.State)
		require.Equal(t, "install it", f.Hint)
		require.Contains(t, f.Value, "libgoccl-there-is-no-such-library.so")
	}
}

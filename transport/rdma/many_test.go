package rdma

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestManyLinks joins four processes by 64 groups, whose links have as many channels as those of
// the executor. An adapter may pin 64 MiB for a process, and everything goes by it; closing gives
// all of it back, again and again.
func TestManyLinks(t *testing.T) {
	const processes, groups, channels = 4, 64, 3
	n := network(t, verbstest.Options{Hosts: processes, Locked: 64 << 20, Delay: -1})
	var said lines
	var all [processes]end
	for i := range all {
		all[i].f, all[i].doorbell = process(t, n.Host(i), heard(&said))
	}
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		var ends [][2]end
		for range groups {
			for i := range all {
				for k := range i {
					x, y := all[k], all[i]
					x.link, y.link = joined(t, x.f, y.f, channels)
					ends = append(ends, [2]end{x, y})
				}
			}
		}
		for i, e := range ends {
			require.True(t, e[0].up(e[1]) && e[1].up(e[0]))
			if i%16 == 0 {
				require.NoError(t, talk(e[0], e[1], channels, uint64(round), 5))
			}
		}
		for _, e := range ends {
			require.NoError(t, e[0].link.Close())
			require.NoError(t, e[1].link.Close())
		}
		for _, e := range all {
			require.NoError(t, e.until("memory stays", func() bool {
				e.f.mu.Lock()
				defer e.f.mu.Unlock()
				for _, p := range e.f.pairs {
					if p.count > 0 {
						return false
					}
				}
				return true
			}))
			require.Len(t, e.f.adapters()[0].in.free, e.f.adapters()[0].in.all)
			require.Len(t, e.f.adapters()[0].out.free, e.f.adapters()[0].out.all)
		}
	}
	require.False(t, strings.Contains(said.String(), "WARN"), said.String())
}

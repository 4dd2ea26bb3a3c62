package rdma

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestInline uses adapters whose writes carry fewer bytes inline than others, or none: all
// fragments go by RDMA, and no write has more inline than its adapter allows. It is asked once.
func TestInline(t *testing.T) {
	for limit, granted := range map[int]int{220: 220, 219: 96, 96: 96, 95: 64, 64: 64, 63: 0, -1: 0} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Seed: uint64(limit), Inline: limit})
			var said lines
			var x, y end
			counts := &counting{Library: n.Host(0)}
			x.f, x.doorbell = process(t, counts, heard(&said))
			y.f, y.doorbell = process(t, n.Host(1), nil)
			inlined := 0
			n.Tap(0, func(w verbs.Write) {
				if w.Inline {
					inlined = max(inlined, int(w.From[0].Bytes+w.From[1].Bytes))
				}
			})
			x.link, y.link = joined(t, x.f, y.f, 2)
			require.True(t, x.up(y) && y.up(x), said.String())
			require.NoError(t, talk(x, y, 2, 1, 60))
			require.Greater(t, n.Carried(0, 0, 1).Writes, 120)
			require.LessOrEqual(t, inlined, granted)
			require.Equal(t, granted >= headBytes, inlined > 0)
			require.NotContains(t, said.String(), "WARN")
			asked := counts.pairs
			require.LessOrEqual(t, asked, len(inlines))
			x.pairTo(y).path(0).up.Load().fail(fault.New(fault.System, "broken by the test"))
			require.NoError(t, x.until("no connection", func() bool { return x.up(y) && y.up(x) }))
			x.f.manager.call(func() { require.Equal(t, asked+1, counts.pairs) })
		})
	}
}

// counting counts the queue pairs that are asked for.
type counting struct {
	verbs.Library
	pairs int // by the manager
}

func (c *counting) Open(name string) (verbs.Context, error) {
	context, err := c.Library.Open(name)
	return countingContext{context, c}, err
}

type countingContext struct {
	verbs.Context
	of *counting
}

func (c countingContext) NewPair(o verbs.PairOptions) (verbs.Pair, error) {
	c.of.pairs++
	return c.Context.NewPair(o)
}

// TestNoPairs opens adapters that refuse every queue pair, whatever is asked for: a warning says so
// once an adapter, with the reason, and tcp carries everything.
func TestNoPairs(t *testing.T) {
	n := network(t, verbstest.Options{Adapters: 2})
	n.Refuse(0, "NewPair", 0, fault.Wrap(fault.System, syscall.EINVAL, "refused by the test"))
	var said lines
	x, y := two(t, n, 2, heard(&said))
	require.NoError(t, talk(x, y, 2, 1, 30))
	hasten([][2]end{{x, y}})
	x.link, y.link = joined(t, x.f, y.f, 1)
	require.NoError(t, talk(x, y, 1, 2, 30))
	for _, name := range []string{"fake_0:1", "fake_1:1"} {
		line := "WARN rdma: " + name + " is open, but gives no queue pair"
		require.Equal(t, 1, strings.Count(said.String(), line), said.String())
	}
	require.Contains(t, said.String(), "refused by the test")
	require.False(t, x.up(y) || y.up(x))
	n.Permit(0)
	hasten([][2]end{{x, y}})
	settle(t, [][2]end{{x, y}}, preferred(2))
}

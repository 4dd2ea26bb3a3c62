package rdma

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// within waits until links are joined by RDMA, for no longer than it may take.
func within(t *testing.T, most time.Duration, x, y end) {
	t.Helper()
	begun := time.Now()
	require.NoError(t, x.until("rdma does not come back", func() bool { return x.up(y) && y.up(x) }))
	require.Less(t, time.Since(begun), most)
}

// by counts the writes that go by RDMA while links talk.
func by(t *testing.T, n *verbstest.Network, x, y end, seed uint64) (writes int) {
	t.Helper()
	before := n.Carried(0, 0, 1).Writes
	require.NoError(t, talk(x, y, 1, seed, 40))
	return n.Carried(0, 0, 1).Writes - before
}

// TestRenumber gives a port other addresses, on either side, which an event tells of or not: the
// connection is made anew with them, and so are those of links that are made later, also to others.
func TestRenumber(t *testing.T) {
	for _, c := range []struct {
		infiniBand, event bool
		host, places      int
	}{
		{false, true, 0, 0}, {false, true, 1, 3}, {false, false, 0, 2}, {false, false, 1, 0},
		{true, true, 0, 0}, {true, true, 1, 0}, {true, false, 0, 0}, {true, false, 1, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Hosts: 3, InfiniBand: c.infiniBand, Patience: 10 * time.Millisecond})
			var said lines
			x, y := two(t, n, 1, heard(&said))
			for round := range uint64(2) {
				was := x.pairTo(y).path(0).up.Load()
				n.Renumber(c.host, 0, 1, c.places, c.event)
				require.NoError(t, talk(x, y, 1, round, 40))
				require.NoError(t, x.until("the connection stays", func() bool { return !was.works() }))
				within(t, time.Second, x, y)
				settle(t, [][2]end{{x, y}}, only(0))
				require.GreaterOrEqual(t, by(t, n, x, y, round+10), 40)
			}
			require.Contains(t, said.String(), "INFO rdma: fake_0:1 has GID ")

			later := [2]end{x, y}
			later[0].link, later[1].link = joined(t, x.f, y.f, 1)
			settle(t, [][2]end{later}, only(0))
			var z end
			z.f, z.doorbell = process(t, n.Host(2), nil)
			z.link, later[c.host].link = joined(t, z.f, later[c.host].f, 1)
			require.True(t, z.up(later[c.host]) && later[c.host].up(z))
		})
	}
}

// TestRenumberWhileAway gives a port other addresses, or brings it up again, while no connection by
// it has worked for so long that the next one would be tried in half a minute: the event ends that
// pause, on whichever side it comes.
func TestRenumberWhileAway(t *testing.T) {
	for host := range 2 {
		for _, way := range []string{"down", "renumbered"} {
			t.Run(fmt.Sprint(way, " at ", host), func(t *testing.T) {
				t.Parallel()
				n := network(t, verbstest.Options{Patience: 10 * time.Millisecond})
				x, y := two(t, n, 1, nil)
				n.SetPort(host, 0, 1, false)
				require.NoError(t, x.until("the port stays", func() bool { return !x.up(y) && !y.up(x) }))
				for _, e := range []end{x, y} { // after many tries
					other := x
					if e.f.Fabric == x.f.Fabric {
						other = y
					}
					require.NoError(t, e.until("no pause", func() (there bool) {
						e.f.manager.call(func() {
							path := e.pairTo(other).path(0)
							if there = path.trial == nil && !path.again.IsZero(); there {
								path.again, path.pause = time.Now().Add(mostPause), mostPause
							}
						})
						return there
					}))
				}
				if way == "renumbered" {
					n.Renumber(host, 0, 1, 1, false)
				}
				n.SetPort(host, 0, 1, true)
				within(t, time.Second, x, y)
				settle(t, [][2]end{{x, y}}, only(0))
				require.NoError(t, talk(x, y, 1, 1, 40))
			})
		}
	}
}

// TestPortDown makes links while the port that they prefer is down, which is known: nobody waits
// for it to try.
func TestPortDown(t *testing.T) {
	n := network(t, verbstest.Options{Hosts: 3, Adapters: 2})
	x, _ := two(t, n, 1, nil)
	n.SetPort(0, 0, 1, false)
	require.NoError(t, x.until("the port stays", func() bool { return x.f.adapters()[0].stale.Load() }))
	var z end
	z.f, z.doorbell = process(t, n.Host(2), nil)
	begun := time.Now()
	x.link, z.link = joined(t, x.f, z.f, 2)
	require.Less(t, time.Since(begun), x.f.opts.Try/2)
	settle(t, [][2]end{{x, z}}, only(1))
}

package rdma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestSelf joins ranks of one process: their links give their numbers back.
func TestSelf(t *testing.T) {
	n := network(t, verbstest.Options{})
	var x, y end
	x.f, x.doorbell = process(t, n.Host(0), nil)
	y.f, y.doorbell = x.f, x.doorbell
	for range 3 {
		x.link, y.link = joined(t, x.f, y.f, 2)
		require.NoError(t, talk(x, y, 2, 1, 20))
		require.NoError(t, x.link.Close())
		require.NoError(t, y.link.Close())
	}
	ended := func() bool { return x.pairTo(y).openLinks() == 0 }
	require.Eventually(t, ended, hang/10, time.Millisecond, "the links stay")
}

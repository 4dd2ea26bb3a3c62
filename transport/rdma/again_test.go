package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// pairTo returns what a process has about another one.
func (e end) pairTo(peer end) *pair {
	p, err := e.f.pair(peer.f.Address())
	if err != nil {
		panic(err)
	}
	return p
}

// links counts the links of a pair that have not given everything back.
func (p *pair) openLinks() int {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.count
}

// again returns a link whose number on one side is that of one which the other side has not closed:
// x1 is closed, x has the number of x1, y1 is open.
func again(t *testing.T, n *verbstest.Network, change func(*Options)) (x, y, y1 end) {
	t.Helper()
	x1, y1 := two(t, n, 1, change)
	x, y = x1, y1
	number := x1.link.(*link).base
	require.NoError(t, x1.link.Close())
	require.NoError(t, x.until("the link stays", func() bool { return x.pairTo(y).openLinks() == 0 }))
	x.link, y.link = joined(t, x.f, y.f, 1)
	require.Equal(t, number, x.link.(*link).base)
	return x, y, y1
}

// TestBoundAgain closes the old link: the new one, which has its number at the peer, stays bound.
func TestBoundAgain(t *testing.T) {
	x, y, y1 := again(t, network(t, verbstest.Options{}), nil)
	require.NoError(t, y1.link.Close())
	require.NoError(t, y.until("the link stays", func() bool { return y.pairTo(x).openLinks() == 1 }))
	var bound *link
	y.f.manager.call(func() { bound = y.pairTo(x).bound[x.link.(*link).base] })
	require.True(t, bound == y.link)
}

// TestOfferAgain makes connections anew: slots of the old link are not offered to the new one.
func TestOfferAgain(t *testing.T) {
	x, y, y1 := again(t, network(t, verbstest.Options{}), nil)
	for i := range 4 {
		x.pairTo(y).path(0).up.Load().fail(fault.New(fault.System, "broken by the test"))
		require.NoError(t, x.until("no connection", func() bool { return x.up(y) && y.up(x) }))
		require.NoError(t, talk(x, y, 1, uint64(i), 20))
	}
	require.NoError(t, y1.link.Close())
}

// TestOfferLate hears an offer of a connection that was left: its slots are not written to.
func TestOfferLate(t *testing.T) {
	x, y := two(t, network(t, verbstest.Options{}), 1, nil)
	l, p := x.link.(*link), x.pairTo(y)
	q := &l.channels[0].out
	for _, late := range []uint32{1, 0} {
		var taken bool
		x.f.manager.call(func() {
			epoch := p.path(0).epoch - late
			m := message{Kind: sayOffer, Epoch: epoch, To: l.base, Bytes: shortBytes, Channels: []int{0}}
			p.hear(&m, nil)
			q.mu.Lock()
			defer q.mu.Unlock()
			taken, q.next = q.next != nil, nil
		})
		require.Equal(t, late == 0, taken)
	}
}

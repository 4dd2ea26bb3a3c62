package tcp

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

// onUse begins the two sides of a session that opens on use.
func onUse(t *testing.T, a, b *Fabric, n byte) (la, lb *session) {
	t.Helper()
	begin := func(from, to *Fabric, s transport.Session) *session {
		s.ID, s.Channels, s.OnUse = [16]byte{n}, 1, true
		l, err := from.Connect(t.Context(), to.Address(), s)
		require.NoError(t, err)
		return l.(*session)
	}
	return begin(a, b, transport.Session{Rank: 0, Peer: 1}), begin(b, a, transport.Session{Rank: 1, Peer: 0})
}

// TestOnUse has no connection until there is a fragment, which then leaves although its sender
// never polls. Whichever side sends first dials.
func TestOnUse(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		a, b, _, _ := ordered(t, nil)
		if reversed {
			a, b = b, a
		}
		la, lb := onUse(t, a, b, 1)
		again, other := onUse(t, a, b, 2)
		time.Sleep(20 * time.Millisecond)
		require.Zero(t, a.live.Load())
		require.Zero(t, b.live.Load())
		require.True(t, la.Flushed())
		commit(t, la.Channel(0), "unasked")
		// The next look of attend would come after 2.5 s.
		begun := time.Now()
		require.Equal(t, "unasked", receive(t, b, b.doorbell, lb.Channel(0)))
		require.Less(t, time.Since(begun), 2*time.Second)
		require.EqualValues(t, 1, a.live.Load())
		commit(t, other.Channel(0), "same connection")
		require.Equal(t, "same connection", receive(t, a, a.doorbell, again.Channel(0)))
		require.EqualValues(t, 1, a.live.Load())
	}
}

// TestOnUseUnreachable needs a peer whose address does not answer.
func TestOnUseUnreachable(t *testing.T) {
	a, b, doorbell, _ := ordered(t, func(o *Options) { o.PeerTimeout = LeastPeerTimeout })
	// A full queue of connections answers nothing.
	full, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer full.Close()
	require.NoError(t, syscall.Listen(descriptor(full.(*net.TCPListener)), 0))
	at := full.Addr().(*net.TCPAddr).AddrPort()
	for range 2 {
		if nc, err := net.DialTimeout("tcp", at.String(), 100*time.Millisecond); err == nil {
			defer nc.Close()
		}
	}
	address := *b.self
	address.endpoints = []endpoint{{prefix: netip.PrefixFrom(at.Addr(), 8), port: at.Port()}}
	l, err := a.Connect(t.Context(), address.encode(),
		transport.Session{ID: [16]byte{1}, Rank: 0, Peer: 1, Channels: 1, OnUse: true})
	require.NoError(t, err)
	await(t, a, doorbell, "the end of the link", func() bool { return l.(*session).Open() })
	requireFault(t, l.Err(), fault.PeerLost, 1)
	require.ErrorContains(t, l.Err(), "cannot connect to")
	require.ErrorContains(t, l.Err(), at.String())
}

// TestOnUsePatience needs a peer whose process accepts connections, but does not join for longer
// than Options.PeerTimeout.
func TestOnUsePatience(t *testing.T) {
	a, b, doorbell, doorbellB := ordered(t, func(o *Options) {
		o.PeerTimeout, o.HandshakeTimeout = LeastPeerTimeout, 200*time.Millisecond
	})
	s := transport.Session{ID: [16]byte{1}, Rank: 0, Peer: 1, Channels: 1, OnUse: true}
	l, err := a.Connect(t.Context(), b.Address(), s)
	require.NoError(t, err)
	commit(t, l.Channel(0), "early")
	begun := time.Now()
	await(t, a, doorbell, "PeerTimeout has passed", func() bool {
		return l.(*session).Open() || time.Since(begun) > LeastPeerTimeout+300*time.Millisecond
	})
	require.NoError(t, l.Err())
	s.Rank, s.Peer = 1, 0
	late, err := b.Connect(t.Context(), a.Address(), s)
	require.NoError(t, err)
	require.Equal(t, "early", receive(t, b, doorbellB, late.Channel(0)))
}

// TestLeftWhileDialling has one side leave a session while it dials for another one, before the
// peer has either: the peer learns of it once it opens the session.
func TestLeftWhileDialling(t *testing.T) {
	a, b, _, doorbellB := ordered(t, nil)
	begin := func(from, to *Fabric, n byte, s transport.Session) *session {
		s.ID, s.Channels, s.OnUse = [16]byte{n}, 1, true
		l, err := from.Connect(t.Context(), to.Address(), s)
		require.NoError(t, err)
		return l.(*session)
	}
	used := begin(a, b, 1, transport.Session{Rank: 0, Peer: 1})
	left := begin(a, b, 2, transport.Session{Rank: 0, Peer: 1})
	commit(t, used.Channel(0), "first")
	require.NoError(t, left.Close())
	peer := begin(b, a, 1, transport.Session{Rank: 1, Peer: 0})
	require.Equal(t, "first", receive(t, b, doorbellB, peer.Channel(0)))
	late := begin(b, a, 2, transport.Session{Rank: 1, Peer: 0})
	commit(t, late.Channel(0), "to nobody")
	await(t, b, doorbellB, "the end", func() bool { a.Poll(); return late.Err() != nil })
	requireFault(t, late.Err(), fault.PeerLeft, 0)
}

// TestLeftForAReason has one side leave a session, with a reason, before the peer opens it, and
// before there is a connection.
func TestLeftForAReason(t *testing.T) {
	a, b, _, doorbellB := ordered(t, nil)
	s := transport.Session{ID: [16]byte{1}, Rank: 0, Peer: 1, Channels: 1, OnUse: true}
	la, err := a.Connect(t.Context(), b.Address(), s)
	require.NoError(t, err)
	require.NoError(t, la.Leave([]byte("because")))
	s.Rank, s.Peer = 1, 0
	lb, err := b.Connect(t.Context(), a.Address(), s)
	require.NoError(t, err)
	await(t, b, doorbellB, "the end", func() bool { a.Poll(); lb.(*session).Open(); return lb.Err() != nil })
	requireFault(t, lb.Err(), fault.PeerLeft, 0)
	var e *fault.Error
	require.ErrorAs(t, lb.Err(), &e)
	require.Equal(t, "because", string(e.Left))
}

// TestLeftBeforeThePeerOpens has one side leave a session at once, over a connection that is there.
// What the peer sends until it hears of that breaks nothing.
func TestLeftBeforeThePeerOpens(t *testing.T) {
	c, s := deaf()
	p := c.pair
	late, err := p.start(transport.Session{ID: [16]byte{7}, Rank: 0, Peer: 1, Channels: 1, OnUse: true})
	require.NoError(t, err)
	p.index(late) // its open leaves
	require.NoError(t, late.Close())
	o := announcement(p, transport.Session{ID: [16]byte{7}, Rank: 1, Peer: 0, Channels: 1})
	body := make([]byte, openBytes)
	o.put(body)
	require.NoError(t, c.main.consume(frameOf(header{kind: kindOpen, session: 1}, body)))
	require.NoError(t, c.main.consume(frameOf(header{kind: kindData, session: 1}, []byte("to nobody"))))
	require.NoError(t, c.main.consume(frameOf(header{kind: kindData}, []byte("to the other session"))))
	payload, _, ok := s.channels[0].Peek()
	require.True(t, ok)
	require.Equal(t, "to the other session", string(payload))
}

// TestCloseWhileDialling closes the fabric while the first socket is being made for a fragment.
func TestCloseWhileDialling(t *testing.T) {
	a, b, _, doorbellB := ordered(t, withTLS)
	a.Close()
	for range 100 {
		a, _ := loopback(t, withTLS)
		la, lb := onUse(t, a, b, 1)
		commit(t, la.Channel(0), "last word")
		require.NoError(t, a.Close())
		require.Equal(t, "last word", receive(t, b, doorbellB, lb.Channel(0)))
		await(t, b, doorbellB, "the goodbye", func() bool { return lb.Err() != nil })
		requireFault(t, lb.Err(), fault.PeerLeft, 0)
		lb.Close()
	}
}

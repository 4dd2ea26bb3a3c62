package shm

import (
	"net"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/mem"
	"github.com/stretchr/testify/require"
)

func stranger(t *testing.T, f *Fabric) *net.UnixConn {
	conn, err := net.DialUnix("unixpacket", nil, socketOf(&f.self))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(span)))
	return conn
}

// TestStrangers connects without the right to, or says what cannot be right; the fabric goes on working.
func TestStrangers(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	connect(t, a, b, 0, 1)
	before := holdingsNow(t)
	page, err := mem.NewSegment("goccl-bell", bellPage)
	require.NoError(t, err)
	pool, err := mem.NewSegment("goccl-pool", 1<<20)
	require.NoError(t, err)
	good := hello{Layout: ownLayout, From: id{1}, To: a.self.ID, PoolBytes: 1 << 20}
	copy(good.Magic[:], helloMagic)
	unknown, old, short := good, good, good
	unknown.To = id{7}
	old.Layout.Version = 0
	short.PoolBytes = 2 << 20
	for _, tt := range []struct {
		name    string
		message any
		fds     []int
		refused string // what a refusal says; none comes where it is empty
	}{
		{"another message", &bye{1}, nil, ""},
		{"no descriptors", &good, nil, ""},
		{"too many descriptors", &good, []int{page.FD(), pool.FD(), pool.FD()}, ""},
		{"far too many descriptors", &good, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ""},
		{"descriptors of something else", &good, []int{0, 1}, ""},
		{"pool is smaller than said", &short, []int{page.FD(), pool.FD()}, ""},
		{"wrong id", &unknown, []int{page.FD(), pool.FD()}, "address"},
		{"old version", &old, []int{page.FD(), pool.FD()}, "another version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := stranger(t, a)
			require.NoError(t, sendPacket(conn, tt.message, tt.fds...))
			message, fds, err := receivePacket(conn)
			require.Empty(t, fds)
			if tt.refused == "" {
				require.ErrorIs(t, err, errEnd)
			} else {
				require.NoError(t, err)
				require.IsType(t, &refuse{}, message)
				require.Contains(t, message.(*refuse).text(), tt.refused)
			}
			conn.Close()
		})
	}
	t.Run("garbage", func(t *testing.T) {
		for _, packet := range []string{"x", string(make([]byte, 5000))} {
			conn := stranger(t, a)
			_, err := conn.Write([]byte(packet))
			require.NoError(t, err)
			_, _, err = receivePacket(conn)
			require.ErrorIs(t, err, errEnd)
			conn.Close()
		}
	})
	t.Run("silence", func(t *testing.T) {
		for range 20 {
			stranger(t, a)
		}
		connect(t, a, b, 1, 1)
	})
	require.NoError(t, page.Free())
	require.NoError(t, pool.Free())
	require.NoError(t, a.Close()) // ends the silent ones too
	eventually(t, "descriptors of strangers stay", func() bool { return holdingsNow(t).descriptors <= before.descriptors })
}

// TestNonsenseAfterHello breaks the one connection, not the process.
func TestNonsenseAfterHello(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	la, lb := connect(t, a, b, 1, 1)
	b.mu.Lock()
	p := b.processes[a.self.ID]
	b.mu.Unlock()
	_, err := p.conn.Write([]byte("nonsense"))
	require.NoError(t, err)
	eventually(t, "the links go on", func() bool { return la.Err() != nil && lb.Err() != nil })
	require.ErrorContains(t, la.Err(), "unknown kind")
	require.NoError(t, la.Close())
	require.NoError(t, lb.Close())
	connect(t, a, b, 2, 1)
}

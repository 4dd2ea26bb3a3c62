package shm

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func stranger(t *testing.T, f *Fabric) *net.UnixConn {
	conn, err := net.DialUnix("unixpacket", nil, socketOf(&f.self))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(span)))
	return conn
}

// TestStrangers has processes connect without the right to, or send invalid messages; the fabric
// goes on working.
func TestStrangers(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	connect(t, a, b, 0, 1)
	before := holdingsNow(t)
	page, err := mem.NewSegment("goccl-doorbell", doorbellPage)
	require.NoError(t, err)
	pool, err := mem.NewSegment("goccl-pool", 1<<20)
	require.NoError(t, err)
	good := hello{Layout: ownLayout, From: id{15: 1}, To: a.self.ID, PoolBytes: 1 << 20}
	copy(good.Magic[:], helloMagic)
	unknown, old, short := good, good, good
	unknown.To = id{7}
	old.Layout.Version = 0
	short.PoolBytes = 2 << 20
	for _, tt := range []struct {
		name    string
		message any
		fds     []int
		refused string // text of the refusal; empty if none is expected
	}{
		{"another message", newBye(1, nil), nil, ""},
		{"no descriptors", &good, nil, ""},
		{"too many descriptors", &good, []int{page.FD(), pool.FD(), pool.FD()}, ""},
		{"far too many descriptors", &good, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ""},
		{"descriptors of something else", &good, []int{0, 1}, "no shared segment"},
		{"pool is smaller than said", &short, []int{page.FD(), pool.FD()}, "has 1048576 bytes, want 2097152"},
		{"wrong id", &unknown, []int{page.FD(), pool.FD()}, "address"},
		{"old version", &old, []int{page.FD(), pool.FD()}, "another version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := stranger(t, a)
			require.NoError(t, sendPacket(conn, tt.message, tt.fds...))
			message, fds, err := receivePacket(conn, make([]byte, maxMessage))
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
		for _, packet := range []string{"x", string(make([]byte, maxMessage+1))} {
			conn := stranger(t, a)
			_, err := conn.Write([]byte(packet))
			require.NoError(t, err)
			_, _, err = receivePacket(conn, make([]byte, maxMessage))
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
	require.NoError(t, a.Close()) // also ends the silent connections
	eventually(t, "descriptors of strangers stay",
		func() bool { return holdingsNow(t).descriptors <= before.descriptors })
}

// TestStrangersCostNoMemory connects without proving anything: the pool is made for peers only.
func TestStrangersCostNoMemory(t *testing.T) {
	a := newFabric(t)
	before := holdingsNow(t)
	unknown := &hello{Layout: ownLayout, From: id{15: 1}, To: id{7}}
	for _, packet := range [][]byte{nil, []byte("x"), encode(newBye(1, nil)), encode(unknown)} {
		conn := stranger(t, a)
		if packet != nil {
			_, err := conn.Write(packet)
			require.NoError(t, err)
		}
		for err := error(nil); err == nil; { // a refusal may come first
			_, _, err = receivePacket(conn, make([]byte, maxMessage))
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection stays open")
		}
		conn.Close()
	}
	eventually(t, "descriptors of strangers stay", func() bool { return holdingsNow(t).within(before) })
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Nil(t, a.pool)
}

// TestAnotherUser connects as another user, who is told, since a peer has to know that memory
// cannot be shared. The connection is closed and no pool is made.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can connect as another user")
	}
	a := newFabric(t)
	before := holdingsNow(t)
	conn := make(chan *net.UnixConn)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, and with it its user, ends with this goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0))
		if errno != 0 {
			t.Error(errno)
		}
		c, err := net.DialUnix("unixpacket", nil, socketOf(&a.self))
		if err != nil {
			t.Error(err)
		}
		conn <- c
	}()
	c := <-conn
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(span)))
	m, _, err := receivePacket(c, make([]byte, maxMessage))
	require.NoError(t, err)
	require.Equal(t, fault.NotSupported, m.(*refuse).code())
	require.Contains(t, m.(*refuse).text(), "belongs to user 65534")
	_, _, err = receivePacket(c, make([]byte, maxMessage))
	require.ErrorIs(t, err, errEnd)
	c.Close()
	eventually(t, "descriptors of strangers stay", func() bool { return holdingsNow(t).within(before) })
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Nil(t, a.pool)
}

// TestIdleConnections has other processes of the same user take all places, and each place that
// becomes free, for longer than a peer waits.
func TestIdleConnections(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	over, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	var tries atomic.Int64
	for i := range 3 * maxHandshakes {
		victim := []*Fabric{a, b}[i%2]
		group.Go(func() {
			for over.Err() == nil {
				conn, err := net.DialUnix("unixpacket", nil, socketOf(&victim.self))
				if err != nil {
					time.Sleep(time.Millisecond) // the queue of connections is full
					continue
				}
				tries.Add(1)
				stop := context.AfterFunc(over, func() { conn.Close() })
				conn.Read(make([]byte, 1)) // until it is closed
				stop()
				conn.Close()
			}
		})
	}
	defer group.Wait()
	defer end()
	eventually(t, "no attack", func() bool { return tries.Load() > 3*maxHandshakes })
	la, lb := connect(t, a, b, 1, 1)
	send(t, la.Channel(0), 100, 1)
	receive(t, lb.Channel(0), 100, 1)
}

// TestRefusedForLackOfMemory has the dialled side find no memory for its pool. The dialler receives
// the refusal and does not try again.
func TestRefusedForLackOfMemory(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	if bytes.Compare(a.self.ID[:], b.self.ID[:]) > 0 {
		a, b = b, a
	}
	b.mu.Lock()
	b.options.PoolBytes = 1 << 50
	b.mu.Unlock()
	_, err := a.Connect(within(t), b.Address(), session(1, 0, 1, 1))
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "refuses this one")
	require.ErrorContains(t, err, "no shared memory for segment")
}

// TestNonsenseAfterHello sends nonsense after the handshake, which breaks the connection but not
// the process.
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

// TestWhoRefusesFailsToo has no memory for the pool of the process that is dialled: it refuses the
// other one, and both Connects say so at once. Only the other process has a peer to blame.
func TestWhoRefusesFailsToo(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	if bytes.Compare(a.self.ID[:], b.self.ID[:]) < 0 { // a dials
		a, b = b, a
	}
	a.mu.Lock() // a peer may be welcomed already
	a.options.PoolBytes = 1 << 60
	a.mu.Unlock()
	_, _, ea, eb := both(t, a, b, session(1, 0, 1, 1), session(1, 1, 0, 1))
	var own, told *fault.Error
	require.ErrorAs(t, ea, &own)
	require.ErrorAs(t, eb, &told)
	require.ErrorIs(t, ea, fault.System)
	require.Equal(t, fault.NoPeer, own.Peer, "%v", ea)
	require.ErrorIs(t, eb, fault.System)
	require.Equal(t, 0, told.Peer, "%v", eb)
	require.ErrorContains(t, eb, "refuses this one")
}

// TestGivenUpForAReason has one side give up before the other one calls Connect, which is told why.
func TestGivenUpForAReason(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	connect(t, a, b, 1, 1) // so that the processes are connected
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := a.Connect(ctx, b.Address(), session(2, 0, 1, 1))
		gone <- err
	}()
	eventually(t, "the open of the peer", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.processes[a.self.ID].arrivals) == 1
	})
	cancel(&transport.GivenUp{Why: []byte("too late")})
	require.Error(t, <-gone)
	_, err := b.Connect(within(t), a.Address(), session(2, 1, 0, 1))
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.ErrorIs(t, err, fault.PeerLeft)
	require.Equal(t, "too late", string(f.Left))
}

package tcp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/transporttest"
)

// distant is loopback with a fabric that takes all its paths for long ones.
func distant(t testing.TB) (*Fabric, *park.Doorbell) {
	f, doorbell := loopback(t, nil)
	f.trips = longPath
	return f, doorbell
}

func longPath(int, *pathInfo) (shortest, smoothed time.Duration) { return time.Second, time.Second }

// TestConformanceDistant takes all paths for long ones, made on use, with several sockets each.
func TestConformanceDistant(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, doorbellA := loopback(t, several)
		b, doorbellB := loopback(t, several)
		for _, f := range []*Fabric{a, b} {
			f.trips, f.shuffle = longPath, shuffle
		}
		return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
	}, transporttest.Options{Allocates: true, OnUse: true})
}

// fill sends long fragments that carry their numbers as long as there is room, which the receiver
// may widen but does not release. It returns how many there were.
func fill(t *testing.T, a, b *Fabric, ch transport.Channel) (sent uint32) {
	t.Helper()
	full := func() bool {
		out := &ch.(*channel).out
		return sent == maxLong<<out.scale && out.granted.Load() == out.scale && sent >= creditStep &&
			ch.(*channel).out.started.Load() == sent
	}
	for end, rounds := time.Now().Add(hang), 0; ; {
		require.True(t, time.Now().Before(end), "hangs: the sender has room for ever")
		if space := ch.Reserve(maxPayload); space != nil {
			binary.LittleEndian.PutUint32(space, sent)
			ch.Commit(len(space), &transport.Meta{})
			sent, rounds = sent+1, 0
			continue
		}
		moved := a.Poll()
		if b.Poll() || moved {
			rounds = 0
		} else if rounds++; rounds > 1000 && full() {
			return sent
		}
	}
}

// TestRoomGrows has a sender on a long path fill its channels while the receiver releases nothing:
// each channel gets half of the room that is left, everything arrives in order, and closing gives
// the room back.
func TestRoomGrows(t *testing.T) {
	a, doorbellA := distant(t)
	b, doorbellB := distant(t)
	la, lb := join(t, a, b, 1, 4)
	pa, pb := la.pair, lb.pair
	var sent []uint32
	for i := range 4 {
		sent = append(sent, fill(t, a, b, la.Channel(i)))
	}
	require.Equal(t, []uint32{maxLong << 4, maxLong << 3, maxLong << 2, maxLong << 2}, sent)
	require.Equal(t, pa.spent[1], pb.spent[0])
	require.Equal(t, pa.spent[1], a.spent[1].Load())
	require.LessOrEqual(t, pa.spent[1], int64(mostOfPair))
	for i, n := range sent {
		for number := range n {
			text := receive(t, b, doorbellB, lb.Channel(i))
			require.Equal(t, number, binary.LittleEndian.Uint32([]byte(text)))
		}
	}
	require.NoError(t, la.Close())
	require.NoError(t, lb.Close())
	await(t, a, doorbellA, "the room is given back", func() bool {
		b.Poll()
		return a.spent[1].Load() == 0 && b.spent[0].Load() == 0
	})
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		roundTrip time.Duration
		scale     uint32
	}{
		{0, 0}, {50 * time.Microsecond, 0}, {250 * time.Microsecond, 0}, {400 * time.Microsecond, 1},
		{time.Millisecond, 2}, {10 * time.Millisecond, 4}, {5 * time.Second, 4},
	} {
		require.Equal(t, c.scale, distance(c.roundTrip), "%v", c.roundTrip)
	}
}

// TestQueued has looks at a path whose data waits in a queue, or seems to.
func TestQueued(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		trips []time.Duration
		pause time.Duration
		scale uint32
	}{
		"slow wire":               {[]time.Duration{3 * ms, 2 * ms, ms, 5 * ms}, ms, queueScale},
		"too few":                 {[]time.Duration{3 * ms, 2 * ms, ms}, ms, 0},
		"a busy process":          {[]time.Duration{40 * ms, 9 * ms, 2 * ms, ms / 2}, ms, 0},
		"far apart":               {[]time.Duration{3 * ms, 2 * ms, ms, 5 * ms}, queueBreak + 1, 0},
		"begins anew":             {[]time.Duration{0, 0, 0, 0, ms, ms, ms, ms}, ms, queueScale},
		"the system says nothing": {make([]time.Duration, 8), ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var q inQueue
			var scale uint32
			for _, trip := range c.trips {
				scale = q.queued(trip, c.pause)
			}
			require.Equal(t, c.scale, scale)
		})
	}
}

// TestCreditInSteps releases a burst of fragments: credit goes back once for a few of them, and not
// with each.
func TestCreditInSteps(t *testing.T) {
	a, b, _, doorbellB := ordered(t, nil)
	la, lb := join(t, a, b, 1, 1)
	for range 2 * creditStep {
		commit(t, la.Channel(0), "burst")
	}
	in := &lb.channels[0].in
	await(t, b, doorbellB, "the burst", func() bool { return in.arrived.Load() == 2*creditStep })
	for n := uint32(1); n <= 2*creditStep; n++ {
		lb.Channel(0).Release()
		want := n / creditStep * creditStep
		await(t, b, doorbellB, fmt.Sprint("credit of ", want, ", maybe written by the fabric's goroutine"),
			func() bool { return in.advertised.Load() == want })
	}
}

// TestLeave has a sender that ceases to poll while its socket is full: what it has published
// arrives all the same.
func TestLeave(t *testing.T) {
	a, _ := loopback(t, func(o *Options) { o.PeerTimeout = time.Hour }) // nothing else reads or writes now and then
	b, doorbellB := loopback(t, nil)
	la, lb := join(t, a, b, 1, transport.MaxChannels)
	c := la.pair.live.Load()
	// With the default limit the socket may take everything.
	require.NoError(t, syscall.SetsockoptInt(c.main.fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 64<<10))
	text := string(make([]byte, maxPayload))
	for i := range transport.MaxChannels {
		for range maxLong {
			commit(t, la.Channel(i), text)
		}
	}
	require.True(t, c.backlog.Load())
	a.Leave()
	for i := range transport.MaxChannels {
		for range maxLong {
			require.Equal(t, text, receive(t, b, doorbellB, lb.Channel(i)))
		}
	}
	for end := time.Now().Add(hang); c.backlog.Load(); runtime.Gosched() {
		require.True(t, time.Now().Before(end), "hangs: there is a backlog, and everything has arrived")
	}
}

package tcp

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/transporttest"
)

// distant is loopback with a fabric that takes all its paths for long ones.
func distant(t testing.TB) (*Fabric, *park.Doorbell) {
	f, doorbell := loopback(t, nil)
	f.measure = longPath
	return f, doorbell
}

func longPath(int, *pathInfo) path { return path{roundTrip: time.Second} }

func TestConformanceDistant(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, doorbellA := distant(t)
		b, doorbellB := distant(t)
		return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
	}, transporttest.Options{})
}

// fill sends long fragments that carry their numbers until the receiver, which reads nothing, has
// granted no more room for a while. It returns how many there were.
func fill(t *testing.T, a, b *Fabric, ch transport.Channel) (sent uint32) {
	t.Helper()
	for end := time.Now().Add(hang); ; {
		require.True(t, time.Now().Before(end), "hangs: the sender has room for ever")
		if space := ch.Reserve(maxPayload); space != nil {
			binary.LittleEndian.PutUint32(space, sent)
			ch.Commit(len(space), &transport.Meta{})
			sent++
			continue
		}
		c := ch.(*channel)
		a.Poll()
		b.Poll()
		// What was granted is used: the next request is refused, or there is none.
		asked := c.out.wanted.Load()
		if sent == maxLong<<c.out.scale && (asked == maxScale && c.out.scale == maxScale ||
			asked == c.out.scale && time.Until(c.out.look) > lookAgain) {
			return sent
		}
	}
}

// TestRoomGrows has a sender on a long path fill its channels while the receiver reads nothing: the
// room is doubled up to the limits, everything arrives in order, and closing gives the room back.
func TestRoomGrows(t *testing.T) {
	a, doorbellA := distant(t)
	b, doorbellB := distant(t)
	la, lb := join(t, a, b, 1, 2)
	pa, pb := la.pair, lb.pair
	sent := []uint32{fill(t, a, b, la.Channel(0)), fill(t, a, b, la.Channel(1))}
	require.EqualValues(t, maxLong<<maxScale, sent[0])
	require.EqualValues(t, 2*maxLong, sent[1], "the pair has no more")
	require.LessOrEqual(t, pa.spent[1], int64(mostOfPair))
	require.Equal(t, pa.spent[1], pb.spent[0])
	require.Equal(t, pa.spent[1], a.spent[1].Load())
	require.NotZero(t, pb.spent[0])
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

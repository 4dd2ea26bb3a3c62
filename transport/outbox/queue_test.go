package outbox

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

func anyLink(int) bool { return true }

func TestBounds(t *testing.T) {
	var q Queue[int]
	require.True(t, q.Empty())
	require.False(t, q.Add(1, make([]byte, transport.MaxControl+1)))
	text := bytes.Repeat([]byte{1}, transport.MaxControl)
	held := 0
	for ; q.Add(1, text); held++ {
		text[0]++ // the queue has a copy
	}
	require.Equal(t, MaxBytes/(transport.MaxControl+overhead), held)
	require.False(t, q.Empty())
	_, first, number, ok := q.Next(anyLink)
	require.True(t, ok)
	require.EqualValues(t, 1, number)
	require.EqualValues(t, 1, first[0])
	require.False(t, q.Add(1, text), "what is sent counts until it is acknowledged")
	require.True(t, q.Acknowledge(1))
	require.True(t, q.Add(1, text))
	q.Remove(anyLink)
	require.True(t, q.Empty())
	require.Zero(t, q.Unsent()+q.Sent())
	for held = 0; q.Add(1, nil); held++ {
	}
	require.Equal(t, MaxBytes/overhead, held, "empty messages count too")
}

func TestImpossibleAcknowledgements(t *testing.T) {
	var q Queue[int]
	for range 3 {
		require.True(t, q.Add(1, nil))
	}
	require.True(t, q.Acknowledge(0))
	require.False(t, q.Acknowledge(1), "it has not been sent")
	for range 2 {
		q.Next(anyLink)
	}
	require.False(t, q.Acknowledge(3))
	require.True(t, q.Acknowledge(1))
	require.False(t, q.Acknowledge(0), "it was acknowledged")
	q.Again()
	require.False(t, q.Acknowledge(3))
	require.True(t, q.Acknowledge(2), "it was sent over the connection before")
	q.Reset()
	require.False(t, q.Acknowledge(1))
	_, _, number, ok := q.Next(anyLink)
	require.True(t, ok)
	require.EqualValues(t, 1, number)
	_, _, _, ok = q.Next(anyLink)
	require.False(t, ok)
}

// TestBrokenConnections sends messages of several links over connections that break, to a peer that
// counts what it has received. Some links may not send for a while, and some never will.
func TestBrokenConnections(t *testing.T) {
	const links = 4
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var q Queue[int]
		var told, heard [links]uint64
		var wire []uint64 // numbers on their way
		var dead [links]bool
		type sent struct {
			link int
			text uint64
		}
		carried := map[uint64]sent{} // by number
		received, acked := uint64(0), uint64(0)
		may := func(open int) func(int) bool { return func(link int) bool { return link <= open && !dead[link] } }
		for range 400 {
			switch r.IntN(8) {
			case 0, 1, 2:
				link := r.IntN(links)
				if !dead[link] {
					require.True(t, q.Add(link, binary.LittleEndian.AppendUint64(nil, told[link])))
					told[link]++
				}
			case 3, 4:
				if link, text, number, ok := q.Next(may(r.IntN(links))); ok {
					wire = append(wire, number)
					carried[number] = sent{link, binary.LittleEndian.Uint64(text)}
				}
			case 5: // the peer receives
				if len(wire) > 0 {
					require.Equal(t, received+1, wire[0])
					received++
					s := carried[received]
					require.Equal(t, heard[s.link], s.text, "link %d", s.link)
					heard[s.link]++
					wire = wire[1:]
				}
			case 6: // an acknowledgement arrives
				acked = received - uint64(r.IntN(int(received-acked)+1))
				require.True(t, q.Acknowledge(acked))
			case 7: // the connection breaks
				if r.IntN(4) == 0 {
					wire, acked = nil, received
					q.Again()
					require.True(t, q.Acknowledge(received))
				}
				if r.IntN(40) == 0 && q.Sent() == 0 {
					dead[3] = true
					q.Remove(func(link int) bool { return dead[link] })
				}
			}
		}
		q.Again()
		require.True(t, q.Acknowledge(received))
		for {
			link, text, _, ok := q.Next(anyLink)
			if !ok {
				break
			}
			require.Equal(t, heard[link], binary.LittleEndian.Uint64(text))
			heard[link]++
			received++
			require.True(t, q.Acknowledge(received))
		}
		require.True(t, q.Empty())
		require.Zero(t, q.Unsent()+q.Sent())
		require.Equal(t, told[:3], heard[:3])
	}
}

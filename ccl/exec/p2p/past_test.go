package p2p

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
)

func TestPastCaches(t *testing.T) {
	for _, c := range []struct {
		cache int64
		want  int
	}{
		{32 << 20, 8 << 20},
		{96 << 20, 24 << 20},
		{1 << 40, 1 << 38},
		{512 << 10, 4 * EagerLimit}, // eager messages, and somewhat longer ones, always go through the caches
		{0, usualCache / 4},
		{-1, usualCache / 4},
	} {
		require.Equal(t, c.want, pastCaches(c.cache), c.cache)
	}
}

// TestReceivePastCaches checks that messages as long as the limit, and around it, arrive whole at
// any position within a cache line.
func TestReceivePastCaches(t *testing.T) {
	net := newNetwork(2, 4, dataFragment, nil)
	var engines [2]*Engine
	dones := 0
	for rank := range engines {
		chans := []transport.Channel{0: net.chans[rank][0], 1: net.chans[rank][1]}
		engines[rank] = New(rank, chans, func(_ *Request, err error) { require.NoError(t, err); dones++ })
		engines[rank].SetCache(1)
		require.Equal(t, 4*EagerLimit, engines[rank].past)
	}
	for _, size := range []int{4*EagerLimit - 1, 4 * EagerLimit, 4*EagerLimit + 777} {
		for _, shift := range []int{0, 1, 40, 63} {
			memory := make([]byte, guard+shift+size+guard)
			want := bytes.Clone(memory)
			sent := noise[shift+1:][:size]
			copy(want[guard+shift:], sent)
			s := Request{Peer: 1, Data: unsafe.Pointer(&sent[0]), Bytes: size, Send: true}
			r := Request{Peer: 0, Data: unsafe.Pointer(&memory[guard+shift]), Bytes: size}
			dones = 0
			engines[1].Post(&r)
			engines[0].Post(&s)
			for dones < 2 {
				require.True(t, engines[0].Advance() || engines[1].Advance())
			}
			require.True(t, bytes.Equal(want, memory), "%d bytes, %d off their line", size, shift)
		}
	}
}

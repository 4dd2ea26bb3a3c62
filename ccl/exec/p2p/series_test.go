package p2p

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestSeriesEnd checks that no public method leaves a series open, so that a sleeping peer is woken
// for everything it waits for.
func TestSeriesEnd(t *testing.T) {
	net := newNetwork(2, 16, 4*EagerLimit, nil)
	var engines [2]*Engine
	dones := 0
	for rank := range engines {
		engines[rank] = New(rank, net.chans[rank], func(_ *Request, err error) { require.NoError(t, err); dones++ })
	}
	ended := func() {
		for rank := range engines {
			require.Zero(t, net.chans[rank][1-rank].(*end).series)
		}
	}
	for _, size := range []int{0, 8, 5000, EagerLimit, long, 4 * EagerLimit} {
		for _, direct := range []bool{false, true} {
			sent, got := bytes.Repeat([]byte{byte(size + 1)}, size+1), make([]byte, size+1)
			s := Request{Peer: 1, Data: unsafe.Pointer(&sent[0]), Bytes: size, Send: true}
			r := Request{Peer: 0, Data: unsafe.Pointer(&got[0]), Bytes: size}
			dones = 0
			begin := func(e *Engine, q *Request) {
				if direct {
					switch e.Direct(q) {
					case Done:
						dones++
						return
					case Begun:
						return
					}
					ended()
				}
				e.Post(q)
			}
			begin(engines[0], &s)
			ended()
			begin(engines[1], &r)
			ended()
			for dones < 2 {
				require.True(t, engines[0].Advance() || engines[1].Advance())
				ended()
			}
			require.True(t, bytes.Equal(sent[:size], got[:size]))
		}
	}
}

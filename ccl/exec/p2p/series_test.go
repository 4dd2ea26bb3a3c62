package p2p

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
)

// muted is a channel with series on top of one without: what was published is on its way only after Flush.
type muted struct {
	single
	quiet int // fragments of the series
}

func (m *muted) Publish(n int, meta *transport.Meta) { m.quiet++; m.single.Publish(n, meta) }
func (m *muted) Consume()                            { m.quiet++; m.single.Consume() }
func (m *muted) Flush()                              { m.quiet = 0 }

// TestSeriesEnd: no public method leaves a series open, so that a peer that sleeps is woken for everything it waits for.
func TestSeriesEnd(t *testing.T) {
	net := newNetwork(2, 16, 4*EagerLimit, nil)
	var engines [2]*Engine
	var channels [2]*muted
	dones := 0
	for rank := range engines {
		channels[rank] = &muted{single: single{Channel: net.chans[rank][1-rank]}}
		chans := make([]transport.Channel, 2)
		chans[1-rank] = channels[rank]
		engines[rank] = New(rank, chans, func(_ *Request, err error) { require.NoError(t, err); dones++ })
		require.Same(t, channels[rank], engines[rank].peers[1-rank].channel)
	}
	ended := func() {
		for _, c := range channels {
			require.Zero(t, c.quiet)
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

package p2p

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
)

// connect joins ranks over a real fabric.
func connect(t *testing.T, ranks int) [][]transport.Channel {
	f := inproc.New(park.NewDoorbell())
	t.Cleanup(func() { f.Close() })
	chans := make([][]transport.Channel, ranks)
	for rank := range chans {
		chans[rank] = make([]transport.Channel, ranks)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for a := range ranks {
		for b := range a {
			other := make(chan transport.Link)
			go func() {
				l, _ := f.Connect(ctx, f.Address(), transport.Session{ID: [16]byte{1}, Rank: b, Peer: a, Channels: 1})
				other <- l
			}()
			l, err := f.Connect(ctx, f.Address(), transport.Session{ID: [16]byte{1}, Rank: a, Peer: b, Channels: 1})
			require.NoError(t, err)
			chans[a][b], chans[b][a] = l.Channel(0), (<-other).Channel(0)
		}
	}
	return chans
}

func TestConcurrentRanksFake(t *testing.T) {
	concurrentRanks(t, newNetwork(3, 4, 64<<10, nil).chans)
}

func TestConcurrentRanksInproc(t *testing.T) { concurrentRanks(t, connect(t, 3)) }

// concurrentRanks has every rank send the same messages to every rank. Each rank has its own
// goroutine, which drives it and posts in an order of its own.
func concurrentRanks(t *testing.T, chans [][]transport.Channel) {
	ranks := len(chans)
	sizes := []int{0, 8, EagerLimit, EagerLimit + 1, 300, 1 << 20, 64, 8}
	const rounds, tags = 3, 2
	deadline := time.Now().Add(20 * time.Second)
	results := make(chan []*op, ranks)
	for rank := range ranks {
		go func() {
			rng := rand.New(rand.NewPCG(3, uint64(rank)))
			byReq := map[*Request]*op{}
			var ops []*op
			e := New(rank, chans[rank], func(r *Request, err error) {
				byReq[r].dones++
				byReq[r].err = err
			})
			// There is one list for each peer, direction and tag. The order matters within a list,
			// not among the lists.
			var lists [][]*op
			for peer := range ranks {
				for i := range 2 * tags {
					var list []*op
					for k := range rounds * len(sizes) {
						from, to, tag := rank, peer, i/2
						if i%2 == 1 {
							from, to = peer, rank
						}
						o := newOp(rank, peer, uint64(tag), sizes[k%len(sizes)], i%2 == 0,
							uint64(((from*ranks+to)*tags+tag)*1000+k))
						if !o.Send {
							want := o.seed
							o.fill(0)
							o.seed = want
						}
						list = append(list, o)
					}
					lists = append(lists, list)
				}
			}
			for len(lists) > 0 || e.Active() && time.Now().Before(deadline) {
				if len(lists) > 0 {
					i := rng.IntN(len(lists))
					o := lists[i][0]
					ops, byReq[&o.Request] = append(ops, o), o
					e.Post(&o.Request)
					if lists[i] = lists[i][1:]; len(lists[i]) == 0 {
						lists = slices.Delete(lists, i, i+1)
					}
				}
				if !e.Advance() {
					runtime.Gosched()
				}
			}
			results <- ops
		}()
	}
	for range ranks {
		for _, o := range <-results {
			require.Equal(t, 1, o.dones, "rank %d, peer %d, send %v, tag %d, %d bytes",
				o.rank, o.Peer, o.Send, o.Tag, o.Bytes)
			require.NoError(t, o.err)
			require.True(t, o.holds(o.seed), "rank %d, peer %d, tag %d, %d bytes", o.rank, o.Peer, o.Tag, o.Bytes)
		}
	}
}

// TestRandomTrafficInproc is the model test over a real ring. The reference matcher listens between
// the engine and the channel.
func TestRandomTrafficInproc(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, 3, 1, 64, nil)
		chans := connect(t, 3)
		for rank := range chans {
			for peer, c := range chans[rank] {
				if c != nil {
					chans[rank][peer] = tap{c, w.net.pipes[rank][peer].onPublish, w.net.pipes[peer][rank].onConsume}
				}
			}
			w.engines[rank] = New(rank, chans[rank], w.done)
		}
		traffic(w, rand.New(rand.NewPCG(seed, 2)), seed%2 == 0, seed%3 == 0)
	}
}

// tap reports the fragments that pass.
type tap struct {
	transport.Channel
	onPublish, onConsume func(transport.Meta)
}

func (c tap) Publish(n int, m *transport.Meta) {
	c.Channel.Publish(n, m)
	c.onPublish(*m)
}

func (c tap) Consume() {
	_, m, _ := c.Peek()
	c.Channel.Consume()
	c.onConsume(m)
}

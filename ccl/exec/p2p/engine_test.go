package p2p

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

func TestSizes(t *testing.T) {
	for _, size := range []int{0, 1, 63, 64, 65, EagerLimit - 1, EagerLimit, EagerLimit + 1, 1 << 20} {
		for _, capacity := range []int{64, 4096, 1 << 20} {
			for _, first := range []string{"send", "receive"} {
				t.Run(fmt.Sprintf("%d bytes, %d, %s first", size, capacity, first), func(t *testing.T) {
					w := newWorld(t, 2, 4, capacity, nil)
					if first == "send" {
						w.send(0, 1, 7, size)
						w.settle()
						w.recv(1, 0, 7, size)
					} else {
						w.recv(1, 0, 7, size)
						w.settle()
						w.send(0, 1, 7, size)
					}
					w.finish()
				})
			}
		}
	}
}

func TestBothSendFirst(t *testing.T) {
	const bytes = 4 * 1_000_000
	w := newWorld(t, 2, 4, 64<<10, nil)
	for rank := range 2 {
		w.send(rank, 1-rank, 0, bytes)
	}
	w.settle()
	for rank := range 2 {
		w.recv(rank, 1-rank, 0, bytes)
	}
	w.settle()
	for _, o := range w.ops {
		require.Equal(t, 1, o.dones)
	}
	w.finish()
}

// TestTagsInReverse receives messages in the reverse of the order in which they were sent. Their
// tags differ in the lowest bits and in the highest.
func TestTagsInReverse(t *testing.T) {
	tagOf := func(i int) uint64 { return uint64(i%2) | uint64(i)<<(TagBits-9) }
	w := newWorld(t, 2, 4, 16<<10, nil)
	for tag := range 300 {
		w.send(0, 1, tagOf(tag), []int{0, 8, EagerLimit, long}[tag%4])
	}
	w.settle()
	for tag := 299; tag >= 0; tag-- {
		o := w.recv(1, 0, tagOf(tag), []int{0, 8, EagerLimit, long}[tag%4])
		w.settle()
		require.Equal(t, 1, o.dones, "tag %d waits for another", tag)
	}
	w.finish()
}

// TestFar checks that messages of up to FarLimit leave for a far peer before their receives are
// posted, and the heads of longer ones, as many as FarWindow holds.
func TestFar(t *testing.T) {
	for _, size := range []int{8, EagerLimit + 1, FarLimit, FarLimit + 1, 3 * FarLimit} {
		w := newWorld(t, 2, 64, 32<<20, nil)
		w.engines[0].SetFar(1)
		fit := FarWindow / eagerCost(min(size, FarLimit))
		for range min(fit, 100) + 2 {
			w.send(0, 1, 3, size)
		}
		w.settle()
		done := 0
		for _, o := range w.ops {
			done += o.dones
		}
		buffers, _ := footprint(w.engines[1])
		require.LessOrEqual(t, buffers, FarWindow, "%d bytes", size)
		switch {
		case fit > 100:
			require.Equal(t, 102, done, "%d bytes", size)
		case size <= FarLimit:
			require.Equal(t, fit, done, "%d bytes", size)
		default:
			require.Zero(t, done, "%d bytes", size)
			require.GreaterOrEqual(t, buffers, fit*FarLimit, "the heads of %d bytes", size)
		}
		w.finish()
	}
}

// TestOrderAcrossProtocols checks that eager and rendezvous messages of one tag keep their order,
// before and after the window is used up.
func TestOrderAcrossProtocols(t *testing.T) {
	sizes := []int{EagerLimit + 1, 8, long - 10_000, 0, EagerLimit}
	for _, network := range []bool{false, true} {
		w := newWorld(t, 2, 4, 16<<10, nil)
		if network {
			w.engines[0].SetNetwork(1)
		}
		for i := range 200 {
			w.send(0, 1, 5, sizes[i%len(sizes)])
		}
		w.settle()
		for i := range 200 {
			w.recv(1, 0, 5, sizes[i%len(sizes)])
		}
		w.finish()
	}
}

// TestOnNetwork checks that a message to a peer across a network leaves in few fragments.
func TestOnNetwork(t *testing.T) {
	const K = 1 << 10
	for _, test := range [][2]int{
		{0, 0}, {8, 8}, {32 * K, 32 * K}, {32*K + 8, 32 * K}, {64 * K, 32 * K}, {80*K + 2, 40*K + 64},
		{128 * K, 48 * K}, {256 * K, 128 * K}, {1 << 30, 128 * K},
	} {
		require.Equal(t, test[1], onNetwork(test[0]), "%d bytes", test[0])
	}
}

// footprint returns the bytes of buffers and the records that the engine keeps for unexpected
// messages.
func footprint(e *Engine) (buffers, records int) {
	e.table.all(func(q *queue) {
		for m := q.messages.head; m != nil; m = m.next {
			buffers += cap(m.buf)
			records++
		}
	})
	return buffers, records
}

func TestUnexpectedMemoryIsBounded(t *testing.T) {
	for size, count := range map[int]int{0: 10_000, 8: 10_000, 1000: 3000, EagerLimit: 250} {
		t.Run(fmt.Sprintf("%d of %d bytes", count, size), func(t *testing.T) {
			w := newWorld(t, 2, 8, 64<<10, nil)
			for range count {
				w.send(0, 1, 1, size)
			}
			w.settle()
			buffers, records := footprint(w.engines[1])
			require.LessOrEqual(t, buffers, EagerWindow)
			require.Equal(t, count, records)
			require.LessOrEqual(t, unsafe.Sizeof(message{}), uintptr(recordCost))
			require.LessOrEqual(t, w.engines[1].peers[0].held, EagerWindow)
			for range count {
				w.recv(1, 0, 1, size)
			}
			w.settle()
			for _, o := range w.ops {
				require.Equal(t, 1, o.dones)
			}
			w.finish()
			require.LessOrEqual(t, w.engines[1].pool.freeBytes, keepBytes)
			require.LessOrEqual(t, w.engines[1].pool.count, keepMessages)
		})
	}
}

// TestAnnouncedLimit checks that sends beyond MaxAnnounced wait at the sender, and continue when
// the receiver catches up.
func TestAnnouncedLimit(t *testing.T) {
	chans := newNetwork(2, 64, 1<<20, nil).chans
	dones := [2]int{}
	engines := make([]*Engine, 2)
	for rank := range engines {
		engines[rank] = New(rank, chans[rank], func(_ *Request, err error) {
			require.NoError(t, err)
			dones[rank]++
		})
	}
	settle := func() {
		for moved := true; moved; {
			moved = engines[0].Advance()
			moved = engines[1].Advance() || moved
		}
	}
	const extra = 5000
	count := EagerWindow/recordCost + MaxAnnounced + extra
	sends, receives := make([]Request, count), make([]Request, count)
	for i := range sends {
		sends[i] = Request{Peer: 1, Send: true}
		engines[0].Post(&sends[i])
	}
	settle()
	require.Equal(t, count-extra, engines[1].table.arrived)
	for i := range receives {
		receives[i] = Request{Peer: 0}
		engines[1].Post(&receives[i])
	}
	settle()
	require.Equal(t, [2]int{count, count}, dones)
	require.False(t, engines[0].Active() || engines[1].Active())
}

func TestWrongLength(t *testing.T) {
	for _, c := range []struct{ send, recv int }{
		{8, 4}, {4, 8}, {0, 1}, {1, 0}, {long + 20_000, 8}, {8, long + 20_000}, {long + 20_000, long + 20_001},
		{EagerLimit, 1},
	} {
		for _, first := range []string{"send", "receive"} {
			t.Run(fmt.Sprintf("%d to %d, %s first", c.send, c.recv, first), func(t *testing.T) {
				w := newWorld(t, 2, 4, 1024, nil)
				var s, r *op
				if first == "send" {
					s = w.send(0, 1, 3, c.send)
					w.settle()
					r = w.recv(1, 0, 3, c.recv)
				} else {
					r = w.recv(1, 0, 3, c.recv)
					s = w.send(0, 1, 3, c.send)
				}
				w.settle()
				words := []string{fmt.Sprint(c.send), fmt.Sprint(c.recv), "tag 3"}
				require.True(t, isMismatch(r.err, words...), "%v", r.err)
				require.True(t, r.holds(r.seed), "a receive that failed was written")
				require.Equal(t, 1, s.dones)

				// An eager send may already be done, with success. Then the next send, which is
				// delivered, reports the mismatch.
				second, got := w.send(0, 1, 3, 16), w.recv(1, 0, 3, 16)
				w.settle()
				require.NoError(t, got.err)
				require.True(t, isMismatch(s.err, words...) != isMismatch(second.err, words...),
					"%v, %v", s.err, second.err)
				third, last := w.send(0, 1, 3, 16), w.recv(1, 0, 3, 16)
				w.settle()
				require.NoError(t, third.err)
				require.NoError(t, last.err)
				w.finish()
			})
		}
	}
}

func TestAnySource(t *testing.T) {
	w := newWorld(t, 4, 4, 4096, nil)
	for range 6 {
		w.recv(0, AnySource, 1, 64)
	}
	named := w.recv(0, 2, 1, 64)
	for source := range 4 {
		w.send(source, 0, 1, 64)
		w.settle()
	}
	require.Zero(t, named.dones, "the oldest receive is served first")
	for range 3 {
		w.send(2, 0, 1, 64)
	}
	w.settle()
	require.Equal(t, 2, named.Source)

	// Unexpected messages are received in the order of their arrival.
	for _, source := range []int{3, 1, 2} {
		w.send(source, 0, 9, long+20_000)
		w.settle()
	}
	for _, source := range []int{3, 1, 2} {
		o := w.recv(0, AnySource, 9, long+20_000)
		w.settle()
		require.Equal(t, source, o.Source)
	}
	w.finish()
}

func TestSelf(t *testing.T) {
	for _, size := range []int{0, 1, EagerLimit, EagerLimit + 1, 1 << 20} {
		w := newWorld(t, 1, 1, 64, nil)
		s := w.send(0, 0, 1, size)
		require.Equal(t, size <= EagerLimit, s.dones == 1)
		w.recv(0, 0, 1, size)
		require.Equal(t, 1, s.dones)
		r := w.recv(0, AnySource, 1, size)
		w.send(0, 0, 1, size)
		require.Equal(t, 1, r.dones)
		w.finish()
	}
	t.Run("window", func(t *testing.T) {
		w := newWorld(t, 1, 1, 64, nil)
		for range 100 {
			w.send(0, 0, 1, EagerLimit)
		}
		buffers, _ := footprint(w.engines[0])
		require.LessOrEqual(t, buffers, EagerWindow)
		w.finish()
	})
	t.Run("mismatch", func(t *testing.T) {
		w := newWorld(t, 1, 1, 64, nil)
		s := w.send(0, 0, 1, 1<<20)
		r := w.recv(0, 0, 1, 8)
		require.True(t, isMismatch(s.err, "1048576", "8"))
		require.True(t, isMismatch(r.err, "1048576", "8"))
		w.finish()
	})
}

// TestTurns checks that messages in flight at the same time progress equally, and that a short
// message overtakes them.
func TestTurns(t *testing.T) {
	w := newWorld(t, 2, 2, dataFragment, nil)
	var receives []*op
	for tag := range 4 {
		receives = append(receives, w.recv(1, 0, uint64(tag), 1<<20))
		w.send(0, 1, uint64(tag), 1<<20)
	}
	for range 30 {
		w.engines[0].Advance()
		w.engines[1].Advance()
	}
	small := w.recv(1, 0, 99, 8)
	w.send(0, 1, 99, 8)
	for i := range 4 {
		w.engines[i%2].Advance()
	}
	require.Equal(t, 1, small.dones)
	low, high := 1<<20, 0
	for _, r := range receives {
		require.Equal(t, receiving, r.state)
		low, high = min(low, r.msg.off), max(high, r.msg.off)
	}
	require.Positive(t, low)
	// While the heads of the other messages left, the first message had every second turn.
	require.LessOrEqual(t, high-low, 7*dataFragment)
	w.finish()
}

func TestBadRequests(t *testing.T) {
	var got error
	e := New(0, newNetwork(2, 1, 64, nil).chans[0], func(_ *Request, err error) { got = err })
	for name, r := range map[string]*Request{
		"negative size":   {Peer: 1, Bytes: -1},
		"no memory":       {Peer: 1, Bytes: 8},
		"rank too high":   {Peer: 2},
		"rank too low":    {Peer: -2},
		"send to anybody": {Peer: AnySource, Send: true},
	} {
		got = nil
		e.Post(r)
		require.ErrorIs(t, got, fault.Invalid, name)
	}
	require.False(t, e.Active())
	alone := New(0, make([]transport.Channel, 2), func(_ *Request, err error) { got = err })
	alone.Post(&Request{Peer: 1})
	require.ErrorIs(t, got, fault.Invalid)
	require.False(t, alone.Advance())
	var r Request
	r.Peer = 1
	e.Post(&r)
	require.Panics(t, func() { e.Post(&r) })
}

// TestReentry checks that done may post, cancel and advance.
func TestReentry(t *testing.T) {
	chans := newNetwork(2, 4, 4096, nil).chans
	var engines [2]*Engine
	var rounds [2]int
	requests := [2]Request{{Peer: 1, Send: true}, {Peer: 0}}
	for rank := range engines {
		engines[rank] = New(rank, chans[rank], func(r *Request, err error) {
			require.NoError(t, err)
			if rounds[rank]++; rounds[rank] < 100 {
				r.Send = !r.Send
				engines[rank].Post(r)
				engines[rank].Advance()
			}
		})
	}
	engines[0].Post(&requests[0])
	engines[1].Post(&requests[1])
	for engines[0].Advance() || engines[1].Advance() {
	}
	require.Equal(t, [2]int{100, 100}, rounds)
}

func TestNoAllocations(t *testing.T) {
	for _, size := range []int{8, 64 << 10} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, late receive %v", size, late), func(t *testing.T) {
				p := newPair(size)
				step := func() { p.exchange(late) }
				for range 600 { // the credit and the pools turn over
					step()
				}
				require.Zero(t, testing.AllocsPerRun(300, step))
				require.NoError(t, p.err)
			})
		}
	}
}

// pair is two engines and a ping-pong between them.
type pair struct {
	engines  [2]*Engine
	send     [2]Request
	receive  [2]Request
	finished int
	err      error
}

func newPair(size int) *pair {
	p := &pair{}
	chans := newNetwork(2, 8, 128<<10, nil).chans
	for rank := range p.engines {
		p.engines[rank] = New(rank, chans[rank], func(_ *Request, err error) {
			p.finished++
			if err != nil {
				p.err = err
			}
		})
		p.send[rank] = Request{Peer: 1 - rank, Data: unsafe.Pointer(&make([]byte, size)[0]), Bytes: size, Send: true}
		p.receive[rank] = Request{Peer: 1 - rank, Data: unsafe.Pointer(&make([]byte, size)[0]), Bytes: size}
	}
	return p
}

func (p *pair) exchange(late bool) {
	for from := range p.engines {
		to := 1 - from
		p.finished = 0
		if !late {
			p.engines[to].Post(&p.receive[to])
		}
		p.engines[from].Post(&p.send[from])
		if late {
			p.engines[to].Advance()
			p.engines[to].Post(&p.receive[to])
		}
		for p.finished < 2 {
			p.engines[to].Advance()
			p.engines[from].Advance()
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 8 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := newPair(size)
			b.SetBytes(int64(2 * size))
			b.ReportAllocs()
			for b.Loop() {
				p.exchange(false)
			}
		})
	}
}

// TestManyRanks checks that all messages between random ranks arrive.
func TestManyRanks(t *testing.T) {
	const ranks = 24
	rng := rand.New(rand.NewPCG(1, 2))
	w := newWorld(t, ranks, 2, 1024, rng)
	for range 600 {
		a, b := rng.IntN(ranks), rng.IntN(ranks)
		w.send(a, b, 0, 200)
		w.recv(b, a, 0, 200)
		w.engines[rng.IntN(ranks)].Advance()
	}
	w.settle()
	for _, o := range w.ops {
		require.Equal(t, 1, o.dones)
	}
	w.finish()
}

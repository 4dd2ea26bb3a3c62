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

// TestCancelEverywhere cancels a send or a receive after each number of steps, for each protocol,
// and checks with the reference matcher that later messages of the same tag are not disturbed.
func TestCancelEverywhere(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 5
	}
	for _, size := range []int{0, 8, 1000, 20_000, EagerLimit, EagerLimit + 1, long} {
		for _, who := range []string{"send", "receive", "both"} {
			for _, first := range []string{"send", "receive"} {
				t.Run(fmt.Sprintf("%d bytes, %s, %s first", size, who, first), func(t *testing.T) {
					for steps, last := 0, false; !last; steps += stride {
						last = cancelAfter(t, size, who, first, steps, steps%2 == 1) || steps == 100
					}
				})
			}
		}
	}
}

// cancelAfter reports whether nothing was left to cancel.
func cancelAfter(t *testing.T, size int, who, first string, steps int, direct bool) bool {
	w := newWorld(t, 2, 2, 4096, nil)
	if direct {
		w.direct = rand.New(rand.NewPCG(uint64(steps), 1))
	}
	var s, r *op
	if first == "send" {
		s = w.send(0, 1, 1, size)
		for range 6 {
			w.engines[0].Advance()
			w.engines[1].Advance()
		}
		r = w.recv(1, 0, 1, size)
	} else {
		r = w.recv(1, 0, 1, size)
		s = w.send(0, 1, 1, size)
	}
	for i := range steps {
		w.engines[i%2].Advance()
	}
	hit := false
	if who != "receive" {
		hit = w.cancel(s)
	}
	if who != "send" {
		hit = w.cancel(r) || hit
	}
	// Later messages are received as if nothing had happened.
	for _, n := range []int{8, 9000, long - 10_000} {
		w.send(0, 1, 2, n)
		w.recv(1, 0, 2, n)
	}
	w.finish()
	w.send(0, 1, 1, size)
	w.recv(1, 0, 1, size)
	w.finish()
	return !hit
}

func TestCancelUnknown(t *testing.T) {
	w := newWorld(t, 2, 2, 512, nil)
	require.False(t, w.engines[0].Cancel(&Request{}, errCancel))
	o := w.send(0, 1, 0, 8)
	require.False(t, w.engines[0].Cancel(&o.Request, errCancel))
	self := w.send(0, 0, 4, 1<<20)
	require.True(t, w.cancel(self))
	w.finish()
}

var errLost = fault.Peer(fault.PeerLost, 1, "died")

// TestPeerFailureEverywhere lets rank 1 die after each number of steps of mixed traffic.
func TestPeerFailureEverywhere(t *testing.T) {
	for steps := range 120 {
		failAfter(t, steps, steps%2 == 0)
	}
}

func failAfter(t *testing.T, steps int, direct bool) {
	chans := newNetwork(3, 3, 2048, nil).chans
	byReq := map[*Request]*op{}
	var ops []*op
	var engines [3]*Engine
	for rank := range engines {
		engines[rank] = New(rank, chans[rank], func(r *Request, err error) {
			o := byReq[r]
			o.dones++
			o.err = err
		})
	}
	post := func(rank, peer int, tag uint64, size int, send bool, seed uint64) *op {
		o := newOp(rank, peer, tag, size, send, seed)
		ops, byReq[&o.Request] = append(ops, o), o
		if direct {
			switch engines[rank].Direct(&o.Request) {
			case Done:
				o.dones++
				return o
			case Begun:
				return o
			}
		}
		engines[rank].Post(&o.Request)
		return o
	}
	const tagAny = 50
	sizes := []int{0, 8, EagerLimit, long, 3000, long + 20_000}
	for i, n := range sizes {
		seed := uint64(100 + i)
		post(1, 0, uint64(i), n, true, seed)
		post(0, 1, uint64(i), n, true, seed)
		if i%2 == 0 {
			post(0, 1, uint64(i), n, false, 0)
			post(1, 0, uint64(i), n, false, 0)
		}
	}
	any := post(0, AnySource, tagAny, 8, false, 0)
	for i := range steps {
		engines[i%2].Advance()
	}

	e := engines[0]
	e.PeerFailed(1, errLost)
	require.False(t, e.Active())
	var whole []uint64 // arrived before the failure, not received yet
	e.table.all(func(q *queue) {
		for m := q.messages.head; m != nil; m = m.next {
			if m.whole() {
				whole = append(whole, m.tag)
			}
		}
	})
	require.Equal(t, error(errLost), any.err)
	for i, n := range sizes {
		if i%2 == 1 {
			o := post(0, 1, uint64(i), n, false, 0)
			o.seed = uint64(100 + i)
		}
	}
	late := post(0, 1, 99, 8, true, 0)
	require.Equal(t, error(errLost), late.err)
	lateAny := post(0, AnySource, 77, 8, false, 0)
	require.Equal(t, error(errLost), lateAny.err)

	for _, o := range ops {
		if o.rank != 0 {
			continue
		}
		require.Equal(t, 1, o.dones)
		if o.err != nil {
			require.Equal(t, error(errLost), o.err)
			require.NotContains(t, whole, o.Tag)
		} else if !o.Send {
			require.True(t, o.holds(100+uint64(o.Tag)), "steps %d, tag %d", steps, o.Tag)
		}
	}

	// The other ranks continue.
	got := post(0, 2, 0, long, false, 0)
	post(2, 0, 0, long, true, 7)
	for engines[0].Advance() || engines[2].Advance() {
	}
	require.NoError(t, got.err)
	require.True(t, got.holds(7))

	again := got.dones
	e.PeerFailed(1, errCancel)
	e.PeerFailed(0, errCancel)
	e.PeerFailed(17, errCancel)
	require.Equal(t, again, got.dones)
}

// TestFailureTakesWhatArrived checks that fragments still in the channel count as arrived.
func TestFailureTakesWhatArrived(t *testing.T) {
	w := newWorld(t, 2, 8, 64<<10, nil)
	early := w.recv(0, AnySource, 1, 100)
	w.send(1, 0, 1, 100)
	w.send(1, 0, 2, 100)
	w.send(1, 0, 3, long+20_000) // only its request
	w.send(1, 0, 3, 100)
	e := w.engines[0]
	e.PeerFailed(1, errLost)
	require.NoError(t, early.err)
	require.Equal(t, 1, early.Source)
	require.NoError(t, w.recv(0, AnySource, 2, 100).err)

	var got []error
	e.done = func(_ *Request, err error) { got = append(got, err) }
	memory := make([]byte, long+20_000)
	requests := [3]Request{
		{Peer: 1, Tag: 3, Bytes: long + 20_000}, {Peer: 1, Tag: 3, Bytes: 100}, {Peer: 1, Tag: 3, Bytes: 100},
	}
	for i := range requests {
		requests[i].Data = unsafe.Pointer(&memory[0])
		e.Post(&requests[i])
	}
	require.Equal(t, []error{errLost, nil, errLost}, got, "the message that is lost keeps its turn")
}

// TestAnySourceOutlivesThoseWhoLeave has peers leave one after another while a receive from any
// rank waits. The last one sends its message, and the next receive ends when that one leaves, too.
func TestAnySourceOutlivesThoseWhoLeave(t *testing.T) {
	left := func(peer int) error { return fault.Peer(fault.PeerLeft, peer, "it has closed its end") }
	begin := func() (one, sender *Engine, receive func(peer int) *op) {
		chans := newNetwork(4, 8, 4096, nil).chans
		ops := map[*Request]*op{}
		one = New(0, chans[0], func(r *Request, err error) { ops[r].dones, ops[r].err = 1, err })
		sender = New(2, chans[2], func(*Request, error) {})
		return one, sender, func(peer int) *op {
			o := newOp(0, peer, 1, 100, false, 0)
			ops[&o.Request] = o
			one.Post(&o.Request)
			return o
		}
	}
	e, sender, receive := begin()
	first, named := receive(AnySource), receive(3)
	e.PeerFailed(3, left(3))
	e.PeerFailed(1, left(1))
	require.Equal(t, left(3), named.err)
	require.Zero(t, first.dones)
	message := newOp(2, 0, 1, 100, true, 7)
	sender.Post(&message.Request)
	for e.Advance() || sender.Advance() {
	}
	require.Equal(t, 1, first.dones)
	require.NoError(t, first.err)
	require.Equal(t, 2, first.Source)
	require.True(t, first.holds(7))

	second := receive(AnySource)
	require.Zero(t, second.dones)
	e.PeerFailed(2, left(2))
	require.Equal(t, left(2), second.err)
	require.Equal(t, left(2), receive(AnySource).err)

	// One that is lost may have been the sender.
	e, _, receive = begin()
	e.PeerFailed(3, left(3))
	third := receive(AnySource)
	e.PeerFailed(2, errLost)
	require.Equal(t, error(errLost), third.err)
}

// TestFailureForgetsWhatIsOwed blocks the channel, so that all sorts of answers wait; then the peer
// or the whole engine fails.
func TestFailureForgetsWhatIsOwed(t *testing.T) {
	for _, everything := range []bool{false, true} {
		net := newNetwork(2, 700, 1<<20, nil)
		dones, in, out := 0, net.pipes[1][0], net.pipes[0][1]
		e := New(0, net.chans[0], func(*Request, error) { dones++ })
		out.capacity = 64
		post := func(tag uint64, size int, send bool) *Request {
			o := newOp(0, 1, tag, size, send, 1)
			e.Post(&o.Request)
			return &o.Request
		}
		transmit := func(k kind, tag uint64, w1, w2 uint64, n int) {
			in.Reserve(n)
			in.Publish(n, &transport.Meta{word0(k, uint64(tag)), w1, w2})
		}
		cut := post(0, 100, true)
		require.Equal(t, leaving, cut.state)
		require.True(t, e.Cancel(cut, errCancel))
		out.ring = out.ring[:1] // now not even answers leave

		post(1, long, false)
		transmit(kindRequest, 1, long, 1, 0)
		post(2, long, false)
		transmit(kindRequest, 2, long+1, 2, 0)
		post(3, 8, false)
		transmit(kindEager, 3, 9, 0, 9)
		for range 600 {
			post(4, 1000, false)
			transmit(kindEager, 4, 1000, 0, 1000)
		}
		transmit(kindEager, 5, 1000, 0, 1000) // unexpected, whole
		for e.Advance() {
		}
		require.Equal(t, 603, dones)
		p := &e.peers[1]
		require.GreaterOrEqual(t, p.credit, creditDue)
		require.Equal(t, kindEagerMismatch, p.owed.tail.owe)
		require.True(t, p.leaving.active && e.Active())

		if everything {
			e.Fail(errLost)
			require.False(t, e.Active())
			require.Equal(t, 604, dones)
			continue
		}
		e.PeerFailed(1, nil)
		require.ErrorIs(t, p.err, fault.PeerLost)
		require.False(t, e.Active())
		require.Equal(t, 604, dones)
		post(5, 8, false) // too short
		require.Equal(t, 605, dones)
		require.False(t, e.Active())
		require.Zero(t, e.table.arrived)
	}
}

func TestFail(t *testing.T) {
	for steps := range 40 {
		chans := newNetwork(3, 2, 1024, nil).chans
		dones := map[*Request]int{}
		failed := fault.New(fault.Aborted, "by the test")
		var engines [2]*Engine
		for rank := range engines {
			engines[rank] = New(rank, chans[rank], func(r *Request, err error) {
				dones[r]++
				if rank == 0 && err != nil {
					require.Equal(t, error(failed), err)
				}
			})
		}
		memory := make([]byte, long+10_000)
		var requests []*Request
		post := func(rank, peer int, tag uint64, size int, send bool) *Request {
			r := &Request{Peer: peer, Tag: tag, Data: unsafe.Pointer(&memory[0]), Bytes: size, Send: send}
			if rank == 0 {
				requests = append(requests, r)
			}
			engines[rank].Post(r)
			return r
		}
		for tag, n := range []int{8, EagerLimit, long + 10_000, long - 10_000} {
			for rank := range 2 {
				post(rank, 1-rank, uint64(tag), n, true)
				if tag != 3 {
					post(rank, 1-rank, uint64(tag), n, false)
				}
			}
			post(0, 0, 60, long+10_000, true)
		}
		post(0, AnySource, 70, 8, false)
		post(0, 2, 70, 8, false)
		for i := range steps {
			engines[i%2].Advance()
		}
		cut := post(0, 1, 71, EagerLimit, true)
		engines[0].Cancel(cut, failed)
		e := engines[0]
		e.Fail(failed)
		require.False(t, e.Active())
		require.False(t, e.Advance())
		post(0, 1, 0, 8, true)
		post(0, 1, 0, 8, false)
		e.Fail(errCancel)
		for _, r := range requests {
			require.Equal(t, 1, dones[r])
		}
	}
}

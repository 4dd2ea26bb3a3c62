package p2p

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// long is the length of a message that is not eager.
const long = EagerLimit + 16_000

const guard = 32 // bytes before and behind each buffer

// op is a request of a test, with guards around its memory and the reference matcher's record of
// it.
type op struct {
	Request
	rank   int
	seed   uint64
	memory []byte

	match     *op // of a receive: the send that it gets; of a send: the receive
	eager     bool
	announced bool
	cancelled bool

	dones int
	err   error
}

func newOp(rank, peer int, tag uint64, size int, send bool, seed uint64) *op {
	o := &op{Request: Request{Peer: peer, Tag: tag, Bytes: size, Send: send}, rank: rank, seed: seed}
	o.memory = make([]byte, size+2*guard)
	for i := range guard {
		o.memory[i], o.memory[guard+size+i] = 0xA5, 0xA5
	}
	if size > 0 {
		o.Data = unsafe.Pointer(&o.memory[guard])
	}
	o.fill(seed)
	return o
}

func (o *op) data() []byte { return o.memory[guard : guard+o.Bytes] }

// noise is the source of the messages' contents; the seed of a message gives its offset.
var noise = func() []byte {
	b := make([]byte, 3*FarLimit+1<<20)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}()

func (o *op) pattern(seed uint64) []byte {
	return noise[seed*0x9E3779B97F4A7C15>>44:][:o.Bytes] // offsets below 1 MiB
}

// fill writes the pattern of the seed. Receives are filled too, so that a wrong write is noticed.
func (o *op) fill(seed uint64) { copy(o.data(), o.pattern(seed)) }

// holds reports whether the memory has the pattern of the seed and the guards are intact.
func (o *op) holds(seed uint64) bool { return o.guarded() && bytes.Equal(o.data(), o.pattern(seed)) }

func (o *op) guarded() bool {
	for i := range guard {
		if o.memory[i] != 0xA5 || o.memory[guard+o.Bytes+i] != 0xA5 {
			return false
		}
	}
	return true
}

// world is a group of engines over fake channels, and beside it a reference matcher: the plainest
// queues, which the channels notify of each departure and arrival.
type world struct {
	t       testing.TB
	net     *network
	engines []*Engine
	byReq   map[*Request]*op
	ops     []*op

	pending  [][][]*op // [source][dest], not announced
	flying   [][][]*op // announced, not arrived
	posted   [][]*op   // [rank] receives without a message
	arrived  [][]*op   // [rank] sends without a receive
	mismatch bool      // some length was wrong: sends may report a mismatch

	straight, halfway int // requests that Direct completed; requests that it began

	direct *rand.Rand // if not nil: half of the requests are tried with Direct first
}

func newWorld(t testing.TB, ranks, fragments, capacity int, rng *rand.Rand) *world {
	w := &world{t: t, net: newNetwork(ranks, fragments, capacity, rng), byReq: map[*Request]*op{}}
	w.posted, w.arrived = make([][]*op, ranks), make([][]*op, ranks)
	for s := range ranks {
		w.pending, w.flying = append(w.pending, make([][]*op, ranks)), append(w.flying, make([][]*op, ranks))
		w.engines = append(w.engines, New(s, w.net.chans[s], w.done))
		for d := range ranks {
			if s == d {
				continue
			}
			w.net.pipes[s][d].onPublish = func(m transport.Meta) {
				if k, _ := parse(&m); begins(k) {
					o := w.pending[s][d][0]
					o.announced, o.eager = true, k == kindEager
					w.pending[s][d] = w.pending[s][d][1:]
					w.flying[s][d] = append(w.flying[s][d], o)
				}
			}
			w.net.pipes[s][d].onConsume = func(m transport.Meta) {
				if k, _ := parse(&m); begins(k) {
					o := w.flying[s][d][0]
					w.flying[s][d] = w.flying[s][d][1:]
					w.arrive(d, o)
				}
			}
		}
	}
	return w
}

// begins reports whether a fragment is the first of a message.
func begins(k kind) bool {
	return k == kindEager || k == kindRequest || k == kindHead || k == kindFarHead
}

// far makes some of the ranks far from some others, as they see it themselves.
func (w *world) far(rng *rand.Rand) {
	for s, e := range w.engines {
		for d := range w.engines {
			if s != d && rng.IntN(2) == 0 {
				e.SetFar(d)
			}
		}
	}
}

func accepts(r, s *op) bool { return (r.Peer == AnySource || r.Peer == s.rank) && r.Tag == s.Tag }

func (w *world) pair(r, s *op) {
	r.match, s.match = s, r
	w.mismatch = w.mismatch || r.Bytes != s.Bytes
}

func (w *world) arrive(rank int, s *op) {
	i := slices.IndexFunc(w.posted[rank], func(r *op) bool { return accepts(r, s) })
	if i < 0 {
		w.arrived[rank] = append(w.arrived[rank], s)
		return
	}
	w.pair(w.posted[rank][i], s)
	w.posted[rank] = slices.Delete(w.posted[rank], i, i+1)
}

func (w *world) send(from, to int, tag uint64, size int) *op {
	o := newOp(from, to, tag, size, true, uint64(len(w.ops)))
	w.ops, w.byReq[&o.Request] = append(w.ops, o), o
	if from == to {
		o.announced = true
		w.arrive(to, o)
	} else {
		w.pending[from][to] = append(w.pending[from][to], o)
	}
	w.post(o)
	return o
}

func (w *world) recv(at, from int, tag uint64, size int) *op {
	o := newOp(at, from, tag, size, false, uint64(len(w.ops)))
	w.ops, w.byReq[&o.Request] = append(w.ops, o), o
	if i := slices.IndexFunc(w.arrived[at], func(s *op) bool { return accepts(o, s) }); i >= 0 {
		w.pair(o, w.arrived[at][i])
		w.arrived[at] = slices.Delete(w.arrived[at], i, i+1)
	} else {
		w.posted[at] = append(w.posted[at], o)
	}
	w.post(o)
	return o
}

// post gives a request to its engine, with Direct or with Post.
func (w *world) post(o *op) {
	e := w.engines[o.rank]
	if w.direct != nil && w.direct.IntN(2) == 0 {
		outcome := e.Direct(&o.Request)
		for (outcome == Later || outcome == Begun) && w.direct.IntN(3) > 0 {
			w.engines[w.direct.IntN(len(w.engines))].Advance()
			if o.dones > 0 { // Direct began it, and the engine completed it
				return
			}
			outcome = e.Direct(&o.Request)
		}
		switch outcome {
		case Done:
			w.straight++
			w.done(&o.Request, nil)
			return
		case Begun:
			w.halfway++
			return
		}
	}
	e.Post(&o.Request)
}

var errCancel = fault.New(fault.Timeout, "cancelled by the test")

// cancel cancels an op and overwrites its memory: the engine may neither read nor write it any
// more.
func (w *world) cancel(o *op) bool {
	if o.dones > 0 {
		require.False(w.t, w.engines[o.rank].Cancel(&o.Request, errCancel))
		return false
	}
	o.cancelled = true
	if !w.engines[o.rank].Cancel(&o.Request, errCancel) {
		o.cancelled = false
		return false
	}
	o.seed ^= 0xDEAD
	o.fill(o.seed)
	isO := func(x *op) bool { return x == o }
	if !o.Send {
		w.posted[o.rank] = slices.DeleteFunc(w.posted[o.rank], isO)
	} else if !o.announced {
		w.pending[o.rank][o.Peer] = slices.DeleteFunc(w.pending[o.rank][o.Peer], isO)
	} else if o.Peer == o.rank {
		w.arrived[o.rank] = slices.DeleteFunc(w.arrived[o.rank], isO)
	}
	return true
}

func (w *world) done(r *Request, err error) {
	o := w.byReq[r]
	o.dones++
	o.err = err
	require.Equal(w.t, 1, o.dones, "done twice")
	switch {
	case o.cancelled:
		require.Equal(w.t, error(errCancel), err)
	case o.Send:
		w.checkSend(o)
	default:
		w.checkReceive(o)
	}
}

func (w *world) checkSend(o *op) {
	require.True(w.t, o.holds(o.seed), "a send wrote")
	switch {
	case !o.eager && o.match != nil && o.match.Bytes != o.Bytes && o.rank != o.Peer:
		require.ErrorIs(w.t, o.err, fault.Mismatch)
	case w.mismatch && o.err != nil:
		require.ErrorIs(w.t, o.err, fault.Mismatch)
	default:
		require.NoError(w.t, o.err)
	}
}

func (w *world) checkReceive(o *op) {
	s := o.match
	require.NotNil(w.t, s, "a receive was done without a message: %v", o.err)
	require.Equal(w.t, s.rank, o.Source)
	switch {
	case s.Bytes != o.Bytes:
		require.ErrorIs(w.t, o.err, fault.Mismatch)
	case s.cancelled && !s.eager && s.Bytes > 0:
		require.ErrorIs(w.t, o.err, fault.Aborted)
		return // part of it was written
	default:
		require.NoError(w.t, o.err)
		seed := s.seed
		if s.cancelled {
			seed ^= 0xDEAD // as it was before Cancel
		}
		require.True(w.t, o.holds(seed), "wrong bytes: tag %d, %d bytes, rank %d to %d", o.Tag, o.Bytes, s.rank, o.rank)
	}
}

// settle advances all engines until nothing moves. First it advances only active ones: no receive
// may need more than that.
func (w *world) settle() {
	w.net.calm()
	w.advanceWhile(func(e *Engine) bool { return e.Active() })
	var open []*op
	for _, o := range w.ops {
		if !o.Send && o.dones == 0 {
			open = append(open, o)
		}
	}
	w.advanceWhile(func(*Engine) bool { return true })
	for _, o := range open {
		require.Zero(w.t, o.dones, "a receive was done by an engine that is not active: rank %d, peer %d, tag %d",
			o.rank, o.Peer, o.Tag)
	}
}

func (w *world) advanceWhile(active func(*Engine) bool) {
	for moved := true; moved; {
		moved = false
		for _, e := range w.engines {
			moved = active(e) && e.Advance() || moved
		}
	}
}

// checkQuiet asserts that exactly the ops that were matched, cancelled or sent eagerly are done.
func (w *world) checkQuiet() {
	for i, o := range w.ops {
		want := o.cancelled || o.match != nil || o.eager
		if o.Send && o.rank == o.Peer && o.Bytes <= EagerLimit {
			want = o.dones == 1 // eager while the window lasts
		}
		require.Equal(w.t, want, o.dones == 1, "op %d: send %v, rank %d, peer %d, tag %d, %d bytes",
			i, o.Send, o.rank, o.Peer, o.Tag, o.Bytes)
		if o.cancelled {
			require.True(w.t, o.holds(o.seed), "op %d was touched after Cancel", i)
		}
	}
}

// finish gives every op a partner or cancels it, and asserts that the engines are as new.
func (w *world) finish() {
	w.settle()
	w.checkQuiet()
	for rank := range w.engines {
		for len(w.posted[rank]) > 0 {
			require.True(w.t, w.cancel(w.posted[rank][0]))
		}
	}
	for again := true; again; {
		again = false
		for rank := range w.engines {
			for len(w.arrived[rank]) > 0 {
				s := w.arrived[rank][0]
				w.recv(rank, s.rank, s.Tag, s.Bytes)
				again = true
			}
		}
		w.settle()
	}
	w.checkQuiet()
	for rank, e := range w.engines {
		require.False(w.t, e.Active(), "rank %d: %d live, %d debts", rank, e.live, e.debts)
		require.Zero(w.t, e.table.arrived)
		for i := range e.peers {
			p := &e.peers[i]
			require.Zero(w.t, p.announced)
			require.Zero(w.t, p.asked)
			require.Equal(w.t, p.credit, p.held)
			require.Equal(w.t, p.whole, p.window+w.engines[i].peers[rank].held)
			for _, s := range p.slots.entries {
				require.Nil(w.t, s.msg)
			}
		}
	}
}

func isMismatch(err error, lengths ...string) bool {
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.Mismatch || f.Peer < 0 {
		return false
	}
	for _, l := range lengths {
		if !strings.Contains(f.Text, l) {
			return false
		}
	}
	return true
}

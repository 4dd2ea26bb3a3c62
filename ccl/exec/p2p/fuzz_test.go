package p2p

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// script is the byte string that plays the hostile peer.
type script struct{ rest []byte }

func (s *script) byte() byte {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return b
}

func (s *script) word() uint64 {
	var w [8]byte
	s.rest = s.rest[copy(w[:], s.rest):]
	return binary.LittleEndian.Uint64(w[:])
}

// number returns a value that is often meaningful: small, near a limit, an id that exists, or
// anything.
func (s *script) number() uint64 {
	b := s.byte()
	switch small := uint64(b >> 3); b & 7 {
	case 0, 1:
		return small
	case 2:
		return small * 1000
	case 3:
		return EagerLimit - 2 + small
	case 4, 5:
		return (1+small&3)<<32 | small>>2 // a generation and an index
	case 6:
		return long
	default:
		return s.word()
	}
}

// The actions of a script are these bytes; lower ones are kinds of fragments.
const (
	stepFragment = 16 + iota
	stepGarbage
	stepAdvance
	stepReceive
	stepSend
	stepCancel
	stepFail
	stepFill
	steps
)

// FuzzHostilePeer lets a peer send anything. The engine must not panic, must not write outside
// posted buffers, into a send's memory or after the end of a request, must use bounded memory, and
// must end each request once.
func FuzzHostilePeer(f *testing.F) {
	for _, seed := range hostileSeeds() {
		f.Add(seed)
	}
	f.Fuzz(hostile)
}

func hostile(t *testing.T, data []byte) {
	if len(data) > 4096 {
		return
	}
	s := &script{data}
	net := newNetwork(2, 4, 32<<10, nil)
	in, out := net.pipes[1][0], net.pipes[0][1]
	byReq := map[*Request]*op{}
	var ops []*op
	payload := make([]byte, 64<<10)
	for i := range payload {
		payload[i] = 0x5C
	}
	e := New(0, net.chans[0], func(r *Request, err error) {
		o := byReq[r]
		o.dones++
		// From here on the memory belongs to its owner.
		require.True(t, o.guarded(), "written outside of a buffer")
		if o.Send {
			require.True(t, o.holds(o.seed), "a send was written")
		}
		o.fill(o.seed)
	})
	direct := false
	post := func(tag uint64, size int, send bool) {
		peer := 1
		if !send && tag == 0 {
			peer = AnySource
		}
		o := newOp(0, peer, tag, size, send, uint64(len(ops)))
		ops, byReq[&o.Request] = append(ops, o), o
		if direct = !direct; direct {
			switch e.Direct(&o.Request) {
			case Done:
				e.done(&o.Request, nil)
				return
			case Begun:
				return
			}
		}
		e.Post(&o.Request)
	}
	sizes := []int{0, 1, 64, 1000, EagerLimit, EagerLimit + 1, long}
	transmit := func(m transport.Meta, n int) {
		n = min(n, len(payload))
		if lent := in.Reserve(n); lent != nil {
			in.Publish(copy(lent, payload[:n]), &m)
		}
	}
	for len(s.rest) > 0 && len(ops) < 64 {
		switch b := s.byte() % steps; b {
		default:
			k := uint64(b)
			transmit(transport.Meta{word0(kind(k), uint64(s.byte()&3)), s.number(), s.number()},
				int(s.number()%(70<<10)))
		case stepGarbage:
			transmit(transport.Meta{s.word(), s.word(), s.word()}, int(s.byte()))
		case stepAdvance:
			e.Advance()
			for range s.byte() & 3 {
				if _, m := out.Look(); m != nil {
					out.Consume()
				}
			}
		case stepReceive, stepSend:
			c := s.byte()
			post(uint64(c&3), sizes[int(c>>2)%len(sizes)], b == stepSend)
		case stepCancel:
			if len(ops) > 0 {
				o := ops[int(s.byte())%len(ops)]
				require.Equal(t, o.dones == 0, e.Cancel(&o.Request, errCancel))
			}
		case stepFill: // Direct continues a request that Direct has begun
			if f := &e.peers[1].filling; f.req != nil {
				if r := f.req; e.Direct(r) == Done {
					e.done(r, nil)
				}
			}
		case stepFail:
			e.PeerFailed(1, errLost)
		}
		buffers, _ := footprint(e)
		require.LessOrEqual(t, buffers, FarWindow)
	}
	for e.Advance() {
		for _, m := out.Look(); m != nil; _, m = out.Look() {
			out.Consume()
		}
	}
	e.Fail(fault.New(fault.Aborted, "end"))
	require.False(t, e.Active())
	for _, o := range ops {
		require.Equal(t, 1, o.dones)
		require.True(t, o.holds(o.seed), "written after the end of a request")
	}
}

func TestHostileSeeds(t *testing.T) {
	for _, seed := range hostileSeeds() {
		hostile(t, seed)
	}
}

// hostileSeeds returns scripts that follow the protocol for a while.
func hostileSeeds() [][]byte {
	small := func(n byte) byte { return n << 3 }
	const id1, twenty = 4, 6 // number() of these bytes: generation 1 with index 0, and long
	receive := func(tag, size byte) []byte { return []byte{stepReceive, tag | size<<2} }
	send := func(tag, size byte) []byte { return []byte{stepSend, tag | size<<2} }
	fragment := func(k kind, tag, w1, w2, n byte) []byte { return []byte{byte(k), tag, w1, w2, n} }
	advance, cancel, fail := []byte{stepAdvance, 3}, []byte{stepCancel, 0}, []byte{stepFail}
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	return [][]byte{
		join(receive(1, 1), fragment(kindEager, 1, small(1), 0, small(1)), advance),
		join(fragment(kindEager, 1, small(2), 0, small(1)), advance, receive(1, 1),
			fragment(kindEagerRest, 1, small(1), 0, small(1)), advance),
		join(receive(1, 6), fragment(kindRequest, 1, twenty, 0, 0), advance,
			fragment(kindData, 1, 0, id1, twenty), advance),
		join(receive(1, 6), fragment(kindRequest, 1, twenty, 0, 0), advance,
			fragment(kindData, 1, 0, id1, small(9)), advance, cancel,
			fragment(kindData, 1, small(9), id1, small(9)), advance, fragment(kindAbort, 1, 0, id1, 0), advance),
		join(send(1, 6), advance, fragment(kindClear, 1, small(3), id1, 0), advance, advance),
		join(send(1, 6), advance, fragment(kindMismatch, 1, small(3), id1, 0), advance, advance),
		join(send(1, 6), advance, cancel, fragment(kindClear, 1, small(3), id1, 0), advance, fail),
		join(send(1, 2), advance, fragment(kindEagerMismatch, 1, small(3), 2<<3, 0),
			fragment(kindCredit, 0, small(5), 0, 0), advance, advance),
		join(receive(0, 3), receive(2, 3), fragment(kindEager, 0, 1<<3|2, 0, 1<<3|2), fail,
			[]byte{stepGarbage}, make([]byte, 25), advance),
	}
}

// TestProtocolErrors checks that each violation of the protocol ends in a fault.Internal that names
// the peer.
func TestProtocolErrors(t *testing.T) {
	meta := func(k kind, w1, w2 uint64) transport.Meta {
		return transport.Meta{word0(k, 1), w1, w2}
	}
	const clearedID, askingID = 1<<32 | 1, 1 << 32 // of the receive and the send below
	for name, c := range map[string]struct {
		meta transport.Meta
		n    int
	}{
		"no magic":                 {transport.Meta{}, 0},
		"unknown kind":             {meta(77, 0, 0), 0},
		"eager too long":           {meta(kindEager, FarLimit+1, 0), 10},
		"eager without bytes":      {meta(kindEager, 10, 0), 0},
		"eager with more bytes":    {meta(kindEager, 10, 0), 11},
		"rest of nothing":          {meta(kindEagerRest, 0, 0), 10},
		"request with payload":     {meta(kindRequest, 10, 0), 1},
		"request beyond memory":    {meta(kindRequest, 1<<63, 0), 0},
		"clear of unknown id":      {meta(kindClear, 0, 12345), 0},
		"clear of an incoming id":  {meta(kindClear, 0, clearedID), 0},
		"mismatch of unknown id":   {meta(kindMismatch, 0, askingID+1<<32), 0},
		"mismatch of wild length":  {meta(kindMismatch, 1<<63, askingID), 0},
		"data for an outgoing id":  {meta(kindData, 0, askingID), 10},
		"data at the wrong offset": {meta(kindData, 8, clearedID), 10},
		"data without bytes":       {meta(kindData, 0, clearedID), 0},
		"data beyond the end":      {meta(kindData, 0, clearedID), long + 1},
		"abort of unknown id":      {meta(kindAbort, 0, 99), 0},
		"credit of nothing":        {meta(kindCredit, 0, 0), 0},
		"credit that is not out":   {meta(kindCredit, EagerWindow, 0), 0},
		"head too short":           {meta(kindHead, EagerLimit, 7), 0},
		"far head too short":       {meta(kindFarHead, FarLimit, 7), 0},
		"head beyond memory":       {meta(kindHead, 1<<63, 7), 0},
		"credit with eager":        {meta(kindEager, 10, EagerWindow), 10},
		"mismatch without send":    {meta(kindEagerMismatch, 0, EagerLimit), 0},
	} {
		t.Run(name, func(t *testing.T) {
			net := newNetwork(2, 8, 512<<10, nil)
			var errs []error
			e := New(0, net.chans[0], func(_ *Request, err error) { errs = append(errs, err) })
			s, r := newOp(0, 1, 1, long, true, 1), newOp(0, 1, 1, long, false, 2)
			e.Post(&s.Request)
			e.Post(&r.Request)
			in := net.pipes[1][0]
			request := meta(kindRequest, long, 5)
			in.Reserve(0)
			in.Publish(0, &request)
			e.Advance()
			require.Empty(t, errs)
			require.NotNil(t, in.Reserve(c.n))
			in.Publish(c.n, &c.meta)
			e.Advance()
			require.Len(t, errs, 2)
			for _, err := range errs {
				require.ErrorIs(t, err, fault.Internal)
				require.ErrorContains(t, err, "rank 1")
			}
			require.True(t, r.holds(2))
			require.False(t, e.Active())
		})
	}
}

// TestPeerLimits checks that the engine refuses a peer that sends more than it may keep here.
func TestPeerLimits(t *testing.T) {
	for name, m := range map[string]struct {
		kind    kind
		length  int
		allowed int
	}{
		"eager messages":       {kindEager, 1000, FarWindow / eagerCost(1000)},
		"empty eager messages": {kindEager, 0, FarWindow / recordCost},
		"requests":             {kindRequest, long, MaxAnnounced},
		"heads":                {kindHead, long, FarWindow / eagerCost(headBytes)},
		"eager in another":     {kindEager, 1001, 1}, // of which only 1000 bytes arrive
	} {
		t.Run(name, func(t *testing.T) {
			net := newNetwork(2, 8, 32<<10, nil)
			e := New(0, net.chans[0], func(*Request, error) {})
			in := net.pipes[1][0]
			meta := transport.Meta{word0(m.kind, 0), uint64(m.length), 0}
			n := min(m.length, 1000)
			if m.kind == kindRequest || m.kind == kindHead {
				n = 0
			}
			for i := range m.allowed + 1 {
				require.NoError(t, e.peers[1].err, "after %d", i)
				in.Reserve(n)
				in.Publish(n, &meta)
				e.Advance()
				if m.kind == kindHead && i < m.allowed {
					in.Reserve(headBytes)
					in.Publish(headBytes, &transport.Meta{word0(kindEagerRest, 0), 0, 0})
					e.Advance()
				}
			}
			require.ErrorIs(t, e.peers[1].err, fault.Internal)
		})
	}
}

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

// TestDirectDeclines checks that Direct does nothing where something is in the way of a request.
func TestDirectDeclines(t *testing.T) {
	w := newWorld(t, 2, 4, 128<<10, nil)
	e := w.engines[0]
	memory := make([]byte, EagerLimit+1)
	request := func(peer int, tag uint64, size int, send bool) *Request {
		return &Request{Peer: peer, Tag: tag, Data: unsafe.Pointer(&memory[0]), Bytes: size, Send: send}
	}
	check := func(want Outcome, r *Request, why string) {
		t.Helper()
		require.Equal(t, want, e.Direct(r), why)
		require.Equal(t, idle, r.state)
	}
	check(General, request(0, 1, 8, true), "to oneself")
	check(General, request(2, 1, 8, true), "there is no such rank")
	check(General, request(-2, 1, 8, false), "there is no such rank")
	check(General, request(AnySource, 1, 8, false), "of any rank")
	check(General, request(1, 1, EagerLimit+1, true), "too long")
	check(General, request(1, 1, EagerLimit+1, false), "too long")
	check(General, request(1, 1, -1, true), "a length below zero")
	check(General, &Request{Peer: 1, Bytes: 8}, "no memory")
	check(Later, request(1, 1, 8, false), "nothing has arrived")

	w.send(1, 0, 1, 8)
	check(General, request(1, 2, 8, false), "another tag")
	check(General, request(1, 1, 9, false), "another length")
	early := w.recv(0, 1, 3, 8)
	check(General, request(1, 1, 8, false), "an older receive")
	require.True(t, w.cancel(early))
	r := w.recv(0, 1, 1, 8)
	e.Advance()
	require.Equal(t, 1, r.dones)

	w.send(1, 0, 1, 8)
	w.send(1, 0, 2, 8)
	for e.Advance() {
	}
	check(General, request(1, 1, 8, false), "it came before")
	w.send(1, 0, 4, 8)
	w.direct = rand.New(rand.NewPCG(1, 1))
	for w.straight == 0 { // unexpected messages of other tags are not in the way
		w.recv(0, 1, 4, 8)
		w.send(1, 0, 4, 8)
	}
	w.finish()
}

// TestDirectWithoutCredit checks that Direct spends no credit twice and uses returned credit at
// once.
func TestDirectWithoutCredit(t *testing.T) {
	chans := newNetwork(2, 64, 1<<20, nil).chans
	var engines [2]*Engine
	for rank := range engines {
		engines[rank] = New(rank, chans[rank], func(_ *Request, err error) { require.NoError(t, err) })
	}
	memory := make([]byte, EagerLimit)
	request := func(peer int, send bool) *Request {
		return &Request{Peer: peer, Data: unsafe.Pointer(&memory[0]), Bytes: EagerLimit, Send: send}
	}
	sends := EagerWindow / eagerCost(EagerLimit)
	for range 5 {
		for range sends {
			require.Equal(t, Done, engines[0].Direct(request(1, true)))
		}
		require.Equal(t, General, engines[0].Direct(request(1, true)))
		for range sends {
			require.Equal(t, Done, engines[1].Direct(request(0, false)))
		}
		require.Equal(t, Later, engines[1].Direct(request(0, false)))
		// The credit of two messages has come back by itself; the rest comes with a message the
		// other way.
		require.Equal(t, Done, engines[1].Direct(request(0, true)))
		require.Equal(t, Done, engines[0].Direct(request(1, false)))
	}
	require.False(t, engines[0].Active() || engines[1].Active())
}

// TestDirectHalfway ends requests whose messages Direct has moved in part.
func TestDirectHalfway(t *testing.T) {
	const size = 40_000
	lost := fault.Peer(fault.PeerLost, 0, "died")
	for name, end := range map[string]func(e *Engine, r *Request){
		"cancel": func(e *Engine, r *Request) { require.True(t, e.Cancel(r, errCancel)) },
		"peer":   func(e *Engine, _ *Request) { e.PeerFailed(1, lost); e.PeerFailed(0, lost) },
		"fail":   func(e *Engine, _ *Request) { e.Fail(errCancel) },
	} {
		for _, sending := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, sending %v", name, sending), func(t *testing.T) {
				net := newNetwork(2, 2, 1<<20, nil)
				var engines [2]*Engine
				dones := map[*Request]int{}
				for rank := range engines {
					engines[rank] = New(rank, net.chans[rank], func(r *Request, _ error) { dones[r]++ })
				}
				s, r := newOp(0, 1, 7, size, true, 1), newOp(1, 0, 7, size, false, 2)
				require.Equal(t, Begun, engines[0].Direct(&s.Request))
				require.Equal(t, Begun, engines[0].Direct(&s.Request))
				if sending {
					end(engines[0], &s.Request)
					require.Equal(t, map[*Request]int{&s.Request: 1}, dones)
				} else {
					require.Equal(t, Begun, engines[1].Direct(&r.Request))
					end(engines[1], &r.Request)
					require.Equal(t, map[*Request]int{&r.Request: 1}, dones)
				}
				for moved := true; moved; {
					moved = engines[0].Advance()
					moved = engines[1].Advance() || moved
				}
				if name == "cancel" { // later messages are not disturbed
					if sending {
						require.Equal(t, 1, engines[1].table.arrived, "the message arrives all the same")
						engines[1].Post(&r.Request)
						require.True(t, r.holds(1))
						require.Equal(t, 1, dones[&r.Request])
					}
					next, got := newOp(0, 1, 7, 100, true, 3), newOp(1, 0, 7, 100, false, 4)
					require.Equal(t, Done, engines[0].Direct(&next.Request))
					require.Equal(t, Done, engines[1].Direct(&got.Request))
					require.True(t, got.holds(3))
					require.False(t, engines[0].Active() || engines[1].Active())
				}
			})
		}
	}
}

// TestDirectDoesNotAllocate also covers pairs of ranks of which only one uses Direct.
func TestDirectDoesNotAllocate(t *testing.T) {
	sizes := []int{8, 1000, 20_000, EagerLimit}
	if testing.Short() {
		sizes = sizes[1:2]
	}
	for _, size := range sizes {
		for _, direct := range [][2]bool{{true, true}, {true, false}, {false, true}} {
			t.Run(fmt.Sprint(size, direct), func(t *testing.T) {
				p := newPair(size)
				do := func(rank int, r *Request) {
					if direct[rank] {
						switch p.engines[rank].Direct(r) {
						case Done:
							p.finished++
							return
						case Begun:
							return
						}
					}
					p.engines[rank].Post(r)
				}
				step := func() {
					for from := range p.engines {
						p.finished = 0
						do(from, &p.send[from])
						do(1-from, &p.receive[1-from])
						for p.finished < 2 {
							p.engines[1-from].Advance()
							p.engines[from].Advance()
						}
					}
				}
				for range 600 {
					step()
				}
				require.Zero(t, testing.AllocsPerRun(300, step))
				require.NoError(t, p.err)
			})
		}
	}
}

// TestDirectRefusesNonsense checks that Direct leaves invalid fragments to the engine, which
// reports them.
func TestDirectRefusesNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		meta transport.Meta
		n    int
	}{
		"no magic":              {transport.Meta{}, 8},
		"eager with more bytes": {transport.Meta{word0(kindEager, 0), 8, 0}, 9},
		"eager without bytes":   {transport.Meta{word0(kindEager, 0), 8, 0}, 0},
		"credit that is not":    {transport.Meta{word0(kindEager, 0), 8, 64}, 8},
		"more credit":           {transport.Meta{word0(kindCredit, 0), 64, 0}, 0},
		"credit with payload":   {transport.Meta{word0(kindCredit, 0), 64, 0}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			net := newNetwork(2, 8, 1024, nil)
			var err error
			e := New(0, net.chans[0], func(_ *Request, ended error) { err = ended })
			o := newOp(0, 1, 0, 8, false, 1)
			in := net.pipes[1][0]
			in.Reserve(c.n)
			in.Publish(c.n, &c.meta)
			require.Equal(t, General, e.Direct(&o.Request))
			require.True(t, o.holds(1))
			e.Post(&o.Request)
			e.Advance()
			require.ErrorIs(t, err, fault.Internal)
		})
	}
}

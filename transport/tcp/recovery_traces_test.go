//go:build !race

package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// triple is three ranks, of which each two have a link. Links have nothing in common but the
// processes at their ends.
type triple struct {
	links        [3]link
	breaks, dies uint8
	dead         int8 // none, or the rank that has died
}

// between lists the ranks of each link.
var between = [3][2]int8{{0, 1}, {0, 2}, {1, 2}}

func (mu *mutant) ofThree(w triple, do func(step string, fair bool, to triple)) {
	for i := range w.links {
		l := w.links[i]
		l.breaks = w.breaks
		name := fmt.Sprintf("%d-%d ", between[i][0], between[i][1])
		m := &mover{mu: mu, do: func(step string, fair bool, to *link) {
			next := w
			next.links[i], next.breaks = *to, to.breaks
			next.links[i].breaks = 0
			do(name+step, fair, next)
		}}
		m.next(&l)
	}
	for rank := int8(0); rank < 3 && w.dies > 0; rank++ {
		next := w
		next.dies, next.dead = w.dies-1, rank
		for i, ends := range between {
			if side := slices.Index(ends[:], rank); side >= 0 {
				next.links[i].die(side)
			}
		}
		do(fmt.Sprintf("%d dies", rank), false, next)
	}
}

func (w triple) fault() string { return w.links[0].wrong + w.links[1].wrong + w.links[2].wrong }

// rest also requires that links between ranks that live stay as they are.
func (w triple) rest() string {
	for i := range w.links {
		l := &w.links[i]
		if text := l.rest(); text != "" {
			return fmt.Sprintf("link %v: %s", between[i], text)
		}
		over := l.sides[0].outcome != stillOpen || l.sides[1].outcome != stillOpen
		if over && !slices.Contains(between[i][:], w.dead) {
			return fmt.Sprintf("link %v ended because of rank %d", between[i], w.dead)
		}
	}
	return ""
}

// TestRecoveryOfThree has a path break, and a process die, among three ranks. To keep the number of
// states low, two of the links carry one fragment each.
func TestRecoveryOfThree(t *testing.T) {
	for _, tt := range []struct {
		breaks, dies uint8
		large        bool
	}{{1, 0, false}, {0, 1, false}, {1, 1, true}} {
		if tt.large && !*full {
			continue
		}
		t.Run(fmt.Sprintf("breaks %d, deaths %d", tt.breaks, tt.dies), func(t *testing.T) {
			w := triple{breaks: tt.breaks, dies: tt.dies, dead: none}
			for i, send := range [3][2]uint8{{1, 0}, {0, 1}, {0, 0}} {
				w.links[i] = (&scenario{send: send}).start()
			}
			states, why := explore(w, (&mutant{}).ofThree, triple.fault, triple.rest, mostStates)
			t.Logf("%d states", states)
			require.Empty(t, why)
		})
	}
}

// TestRecoveryTraces takes random ways through the model, and has two fabrics do the same over a
// relay: publish, consume, leave, break, and read in this order. They end up as the model does.
func TestRecoveryTraces(t *testing.T) {
	walks := 60
	if testing.Short() {
		walks = 10
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	a, b, _, _ := ordered(t, nil)
	viaA, addressA := newRelay(t, a)
	viaB, addressB := newRelay(t, b)
	steps, breaks := 0, 0
	for walk := range walks {
		flip := func() bool { return random.IntN(3) == 0 }
		sc := scenario{send: [2]uint8{uint8(random.IntN(6)), uint8(random.IntN(6))}, leave: [2]bool{flip(), flip()},
			breaks: uint8(random.IntN(3))}
		la, lb := joinVia(t, a, b, addressA, addressB, byte(walk), 1)
		r := &replay{t: t, fabrics: [2]*Fabric{a, b}, ends: [2]*session{la, lb}, relays: [2]*relay{viaA, viaB}}
		l := sc.start()
		for {
			var names []string
			var all []link
			m := &mover{mu: &mutant{}, do: func(step string, _ bool, to *link) {
				names, all = append(names, step), append(all, *to)
			}}
			m.next(&l)
			if len(all) == 0 {
				break
			}
			i := random.IntN(len(all))
			l = all[i]
			r.step(names[i])
			steps++
			if strings.HasSuffix(names[i], "break") {
				breaks++
			}
		}
		require.Empty(t, l.rest())
		r.finish(&l)
	}
	t.Logf("%d walks, %d steps, %d breaks, %d and %d connections", walks, steps, breaks, viaA.count(), viaB.count())
	require.NotZero(t, breaks)
}

// replay is a link of two fabrics that does what the model does.
type replay struct {
	t              *testing.T
	fabrics        [2]*Fabric
	ends           [2]*session
	relays         [2]*relay
	sent, received [2]int
}

var because = []byte("the reason")

func (r *replay) step(name string) {
	side := strings.Index("AB", name[:1])
	ch := r.ends[side].Channel(0)
	switch name[2:] {
	case "publish":
		if space := ch.Reserve(8); space != nil { // otherwise the peer's goodbye came earlier than in the model
			copy(space, fmt.Sprintf("%08d", r.sent[side]))
			ch.Commit(8, &transport.Meta{uint64(r.sent[side])})
			r.sent[side]++
		}
	case "consume":
		r.until("a fragment", func() bool { return r.take(side) || r.received[side] == r.sent[1-side] })
	case "leave":
		require.NoError(r.t, r.ends[side].Leave(because))
	case "break":
		for _, via := range r.relays {
			via.reset()
		}
	case "read", "notice":
		r.fabrics[side].Poll()
	}
}

// take consumes a fragment, if there is one.
func (r *replay) take(side int) bool {
	ch := r.ends[side].Channel(0)
	payload, meta, ok := ch.Peek()
	if !ok {
		return false
	}
	require.Equal(r.t, fmt.Sprintf("%08d", r.received[side]), string(payload))
	require.EqualValues(r.t, r.received[side], meta[0])
	r.received[side]++
	ch.Release()
	return true
}

// until has both fabrics work.
func (r *replay) until(what string, look func() bool) {
	for end := time.Now().Add(hang); !look(); runtime.Gosched() {
		require.True(r.t, time.Now().Before(end), "HANG: %s; sent %v, received %v", what, r.sent, r.received)
		r.fabrics[0].Poll()
		r.fabrics[1].Poll()
	}
}

// finish checks that both sides end up as in the model, and closes them.
func (r *replay) finish(l *link) {
	for side := range l.sides {
		if l.sides[side].left {
			continue
		}
		end := r.ends[side]
		r.until("all that was sent", func() bool {
			for r.take(side) {
			}
			return r.received[side] == r.sent[1-side]
		})
		if !l.sides[1-side].left {
			require.NoError(r.t, end.Err())
			continue
		}
		r.until("the goodbye", func() bool { return end.Err() != nil })
		var e *fault.Error
		require.True(r.t, errors.As(end.Err(), &e))
		require.Equal(r.t, fault.PeerLeft, e.Code, "%v", e)
		require.True(r.t, bytes.Equal(because, e.Left), "%q", e.Left)
	}
	for _, end := range r.ends {
		require.NoError(r.t, end.Close())
	}
}

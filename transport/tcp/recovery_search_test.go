//go:build !race

package tcp

import (
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/tests/statespace"
	"github.com/stretchr/testify/require"
)

// space is what a search has found. Of a state it keeps a hash of 64 bits: that two of ten million
// states have the same is less likely than one in 100,000.
type space[S comparable] struct {
	seed    maphash.Seed
	numbers map[uint64]int32
	parents []int32
	steps   []string   // that led to the state first
	edges   [][2]int32 // of steps that will happen: to, from
}

// explore searches all states. next makes the steps from a state; those that are fair happen some
// time unless the state changes, those that are not may happen. wrong says what is wrong with a
// state, and rest with one in which no step is fair, or "". Every state must be able to come to
// rest by fair steps. explore returns the number of states, and what is wrong, with the way to it.
func explore[S comparable](start S, next func(S, func(step string, fair bool, to S)), wrong, rest func(S) string,
	most int) (states int, why string) {
	p := &space[S]{seed: maphash.MakeSeed(), numbers: map[uint64]int32{}}
	var frontier []S
	add := func(s S, parent int32, step string) int32 {
		hash := maphash.Comparable(p.seed, s)
		n, known := p.numbers[hash]
		if !known {
			n = int32(len(p.parents))
			p.numbers[hash] = n
			p.parents, p.steps = append(p.parents, parent), append(p.steps, step)
			frontier = append(frontier, s)
		}
		return n
	}
	add(start, -1, "")
	var goals []int32
	for n := int32(0); len(frontier) > 0; n++ {
		if int(n) > most {
			return len(p.parents), "too many states"
		}
		s := frontier[0]
		if frontier = frontier[1:]; len(frontier) == 0 {
			frontier = nil
		}
		if text := wrong(s); text != "" {
			return len(p.parents), p.trace(text, n)
		}
		still := true
		next(s, func(step string, fair bool, to S) {
			at := add(to, n, step)
			if fair {
				still = false
				p.edges = append(p.edges, [2]int32{at, n})
			}
		})
		if still {
			if text := rest(s); text != "" {
				return len(p.parents), p.trace(text, n)
			}
			goals = append(goals, n)
		}
	}
	if n := statespace.Trapped(len(p.parents), p.edges, goals); n >= 0 {
		return len(p.parents), p.trace("nothing that must happen leads to an end", n)
	}
	return len(p.parents), ""
}

// trace describes the way to a state.
func (p *space[S]) trace(why string, n int32) string {
	var steps []string
	for ; n > 0; n = p.parents[n] {
		steps = append(steps, p.steps[n])
	}
	slices.Reverse(steps)
	return fmt.Sprintf("%s, after %d steps: %s", why, len(steps), strings.Join(steps, ", "))
}

// scenario is where a search begins.
type scenario struct {
	name                string
	unopened            bool // both sides have yet to begin
	send                [2]uint8
	leave               [2]bool
	breaks, gives, dies uint8
	walled              [2]bool
	hole                bool
	large               bool // it has millions of states
}

var scenarios = []scenario{
	{name: "one direction, two breaks", send: [2]uint8{1, 0}, breaks: 2},
	{name: "both directions, a break", send: [2]uint8{2, 1}, breaks: 1},
	{name: "full room, a break", send: [2]uint8{4, 0}, breaks: 1},
	{name: "goodbye, a break", send: [2]uint8{1, 0}, leave: [2]bool{true, false}, breaks: 1},
	{name: "goodbye of the other side, a break", send: [2]uint8{1, 1}, leave: [2]bool{false, true}, breaks: 1},
	{name: "both leave, a break", send: [2]uint8{1, 0}, leave: [2]bool{true, true}, breaks: 1},
	{name: "one gives up", send: [2]uint8{1, 1}, breaks: 1, gives: 1},
	{name: "both give up", send: [2]uint8{1, 0}, breaks: 1, gives: 2},
	{name: "one leaves, one gives up", send: [2]uint8{1, 0}, leave: [2]bool{true, false}, breaks: 1, gives: 1},
	{name: "one dies", send: [2]uint8{1, 1}, breaks: 1, dies: 1},
	{name: "one leaves, one dies", send: [2]uint8{1, 0}, leave: [2]bool{true, false}, breaks: 1, dies: 1},
	{name: "on use", unopened: true, send: [2]uint8{1, 1}},
	{name: "on use, a break", unopened: true, breaks: 1},
	{name: "on use, one leaves", unopened: true, send: [2]uint8{1, 0}, leave: [2]bool{true, false}},
	{name: "on use, the other leaves", unopened: true, send: [2]uint8{1, 0}, leave: [2]bool{false, true}},
	{name: "on use, both leave", unopened: true, send: [2]uint8{1, 1}, leave: [2]bool{true, true}},
	{name: "on use, one gives up", unopened: true, send: [2]uint8{1, 0}, gives: 1},
	{name: "on use, one dies", unopened: true, send: [2]uint8{1, 0}, dies: 1},
	{name: "the smaller id is walled", walled: [2]bool{true, false}, unopened: true, send: [2]uint8{1, 1}, breaks: 1},
	{name: "the larger id is walled", walled: [2]bool{false, true}, unopened: true, send: [2]uint8{1, 1}, breaks: 1},
	{name: "a walled one leaves", walled: [2]bool{true, false}, send: [2]uint8{1, 0}, leave: [2]bool{true, false},
		breaks: 1},
	{name: "a walled one dies", walled: [2]bool{true, false}, send: [2]uint8{1, 1}, breaks: 1, dies: 1},
	{name: "large packets are lost", hole: true, send: [2]uint8{1, 0}},
	{name: "large packets are lost, a break", hole: true, send: [2]uint8{1, 0}, breaks: 1, large: true},
	{name: "large packets of a walled one are lost", hole: true, walled: [2]bool{true, false}, send: [2]uint8{1, 0}},

	{name: "two fragments, two breaks", send: [2]uint8{2, 0}, breaks: 2, large: true},
	{name: "the other direction, two breaks", send: [2]uint8{0, 2}, breaks: 2, large: true},
	{name: "goodbye, two breaks", send: [2]uint8{1, 0}, leave: [2]bool{true, false}, breaks: 2, large: true},
	{name: "both leave, two breaks", leave: [2]bool{true, true}, breaks: 2, large: true},
	{name: "both give up, two breaks", send: [2]uint8{1, 1}, breaks: 2, gives: 2, large: true},
	{name: "on use, fragments, a break", unopened: true, send: [2]uint8{1, 1}, breaks: 1, large: true},
	{name: "on use, one leaves, a break", unopened: true, send: [2]uint8{1, 0}, leave: [2]bool{true, false}, breaks: 1,
		large: true},
	{name: "on use, the other leaves, a break", unopened: true, send: [2]uint8{1, 0}, leave: [2]bool{false, true},
		breaks: 1, large: true},
	{name: "on use, both leave, a break", unopened: true, leave: [2]bool{true, true}, breaks: 1, large: true},
	{name: "on use, one gives up, a break", unopened: true, send: [2]uint8{1, 0}, breaks: 1, gives: 1, large: true},
	{name: "on use, one dies, a break", unopened: true, send: [2]uint8{1, 0}, breaks: 1, dies: 1, large: true},
}

// start returns the state in which a scenario begins.
func (sc *scenario) start() link {
	l := link{breaks: sc.breaks, gives: sc.gives, dies: sc.dies, walled: sc.walled, hole: sc.hole}
	for side := range l.sides {
		s := &l.sides[side]
		*s = modelSide{live: none, dials: none, broken: none, epoch: uint8(10 * side), toSend: sc.send[side],
			toLeave: sc.leave[side]}
		if !sc.unopened {
			s.epochs = [2]uint8{uint8(10 * side), uint8(10 * (1 - side))}
			s.begun, s.exists, s.announced, s.openSent, s.next = true, true, true, true, 1
			s.incoming, s.joined, s.opens, s.live = true, true, 1, 0
		}
	}
	if !sc.unopened {
		l.conns[0] = modelConn{stage: answered, replaces: none, epochs: [2]uint8{0, 10},
			ends: [2]uint8{attached, attached}}
	}
	return l
}

// steps makes the steps of a link, for explore.
func (mu *mutant) steps(l link, do func(step string, fair bool, to link)) {
	m := &mover{mu: mu, do: func(step string, fair bool, to *link) { do(step, fair, *to) }}
	m.next(&l)
}

func (l link) fault() string { return l.wrong }

var full = flag.Bool("model.full", false, "search the models with millions of states, too")

// mostStates bounds the memory of a search to about 6 GB.
const mostStates = 24 << 20

// TestRecovery explores every order in which two processes, and the path between them, may do what
// they do. All that was sent arrives once and in order; both sides end up with the same connection,
// or with none; a goodbye arrives with its reason.
func TestRecovery(t *testing.T) {
	for i := range scenarios {
		sc := &scenarios[i]
		if sc.large && !*full {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			beyond := 0
			rest := func(l link) string {
				if l.beyond {
					beyond++
				}
				return l.rest()
			}
			states, why := explore(sc.start(), (&mutant{}).steps, link.fault, rest, mostStates)
			t.Logf("%d states, %d of them beyond the model", states, beyond)
			require.Empty(t, why)
		})
	}
}

var mutants = []mutant{
	{name: "both connections are taken", in: "both directions, a break", takesAlways: true},
	{name: "a connection is taken in place of one that works", in: "both directions, a break", takesLive: true},
	{name: "a handshake begins although the other is taken", in: "both directions, a break", shakesAlways: true},
	{name: "a connection is attached late", in: "one direction, two breaks", attachesLate: true},
	{name: "what has not arrived is not sent again", in: "both directions, a break", sendsNothingAgain: true},
	{name: "the first fragment is not sent again", in: "both directions, a break", skipsOne: true},
	{name: "a fragment is sent again that has arrived", in: "both directions, a break", oneEarly: true},
	{name: "credit is not told again", in: "full room, a break", noCredit: true},
	{name: "goodbye is not said again", in: "goodbye, a break", noGoodbye: true},
	{name: "goodbye comes before all fragments", in: "goodbye, a break", hastyGoodbye: true},
	{name: "a session whose goodbye has arrived counts as forgotten", in: "goodbye, a break", missesAnswer: true},
	{name: "open is not said again", in: "on use, a break", noOpen: true},
	{name: "the epoch stays when the pair is lost", in: "one gives up", oldEpoch: true},
	{name: "epochs are not compared", in: "one gives up", noForget: true},
	{name: "a connection of an earlier epoch is attached", in: "both give up", attachesOutdated: true},
	{name: "that this side has left is forgotten", in: "on use, the other leaves", forgetsDeparted: true},
	{name: "the reason is forgotten", in: "on use, the other leaves", forgetsReason: true},
	{name: "that this side waits for the peer's open is forgotten", in: "on use, the other leaves", forgetsWaiting: true},
	{name: "the larger id does not dial", in: "the smaller id is walled", leavesDialling: true},
	{name: "what a firewall refuses counts as death", in: "the smaller id is walled", believesFirewalls: true},
	{name: "segments stay as they are", in: "large packets are lost", keepsSegments: true},
	{name: "the acceptor's limit does not count", in: "large packets of a walled one are lost", ignoresLimit: true},
}

// TestRecoveryMutants has the model find mistakes.
func TestRecoveryMutants(t *testing.T) {
	for i := range mutants {
		mu := &mutants[i]
		t.Run(mu.name, func(t *testing.T) {
			at := slices.IndexFunc(scenarios, func(sc scenario) bool { return sc.name == mu.in })
			states, why := explore(scenarios[at].start(), mu.steps, link.fault, func(l link) string { return l.rest() },
				mostStates)
			t.Logf("%d states: %s", states, why)
			require.NotEmpty(t, why, "not found")
			require.NotEqual(t, "too many states", why)
		})
	}
}

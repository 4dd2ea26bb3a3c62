package program

import (
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// mostCounted is the largest group in which signals may be words: a rank has to read the programs
// of all peers to know what their words mean.
const mostCounted = 256

// signals is what a rank knows of a plan whose signals are words. The word of each rank counts the
// signals that the rank has given to all peers. So a wait for the third signal of a peer, for
// example, waits for the count that the peer has when it gives that signal.
type signals struct {
	everyone bool             // every rank waits for every other
	of       map[[2]int][]int // by peer and flag: the peer's count at each of its signals to this rank
	// The words of ranks that signal anybody mean something to everybody: the last one that a rank
	// shows is also for the peers that it does not signal.
	heard    [][]int // by peer: the counts that its word shows for this rank
	told     [][]int // by count that the word of this rank shows: the peers that it is for
	mostTold int     // the most of them for one peer, of any rank
	offered  []int   // by rank: its count when it first waits
	given    int
	began    bool           // the first word was given
	waited   map[[2]int]int // by peer and flag: waits so far
	awaited  map[int]bool   // peers that an earlier step waits for
}

// countSignals counts the signals of all ranks. It returns nil if words cannot represent them: if
// signals are in several lanes, whose relative order is not known in advance, or if there are puts,
// which travel as frames and which a signal must not overtake. All ranks get the same result.
func countSignals(p *plan.Plan, rank int) *signals {
	if p.Spec.Ranks > mostCounted {
		return nil
	}
	c := &signals{everyone: true, of: map[[2]int][]int{}, waited: map[[2]int]int{}, awaited: map[int]bool{},
		heard: make([][]int, p.Spec.Ranks), offered: make([]int, p.Spec.Ranks)}
	for r := range p.Spec.Ranks {
		prog := p.Program(r)
		flat := prog.Flat()
		for l, lane := range flat.Lanes {
			for i := range lane {
				if does := lane[i].Kind.Traits(); does.Puts || l > 0 && does.Flagged() {
					return nil
				}
			}
		}
		n, waits := 0, map[int]bool{}
		var run []int
		told := map[int]int{}
		if len(flat.Lanes) == 0 {
			flat.Lanes = [][]plan.Step{nil}
		}
		lane := flat.Lanes[0]
		for i := range lane {
			s := &lane[i]
			switch does := s.Kind.Traits(); {
			case does.Waits:
				waits[s.Peer] = true
			case does.Signals:
				if len(waits) == 0 {
					c.offered[r]++
				}
				if n++; s.Peer == rank {
					key := [2]int{r, s.Chan}
					c.of[key] = append(c.of[key], n)
				}
				if !slices.Contains(run, s.Peer) {
					run = append(run, s.Peer)
					told[s.Peer]++
					c.mostTold = max(c.mostTold, told[s.Peer])
				}
				if unseen(i, lane) {
					break
				}
				if slices.Contains(run, rank) {
					c.heard[r] = append(c.heard[r], n)
				}
				if r == rank {
					c.told = append(c.told, run)
				}
				run = nil
			}
		}
		if n >= MaxSignals {
			return nil
		}
		if n > 0 && r != rank && told[rank] == 0 {
			c.heard[r] = []int{n}
		}
		if n > 0 && r == rank {
			last := &c.told[len(c.told)-1]
			for peer := range p.Spec.Ranks {
				if peer != rank && told[peer] == 0 {
					*last = append(*last, peer)
				}
			}
		}
		c.everyone = c.everyone && len(waits) == p.Spec.Ranks-1
	}
	return c
}

// unseen reports whether no word shows the signal at step i: there is one for all signals in a row.
func unseen(i int, lane []plan.Step) bool {
	return i+1 < len(lane) && lane[i+1].Kind.Traits().Signals && len(lane[i].After) == 0
}

// nth returns the count at step i of this rank's lane, and whether the step is the first of its
// kind: the first signal, or the first wait for its peer. It must be called for all steps in order.
func (c *signals) nth(i int, lane []plan.Step) (nth int, first bool) {
	s := &lane[i]
	switch does := s.Kind.Traits(); {
	case does.Signals:
		c.given++
		if unseen(i, lane) {
			return 0, false
		}
		first = !c.began
		c.began = true
		return c.given, first
	case does.Waits:
		key := [2]int{s.Peer, s.Chan}
		at := c.waited[key]
		c.waited[key]++
		first = !c.awaited[s.Peer]
		c.awaited[s.Peer] = true
		if at >= len(c.of[key]) {
			return MaxSignals, first // it never comes
		}
		return c.of[key][at], first
	}
	return 0, false
}

package exec

import (
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/plan"
)

// mostCounted is the largest group whose signals are words: to know what a word means a rank looks
// at the programs of all others.
const mostCounted = 256

// signals is what a rank knows of a plan whose signals are words: one word of each rank counts the
// signals that it has given to anybody. A wait for the third signal of a peer, say, waits for the
// word that the peer has when it gives that.
type signals struct {
	everyone bool             // every rank waits for every other
	of       map[[2]int][]int // by peer and flag: the peer's word at each of its signals to this rank
	given    int
	said     bool           // the first word was given
	waited   map[[2]int]int // waits so far
	heard    map[int]bool   // peers that were waited for
}

// countSignals counts the signals of all ranks. It returns nil where words cannot stand for them: a
// program has several lanes, whose order nobody knows, or puts, which travel as frames and must not
// be overtaken. All ranks find the same.
func countSignals(p *plan.Plan, rank int) *signals {
	if p.Spec.Ranks > mostCounted {
		return nil
	}
	c := &signals{everyone: true, of: map[[2]int][]int{}, waited: map[[2]int]int{}, heard: map[int]bool{}}
	for r := range p.Spec.Ranks {
		prog := p.Program(r)
		flat := prog.Flat()
		if len(flat.Lanes) != 1 {
			return nil
		}
		n, waits := 0, map[int]bool{}
		for i := range flat.Lanes[0] {
			s := &flat.Lanes[0][i]
			switch s.Kind {
			case plan.Put, plan.Packet:
				return nil
			case plan.Wait:
				waits[s.Peer] = true
			case plan.Signal:
				if n++; s.Peer == rank {
					key := [2]int{r, s.Chan}
					c.of[key] = append(c.of[key], n)
				}
			}
		}
		if n >= window.MaxSignals {
			return nil
		}
		c.everyone = c.everyone && len(waits) == p.Spec.Ranks-1
	}
	return c
}

// nth is the word of step i of this rank's lane, whose steps are asked for in their order, and
// whether it is the first such step: of all signals, or of the waits for its peer.
func (c *signals) nth(i int, lane []plan.Step) (nth int, first bool) {
	s := &lane[i]
	switch s.Kind {
	case plan.Signal:
		c.given++
		if i+1 < len(lane) && lane[i+1].Kind == plan.Signal {
			return 0, false // one word for all signals in a row
		}
		first = !c.said
		c.said = true
		return c.given, first
	case plan.Wait:
		key := [2]int{s.Peer, s.Chan}
		at := c.waited[key]
		c.waited[key]++
		first = !c.heard[s.Peer]
		c.heard[s.Peer] = true
		if at >= len(c.of[key]) {
			return window.MaxSignals, first // it never comes
		}
		return c.of[key][at], first
	}
	return 0, false
}

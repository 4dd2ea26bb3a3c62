package exec

import (
	"fmt"
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// WindowChannel is the channel of puts and signals.
const WindowChannel = windowChannel

// Forget makes c forget the calls that came before, after its planner has changed its mind: planners outside of tests never do.
func Forget(c *Comm) { c.cache = cache{} }

// Programs counts the programs that c keeps.
func Programs(c *Comm) int {
	n := 0
	for i := range c.cache.each {
		if c.cache.each[i].low != nil {
			n++
		}
	}
	return n
}

// Foretell makes all peers of c say what c itself will say when its last program runs again, so that this waits for nobody.
func Foretell(c *Comm) {
	w := &c.windows
	p := &c.cache.each[c.cache.recent]
	for r := range w.ranks {
		if r != c.rank {
			n := w.notice(r)
			n.meta[0] = p.said[0] | uint64(uint32(c.Seq()+1))
			n.meta[1] = p.said[1]
			n.meta[2] = p.said[2] ^ uint64(c.history.hash())<<48
			n.word.Store(w.word(mostSignals))
			w.ranks[r].page.left.Store(w.begun)
		}
	}
}

// Mutants makes plans of the programs of p with one mistake each, in the program of one of its ranks: an instruction left out, one before the
// one ahead of it, a count of signals that is wrong by one, an operand that is another chunk.
func Mutants(p *plan.Plan, windows, long bool, rank int, visit func(what string, mutant *plan.Plan)) error {
	programs, err := compileAll(p, windows)
	if err != nil {
		return err
	}
	right := programs[rank].lanes
	for l, lane := range right {
		for i := range lane {
			b := &lane[i]
			if b.step == nil {
				continue
			}
			with := func(change string, mutant []instr) {
				programs[rank].lanes = slices.Clone(right)
				programs[rank].lanes[l] = mutant
				visit(fmt.Sprintf("rank %d, %d.%d (%v) %s", rank, l, b.pc, b.step.kind, change), lift(p, programs, long))
			}
			altered := func(change string, alter func(b *instr)) {
				mutant := slices.Clone(lane)
				mutant[i].src = slices.Clone(b.src)
				alter(&mutant[i])
				with(change, mutant)
			}
			with("left out", slices.Delete(slices.Clone(lane), i, i+1))
			if i > 0 && lane[i-1].step != nil {
				mutant := slices.Clone(lane)
				mutant[i-1], mutant[i] = mutant[i], mutant[i-1]
				with("before the one ahead", mutant)
			}
			switch b.op {
			case opSignal:
				altered("publishes one more", func(b *instr) { b.nth++ })
				altered("publishes one less", func(b *instr) { b.nth-- })
			case opWait:
				altered("waits for one less", func(b *instr) { b.nth-- })
				altered("waits for one more", func(b *instr) { b.nth++ })
			case opCopy, opReduce:
				if chunks := p.OutChunks(rank); b.dst.buf == plan.Out && chunks > 1 {
					altered("writes the next chunk", func(b *instr) { b.dst.chunk = (b.dst.chunk + 1) % int32(chunks) })
				}
				for k := range b.src {
					if b.src[k].base == basePeer {
						altered("reads another rank", func(b *instr) { b.src[k].index = (b.src[k].index + 1) % int32(p.Spec.Ranks) })
					}
				}
			}
		}
	}
	programs[rank].lanes = right
	return nil
}

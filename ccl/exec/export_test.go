package exec

import (
	"fmt"
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// WindowChannel is the channel of puts and signals.
const WindowChannel = windowChannel

// Forget makes c forget the calls that came before, after its planner has changed its mind:
// planners outside of tests never do.
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

// Foretell makes all peers of c say what c itself will say when its last program runs again, so
// that this waits for nobody.
func Foretell(c *Comm) {
	w := &c.windows
	p := &c.cache.each[c.cache.recent]
	for r := range c.size {
		if r != c.rank {
			n := w.Record(r)
			n.Call[0] = p.fingerprint[0] | uint64(uint32(c.Seq()+1))
			n.Call[1] = p.fingerprint[1]
			n.Call[2] = p.fingerprint[2] ^ uint64(c.history.hash())<<48
			w.Rank(r).Foretell(w.Turn(), w.Word(window.MaxSignals), w.Begun)
		}
	}
}

// Mutants makes plans of the programs of p with one mistake each, in the program of one of its
// ranks: an instruction left out, one before the one ahead of it, a count of signals that is wrong
// by one, an operand that is another chunk.
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
				visit(fmt.Sprintf("rank %d, %d.%d (%v) %s", rank, l, b.pc, b.step.kind, change), lift(p, programs, long).Plan)
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

// EndMutants makes operations of the programs of p with one mistake each in what stands around the
// steps of one rank's program: it enters or leaves the slot too early, too late or not at all, or
// does not drain.
func EndMutants(p *plan.Plan, long bool, rank int, visit func(what string, mutant verify.Operation)) error {
	programs, err := compileAll(p, true)
	if err != nil {
		return err
	}
	names := map[opcode]string{opEnter: "enters", opLeave: "leaves", opDrain: "drains"}
	right := programs[rank].lanes
	for l, lane := range right {
		for i := range lane {
			name := names[lane[i].op]
			if name == "" {
				continue
			}
			with := func(change string, mutant []instr) {
				programs[rank].lanes = slices.Clone(right)
				programs[rank].lanes[l] = mutant
				visit(fmt.Sprintf("rank %d %s %s", rank, name, change), lift(p, programs, long))
			}
			without := slices.Delete(slices.Clone(lane), i, i+1)
			with("never", without)
			for k := range lane {
				if k != i {
					with(map[bool]string{true: "too early", false: "too late"}[k < i], slices.Insert(slices.Clone(without), k, lane[i]))
				}
			}
			for k := range lane[i].gates {
				mutant := slices.Clone(lane)
				mutant[i].gates = slices.Delete(slices.Clone(lane[i].gates), k, k+1)
				with("before a lane has ended", mutant)
			}
		}
	}
	programs[rank].lanes = right
	return nil
}

// Turns is how a group lays out the windows of a call with so many elements in a block: in how many
// slots, and how many operations may be under way.
func Turns(p *plan.Plan, elements int) (slots, turns int, err error) {
	programs, err := compileAll(p, true)
	if err != nil || !programs[0].low.slots {
		return 0, 0, err
	}
	low := programs[0].low
	c := &Comm{size: p.Spec.Ranks}
	c.windows.Slot = 1 << 20
	call := &Call{Coll: p.Spec.Coll, Type: dtype.F32}
	for range p.Spec.Coll.InBlocks(p.Spec.Ranks, p.Spec.Root, p.Spec.Root) {
		call.In = append(call.In, Block{Count: elements})
	}
	var l layout
	l.cut(c, low, call, 0)
	if low.window == 0 {
		return plan.WindowNotices, int(l.depth), nil // there are records only
	}
	shifts := map[int]bool{}
	for _, shift := range l.shift {
		shifts[shift] = true
	}
	return len(shifts), int(l.depth), nil
}

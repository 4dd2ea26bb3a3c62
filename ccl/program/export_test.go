package program

import (
	"fmt"
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// Mutants makes plans from the programs of p with one mistake each, in the program of the given
// rank: an instruction left out, an instruction moved before its predecessor, a count of signals
// that is wrong by one, an operand that is another chunk or is read from another rank.
func Mutants(p *plan.Plan, windows, long bool, rank int, visit func(what string, mutant *plan.Plan)) error {
	programs, err := compileAll(p, roomFor(p, windows))
	if err != nil {
		return err
	}
	right := programs[rank].Lanes
	for l, lane := range right {
		for i := range lane {
			b := &lane[i]
			if b.Step == nil {
				continue
			}
			with := func(change string, mutant []Instruction) {
				programs[rank].Lanes = slices.Clone(right)
				programs[rank].Lanes[l] = mutant
				visit(fmt.Sprintf("rank %d, %d.%d (%v) %s", rank, l, b.PC, b.Step.Kind, change),
					lift(p, programs, long).Plan)
			}
			altered := func(change string, alter func(b *Instruction)) {
				mutant := slices.Clone(lane)
				mutant[i].Src = slices.Clone(b.Src)
				alter(&mutant[i])
				with(change, mutant)
			}
			with("left out", slices.Delete(slices.Clone(lane), i, i+1))
			if i > 0 && lane[i-1].Step != nil {
				mutant := slices.Clone(lane)
				mutant[i-1], mutant[i] = mutant[i], mutant[i-1]
				with("before the one ahead", mutant)
			}
			switch b.Op {
			case OpSignal:
				altered("publishes one more", func(b *Instruction) { b.Nth++ })
				altered("publishes one less", func(b *Instruction) { b.Nth-- })
			case OpWait:
				altered("waits for one less", func(b *Instruction) { b.Nth-- })
				altered("waits for one more", func(b *Instruction) { b.Nth++ })
			case OpCopy, OpReduce:
				if chunks := p.OutChunks(rank); b.Dst.Buf == plan.Out && chunks > 1 {
					altered("writes the next chunk",
						func(b *Instruction) { b.Dst.Chunk = (b.Dst.Chunk + 1) % int32(chunks) })
				}
				for k := range b.Src {
					if b.Src[k].Base == BasePeer {
						altered("reads another rank",
							func(b *Instruction) { b.Src[k].Index = (b.Src[k].Index + 1) % int32(p.Spec.Ranks) })
					}
				}
			}
		}
	}
	programs[rank].Lanes = right
	return nil
}

// EndMutants makes operations from the programs of p with one mistake each in what surrounds the
// steps of the given rank's program: the rank enters or leaves its slot too early, too late or not
// at all, or does not drain.
func EndMutants(p *plan.Plan, long bool, rank int, visit func(what string, mutant verify.Operation)) error {
	programs, err := compileAll(p, roomFor(p, true))
	if err != nil {
		return err
	}
	names := map[Opcode]string{OpEnter: "enters", OpLeave: "leaves", OpDrain: "drains"}
	right := programs[rank].Lanes
	for l, lane := range right {
		for i := range lane {
			name := names[lane[i].Op]
			if name == "" {
				continue
			}
			with := func(change string, mutant []Instruction) {
				programs[rank].Lanes = slices.Clone(right)
				programs[rank].Lanes[l] = mutant
				visit(fmt.Sprintf("rank %d %s %s", rank, name, change), lift(p, programs, long))
			}
			without := slices.Delete(slices.Clone(lane), i, i+1)
			with("never", without)
			for k := range lane {
				if k != i {
					with(map[bool]string{true: "too early", false: "too late"}[k < i],
						slices.Insert(slices.Clone(without), k, lane[i]))
				}
			}
			for k := range lane[i].Gates {
				mutant := slices.Clone(lane)
				mutant[i].Gates = slices.Delete(slices.Clone(lane[i].Gates), k, k+1)
				with("before a lane has ended", mutant)
			}
		}
	}
	programs[rank].Lanes = right
	return nil
}

// Turns returns how a group lays out the windows of a call whose blocks have the given number of
// elements: in how many slots, and how many operations may be in flight.
func Turns(p *plan.Plan, elements int) (slots, turns int, err error) {
	programs, err := compileAll(p, roomFor(p, true))
	if err != nil || !programs[0].Low.Slots {
		return 0, 0, err
	}
	low := programs[0].Low
	room := Room{Ranks: p.Spec.Ranks, Slot: 1 << 20, RecordBytes: 1 << 10}
	call := &Call{Coll: p.Spec.Coll, Type: dtype.F32}
	for range p.Spec.Coll.InBlocks(p.Spec.Ranks, p.Spec.Root, p.Spec.Root) {
		call.In = append(call.In, Block{Count: elements})
	}
	lengths := &Lengths{Row: 1} // as exchanged, where the plan has ranks do so
	for range p.Spec.Ranks {
		lengths.Matrix = append(lengths.Matrix, uint64(elements))
	}
	var l Layout
	l.cut(&room, low, call, lengths, 0)
	if low.Window == 0 {
		return plan.WindowRecords, int(l.Depth), nil // there are records only
	}
	shifts := map[int]bool{}
	for _, shift := range l.Shift {
		shifts[shift] = true
	}
	return len(shifts), int(l.Depth), nil
}

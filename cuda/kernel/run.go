package kernel

import (
	"encoding/binary"

	"github.com/goccl/goccl/ccl/fault"
)

// Run is a launch of a table, which can be executed step by step: each block executes the steps by
// itself, and one that waits holds up no other.
type Run struct {
	Table  *Table
	f      *Function
	blocks int
	next   [MostBlocks]uint32 // by block: its next step
	left   [MostBlocks]bool   // by block: the host has let it go
}

// mostStepBytes bounds what a step moves: blocks compute their parts in 32 bits.
const mostStepBytes = 1 << 30

// TakesTable reports whether a function executes a table, and so may wait.
func TakesTable(name string) bool { f := byName[name]; return f != nil && f.kind == runs }

// NewRun returns the launch of a table. args are its bytes. What a device would not do, or nobody
// says how, is an error.
func NewRun(name string, args []byte, blocks int) (*Run, error) {
	f := byName[name]
	switch {
	case f == nil || f.kind != runs:
		return nil, fault.New(fault.Invalid, "there is no kernel %q for tables", name)
	case len(args) != tableBytes:
		return nil, fault.New(fault.Invalid, "%s: %d bytes of arguments, not %d", name, len(args), tableBytes)
	case blocks < 1 || blocks > MostBlocks:
		return nil, fault.New(fault.Invalid, "%s: %d blocks, not 1 to %d", name, blocks, MostBlocks)
	}
	r := &Run{Table: decodeTable(args), f: f, blocks: blocks}
	if r.Table.Rank >= MostRanks || r.Table.Count > MostSteps {
		return nil, fault.New(fault.Invalid, "%s: rank %d of %d steps", name, r.Table.Rank, r.Table.Count)
	}
	for i := range r.Table.Steps[:r.Table.Count] {
		a := &r.Table.Steps[i]
		if a.Kind == Signals || a.Kind == Waits {
			if a.Count == 0 || a.Count >= 1<<MostRanks || a.Src[0] > MostBlocks {
				return nil, fault.New(fault.Invalid, "%s: step %d is for ranks %b and %d blocks", name, i, a.Count, a.Src[0])
			}
			continue
		}
		if a.Kind == Puts || a.Kind == Takes {
			if a.Count != 1 || a.N > mostStepBytes || a.Src[1] == 0 || a.Src[1] >= 1<<32 || a.Kind == Takes &&
				a.Src[2] >= MostRanks || a.Src[2] > mostStepBytes {
				return nil, fault.New(fault.Invalid, "%s: step %d of %d bytes with flag %d", name, i, a.N, a.Src[1])
			}
			continue
		}
		does, err := f.step(a.Kind)
		if err == nil && a.N*uint64(does.to.Size()) > mostStepBytes {
			err = fault.New(fault.Invalid, "%d elements", a.N)
		}
		if err == nil {
			err = does.check(*a)
		}
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "%s: step %d", name, i)
		}
	}
	return r, nil
}

// Blocks returns the number of blocks.
func (r *Run) Blocks() int { return r.blocks }

// Step returns the next step of a block, nil if it has ended.
func (r *Run) Step(block int) *Step {
	if r.left[block] || r.next[block] == r.Table.Count {
		return nil
	}
	return &r.Table.Steps[r.next[block]]
}

// Next returns the number of the next step of a block.
func (r *Run) Next(block int) int { return int(r.next[block]) }

// Ended reports whether all blocks have.
func (r *Run) Ended() bool {
	for block := range r.blocks {
		if r.Step(block) != nil {
			return false
		}
	}
	return true
}

// Advance ends the step of a block. Execute has done what it does, or the caller: signals and waits
// are the caller's.
func (r *Run) Advance(block int) { r.next[block]++ }

// Leave ends a block, which does not write anything any more.
func (r *Run) Leave(block int) { r.left[block] = true }

// Flag returns where the flags are that a block of one rank writes in the window of another.
func (t *Table) Flag(owner, writer, block int) uint64 {
	return t.Flags[owner] + uint64(writer*MostBlocks+block)*wordBytes
}

// part returns what a block does of its next step, which moves data, and the function that does it:
// the same bytes of a chunk for whatever is done with it.
func (r *Run) part(block int) (*Function, Arguments) {
	a := Arguments{Step: *r.Step(block)}
	f, _ := r.f.step(a.Kind)
	size := uint64(f.to.Size())
	from, bytes := r.share(block, a.N*size)
	a.Dst += from
	for k := range a.Src[:a.Count] {
		a.Src[k] += from
	}
	a.N = bytes / size
	a.Kind = 0
	return f, a
}

// Taken reports whether all packets have come, of which load returns those at an address, and takes
// the data out of them.
func (m *Moves) Taken(load func(packet uint64) uint64, data []byte) bool {
	for k := range Packets(m.Bytes) {
		packet := load(m.Packets + uint64(k)*PacketBytes)
		if uint32(packet>>32) != m.Flag {
			return false
		}
		if data != nil {
			var word [PacketData]byte
			binary.LittleEndian.PutUint32(word[:], uint32(packet))
			copy(data[k*PacketData:], word[:])
		}
	}
	return true
}

// share returns which of a number of bytes belong to a block.
func (r *Run) share(block int, bytes uint64) (from, n uint64) {
	each := ((bytes+uint64(r.blocks)-1)/uint64(r.blocks) + 15) &^ 15
	from = min(uint64(block)*each, bytes)
	return from, min(each, bytes-from)
}

// Moves is what a block does of a step that puts or takes: Bytes of data at Data, and the packets
// at Packets. A put writes the packets at More, too.
type Moves struct {
	Data, Packets, More uint64
	Bytes, MorePackets  int
	Flag                uint32
	Rank                int // that puts what is taken
}

// Moves returns what a block does of its next step, which puts or takes.
func (r *Run) Moves(block int) Moves {
	a := r.Step(block)
	from, n := r.share(block, a.N)
	m := Moves{Bytes: int(n), Flag: uint32(a.Src[1])}
	if a.Kind == Takes {
		m.Data, m.Packets, m.Rank = a.Dst+from, a.Src[0]+from/PacketData*PacketBytes, int(a.Src[2])
		return m
	}
	m.Data, m.Packets = a.Src[0]+from, a.Dst+from/PacketData*PacketBytes
	if all := Packets(int(a.N)); block == r.blocks-1 { // on a device, all blocks write these
		m.More, m.MorePackets = a.Dst+uint64(all)*PacketBytes, max(0, int(a.Src[2])-all)
	}
	return m
}

// Operands returns what a block writes and reads in its next step, which moves data, as Operands
// does for other launches.
func (r *Run) Operands(block int) ([]Operand, error) {
	f, a := r.part(block)
	return Operands(f.Name, a.Bytes())
}

// Execute does the next step of a block, which moves data, as Execute does other launches.
func (r *Run) Execute(block int, memory func(ptr uint64, bytes int) []byte) error {
	f, a := r.part(block)
	return Execute(f.Name, a.Bytes(), memory)
}

// Awaits reports whether a block that waits can go on, of which came tells whether the value that
// it waits for has come to a flag.
func (r *Run) Awaits(block int, came func(flag uint64) bool) bool {
	a := r.Step(block)
	for rank := range MostRanks {
		if a.Count>>rank&1 == 1 && !r.AwaitsOf(block, rank, came) {
			return false
		}
	}
	return true
}

// AwaitsOf is Awaits as far as one rank is concerned.
func (r *Run) AwaitsOf(block, rank int, came func(flag uint64) bool) bool {
	first, blocks := block, 1
	if all := r.Step(block).Src[0]; all > 0 {
		first, blocks = 0, int(all)
	}
	for k := range blocks {
		if !came(r.Table.Flag(int(r.Table.Rank), rank, first+k)) {
			return false
		}
	}
	return true
}

// Places returns all that the steps read and write, of all blocks together.
func (r *Run) Places() (all []Operand) {
	for i := range r.Table.Steps[:r.Table.Count] {
		a := r.Table.Steps[i]
		if packets := Packets(int(a.N)) * PacketBytes; a.Kind == Puts || a.Kind == Takes {
			ends := [2]int{max(packets, int(a.Src[2])*PacketBytes), int(a.N)}
			if a.Kind == Takes {
				ends = [2]int{int(a.N), packets}
			}
			all = append(all, Operand{Ptr: a.Dst, Bytes: ends[0], Align: 1, Write: true},
				Operand{Ptr: a.Src[0], Bytes: ends[1], Align: 1})
			continue
		}
		f, err := r.f.step(a.Kind)
		if err != nil || a.N == 0 {
			continue
		}
		to := operand(a.Dst, f.to, a.N)
		to.Write = true
		all = append(all, to)
		for _, ptr := range a.Src[:a.Count] {
			all = append(all, operand(ptr, f.from, a.N))
		}
	}
	for rank, flags := range r.Table.Flags {
		if flags != 0 {
			all = append(all, Operand{Ptr: flags, Bytes: FlagBytes, Align: wordBytes, Write: rank != int(r.Table.Rank)})
		}
	}
	return all
}

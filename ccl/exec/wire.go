package exec

import (
	"cmp"
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/transport"
)

// fingerprint holds the values that must be the same on both sides of a message. It travels in the
// transport.Meta of every fragment:
//
//	word 0  sequence number (32) | collective (8) | type (8) | operator (8) | phase (8)
//	word 1  root (16) | bytes of the message, or of the window's chunk (48)
//	word 2  count of elements (48) | hash of the plan and of the calls before this one (16)
//
// The count is that of the vector or of each block, if all ranks know it. For blocks of different
// lengths it is the sum, marked with unequal.
type fingerprint struct {
	seq   uint32
	coll  dtype.Collective
	typ   dtype.Type
	op    dtype.Op
	phase uint8 // of the operation, see phaseOf
	root  int
	count int
	hash  uint16
}

// phaseCounts is the phase in which the lengths of blocks are exchanged.
const phaseCounts = 0

// phaseOf returns the phase of a piece of an operation: 1, 2, … 255, 1, …
func phaseOf(piece int) uint8 { return uint8(piece%255 + 1) }

// order compares the positions of two fingerprints in the sequence of operations and their phases:
// -1 if a comes first. Ranks are never more than two pieces apart, so the numbers of phases may
// come round.
func order(a, b transport.Meta) int {
	d := int32(uint32(a[0]) - uint32(b[0]))
	if d == 0 {
		phaseA, phaseB := uint8(a[0]>>56), uint8(b[0]>>56)
		d = int32(phaseA) - int32(phaseB)
		if phaseA != phaseCounts && phaseB != phaseCounts && (d > 127 || d < -127) {
			d = -d
		}
	}
	return cmp.Compare(d, 0)
}

const low48 = 1<<48 - 1

// unequal marks a count that is the sum of blocks of different lengths. No block is that long
// (program.MaxBytes).
const unequal = 1 << 47

// blocks puts lengths that all ranks know into the fingerprint: over windows they are sent nowhere
// else. If the lengths differ, there is no room for each of them, so the hash includes a digest of
// them in their order.
func (f *fingerprint) blocks(blocks []Block) {
	same, total, digest := true, 0, uint32(0)
	for _, b := range blocks {
		same = same && b.Count == blocks[0].Count
		total += b.Count
		digest = digest*digestFactor + uint32(b.Count)
	}
	if f.count = blocks[0].Count; !same {
		f.count = total&(unequal-1) | unequal
		f.hash ^= uint16(digest>>16) ^ uint16(digest)
	}
}

// take makes f the fingerprint of a call, without its position in the sequence.
func (f *fingerprint) take(call *Call, hash uint16) {
	*f = fingerprint{coll: call.Coll, typ: call.Type, hash: hash}
	switch call.Coll {
	case dtype.Broadcast:
		f.count = call.Out[0].Count
	case dtype.Reduce, dtype.AllReduce:
		f.count = call.In[0].Count
	case dtype.AllGather:
		f.blocks(call.Out)
	case dtype.ReduceScatter:
		f.blocks(call.In)
	}
	if call.Coll.Rooted() {
		f.root = call.Root
	}
	if call.Coll.Reduces() {
		f.op = call.Op
	}
	if whole := uint64(call.Whole); whole != 0 { // pieces of different calls may have the same length
		f.hash ^= uint16(whole * historyFactor >> 48)
	}
}

const digestFactor = 0x9e3779b1 // odd, with its bits spread

func (f *fingerprint) meta(bytes int) transport.Meta {
	return transport.Meta{
		uint64(f.seq) | uint64(f.coll)<<32 | uint64(f.typ)<<40 | uint64(f.op)<<48 | uint64(f.phase)<<56,
		uint64(bytes)&low48 | uint64(f.root)<<48,
		uint64(f.count)&low48 | uint64(f.hash)<<48,
	}
}

func decode(m transport.Meta) (f fingerprint, bytes int) {
	f.seq, f.coll, f.typ, f.op = uint32(m[0]), dtype.Collective(m[0]>>32), dtype.Type(m[0]>>40), dtype.Op(m[0]>>48)
	f.phase = uint8(m[0] >> 56)
	f.root, bytes = int(m[1]>>48), int(m[1]&low48)
	f.count, f.hash = int(m[2]&low48), uint16(m[2]>>48)
	return f, bytes
}

// history is a digest of the calls that a rank has made in a group. It is part of every
// fingerprint. If ranks have called different operations and each could end its own (each as the
// root of another broadcast over windows, for example), they find the mismatch in the next
// operation.
type history uint64

func (h *history) add(call uint64) { *h = *h*historyFactor + history(call) }

// hash returns the part of h that fingerprints include. The upper bits depend on everything that
// was added.
func (h history) hash() uint16 { return uint16(h >> 48) }

// digest returns what a call adds to the history.
func (f *fingerprint) digest() uint64 {
	d := uint64(f.coll) | uint64(f.typ)<<8 | uint64(f.op)<<16 | uint64(f.root)<<24
	return (d*historyFactor + uint64(f.count)) * historyFactor
}

const historyFactor = 0x9e3779b97f4a7c15 // odd, with its bits spread

// describe formats a fingerprint as a person would write the call.
func (f *fingerprint) describe(bytes int) string {
	s := fmt.Sprintf("%v seq %d", f.coll, f.seq)
	if f.coll == dtype.Barrier {
		return s
	}
	switch blocks := f.coll == dtype.AllGather || f.coll == dtype.ReduceScatter; {
	case f.count&unequal != 0:
		s += fmt.Sprintf(", blocks of different lengths, together %d x %v", f.count&^unequal, f.typ)
	case f.count > 0 && blocks:
		s += fmt.Sprintf(", blocks of %d x %v", f.count, f.typ)
	case f.count > 0:
		s += fmt.Sprintf(", %d x %v", f.count, f.typ)
	default:
		s += fmt.Sprintf(", %v", f.typ)
	}
	if f.coll.Reduces() {
		s += fmt.Sprintf(" %v", f.op)
	}
	if f.coll.Rooted() {
		s += fmt.Sprintf(", root %d", f.root)
	}
	if f.phase == phaseCounts {
		s += ", exchanging lengths"
	}
	if bytes != askLength {
		s += fmt.Sprintf(" (message of %d bytes)", bytes)
	}
	return s
}

// Print returns what all ranks must have in common in a call of theirs with a number, as far as all
// ranks know it.
func Print(call *Call, seq uint64) transport.Meta {
	var f fingerprint
	f.take(call, 0)
	f.seq = uint32(seq)
	return f.meta(askLength)
}

// DescribePrint formats a result of Print, of any rank, as a person would write the call.
func DescribePrint(m transport.Meta) string {
	f, _ := decode(m)
	f.phase = phaseOf(0) // it has none, which would stand for the exchange of lengths
	return f.describe(askLength)
}

// Package fingerprint is what ranks compare of their calls: the values that must be equal on both
// sides of a message or record, and a digest of the calls before.
package fingerprint

import (
	"cmp"
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/transport"
)

// Fields holds the values that must be the same on both sides of a message. It travels in the
// transport.Meta of every fragment:
//
//	word 0  sequence number (32) | collective (8) | type (8) | operator (8) | phase (8)
//	word 1  root (16) | bytes of the message, or of the window's chunk (48)
//	word 2  count of elements (48) | hash of the plan and of the calls before this one (16)
//
// The count is that of the vector or of each block, if all ranks know it. For blocks of different
// lengths it is the sum, marked with unequal.
type Fields struct {
	Seq   uint32
	Coll  dtype.Collective
	Type  dtype.Type
	Op    dtype.Op
	Phase uint8 // of the operation, see PhaseOf
	Root  int
	Count int
	Hash  uint16
}

// PhaseCounts is the phase in which the lengths of blocks, or the times of trials, are exchanged.
const PhaseCounts = 0

// PhaseOf returns the phase of a piece of an operation: 1, 2, … 255, 1, …
func PhaseOf(piece int) uint8 { return uint8(piece%255 + 1) }

// Order compares the positions of two fingerprints in the sequence of operations and their phases:
// -1 if a comes first. Ranks are never more than two pieces apart, so the numbers of phases may
// come round.
func Order(a, b transport.Meta) int {
	d := int32(uint32(a[0]) - uint32(b[0]))
	if d == 0 {
		phaseA, phaseB := uint8(a[0]>>56), uint8(b[0]>>56)
		d = int32(phaseA) - int32(phaseB)
		if phaseA != PhaseCounts && phaseB != PhaseCounts && (d > 127 || d < -127) {
			d = -d
		}
	}
	return cmp.Compare(d, 0)
}

// Low48 masks the lower field of words 1 and 2.
const Low48 = 1<<48 - 1

// NoLength is the length of no message.
const NoLength = Low48

// unequal marks a count that is the sum of blocks of different lengths. No block is that long
// (program.MaxBytes).
const unequal = 1 << 47

// blocks puts lengths that all ranks know into the fingerprint: over windows they are sent nowhere
// else. If the lengths differ, there is no room for each of them, so the hash includes a digest of
// them in their order.
func (f *Fields) blocks(blocks []program.Block) {
	same, total, digest := true, 0, uint32(0)
	for _, b := range blocks {
		same = same && b.Count == blocks[0].Count
		total += b.Count
		digest = digest*digestFactor + uint32(b.Count)
	}
	if f.Count = blocks[0].Count; !same {
		f.Count = total&(unequal-1) | unequal
		f.Hash ^= uint16(digest>>16) ^ uint16(digest)
	}
}

// Of returns the fingerprint of a call, without its position in the sequence.
func Of(call *program.Call, hash uint16) (f Fields) {
	f = Fields{Coll: call.Coll, Type: call.Type, Hash: hash}
	switch call.Coll {
	case dtype.Broadcast:
		f.Count = call.Out[0].Count
	case dtype.Reduce, dtype.AllReduce:
		f.Count = call.In[0].Count
	case dtype.AllGather:
		f.blocks(call.Out)
	case dtype.ReduceScatter:
		f.blocks(call.In)
	}
	if call.Coll.Rooted() {
		f.Root = call.Root
	}
	if call.Coll.Reduces() {
		f.Op = call.Op
	}
	if whole := uint64(call.Whole); whole != 0 { // pieces of different calls may have the same length
		f.Hash ^= uint16(whole * historyFactor >> 48)
	}
	return f
}

const digestFactor = 0x9e3779b1 // odd, with its bits spread

// Meta returns the fingerprint as it travels with a message of the given number of bytes.
func (f *Fields) Meta(bytes int) transport.Meta {
	return transport.Meta{
		uint64(f.Seq) | uint64(f.Coll)<<32 | uint64(f.Type)<<40 | uint64(f.Op)<<48 | uint64(f.Phase)<<56,
		uint64(bytes)&Low48 | uint64(f.Root)<<48,
		uint64(f.Count)&Low48 | uint64(f.Hash)<<48,
	}
}

// Decode returns what a Meta says.
func Decode(m transport.Meta) (f Fields, bytes int) {
	f.Seq, f.Coll, f.Type, f.Op = uint32(m[0]), dtype.Collective(m[0]>>32), dtype.Type(m[0]>>40), dtype.Op(m[0]>>48)
	f.Phase = uint8(m[0] >> 56)
	f.Root, bytes = int(m[1]>>48), int(m[1]&Low48)
	f.Count, f.Hash = int(m[2]&Low48), uint16(m[2]>>48)
	return f, bytes
}

// History is a digest of the calls that a rank has made in a group. It is part of every
// fingerprint. If ranks have called different operations and each could end its own (each as the
// root of another broadcast over windows, for example), they find the mismatch in the next
// operation.
type History uint64

// Add adds the digest of a call.
func (h *History) Add(call uint64) { *h = *h*historyFactor + History(call) }

// Hash returns the part of h that fingerprints include. The upper bits depend on everything that
// was added.
func (h History) Hash() uint16 { return uint16(h >> 48) }

// Digest returns what a call adds to the History.
func (f *Fields) Digest() uint64 {
	d := uint64(f.Coll) | uint64(f.Type)<<8 | uint64(f.Op)<<16 | uint64(f.Root)<<24
	return (d*historyFactor + uint64(f.Count)) * historyFactor
}

const historyFactor = 0x9e3779b97f4a7c15 // odd, with its bits spread

// Describe formats a fingerprint as a person would write the call, and the length of its message
// unless that is NoLength.
func (f *Fields) Describe(bytes int) string {
	s := fmt.Sprintf("%v seq %d", f.Coll, f.Seq)
	if f.Coll == dtype.Barrier {
		return s
	}
	switch blocks := f.Coll == dtype.AllGather || f.Coll == dtype.ReduceScatter; {
	case f.Count&unequal != 0:
		s += fmt.Sprintf(", blocks of different lengths, together %d x %v", f.Count&^unequal, f.Type)
	case f.Count > 0 && blocks:
		s += fmt.Sprintf(", blocks of %d x %v", f.Count, f.Type)
	case f.Count > 0:
		s += fmt.Sprintf(", %d x %v", f.Count, f.Type)
	default:
		s += fmt.Sprintf(", %v", f.Type)
	}
	if f.Coll.Reduces() {
		s += fmt.Sprintf(" %v", f.Op)
	}
	if f.Coll.Rooted() {
		s += fmt.Sprintf(", root %d", f.Root)
	}
	if f.Phase == PhaseCounts {
		what := "times of trials"
		if f.Coll == dtype.AllToAll || f.Coll == dtype.Gather || f.Coll == dtype.Scatter {
			what = "lengths"
		}
		s += ", exchanging " + what
	}
	if bytes != NoLength {
		s += fmt.Sprintf(" (message of %d bytes)", bytes)
	}
	return s
}

// What is the part of a call that all ranks know, beside word 0 of its fingerprint: root (16 bits)
// and count of elements (48).
func (f *Fields) What() uint64 { return uint64(f.Root)<<48 | uint64(f.Count)&Low48 }

// Meets reports whether a call ends on a rank only when the rank has heard, perhaps through others,
// from all of them.
func (f *Fields) Meets() bool {
	switch f.Coll {
	case dtype.Barrier:
		return true
	case dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter:
		return f.Count > 0 && f.Count&unequal == 0
	}
	return false
}

// Differ reports whether two fingerprints are of different calls. It compares what ranks can
// compare in any phase: number, collective, type, operator and root.
func Differ(a, b transport.Meta) bool {
	const call = 1<<56 - 1 // of word 0, without the phase
	return (a[0]^b[0])&call != 0 || (a[1]^b[1])>>48 != 0
}

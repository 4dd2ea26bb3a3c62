package exec

import (
	"cmp"
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/transport"
)

// fingerprint is what must be the same on both sides of a message. It rides in the transport.Meta of every fragment:
//
//	word 0  sequence number (32) | collective (8) | type (8) | operator (8) | phase (8)
//	word 1  root (16) | bytes of the message, or of the window's chunk (48)
//	word 2  elements of the vector, where all ranks know it (48) | hash of the plan (16)
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

// phaseOf is the phase of a piece of an operation: 1, 2, … 255, 1, …
func phaseOf(piece int) uint8 { return uint8(piece%255 + 1) }

// order compares two places in the sequence of operations and their phases: -1 if a comes first. Ranks are never more than two pieces
// apart, so that the numbers of phases may come round.
func order(seqA, seqB uint32, phaseA, phaseB uint8) int {
	d := int32(seqA - seqB)
	if d == 0 {
		d = int32(phaseA) - int32(phaseB)
		if phaseA != phaseCounts && phaseB != phaseCounts && (d > 127 || d < -127) {
			d = -d
		}
	}
	return cmp.Compare(d, 0)
}

const low48 = 1<<48 - 1

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

// describe shows a fingerprint as a person would write the call.
func (f *fingerprint) describe(bytes int) string {
	s := fmt.Sprintf("%v seq %d", f.coll, f.seq)
	if f.coll == dtype.Barrier {
		return s
	}
	if f.count > 0 {
		s += fmt.Sprintf(", %d x %v", f.count, f.typ)
	} else {
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
	return s + fmt.Sprintf(" (message of %d bytes, plan %04x)", bytes, f.hash)
}

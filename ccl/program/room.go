package program

import "unsafe"

// Limits of a record, the part of a window in which a rank announces one operation (package
// exec/window).
const (
	// InlineBytes is the number of bytes of a window that fit a record, so that they need no slot.
	InlineBytes = 32
	// MaxCounts is the largest group whose ranks can announce a length for each peer.
	MaxCounts = 48
	// MaxExposed is the largest number of chunks of a window in which chunks may be exposed.
	MaxExposed = 47
	// MaxSignals is more than the number of signals that a rank can give in an operation.
	MaxSignals = 1<<16 - 1
)

// Room describes what a group offers to the programs of one of its ranks.
type Room struct {
	Rank, Ranks int
	Channels    int      // channels of a link for the messages of plans
	Slot        int      // bytes of a slot of a window; 0: the rank shares no memory with others
	RecordBytes int      // bytes from one record of a window to the next
	Windows     []Window // by rank; zero for ranks that share no memory with this one
	Exposes     bool     // ranks may expose registered memory
	// Enqueued means that a rank hands its program to a device without waiting for what others
	// announce: it knows no lengths but those of its own blocks, and ranks may have different
	// numbers of pieces. Records then hold no data, and Tmp has as many bytes as a slot.
	Enqueued bool
	// Piece is how many bytes of a slot a piece fills at least; the longer a call, the more, up to
	// the slot. 0: always the slot.
	Piece int
	// Rotates means that short chunks lie in another part of their slot whenever its turn has come,
	// because that pays on the processors of all ranks.
	Rotates bool
}

// Window holds the addresses of the chunks of one rank's window in the first turn.
type Window struct {
	Inline unsafe.Pointer // in the record
	Slots  unsafe.Pointer // in the first slot; the others follow
}

// place returns where chunk i of a rank's window is, if that rank lays out its window as this rank
// does.
func (r *Room) place(p *Program, rank, i int) (off int, at unsafe.Pointer) {
	if p.Inline > 0 {
		return i * p.Inline, r.Windows[rank].Inline
	}
	return i * p.Cell, r.Windows[rank].Slots
}

// Lengths are the lengths of blocks, in elements, that the ranks have exchanged before an
// operation: one row for each rank.
type Lengths struct {
	Matrix []uint64
	Row    int // lengths of one rank
}

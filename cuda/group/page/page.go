// Package page says what is where in the page of a rank, and what positions are.
//
// A page is registered memory of a rank that all ranks of its host reach. It has words, each in a
// cache line of its own, and the rank's prints:
//
//	offer         of each peer: how far it has come with what it offers before it waits in a piece
//	signal, left  of each peer: how far it has come after that, and how far it has read this rank's
//	              window. The peer's streams write these words, and this rank's wait for them
//	failed        of each peer: 1 once its group has failed, before it lets its stream go. Its host
//	              stores it
//	begun, ended  written by this rank's own stream, for its host
//	released      stored by this rank's host, to let go a kernel that waits (package kernel)
//	awaited       of each rank: what such a kernel of this rank waits for, for its host
//	offered       by this rank's own stream ahead, for its other one
//	prints        what this rank has called, for the hosts of the peers
//	agreed        what this rank has captured, for the hosts of the peers in graphs
//	ticks, waits  of each region of this rank, for its host
//	flags         of each peer and region: words of graphs
//	places        of the chunks of this rank's window, for the kernels of the peers
//
// Signal, left, begun and ended hold a position in the sequence of operations over windows (At).
package page

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/transport"
)

const (
	// WordBytes is the room of a word: a cache line.
	WordBytes = 64
	// Align is what pages and windows are multiples of: whole pages of the processor.
	Align = 4096

	printsKept = 256
	printBytes = 32
)

// The words of a peer.
const (
	Offer = iota
	Signal
	Left
	Failed
	WordsOfPeer
)

// Layout says where what is in a page of a group of so many ranks, with windows for so many graphs.
type Layout struct{ Ranks, Graphs int }

// Of returns the offset of a word that belongs to a peer.
func (l Layout) Of(peer, word int) int { return (peer*WordsOfPeer + word) * WordBytes }

// Begun and so on return the offsets of these words; Awaited that of one of so many ranks as a
// table has.
func (l Layout) Begun() int           { return l.Of(l.Ranks, 0) }
func (l Layout) Ended() int           { return l.Of(l.Ranks, 1) }
func (l Layout) Released() int        { return l.Of(l.Ranks, 2) }
func (l Layout) Awaited(rank int) int { return l.Of(l.Ranks, 3) + 8*rank }
func (l Layout) Offered() int         { return l.Of(l.Ranks, 4) }

// Print returns the offset of the print of the call with a number.
func (l Layout) Print(seq uint64) int { return l.Of(l.Ranks, 5) + int(seq%printsKept)*printBytes }

// Agreed returns the offset of what was captured as the nth call.
func (l Layout) Agreed(nth uint64) int {
	return l.Print(0) + printsKept*printBytes + int(nth%2)*WordBytes
}

// Ticks returns the offset of the ticks of a region of this rank; its waits are behind them.
func (l Layout) Ticks(region int) int { return l.Agreed(0) + (2+region)*WordBytes }

// Signal returns the offset of the flags by which a peer signals what is in a slot of its region.
func (l Layout) Signal(peer, region, slot int) int {
	return l.Ticks(l.Graphs) + (2*(peer*l.Graphs+region))*WordBytes + slot*MostTold*8
}

// Gone returns the offset of the flag by which a peer says that it has left a slot of a region of
// this rank.
func (l Layout) Gone(peer, region, slot int) int {
	return l.Signal(peer, region, 0) + WordBytes + slot*8
}

// Place returns the offset of the place of a chunk of a slot.
func (l Layout) Place(slot, chunk int) int { return l.Signal(l.Ranks, 0, 0) + PlaceOf(slot, chunk) }

// PlaceOf returns the offset of a place from the first one.
func PlaceOf(slot, chunk int) int { return (slot*program.MaxExposed + chunk) * 8 }

// Bytes returns the size of a page.
func (l Layout) Bytes() int {
	return (l.Place(plan.WindowSlots, 0) + Align - 1) &^ (Align - 1)
}

// At is a position in the sequence of operations: of operation op, from 1, piece piece and in it
// the nth step. An operation that has ended is at the beginning of the next one, which so comes
// behind all of its pieces, however many another rank has.
func At(op uint64, piece, nth int) uint64 { return op<<32 | uint64(piece)<<12 | uint64(nth) }

// Limits of a position, and of the signals to a peer in a piece of a graph.
const (
	MostPieces  = 1 << 20
	MostSignals = 1 << 12
	MostTold    = WordBytes / 8 / plan.WindowSlots
)

// Before reports whether a position comes before another one. Positions come round.
func Before(a, b uint64) bool { return int64(a-b) < 0 }

// OpOf returns the number of the operation of a position.
func OpOf(position uint64) uint64 { return position >> 32 }

// WritePrint tells the peers what this rank calls.
func WritePrint(page []byte, at int, seq uint64, print transport.Meta) {
	for i, word := range print {
		atomic.StoreUint64(Word(page, at+8*(i+1)), word)
	}
	atomic.StoreUint64(Word(page, at), seq)
}

// ReadPrint returns the print of a call in the page of a peer. It is not there if the peer has not
// made the call, or has made so many since that it is forgotten.
func ReadPrint(page []byte, at int, seq uint64) (print transport.Meta, there, forgotten bool) {
	before := atomic.LoadUint64(Word(page, at))
	for i := range print {
		print[i] = atomic.LoadUint64(Word(page, at+8*(i+1)))
	}
	same := atomic.LoadUint64(Word(page, at)) == seq
	return print, before == seq && same, before > seq
}

// Word returns a word of a page.
func Word(page []byte, at int) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(page[at : at+8])))
}

// Page is the page of a rank as this rank reaches it.
type Page struct {
	Host   []byte
	Device cuda.Ptr
}

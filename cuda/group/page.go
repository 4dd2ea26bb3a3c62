package group

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/transport"
)

// A page is registered memory of a rank that all ranks of its host reach. It has words, each in a
// cache line of its own, and the rank's prints:
//
//	offer         of each peer: how far it has come with what it offers before it waits in a piece
//	signal, left  of each peer: how far it has come after that, and how far it has read this rank's
//	              window. The peer's streams write these words, and this rank's wait for them
//	failed        of each peer: 1 once its group has failed, before it lets its stream go. Its host
//	              stores it
//	begun, ended  written by this rank's own stream, for its host
//	released      stored by this rank's host, to let go a kernel that waits (interpret.go)
//	awaited       of each rank: what such a kernel of this rank waits for, for its host
//	offered       by this rank's own stream ahead, for its other one (windows_offer.go)
//	prints        what this rank has called, for the hosts of the peers
//	agreed        what this rank has captured, for the hosts of the peers (graphs.agree)
//	ticks, waits  of each region of this rank: see graphs
//	flags         of each peer and region: see graphs
//	places        of the chunks of this rank's window, for the kernels of the peers (lend.go)
//
// Signal, left, begun and ended hold a position in the sequence of operations over windows (at).
const (
	printsKept = 256
	printBytes = 32
)

// The words of a peer.
const (
	wordOffer = iota
	wordSignal
	wordLeft
	wordFailed
	wordsOfPeer
)

// layout says where what is in a page of a group of so many ranks, with windows for so many graphs.
type layout struct{ ranks, graphs int }

// of returns the offset of a word that belongs to a peer.
func (l layout) of(peer, word int) int { return (peer*wordsOfPeer + word) * wordBytes }

func (l layout) begun() int { return l.of(l.ranks, 0) }

func (l layout) ended() int { return l.of(l.ranks, 1) }

func (l layout) released() int { return l.of(l.ranks, 2) }

// awaited returns the offset of the word of one of so many ranks as a table has.
func (l layout) awaited(rank int) int { return l.of(l.ranks, 3) + 8*rank }

// offered returns the offset of the word of the stream ahead.
func (l layout) offered() int { return l.of(l.ranks, 4) }

// print returns the offset of the print of the call with a number.
func (l layout) print(seq uint64) int { return l.of(l.ranks, 5) + int(seq%printsKept)*printBytes }

// agreed returns the offset of what was captured as the nth call.
func (l layout) agreed(nth uint64) int {
	return l.print(0) + printsKept*printBytes + int(nth%2)*wordBytes
}

// ticks returns the offset of the ticks of a region of this rank; its waits are behind them.
func (l layout) ticks(region int) int { return l.agreed(0) + (2+region)*wordBytes }

// signal returns the offset of the flags by which a peer signals what is in a slot of its region.
func (l layout) signal(peer, region, slot int) int {
	return l.ticks(l.graphs) + (2*(peer*l.graphs+region))*wordBytes + slot*mostTold*8
}

// gone returns the offset of the flag by which a peer says that it has left a slot of a region of
// this rank.
func (l layout) gone(peer, region, slot int) int {
	return l.signal(peer, region, 0) + wordBytes + slot*8
}

// place returns the offset of the place of a chunk of a slot.
func (l layout) place(slot, chunk int) int { return l.signal(l.ranks, 0, 0) + placeOf(slot, chunk) }

// placeOf returns the offset of a place from the first one.
func placeOf(slot, chunk int) int { return (slot*program.MaxExposed + chunk) * 8 }

func (l layout) bytes() int {
	return (l.place(plan.WindowSlots, 0) + pageBytes - 1) &^ (pageBytes - 1)
}

// at is a position in the sequence of operations: of operation op, from 1, piece piece and in it
// the nth step. An operation that has ended is at the beginning of the next one, which so comes
// behind all of its pieces, however many another rank has.
func at(op uint64, piece, nth int) uint64 { return op<<32 | uint64(piece)<<12 | uint64(nth) }

// Limits of a position, and of the signals to a peer in a piece of a graph.
const (
	mostPieces  = 1 << 20
	mostSignals = 1 << 12
	mostTold    = wordBytes / 8 / plan.WindowSlots
)

// isBefore reports whether a position comes before another one. Positions come round.
func isBefore(a, b uint64) bool { return int64(a-b) < 0 }

// opOf returns the number of the operation of a position.
func opOf(position uint64) uint64 { return position >> 32 }

// writePrint tells the peers what this rank calls.
func writePrint(page []byte, at int, seq uint64, print transport.Meta) {
	for i, word := range print {
		atomic.StoreUint64(wordAt(page, at+8*(i+1)), word)
	}
	atomic.StoreUint64(wordAt(page, at), seq)
}

// readPrint returns the print of a call in the page of a peer. It is not there if the peer has not
// made the call, or has made so many since that it is forgotten.
func readPrint(page []byte, at int, seq uint64) (print transport.Meta, there, forgotten bool) {
	before := atomic.LoadUint64(wordAt(page, at))
	for i := range print {
		print[i] = atomic.LoadUint64(wordAt(page, at+8*(i+1)))
	}
	same := atomic.LoadUint64(wordAt(page, at)) == seq
	return print, before == seq && same, before > seq
}

func wordAt(page []byte, at int) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(page[at : at+8])))
}

// page is the page of a rank as this rank reaches it.
type page struct {
	host   []byte
	device cuda.Ptr
}

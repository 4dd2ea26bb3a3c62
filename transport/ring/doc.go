// Package ring is the bounded queue of fragments that the shared-memory and in-process fabrics have
// in common.
//
// # Memory
//
// Each end of a link owns one area for each channel. The owner writes it, the peer only reads it
// (see layout_unsafe.go):
//
//	released   a cache line: how many of the peer's fragments this end has given back
//	lines      16 descriptors, each a cache line: word, Meta, a copy of released, 24 bytes
//	slots      16 private slots, one for each descriptor, of 2 KiB each, or less where there are
//	           many links
//
// Fragment number i (from 0) uses line i mod 16. Its word is written last: (i+1) << 32 | kind << 28
// | length. A payload of up to 24 bytes lies in the line itself, one that fits the private slot
// lies there, and a larger one lies in a slot of 128 KiB leased from the Pool of the sending
// process; the first 8 of the line's 24 bytes then give its place in the pool. The copy of released
// spares an end that receives fragments in reply from fetching the line of released.
//
// # Series
//
// Publish and Consume store one word each, which the peer may see at once; Flush passes a fence and
// rings the doorbell, once for a series. The fragments of a series follow each other in one slot of
// the pool, so that a long message occupies little of the caches and the next message reuses the
// same memory. Where claiming pays (Ends.Claim), the next message begins behind the last one, in
// the same slot, and Flush claims its memory.
//
// # Trust
//
// The peer's memory may hold anything at any time. Each value there is read once into a local
// variable, checked, and only then used. An impossible value breaks the link, never this process.
// Checking the contents of payloads is up to the receiver.
//
// # Credit
//
// The sender has credit while fewer than 16 fragments are unreleased, and may hold at most 8
// leases, so that one channel cannot drain the pool. An empty pool does not withdraw credit: a
// large payload is then cut to the size of the private slot.
//
// A channel keeps up to 4 slots whose fragments were all released and fills them again without
// taking the pool's lock. The pool takes them away when it has no others: the state of a slot, one
// word, decides who has it.
package ring

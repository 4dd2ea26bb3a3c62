// Package ring is the bounded queue of fragments that shared memory and memory of one process have
// in common.
//
// # Memory
//
// Each end of a link owns one area for each channel. The owner writes it, the peer only reads it
// (see layout_unsafe.go):
//
//	released   a cache line: how many fragments this end has given back of what the peer sends
//	lines      16 descriptors of a cache line: word, Meta, a copy of released, 24 bytes
//	slots      16 private slots, one for each descriptor: all of 2 KiB, or less where there are many links
//
// Fragment number i (from 0) uses line i mod 16. Its word is written last: (i+1) << 32 | kind << 28
// | length. A payload of up to 24 bytes lies in the line itself, one that fits it in the private
// slot, a larger one in a slot of 128 KiB that is leased from the Pool of the sending process; the
// first 8 bytes of the line's 24 say where. The copy of released spares whoever gets fragments in
// reply the fetch of that line.
//
// # Series
//
// Publish and Consume store a word each, which the peer may see at once; Flush passes a fence and
// rings the bell, once for a series. The fragments of a series follow each other in one slot of the
// pool, so that a long message uses little of the caches, and the next one the same memory.
//
// # Trust
//
// The peer's memory may hold anything at any time. What is read there is read once into a local,
// checked, and only then used; a value that cannot be right breaks the link, never this process.
// Contents of payloads are the receiver's business.
//
// # Credit
//
// The sender has credit while fewer than 16 fragments are not released, and may hold at most 8
// leases, so that one channel cannot drain the pool. An empty pool is no lack of credit: a large
// payload is then cut to the private slot.
//
// Up to 4 slots that came back stay with their channel, which fills them again without the pool's
// lock. The pool takes them away when it has no others: the state of a slot, one word, decides who
// has it.
package ring

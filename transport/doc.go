// Package transport is the contract between the executor and the paths that bytes take: shared
// memory, TCP, memory of the same process, later RDMA and GPU peer memory.
//
// A Fabric is one kind of path of this process. It opens Links: a Link joins one rank of a group to
// one other rank of it, and carries numbered Channels, each a bounded queue of fragments in both
// directions.
//
// # Fragments
//
// What travels is a fragment: a Meta of 24 bytes and a payload. The sender asks for space
// (Reserve), fills it and publishes it (Commit); the receiver looks at the oldest unread fragment
// (Peek) and gives it back (Release). Both sides work on the transport's own memory, so shared
// memory needs one copy in, and the receiver reduces straight out of it. Fragments arrive whole,
// once, in the order in which they were published, for each direction of each channel. The receiver
// must not believe what a fragment says of itself: Peek returns a payload whose bounds the
// transport has checked, and the executor checks the Meta.
//
// # Series
//
// To see whether the peer sleeps costs a fence each time. So fragments that follow each other at
// once are a series: Publish and Consume are Commit and Release without waking anybody, and one
// Flush at the end does that for all of them, in both directions. Until then the peer may notice
// what was published or given back, and may be woken, or may not; after Flush it does, even if it
// sleeps. Flush must therefore come before this side sleeps, or turns to something else.
//
// Commit and Release also end the series that is open; without one they are a series of their own.
//
// # Credit
//
// A channel has bounded space in each direction. Reserve returns nil when there is none; it never
// waits. A receiver that does not read stops the sender of this channel, and of no other channel or
// link: groups never wait for each other. Reserve may lend less than was asked for (at least 1
// byte, and a multiple of 64 when it is less than asked), so large messages are cut by the
// transport's state, and the receiver takes fragments as they come. A Reserve that is not followed
// by a Publish or Commit is forgotten by the next Reserve.
//
// # Windows
//
// Where ranks share memory a link also lends the peer's window: memory that its owner alone writes.
// What is in it, and when it may be read, is the executor's business; a fragment that was published
// after a write to the window is seen after it, as is the value of an atomic word in the window.
// Notify wakes a peer that waits for such a word.
//
// A link may also lend the registered memory of the peer's process (Lender): buffers of the caller,
// of which the peer has said where they are.
//
// # Who calls
//
// The methods of a Channel are called by one thread at a time (the driver of its group), but by
// different ones over time; the executor orders them. Different channels and links are used at the
// same time by different threads. No method blocks, allocates on its hot path, or calls back.
//
// # Waiting
//
// Every process has one park.Bell. A fabric must see to it that the bell of the peer's process is
// rung after a Flush (that of a Commit or Release too), for fragments as for credit, and after a
// failure, where somebody sleeps on it (Bell.Ring is cheap when nobody does). The executor reads
// Bell.Prepare, polls everything once more, and only then sleeps, so that no ring between is lost.
// A fabric whose events come from the kernel implements Poller.
//
// # Failure
//
// Once the peer has died or the path is broken, Peek goes on returning the fragments that have
// arrived; when there are none left, Err says why (fault.PeerLost; fault.PeerLeft after the peer
// closed the link in order). A peer that closes after its last fragment loses nothing: every one
// that was published reaches the other side.
package transport

// Package transport is the contract between the executor and the paths that data takes: shared
// memory, TCP, memory within one process, and later RDMA and GPU peer memory.
//
// A Fabric is one kind of path of this process. It opens Links. A Link joins one rank of a group to
// another rank of that group and carries numbered Channels, each a bounded queue of fragments in
// both directions.
//
// Every path has these three. Five more interfaces are optional, since only some paths do what they
// are for: the events of a Poller come from the kernel, a Lender lends memory of the peer, a
// Registrar with its Gatherers sends from memory where it lies, and processes that are in no group
// yet knock at a Door. What a fabric, a link or a channel is, it stays: the executor asks once,
// when a group begins. What wraps a fabric is the same as what it wraps (package faulty has the
// test).
//
// # Fragments
//
// The unit of transfer is a fragment: a Meta of 24 bytes and a payload. The sender asks for space
// (Reserve), fills it and publishes it (Commit). The receiver reads the oldest unread fragment
// (Peek) and gives it back (Release). Both sides work directly on the transport's memory, so shared
// memory needs only the copy in, and the receiver reduces straight out of it. For each direction of
// each channel, fragments arrive whole, once, and in the order in which they were published. The
// receiver must not trust the contents of a fragment: Peek returns a payload whose bounds the
// transport has checked, and the executor checks the Meta.
//
// # Series
//
// Checking whether the peer sleeps costs a fence each time. Consecutive fragments therefore form a
// series: Publish and Consume are Commit and Release without the wakeup, and one Flush at the end
// wakes the peer for all of them, in both directions. Before Flush the peer may or may not observe
// the published and consumed fragments, and may or may not be woken. After Flush it observes them,
// even if it sleeps. Flush must therefore come before this side sleeps or turns to other work.
//
// Commit and Release also end an open series; where none is open, each is a series of its own.
//
// # Credit
//
// A channel has bounded space in each direction. Reserve returns nil when there is none; it never
// waits. A receiver that does not read stops the sender of this channel only, and of no other
// channel or link: groups never wait for each other. Reserve may lend less than the caller asked
// for (at least 1 byte, and then a multiple of 64). How a large message is cut thus depends on the
// transport's state, and the receiver takes fragments as they come. A reservation without a Publish
// or Commit is discarded by the next Reserve.
//
// # Sending in place
//
// A fabric that is a Registrar gets access to memory of the sender, and sends from there without a
// copy: its channels are Gatherers. Gather is Reserve, fill and Commit in one: it takes credit as
// they do, and cuts as they do. To the receiver it is a fragment like any other.
//
// The memory belongs to the channel until Sent, which is true once the receiver has released all
// these fragments and no adapter reads them any more. Until then a path that breaks has them sent
// again, over another one, from where they are; so a receiver that does not read holds the sender's
// memory, as a peer in Windows does. If the peer has left or died, Sent does not wait for it; once
// Err says that it has left in order, nothing is unsent.
//
// Who fails, or is aborted, cannot wait for the peer: Withdraw gives up what is not Sent, and ends
// whatever reads it, the path of other channels included if nothing else helps. What the peer gets
// of it is right; the rest never comes, and the link can only be closed. If an adapter does not let
// go even then, Unpin fails, and the memory must not be freed.
//
// # Windows
//
// Where ranks share memory (Fabric.SharesMemory), a link is a Lender: it lends the peer's window,
// memory that only its owner writes. The executor decides what a window contains and when it may be
// read. Writes to a window become visible before any fragment published after them, and before the
// value of any atomic word stored in the window after them. Notify wakes a peer that waits for such
// a word.
//
// A Lender also lends the registered memory of the peer's process (Arena): caller buffers whose
// location the peer has announced.
//
// Memory of devices has descriptors that only a driver understands. A Lender brings copies of the
// peer's, with a note that says what they are (Session.Share, Lender.Shared). The transport neither
// reads nor maps what they stand for.
//
// # Threads
//
// The methods of a Channel are called by one thread at a time, the driver of its group, but not
// always by the same thread; the executor orders the calls. Different threads use different
// channels and links at the same time. No method blocks, allocates on its hot path, or calls back.
//
// # Waiting
//
// Every process has one park.Doorbell. A fabric must ring the doorbell of the peer's process after
// a Flush (including the one in Commit and Release), for fragments and for credit alike, and after
// a failure, if a thread sleeps on the doorbell (Doorbell.Ring is cheap when none does). The
// executor reads Doorbell.Prepare, polls everything once more, and only then sleeps, so that no
// ring in between is lost. A fabric whose events come from the kernel implements Poller.
//
// # Paths on use
//
// A group of a thousand ranks needs few of its links. With Session.OnUse a fabric whose paths are
// connections makes a path when a fragment is published, or a thread waits for one (Link.Open). A
// rank that waits therefore has a path to the one that it waits for, and notices its death; ranks
// that wait for nothing notice nothing.
//
// # State
//
// Link.State says what a link knows of its path: whether it leads through a network, between which
// addresses, how far the peer is, whether fragments take a detour, whether the peer's host is
// silent. Of a path through memory there is nothing to say: its state is the zero value. The
// executor asks when a link begins, when its path is made, and when a peer is lost, but not for
// each fragment: a transport may ask the kernel.
//
// # Control messages
//
// Fragments wait in a process until one of its threads polls. A control message does not: a
// goroutine of the fabric that receives it calls Session.Control of the link that it was told to
// (Link.Tell), also while all threads of the process compute. Ranks thus ask each other how they
// are.
//
// The messages of one link and direction arrive once and in order, also over a path that breaks and
// heals; they have no order with fragments, nor with messages of other links. A message that was
// told before Close arrives if the peer has not closed its end. With Session.OnUse the first one
// makes the path. None reaches a handler unless both sides have proven what they prove before
// fragments pass. They are for a few bytes now and then: the fabric keeps at most some 256 KiB that
// a peer process has not taken, of all links to it, and then refuses more.
//
// One goroutine calls the handlers of all links to a peer process, one after another, perhaps
// before Connect has returned. A handler must be quick and must not wait; it may call Tell and
// Close of any link. The message is valid during the call only. Close of a link does not wait for
// the handler: as it returns, one call may be running or just beginning; none follows. The same
// holds once Err is fault.PeerLost; while it is fault.PeerLeft the last messages may still come.
// Close of the fabric waits for handlers, and before that for what was told to leave, as it does
// for fragments.
//
// # Failure
//
// Once the peer has died or the path is broken, Peek goes on returning the fragments that have
// arrived. When none are left, Err reports the reason (fault.PeerLost, or fault.PeerLeft after the
// peer closed the link in order). A peer that closes after its last fragment loses nothing: every
// published fragment reaches the other side. With Leave the peer is told why, in words that only
// the executor interprets, and does not trust.
package transport

// Package p2p is the tag-matching engine of send and recv: posted and unexpected queues, an eager
// protocol for short messages and a rendezvous protocol for long ones.
//
// Point-to-point operations are not plans. Each pair of ranks of a group has one transport channel
// for them, separate from the channels of the collectives, so that neither waits for the other. An
// Engine is a state machine without threads: the driver of the group calls Advance, and posting
// never blocks.
//
// # Matching
//
// A receive names a source (or AnySource) and a tag. A message matches the oldest posted receive
// that accepts its source and tag; a receive matches the oldest arrived message. Messages from one
// rank with one tag are received in the order in which they were sent, whatever their sizes. The
// lengths of a message and its receive must be equal: otherwise the requests on both sides fail
// with fault.Mismatch, which names both lengths.
//
// # Protocol
//
// Messages of up to EagerLimit bytes are sent at once (eager); their sends are done when the bytes
// have left. An eager message that arrives without a matching receive is copied to a buffer of its
// own. A sender keeps at most EagerWindow bytes of them unmatched at one peer. The receiver returns
// the credit as messages are matched, with its own eager messages where it can. Beyond that window,
// and for longer messages, the sender sends a request, and the data after the receiver has matched
// the request (rendezvous). So the memory used at a peer is bounded, and data in flight always has
// a place to go.
//
// The first headBytes of a longer message follow the request without waiting if there is credit for
// them; the answer comes while they are copied. Eager messages and heads leave one after the other,
// in fragments: the receiver copies one fragment out while the sender copies the next in. Messages
// that would not stay in the caches anyway (SetCache) are copied out past them.
//
// To a peer that is far away (SetFar), more is eager: messages of up to FarLimit, heads as long as
// that, and FarWindow of them unmatched.
//
// Direct is the short path for a send or receive that needs none of this: an eager message that
// leaves at once, or that is the next to arrive. Anything less simple it leaves to the engine, even
// halfway through a message.
//
// A request to send takes a record of some 100 bytes. At most MaxAnnounced requests in one
// direction between two ranks are unanswered; later sends wait at the sender. A receive whose
// message is behind that many unmatched messages therefore waits for them.
//
// An eager send is usually done before its message is matched. If the length then turns out to be
// wrong, the receive fails, and the sender learns of it from its next send to that peer: that send
// is delivered, but is reported with the fault.Mismatch of the earlier one.
//
// Several rendezvous messages to one peer take turns, one fragment each; requests and eager
// messages go between them. wire.go describes the fragments.
//
// # Cancelling
//
// A cancelled request is done at once, and the engine does not touch its memory from then on; the
// engines settle the rest between them. A cancelled send whose request has left is still matched,
// and the receive fails with fault.Aborted. An eager message of which a part has left is completed
// from a copy. Data that still arrives for a cancelled receive that was matched is dropped: that
// message is lost. Active remains true until this is settled.
//
// # Failure
//
// The engine checks everything that a peer sends. Unknown kinds, lengths beyond the announced ones
// and ids that do not exist are fault.Internal errors of that peer, never wild memory accesses.
// Such a peer has failed as if PeerFailed had been called.
package p2p

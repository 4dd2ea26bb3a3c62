// Package p2p is the tag-matching engine of send and recv: posted and unexpected queues, an eager
// limit, rendezvous.
//
// Point-to-point is not a plan. Each pair of ranks of a group has one transport channel for it,
// apart from those of the collectives, so that neither waits for the other. An Engine is a state
// machine without threads: the driver of the group calls Advance, and posting never blocks.
//
// # Matching
//
// A receive names a source (or AnySource) and a tag; a message matches the oldest posted receive
// that accepts its source and tag, a receive the oldest arrived message. Messages from one rank
// with one tag are received in the order of their sending, whatever their sizes. The lengths must
// be equal: a message of another length than its receive fails both sides' requests with
// fault.Mismatch, naming both lengths.
//
// # Protocol
//
// Messages of up to EagerLimit bytes travel at once (eager); their sends are done when the bytes
// have left. Arrived without a matching receive they are copied to a buffer of their own. A sender
// keeps at most EagerWindow bytes of them unmatched at one peer (the receiver returns the credit as
// they are matched, with its own eager messages where it can); beyond that, and for longer
// messages, it sends a request, and the data after the receiver has matched it (rendezvous). So a
// peer's memory is bounded, and data that is on its way always has a place to go.
//
// Of a longer message the first headBytes follow the request without waiting, where there is credit
// for them: while they are copied the answer comes. Eager messages and heads leave one after the
// other, in fragments of which the receiver copies one out while the next is copied in. Messages
// that would not stay in the caches anyway (SetCache) are copied out past them.
//
// Direct is the short way of a send or receive that needs none of this: an eager message that goes
// at once, or is the next to arrive. Whatever is less simple it leaves to the engine, half-way too.
//
// Requests are records of some 100 bytes; at most MaxAnnounced of them are unanswered between two
// ranks in one direction, later sends wait at home. A receive whose message stands behind that many
// unmatched ones therefore waits for them.
//
// An eager send is mostly done before its message is matched. If its length then turns out to be
// wrong, the receive fails, and the sender learns it from its next send to that peer: that one is
// delivered, but reported with the fault.Mismatch of the earlier.
//
// Several rendezvous messages to one peer take turns, a fragment each; requests and eager messages
// go between. wire.go describes the fragments.
//
// # Cancelling
//
// A cancelled request is done at once, and its memory is left alone from then on; the rest is
// settled between the engines. A cancelled send whose request has left is still matched, and the
// receive fails with fault.Aborted; an eager message of which a part has left is completed from a
// copy. What still arrives for a cancelled receive that was matched is dropped: that message is
// lost. Active remains true until this is settled.
//
// # Failure
//
// What a peer sends is checked: unknown kinds, lengths beyond what was announced, ids that do not
// exist are fault.Internal errors of that peer, never a wild access. Such a peer has failed as if
// PeerFailed had been called.
package p2p

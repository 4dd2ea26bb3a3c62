// Package p2p is the tag-matching engine of send and recv: posted and unexpected queues, an eager limit, rendezvous.
//
// Point-to-point is not a plan. Each pair of ranks of a group has one transport channel for it, apart from those of the
// collectives, so that neither waits for the other. An Engine is a state machine without threads: the driver of the
// group calls Advance, and posting never blocks.
//
// # Matching
//
// A receive names a source (or AnySource) and a tag; a message matches the oldest posted receive that accepts its source
// and tag, a receive the oldest arrived message. Messages from one rank with one tag are received in the order of their sending, whatever their
// sizes. The lengths must be equal: a message of another length than its receive fails both sides' requests with
// fault.Mismatch, naming both lengths.
//
// # Protocol
//
// Messages of up to EagerLimit bytes travel at once (eager); their sends are done when the bytes have left. Arrived without a matching receive they
// are copied to a buffer of their own. A sender keeps at most EagerWindow bytes of them unmatched at one peer (the receiver returns
// the credit as they are matched); beyond that, and for longer messages, it sends a request only, and the data after the receiver has matched it
// (rendezvous). So a peer's memory is bounded, and data that is on its way always has a place to go.
//
// What a peer sends is checked: unknown kinds, lengths beyond what was announced, ids that do not exist are
// fault.Internal errors of that peer, never a wild access.
package p2p

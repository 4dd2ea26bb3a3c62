// Package plan is the language of collective algorithms: for each rank, a small program of steps
// over symbolic chunks.
//
// An algorithm (package algo) or a file yields a Plan; it is checked (package verify), executed
// (package exec), simulated (package sim) and drawn (package draw) from the same value. Nothing
// else knows an algorithm. PLAN.md beside this file defines the meaning of everything here,
// precisely enough for a second implementation; this comment is the short form.
//
// # Buffers and chunks
//
// A rank has four buffers. In and Out belong to the caller and consist of blocks: the collective
// says how many (dtype.Collective.InBlocks, OutBlocks), the call how long each is. A plan cuts
// every block into Split chunks of nearly equal length (the first ones get one element more), so
// chunk b*Split+j is part j of block b. Tmp belongs to the executor. Win is the rank's window:
// memory of its own that its peers may access too. A program lists for each chunk of its Tmp and of
// its Win how long it is, as an Extent: the symbolic length of a chunk of some block. Lengths may
// be zero.
//
// A Ref is a range of chunks of one buffer. Two Refs are congruent when they have the same number
// of chunks and the chunks have the same Extents, one by one. All Refs of one step are congruent,
// and so are those of a send and its recv.
//
// # Steps
//
//	copy        Dst = Src[0]
//	reduce      Dst = Src[0] ⊕ Src[1] ⊕ …, from left to right; two or more sources
//	send        the message Src[0] goes to Peer on channel Chan
//	recv        Dst = message from Peer on Chan
//	recvreduce  Dst = Src[0] ⊕ message, or message ⊕ Src[0] where MsgFirst is set
//	put         Dst, in the window of Peer, = Src[0]
//	get         Dst = Src[0], in the window of Peer
//	getreduce   Dst = Src[0] ⊕ Src[1] ⊕ …, where source i is in the window of rank From[i], or, where From[i] is this
//	            rank, in any of its own buffers
//	signal      counts up the flag Chan that Peer keeps for this rank
//	wait        goes on when Peer has signalled flag Chan once more than was waited for: the kth wait matches the kth signal
//	packet      put, then signal, in one step: what small messages live on
//	loop        Body, Times times; see Step
//
// A send ends when its bytes have left Src, not when they have arrived, but may have to wait for
// its recv: a plan must end when every send does. A put, a signal and a packet never wait for the
// peer's program. A message is always sent, also when it is empty. Messages match first in, first
// out for each (sender, receiver, channel), signals for each (sender, receiver, flag).
//
// Others see what a put wrote only after a wait of its target for a signal (or packet) that the
// writer gave after the put. Neither messages nor signals to third ranks make a put visible. A
// window chunk that its owner wrote itself (copy, reduce, recv, …) is like other memory: visible to
// every step that happens after.
//
// Dst of a step that reduces may be the same Ref as a source of this rank. It may not overlap a
// source in another way.
//
// # Order
//
// A program is a list of lanes, each a list of steps. The steps of a lane run in order; lanes run
// at the same time, and After orders a step behind steps of other lanes. The channel of a message
// is not tied to a lane, because a lane that waits for credit cannot receive: whoever both sends
// and receives large messages does so in two lanes.
//
// # Operations in sequence
//
// The operations of a group use its windows one after the other, in slots that they take in turn.
// An operation enters its slot at a rank (its first access of any window) only when every rank has
// left the operation that used the slot before. So a plan need not care what a peer still does with
// the windows of earlier operations.
//
// # Scaling
//
// An operator may scale (dtype.Avg, dtype.PremulSum). The factor of PremulSum is applied whenever a
// step reads In (every contribution enters through exactly one read of In). The division of Avg is
// applied by steps marked Final: the ones that write a fully reduced chunk for the first time.
// Later copies and messages carry it on. For other operators Final changes nothing; a plan that
// reduces marks its steps for all operators.
//
// # Needs
//
// A plan declares what it asks of a group: Messages between ranks; Puts into windows, which
// transports without shared memory emulate; Gets from windows, which need shared memory; Counts,
// that each rank learns the lengths of blocks that are neither in its In nor in its Out (the
// executor then exchanges them before the plan begins). It declares in Alias which ways of calling
// it allows beyond disjoint In and Out.
package plan

// Package plan defines the language of collective algorithms: for each rank, a small program of
// steps over symbolic chunks.
//
// An algorithm (package algo) or a file yields a Plan. The same value is checked (package verify),
// executed (package exec), simulated (package sim) and drawn (package draw); none of these knows
// the algorithm. PLAN.md beside this file defines the meaning of everything here precisely enough
// for a second implementation; this comment is the short form.
//
// # Buffers and chunks
//
// A rank has four buffers. In and Out belong to the caller and consist of blocks: the collective
// determines their number (dtype.Collective.InBlocks, OutBlocks), the call their lengths. A plan
// cuts every block into Split chunks of nearly equal length (the first chunks get one element
// more), so chunk b*Split+j is part j of block b. Tmp belongs to the executor. Win is the rank's
// window: memory of the rank that its peers may access too. A program lists the length of each
// chunk of its Tmp and of its Win as an Extent: the symbolic length of a chunk of some block.
// Lengths may be zero.
//
// A Ref is a range of chunks of one buffer. Two Refs are congruent when they have the same number
// of chunks and equal Extents, chunk by chunk. All Refs of one step are congruent, and so are those
// of a send and its recv.
//
// # Steps
//
//	copy        Dst = Src[0]
//	reduce      Dst = Src[0] ⊕ Src[1] ⊕ …, from left to right; two or more sources
//	send        the message Src[0] goes to Peer on channel Chan
//	recv        Dst = message from Peer on Chan
//	recvreduce  Dst = Src[0] ⊕ message, or message ⊕ Src[0] if MsgFirst is set
//	put         Dst, in the window of Peer, = Src[0]
//	get         Dst = Src[0], in the window of Peer
//	getreduce   Dst = Src[0] ⊕ Src[1] ⊕ …, where source i is in the window of rank From[i] or,
//	            if From[i] is this rank, in any of its own buffers
//	signal      increments the flag Chan that Peer keeps for this rank
//	wait        ends when Peer has signalled flag Chan once more than this rank has waited for
//	            it: the kth wait matches the kth signal
//	packet      put, then signal, in one step: made for small messages
//	loop        Body, Times times; see Step
//
// A send ends when its bytes have left Src, not when they have arrived, but may have to wait for
// its recv: a plan must end even if every send does. A put, a signal and a packet never wait for
// the peer's program. A message is always sent, even if it is empty. Messages match first in, first
// out for each (sender, receiver, channel), signals for each (sender, receiver, flag).
//
// Other ranks see the result of a put only after its target has waited for a signal (or packet)
// that the writer gave after the put. Neither messages nor signals to third ranks make a put
// visible. A window chunk that its owner wrote itself (copy, reduce, recv, …) is like other memory:
// visible to every step that happens after the write.
//
// Dst of a step that reduces may be the same Ref as a source of this rank. It may not overlap a
// source in another way.
//
// # Order
//
// A program is a list of lanes, each a list of steps. The steps of a lane run in order; lanes run
// at the same time, and After makes a step wait for steps of other lanes. The channel of a message
// is not tied to a lane. A lane that waits for credit cannot receive, so a rank that both sends and
// receives large messages must use two lanes for that.
//
// # Operations in sequence
//
// The operations of a group use its windows one after the other, in slots that they take in turn.
// An operation enters its slot at a rank (with its first access of any window) only when every rank
// has left the operation that used the slot before. So a plan need not care whether a peer still
// uses the windows of earlier operations.
//
// # Scaling
//
// An operator may scale (dtype.Avg, dtype.PremulSum). The factor of PremulSum is applied whenever a
// step reads In (every contribution enters through exactly one read of In). The division of Avg is
// applied by steps marked Final: the steps that write a fully reduced chunk for the first time.
// Later copies and messages carry the quotient on. For other operators Final changes nothing; a
// plan that reduces marks its steps for all operators.
//
// # Needs
//
// A plan declares what it needs from a group: Messages between ranks; Puts into windows, which
// transports without shared memory emulate; Gets from windows, which need shared memory; Counts,
// that each rank learns the lengths of blocks that are neither in its In nor in its Out (the
// executor exchanges them before the plan begins). It declares in Alias which uses of memory it
// allows beyond disjoint In and Out.
package plan

// Package plan is the language of collective algorithms: for each rank, a small program of steps over symbolic chunks.
//
// An algorithm (package algo) yields a Plan; the plan is checked (package verify), executed (package exec) and printed
// from the same value. Nothing else knows an algorithm.
//
// # Buffers and chunks
//
// A rank has three buffers. In and Out belong to the caller and consist of blocks: the collective says how many
// (dtype.Collective.InBlocks, OutBlocks), the call how long each is. A plan cuts every block into Split chunks of nearly
// equal length (the first ones get one element more), so chunk b*Split+j is part j of block b. Tmp belongs to the
// executor; a program lists for each of its Tmp chunks the chunk of In or Out that it is as long as. Lengths may be zero.
//
// A Ref is a range of chunks of one buffer. Two Refs are congruent when they have the same number of chunks and the
// chunks have the same lengths, one by one. All Refs of one step are congruent, and so are those of a send and its recv.
//
// # Steps
//
//	copy        Dst = Src[0]
//	reduce      Dst = Src[0] ⊕ Src[1] ⊕ …, from left to right; two or more sources
//	send        the message Src[0] goes to Peer on channel Chan
//	recv        Dst = message from Peer on Chan
//	recvreduce  Dst = Src[0] ⊕ message, or message ⊕ Src[0] where MsgFirst is set
//
// A send ends when its bytes have left Src, not when they have arrived. A message is always sent, also when it is empty.
// Messages match first in, first out for each (sender, receiver, channel).
//
// Dst of a reduce or recvreduce may be the same Ref as a source. It may not overlap a source in another way.
//
// # Order
//
// A program is a list of lanes, each a list of steps. The steps of a lane run in order; lanes run at the same time, and
// After orders a step behind steps of other lanes. The channel of a message is not tied to a lane, because a lane that
// waits for credit cannot receive: whoever both sends and receives large messages does so in two lanes.
//
// # Scaling
//
// An operator may scale (dtype.Avg, dtype.PremulSum). The factor of PremulSum is applied whenever a step reads In (every
// contribution enters through exactly one read of In). The division of Avg is applied by steps marked Final: the ones
// that write a fully reduced chunk for the first time. Later copies and messages carry it on. For other operators Final
// changes nothing; a plan that reduces marks its steps for all operators.
//
// # Aliasing
//
// A plan declares in Alias which ways of calling it allows beyond disjoint In and Out.
package plan

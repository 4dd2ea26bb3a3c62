// Package program compiles plans. A Program is one rank's part of a plan, compiled for one shape of
// call: lanes of instructions whose operands are given as base, block and offset. Executors run it
// (package exec on the processor), and package verify proves it.
//
// # Two stages
//
// Lower flattens one rank's part of a plan, and does everything that depends only on the plan and
// the group. It decides which dependences are pipelined, whether signals are words in the windows,
// which copies may be fused, and what may be exposed.
//
// Compile makes a Program from the result, for a shape of call. It makes an instruction of each
// step, or of each chunk of a copy or reduction, and sets the places and lengths of the
// instruction's chunks. Entering and leaving the slots of the windows, and draining exposed memory,
// are instructions too. A Program holds no pointer to the caller's memory, so it serves every call
// of its shape.
//
// # Signals
//
// If the group has windows, and a plan has one lane and no puts, its signals are not frames but one
// word in the window of the rank that gives them. The word counts that rank's signals to all peers
// (signals.go), and a wait waits for a count.
//
// # Windows
//
// The executor describes its windows by a Room: how large they are, and where. If the chunks of a
// program do not fit a slot, the program runs in pieces; each piece has the same elements of every
// block. In a plan without gets and words, the window is private memory behind Tmp.
//
// # Devices
//
// Streams of a device execute plans in a form of their own: Streams has what moves data on the
// device in one lane, and messages in others (streams.go).
//
// # Proof
//
// The program that runs differs from the plan as it was written: signals are words, copies are
// fused and done earlier, steps are cut into chunks. AsRun turns the programs of all ranks back
// into plans, and reports where each rank enters, leaves and drains (asrun.go). Package verify
// proves these plans like any other plan, and proves sequences of them.
package program

// Package verify proves that a plan is right, by executing all its ranks on symbols.
//
// # What is executed
//
// The value of a chunk is a tree: contributions (the chunk of In of some rank) at the leaves, the operator at the inner nodes, and
// the scalings as marks (value.go). Equal trees are one number, so the values of large groups stay small and comparing
// two of them is comparing numbers. At the end every chunk of Out must be exactly the tree that the collective asks for: for moving
// collectives one certain contribution, for reducing ones every rank's contribution once, scaled once when it was read
// from In, and divided once by a step marked Final (outcome.go). Lengths are symbols too (plan.Extent); a message must
// have the same ones on both sides.
//
// # Why one schedule is enough
//
// A plan is executed once, greedily, and with no buffering at all: a send ends together with its recv. This decides for
// every interleaving and for any amount of buffering, since
//
//   - the messages of a (sender, receiver, channel) are sent in one order and received in one order, whatever the schedule
//     (steps of different lanes that use the same one must be ordered, else the plan is refused), so the k-th send
//     always meets the k-th recv, as in a Kahn network;
//   - a step that can run stays able to run until it does: nothing that another step does takes that away. So all schedules
//     that run as long as anything can run execute the same steps, and if one gets stuck, all do;
//   - more buffering only lets sends end earlier, and so enables more;
//   - no two steps that may overlap in time use the same memory, if one of them writes it (next paragraph), so a step reads the
//     same values in all schedules.
//
// # Races
//
// Two steps of a rank are ordered if one ends before the other starts in every execution with unlimited buffering: steps of a
// lane, steps ordered by After, and what messages order: the start of a send comes before the end of its recv, and nothing
// else of the two is ordered. Vector clocks follow this (clock.go). Accesses to the same chunk, one of them a write, must be ordered.
//
// The executor starts a send while the recv or recvreduce of another lane that writes its source is still running, fragment by
// fragment, where the Refs are the same. This is covered: such a send touches no chunk that the writer does not, and
// only behind it; and it ends, as its message arrives, after the last fragment of the writer.
//
// Clocks about the lanes of all ranks cost much in large groups. So plans of messages are first executed with clocks about the own
// rank's lanes only, as if messages ordered nothing. What has no race then has none. Only if one is found, the plan is
// executed again with full clocks, which are exact; plans with windows and barriers always are.
//
// # Windows
//
// A put writes when it is executed, but until its target waits for a signal that the writer gave after it, every other access to the
// chunk is a race with it, wherever it comes from; only later puts of the same rank may overwrite it. From that wait on
// it counts as written by the wait (onesided.go). A put that is never waited for in this way may arrive when its target has ended and the
// window serves another operation, so it is refused. Accesses to windows are checked against the lanes of all ranks. Puts, signals and
// waits keep what was said of schedules: a wait that can go on stays able to, and the kth wait always meets the kth signal.
//
// # Sequences
//
// A sequence is executed as one long plan: a rank's steps of the next plan come after all its steps of the last one. Windows of plans
// that use the same slot are one piece of memory, in which any two accesses must be ordered. The rule that a rank enters a slot only when
// all have left it is an edge from the ends of all ranks to that step, and may itself be waited for in a deadlock (sequence.go).
//
// # Counterexamples
//
// A failure is reduced to steps that show it when all others are taken away, by trying (minimal.go).
//
// All this is done for In and Out apart and, where the plan allows InPlace, once more with Out in the memory of In.
//
// # Lending
//
// Where the plan allows Lend, all is done again under the rule that a chunk of a window which is a mere copy of one of In or Out stands for that: who
// reads the one reads the other, too. So the source must not have been written since it was copied, and may be written only when all who read it
// are known to have done so (lend.go). Then a read finds the same value whether the chunk is lent or not, and since this holds for each chunk alone, each rank
// may lend some of its chunks, all or none, and need not tell anybody but those that look for them.
package verify

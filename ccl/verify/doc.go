// Package verify proves that a plan is right, by executing all its ranks on symbols.
//
// # What is executed
//
// The value of a chunk is a tree: contributions (the chunk of In of some rank) at the leaves, the
// operator at the inner nodes, and the scalings as marks (value.go). Equal trees are one number, so
// the values of large groups stay small and comparing two of them is comparing numbers. At the end
// every chunk of Out must be exactly the tree that the collective asks for: for moving collectives
// one certain contribution, for reducing ones every rank's contribution once, scaled once when it
// was read from In, and divided once by a step marked Final (outcome.go). Lengths are symbols too
// (plan.Extent); a message must have the same ones on both sides.
//
// # Why one schedule is enough
//
// A plan is executed once, greedily, and with no buffering at all: a send ends together with its
// recv. This decides for every interleaving and for any amount of buffering, since
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
// Two steps are ordered if one ends before the other starts in every execution with unlimited
// buffering: steps of a lane, steps ordered by After, and what messages order: a recv accesses
// memory after its send has started, and ends after that has read its source. Vector clocks follow
// this (clock.go, message.go). Accesses to the same chunk, one of them a write, must be ordered.
//
// The executor starts a send while the recv or recvreduce of another lane that writes its source is
// still running, fragment by fragment, where the Refs are the same. Such a send touches no chunk
// that the writer does not, and only behind it; and it ends, as its message arrives, after the last
// fragment of the writer.
//
// When the recv of such a send starts, the writer has started, and when it ends, the writer has
// ended. In between, each element that it receives comes after the same element of all sends and
// recvs that the message has been passed through, its trail: it is as far from the beginning in
// each of these messages, however they are cut. So where a chunk of memory is chunk i of the
// message of the recv, and was chunk i of the message of a step of the trail, the access of the
// recv comes after that of the step.
//
// Clocks about the lanes of all ranks cost much in large groups. So plans of messages are first
// executed with clocks about the own rank's lanes only, as if messages ordered nothing. What has no
// race then has none. Only if one is found, the plan is executed again with full clocks, which are
// exact; plans with windows and barriers always are.
//
// # Windows
//
// A put writes when it is executed, but until its target waits for a signal that the writer gave
// after it, every other access to the chunk is a race with it, wherever it comes from; only later
// puts of the same rank may overwrite it. There may be several such waits, and a step that comes
// after one of them sees the put (onesided.go). A put that is never waited for in this way may
// arrive when its target has ended and the window serves another operation, so it is refused.
// Accesses to windows are checked against the lanes of all ranks. Puts, signals and waits keep what
// was said of schedules: a wait that can go on stays able to, and the kth wait always meets the kth
// signal.
//
// # Sequences
//
// Plans that are right by themselves are right in any sequence, with any number of slots, and if
// operations have different ones:
//
//   - Streams. A right plan leaves nothing over, so as many messages are sent as received in it on each (sender,
//     receiver, channel), and as many signals given as waited for on each flag. A rank's steps of an operation come
//     after all its steps of those before. So, by induction, the messages and signals of an operation meet steps of
//     the same operation.
//   - Ends. Suppose that all operations before one end at all ranks. Then every rank begins it, and every slot that
//     it waits for is left. What the ranks do in it is an execution of its plan in which some begin late. Steps of
//     later operations take nothing away: their messages and signals come behind its own in every stream, and
//     those that use its slot enter when it is left. So it ends at all ranks, however many slots there are, and whether a
//     rank enters when it begins or with its first access to a window.
//   - Memory. In, Out and Tmp of an operation are used by their rank, between its beginning and its end; lent memory
//     also by others, but a rank that lends does not end before all have left. Each rank accesses the windows of a slot
//     after it has entered and before it leaves, and a put arrives before its target leaves, since that has waited for
//     it. All leave before one enters again. And nothing is read that was not written in the same operation.
//   - Barriers. The end of every rank comes after the start of every other in its own operation.
//
// The pieces of an operation are operations here. Puts that travel as frames are applied by the
// owner of the window, in the operation that they belong to: such windows have as many slots as
// there are operations.
//
// Sequence looks at the same from the other side, and relies on none of this: it executes a
// sequence as one long plan. A rank's steps of the next plan come after all its steps of the last
// one. Windows of plans that use the same slot are one piece of memory, in which any two accesses
// must be ordered. The rule that a rank enters a slot only when all have left it is an edge from
// the ends of all ranks to that step, and may itself be waited for in a deadlock (sequence.go).
// Accept does this for plans from files, with both numbers of slots of the executor.
//
// Where it is known at which steps a program enters, leaves and drains (Ends), that is what is
// executed: steps behind the entering wait for it, a rank has left behind the steps that come
// before its leaving, and where it lends memory of its caller, that is the caller's again when it
// has ended. A signal or wait accesses the record of its operation, as others access windows.
// Package exec lifts its programs to such operations, and the tests that do wrong there what can be
// done wrong (one operation too many under way, left too early, not drained) show what is found.
//
// # Counterexamples
//
// A failure is reduced to steps that show it when all others are taken away, by trying
// (minimal.go).
//
// All this is done for In and Out apart and, where the plan allows InPlace, once more with Out in
// the memory of In.
//
// # Lending
//
// Where the plan allows Lend, all is done again under the rule that a chunk of a window which is a
// mere copy of one of In or Out stands for that: who reads the one reads the other, too. So the
// source must not have been written since it was copied, and may be written only when all who read
// it are known to have done so (package exec, expose.go). Then a read finds the same value whether
// the chunk is lent or not, and since this holds for each chunk alone, each rank may lend some of
// its chunks, all or none, and need not tell anybody but those that look for them.
package verify

// Package verify proves that a plan is right by executing all its ranks on symbols.
//
// # Symbolic execution
//
// The value of a chunk is a tree: its leaves are contributions (the chunk of In of some rank), its
// inner nodes are applications of the operator, and scalings are marks (value.go). Equal trees have
// one number, so the values of large groups stay small and comparing two of them is comparing
// numbers. At the end every chunk of Out must be exactly the tree that the collective requires: for
// moving collectives one specific contribution; for reducing collectives every rank's contribution
// once, scaled once when it was read from In, and divided once by a step marked Final (outcome.go).
// Lengths are symbols too (plan.Extent); a message must have the same lengths on both sides.
//
// # Why one schedule is enough
//
// A plan is executed once, greedily, and without any buffering: a send ends together with its recv.
// This decides for every interleaving and for any amount of buffering, because
//
//   - the messages of a (sender, receiver, channel) are sent in one order and received in one
//     order, whatever the schedule (steps of different lanes that use the same stream must be
//     ordered, or else the plan is refused), so the kth send always meets the kth recv, as in a
//     Kahn network;
//   - a step that can run stays able to run until it does: no other step can disable it. So all
//     schedules that run as long as anything can run execute the same steps, and if one gets stuck,
//     all do;
//   - more buffering only lets sends end earlier, and so enables more steps;
//   - no two steps that may overlap in time use the same memory if one of them writes it (next
//     section), so a step reads the same values in all schedules.
//
// # Races
//
// Two steps are ordered if one ends before the other starts in every execution with unlimited
// buffering. Order comes from lanes, from After, and from messages: a recv accesses memory after
// its send has started, and ends after the send has read its source. Vector clocks track this order
// (clock.go, message.go). Accesses to the same chunk, one of them a write, must be ordered.
//
// The executor starts a send while the recv or recvreduce of another lane that writes its source is
// still running, fragment by fragment, if the Refs are the same. Such a send touches only chunks
// that the writer touches, and only behind it; and it ends, as its message arrives, after the last
// fragment of the writer.
//
// When the recv that matches such a send starts, the writer has started, and when it ends, the
// writer has ended. In between, each element that it receives comes after the same element of all
// sends and recvs that the message has passed through, its trail: the element has the same offset
// in each of these messages, however they are cut into fragments. So if a chunk of memory is chunk
// i of the message of the recv, and was chunk i of the message of a step of the trail, the access
// of the recv comes after that of the step.
//
// Clocks over the lanes of all ranks are expensive in large groups. So plans of messages are first
// executed with clocks over the lanes of the rank only, as if messages ordered nothing. A plan
// without races under these clocks has none. Only if a race is found is the plan executed again
// with full clocks, which are exact; plans with windows and barriers always use full clocks.
//
// # Windows
//
// A put writes when it is executed. But until its target waits for a signal that the writer gave
// after it, every other access to the chunk is a race with it, whichever rank makes the access;
// only later puts of the same rank may overwrite the chunk. There may be several such waits, and a
// step that comes after one of them sees the put (onesided.go). A put without such a wait may
// arrive when its target has ended and the window serves another operation, so it is refused.
// Accesses to windows are checked against the lanes of all ranks. The argument about schedules
// holds for puts, signals and waits too: a wait that can go on stays able to, and the kth wait
// always meets the kth signal.
//
// # Sequences
//
// Plans that are right individually are right in any sequence, with any number of slots, even if
// operations have different numbers of slots:
//
//   - Streams. A right plan leaves nothing over: on each (sender, receiver, channel) it sends as
//     many messages as it receives, and on each flag it gives as many signals as it waits for. A
//     rank's steps of an operation come after all its steps of earlier operations. So, by
//     induction, the messages and signals of an operation meet steps of the same operation.
//   - Ends. Suppose that all operations before a given one end at all ranks. Then every rank begins
//     this one, and every slot that it waits for is left. The ranks execute its plan, some of them
//     beginning late. Steps of later operations disable nothing: their messages and signals come
//     behind its own in every stream, and those that use its slot enter after it is left. So it
//     ends at all ranks, however many slots there are, and whether a rank enters when it begins or
//     with its first access to a window.
//   - Memory. In, Out and Tmp of an operation are used by their rank, between its beginning and its
//     end; lent memory is also used by others, but a rank that lends does not end before all have
//     left. Each rank accesses the windows of a slot after it has entered and before it leaves, and
//     a put arrives before its target leaves, since the target has waited for it. All ranks leave
//     before one enters again; in a group of several hosts the ranks of the host, since no others
//     access its windows. And no step reads anything that was not written in the same operation.
//   - Barriers. The end of every rank comes after the start of every other in its own operation.
//
// The pieces of an operation count as operations here. Puts that travel as frames are applied by
// the owner of the window, in the operation that they belong to: such windows have as many slots as
// there are operations.
//
// Sequence checks the same property independently of this argument: it executes a sequence as one
// long plan. A rank's steps of the next plan come after all its steps of the last one. Windows of
// plans that use the same slot are one piece of memory, in which any two accesses must be ordered.
// The rule that a rank enters a slot only when all have left it is an edge from the ends of all
// ranks to that step, and may itself be waited for in a deadlock (sequence.go). Accept does this
// for plans from files, with both numbers of slots of the executor.
//
// If the steps at which a program enters, leaves and drains are known (Ends), those are executed:
// steps behind the entry wait for it; a rank has left once the steps before its exit have ended;
// and if it lends memory of its caller, the caller owns that memory again when the rank has ended.
// A signal or wait accesses the record of its operation, as other steps access windows. Package
// exec lifts its programs to such operations. Its tests make each of the possible mistakes (one
// operation too many in flight, left too early, not drained) and show which failure is found.
//
// # Counterexamples
//
// A failure is reduced to steps that show it when all other steps are removed. The reduction tries
// subsets (minimal.go).
//
// All this is done with In and Out apart and, if the plan allows InPlace, once more with Out in the
// memory of In.
//
// # Lending
//
// If the plan allows Lend, everything is repeated under the rule that a window chunk which is only
// a copy of a chunk of In or Out stands for that chunk: a step that reads the window chunk reads
// the source too. So the source must not have been written since it was copied, and may be written
// only when all its readers are known to have read it (package exec, expose.go). Then a read finds
// the same value whether the chunk is lent or not. Since this holds for each chunk alone, each rank
// may lend some of its chunks, all or none, and need only inform the ranks that look for them.
package verify

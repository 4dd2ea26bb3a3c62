// Package exec runs plans: it lowers one rank's part of a plan, compiles that for a shape of call, and moves the bytes
// over transport links. A Comm is one rank of one group.
//
// # Whoever waits, works
//
// An operation is a frame over a program, resumable anywhere; no thread belongs to it. A thread that waits for an
// operation drives its Comm: it takes the driver's lock (one word, only ever tried), and advances whatever can be
// advanced. Others that wait on the same Comm sleep on its turn word. Operations that nobody waits for are
// driven by the process's one progress thread, which does not start at once: most are soon waited for, and its help would only hinder
// (progress.go). Where that is known to be wrong, because somebody sleeps until the end, Op.Urge says so.
//
// The rules that keep this alive (driver.go; checked over all interleavings by model_test.go):
//
//   - Every Comm with pending operations has a driver: a thread that holds its lock or is inside Wait on it, else the progress thread. That one
//     naps, for a millisecond at the most, before it takes a Comm; but not while an urgent operation is pending there, and it
//     never sleeps longer without having taken all that nobody else drives.
//   - Who gives up the lock, or leaves Wait, while operations are pending hands over: it wakes one thread that sleeps in Wait on this Comm, or, when no
//     thread is inside Wait on it, the progress thread.
//   - Who posts while another thread holds the lock rings the bell, in case the holder sleeps.
//   - A driver sleeps on the process's bell, holding the lock, and never before it has looked once more after announcing itself.
//
// Collectives of one Comm run one after another in the order of posting; Comms never wait for each other.
//
// # Fragments
//
// A message is cut into fragments by the space that the transport lends. A send whose source was written by a step of
// another lane starts with the first bytes of that step and not with its end, where both Refs are the same (a
// pipelined gate); all other dependences are on whole steps.
//
// # Windows
//
// Nobody writes memory of another rank. Put, packet and signal are frames on a channel that all lanes share; whoever drives the target applies
// them to its window, also while its program waits for something else (window.go). So any transport can do them.
//
// Where the group has windows and a plan has one lane and no puts, its signals are no frames but a word in the window of the rank that gives them,
// for all to see (signals.go). Beside the word stands what the call is, which whoever waits for it compares with its own.
//
// Get and getreduce read windows of peers in place (shared.go). They need links that lend windows; all ranks refuse such a plan alike
// where the group has none. A shared window has two slots, which the operations that use windows take in turn: each rank counts, in its window, how many
// it has left, and enters one when all have left the one before the last. Tiny chunks need no slot; they lie beside the word, in the notice of their
// operation, of which there are eight. An operation whose chunks do not fit a slot runs in pieces, the same elements of every block in each; a piece is
// to the windows and to its messages what an operation is. In a plan without gets and words the window is private memory behind Tmp.
//
// Ranks that outnumber the cores of their host say in their windows on which they run (seats.go).
//
// # Registered memory
//
// A chunk of a window that would be a copy of a buffer which peers can read is that buffer itself, where the plan allows it (lend.go). A rank that lends
// ends the operation when all have left it.
//
// # Copies
//
// A long block that goes to the window and to Out is read once (results.go). Where an operation touches more memory than the last-level cache holds, what
// no step reads again is stored past it.
//
// # Programs
//
// A plan is compiled for one shape of call (program.go): each step, or each chunk of one, becomes an instruction whose operands
// are base (In, Out, Tmp, a window), block and offset; what surrounds the steps, entering and leaving a slot of the windows and
// draining exposed memory, are instructions too. A program holds no pointers of the caller, so it serves every call of its shape:
// those that came more than once are kept (cache), others are compiled into memory that is used again. Compiling takes longer
// than running what is small.
//
// There is one interpreter (run.go). It never sleeps, and goes on where it has stopped; with a pace it waits awake. Run and Post
// first try a call whose program is kept before they count it as pending, if nothing else is queued: most end there. What does
// not is queued as it stands, for whoever drives. Before a driver sleeps it looks at the links of the peers that instructions
// wait for. A Wait that finds the lock free takes it before it counts itself, and is spared that if its operation ends while it
// spins.
//
// # Proof
//
// What runs is no longer the plan as it was written: signals are words, copies are fused and stand earlier, steps are cut into
// chunks. AsRun makes a plan of the programs again, with what stands around its steps: where each rank enters and leaves its slot, and
// drains (asrun.go). Package verify proves that like any other plan, and sequences of such operations: those of the catalogue in
// tests, those of users and of large groups before their first use.
//
// # Lengths
//
// A plan that forwards blocks of other ranks (plan.Counts) needs to know how long they are. Its operations begin with an all_gather of lengths,
// a program like any other, under the same sequence number and with another phase in the fingerprint (exchange.go).
//
// # Trust
//
// Every fragment carries the operation's fingerprint, the length of its message and the plan's hash. They are compared before a
// byte is used, so ranks that call different things get fault.Mismatch and not wrong data. Where each can end its own call without hearing of
// the others' (roots of a broadcast over windows), the next one has it: a digest of the calls before is in the fingerprint. Where nobody
// sends, and each waits for another, they ask (ask.go). Frames also name a place in the window, which is
// checked against this rank's own lengths; lengths that peers tell are checked against those that this rank knows, and their
// sum against MaxCounted. Places in the registered memory of peers are checked against its size.
package exec

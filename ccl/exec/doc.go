// Package exec runs plans. It lowers one rank's part of a plan, compiles that for a shape of call,
// and moves the bytes over the links of a transport. A Comm is one rank of one group.
//
// # Whoever waits, works
//
// An operation is a frame over a program and can stop and go on anywhere; no thread belongs to it.
// A thread that waits for an operation drives its Comm: it takes the driver's lock (one word, only
// ever tried) and advances all that can be advanced. Other threads that wait on the same Comm sleep
// until their turn. Operations that no thread waits for are driven by the process's one progress
// thread. That does not start at once: most operations are soon waited for, and its help would only
// hinder (progress.go). Where a caller sleeps until the end without waiting here, Op.Urge says so.
//
// The rules that keep this alive (wait.go and driver.go; model_test.go checks them over all
// interleavings, and a test holds that model to the code):
//
//   - Every Comm with pending operations has a driver: a thread that holds its lock or is inside Wait on
//     it, else the progress thread. That naps for a millisecond at most before it takes a Comm, but not
//     while an urgent operation is pending there, and it never sleeps longer before it has taken all that
//     no other thread drives.
//   - A thread that gives up the lock, or leaves Wait, while operations are pending hands over: it wakes
//     one thread that sleeps in Wait on this Comm, or, if no thread is inside Wait on it, the progress
//     thread.
//   - A thread that posts while another one holds the lock rings the bell, in case the holder sleeps.
//   - A driver sleeps on the process's bell, holding the lock, and never before it has looked once more
//     after announcing itself. It sleeps in one function (rest), as all threads of this package do.
//
// Collectives of one Comm run one after another in the order of posting. Comms never wait for each
// other.
//
// # Programs
//
// A plan is compiled for one shape of call (program.go). Each step, or each chunk of one, becomes
// an instruction whose operands are base (In, Out, Tmp, a window), block and offset. Entering and
// leaving a slot of the windows, and draining exposed memory, are instructions too. A program holds
// no pointers of the caller, so it serves every call of its shape. Programs of calls that came more
// than once are kept (cache); others are compiled into memory that is used again. Compiling takes
// longer than running what is small.
//
// There is one interpreter (run.go). It never sleeps, and goes on where it has stopped; given a
// waiter it waits awake. Run and Post first try a call whose program is kept before they count it
// as pending, if nothing else is queued: most end there. Others are queued as they stand, for the
// next driver. Before a driver sleeps it looks at the links of the peers that instructions wait
// for.
//
// # Fragments
//
// A message is cut into fragments by the space that the transport lends. A send whose source was
// written by a step of another lane starts with the first bytes of that step and not with its end,
// where both Refs are the same (a pipelined gate). All other dependences are on whole steps.
//
// # Windows
//
// No rank writes memory of another. Put, packet and signal are frames on a channel that all lanes
// share; the thread that drives the target applies them to its window, also while its program waits
// for something else (frames.go). So any transport can carry them.
//
// Where the group has windows, and a plan has one lane and no puts, its signals are not frames but
// a word in the window of the rank that gives them (signals.go). Beside the word stands the call,
// which a rank that waits for the word compares with its own (announce.go). Get and getreduce read
// windows of peers in place. They need links that lend windows; all ranks refuse such a plan alike
// where the group has none. Package window has the layout and the rules (PROTOCOL.md there): slots
// and records in turn, exposed memory, placement. An operation whose chunks do not fit a slot runs
// in pieces, the same elements of every block in each; to the windows and to its messages a piece
// is what an operation is. In a plan without gets and words the window is private memory behind
// Tmp.
//
// # Registered memory
//
// A chunk of a window that would be a copy of a buffer which peers can read is that buffer itself,
// where the plan allows it (expose.go). A rank that exposes memory ends the operation when all have
// left it.
//
// # Copies
//
// A long block that goes to the window and to Out is read once (results.go). Where an operation
// touches more memory than the last-level cache holds, what no step reads again is stored past it.
//
// # Proof
//
// What runs is no longer the plan as it was written: signals are words, copies are fused and stand
// earlier, steps are cut into chunks. AsRun makes plans of the programs again (asrun.go), and says
// where each rank enters, leaves and drains; package verify proves these like any other plan, and
// sequences of them. Those of the catalogue are proven in tests, those of users before their first
// use.
//
// # Lengths
//
// A plan that forwards blocks of other ranks (plan.Counts) needs to know how long they are. Its
// operations begin with an all_gather of lengths, a program like any other, under the same sequence
// number and with another phase in the fingerprint (exchange.go).
//
// # Trust
//
// Every fragment carries the operation's fingerprint, the length of its message and the plan's
// hash. They are compared before a byte is used, so ranks that call different things get
// fault.Mismatch and not wrong data. Two ranks may each end their own call without hearing of the
// other's (roots of a broadcast over windows): the next operation finds it, since a digest of the
// calls before is in the fingerprint. Where no rank sends, and each waits for another, they ask
// (ask.go). Frames also name a place in the window, which is checked against this rank's own
// lengths; lengths that peers tell are checked against those that this rank knows, and their sum
// against MaxCounted. Places in the registered memory of peers are checked against its size.
package exec

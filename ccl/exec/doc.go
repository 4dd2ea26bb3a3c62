// Package exec executes programs (package program) on the processor and moves their data over the
// links of a transport. It is the progress engine of the library, in MPI's terms. A Comm is one
// rank of one group: the executor's side of a communicator.
//
// # Waiting threads do the work
//
// The state of an operation in flight is a frame, not the stack of a thread. So an operation can
// stop anywhere, even in the middle of a message, and any thread can resume it later.
//
// A thread that waits for an operation drives its Comm: it takes the driver's lock and advances
// everything that can be advanced. The lock is one word, which threads only ever try to take. Other
// threads that wait on the same Comm sleep until their turn. Operations that no thread waits for
// are driven by the progress thread, of which a process has one. It does not take them over at
// once: most operations are soon waited for, and its help would only hinder (progress.go). A caller
// that sleeps until the end of an operation, but not in Wait, asks with Op.Expedite that the
// operation be driven without this delay.
//
// RunSlice and WaitSlice return when their time is over, for callers that have something else to
// look at. No thread waits for the operation then, and it is driven like any other. Run has an Op
// of its own for an operation that it executes alone; if RunSlice hands the operation out, it keeps
// this Op, and the Comm takes another.
//
// The following rules keep every operation alive (wait.go and driver.go). model_test.go checks them
// over all interleavings, and a test holds that model to the code.
//
//   - Every Comm with pending operations has a driver: a thread that holds its lock or is inside
//     Wait on it, or else the progress thread. The progress thread may nap before it takes over a
//     Comm, for at most a millisecond at a time, but not while the Comm has an urgent operation
//     pending. It never sleeps longer before it has taken over every Comm that no other thread
//     drives.
//   - A thread that releases the lock, or leaves Wait, while operations are pending hands over: it
//     wakes one thread that sleeps in Wait on this Comm or, if no thread is inside Wait on it, the
//     progress thread.
//   - A thread that posts while another thread holds the lock rings the doorbell, in case the
//     holder sleeps.
//   - A driver sleeps on the process's doorbell. A thread inside Wait keeps the lock while it
//     sleeps; the progress thread, which may drive several Comms, does not. The driver first
//     announces that it is about to sleep, and then checks once more for work, so that it misses no
//     event. All threads of this package sleep in the same function (rest).
//
// Collectives of one Comm run one after another, in the order of posting. Comms never wait for each
// other.
//
// # Programs
//
// A plan is compiled for one shape of call (package program). Programs of calls that came more than
// once are kept (cache.go); other programs are compiled into memory that is reused. Compiling a
// program takes longer than running a small operation.
//
// There is one interpreter, the runner (run.go), which knows no queue. It never sleeps: when an
// instruction has to wait, it returns, and later it resumes at that instruction. If it is given a
// waiter, it first waits for a while without sleeping.
//
// If nothing else is queued, Run and Post try a call whose program is kept before they count it as
// pending; most of these calls end there. A call that does not end is queued in the state that it
// has reached, for the next driver. Before a driver sleeps, it checks the links to the peers that
// instructions wait for.
//
// # Fragments
//
// A message is cut into fragments, whose sizes depend on the space that the transport lends. If a
// recv or recvreduce of another lane writes the source of a send, and both steps have the same Ref,
// the send starts with the first bytes of that step and does not wait for its end (a pipelined
// gate). In all other cases a step waits for whole steps.
//
// Where the channel can (transport.Gatherer), a long message goes from the memory in which it is,
// and its step ends when the channel does not need that any more (gather.go). Messages with
// multiplied elements, frames, and send and recv are always copied. A Comm that breaks off
// withdraws what is under way before its calls end.
//
// # Windows
//
// No rank writes into the memory of another. Put, packet and signal are frames on a channel that
// all lanes share. The thread that drives the target rank applies them to that rank's window, even
// while the target's program waits for something else (frames.go). So any transport can carry them.
//
// If the group has windows, and a plan has one lane and no puts, its signals are not frames but a
// word in the window of the rank that gives them. The record that contains this word also contains
// the rank's call. A rank that waits for the word compares that call with its own (announce.go).
//
// Get and getreduce read the windows of peers in place. They need links that lend windows; in a
// group without windows all ranks refuse such a plan alike. In a plan without gets and words, the
// window is private memory behind Tmp.
//
// Package window has the layout and the rules of windows (PROTOCOL.md there): slots and records
// that are used in turn, exposed memory, and placement. An operation whose chunks do not fit a slot
// runs in pieces; each piece has the same elements of every block. To the windows and to the
// messages, a piece is like an operation of its own.
//
// # Lengths
//
// A plan that forwards blocks of other ranks (plan.Counts) needs to know how long they are. Its
// operations begin with an all_gather of the lengths. That is a program like any other, under the
// same sequence number and with another phase in the fingerprint (exchange.go). After it all ranks
// know the size of an all_to_all, so its plan is then chosen again, by the size.
//
// # Deadlines
//
// The timeout of a collective counts from its turn, so that a long queue that moves is no stall. A
// message has no turn, but it may wait for those that were posted before it; its timeout counts
// from when it was posted, or from the last end of the oldest message with the same timeout
// (deadlines.go). Nothing that a driver does again and again looks at all operations in flight.
//
// # Trust
//
// Every fragment of a collective carries the operation's fingerprint, the length of its message and
// the plan's hash. The receiver compares them before it uses any of the data, so ranks that call
// different operations get fault.Mismatch and not wrong data.
//
// Whom an error then names, package blame finds out. It reads the operations in flight by five
// questions (standing.go).
//
// Other values that a peer sends are checked too: places in the window that frames name, against
// this rank's own lengths; lengths, against those that this rank knows, and their sum against
// MaxCounted; places in the peer's registered memory, against the size of that memory.
package exec

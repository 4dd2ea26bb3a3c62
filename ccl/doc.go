// Package ccl is a collective-communication library: all-reduce, all-gather and related operations
// among the ranks of a group, in one process, on one host or on many.
//
// # Groups
//
// Init makes the group of all ranks that a launcher has started:
//
//	opts, err := ccl.OptionsFromEnv()
//	comm, err := ccl.Init(ctx, opts)
//	defer comm.Close()
//
// A Node represents this process: its transports, each opened when a group may first use it, and
// the thread that progresses operations that no thread waits for. Where there is no launcher, a
// rank joins a group in two steps. Between them the caller exchanges addresses by any means
// available (a store, a pipe, MPI):
//
//	node, err := ccl.NewNode(ccl.NodeOptions{})
//	endpoint, err := node.Open(ccl.Config{Rank: rank, Size: size})
//	// exchange endpoint.Address() so that every rank has all of them, by rank
//	comm, err := endpoint.Join(ctx, addresses)
//
// Local makes a group of ranks of one process.
//
// # Operations
//
// The generic functions (AllReduce, Broadcast, …) work on typed slices and return when the
// operation has ended on this rank; StartAllReduce and the others return at once. Communicator.Do
// and Start take a Call: blocks of memory and an element type. Every rank of a group must make the
// same calls in the same order; a difference is detected and reported (fault.Mismatch). Sends and
// receives have no order relative to collectives.
//
// The context of a call that returns when the operation has ended (Do, AllReduce, …) is that of the
// operation. Its deadline is a timeout of the call: a collective that has not ended by then fails
// with who was late, on all ranks, and ends the group, since the channels are left in a state that
// no later operation could use. If it is cancelled, the Communicator is aborted. In both cases the
// caller gets its memory back. The context of Work.Wait is that of the wait alone: it ends without
// any effect on the operation, this group or other ranks. To look at something else meanwhile,
// Start the operation.
//
// # Errors
//
// Errors are *Error with a class that errors.Is matches: errors.Is(err, ccl.Timeout). After a
// failed collective every later call on the Communicator returns the same error.
package ccl

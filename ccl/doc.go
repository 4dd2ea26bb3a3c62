// Package ccl is a collective-communication library: all-reduce, all-gather and their kin among the
// ranks of a group, in one process, on one host or on many.
//
// # Groups
//
// A Node is this process: its transports, opened when a group may first use them, and the thread
// that progresses operations nobody waits for. A rank joins a group in two steps, with an exchange
// of addresses between them that the caller does by any means it has (a store, a pipe, MPI):
//
//	node, err := ccl.NewNode(ccl.Options{})
//	endpoint, err := node.Open(ccl.Config{Rank: rank, Size: size})
//	// exchange endpoint.Address() so that every rank has all of them, by rank
//	comm, err := endpoint.Join(ctx, addresses)
//
// Local makes a group of ranks of one process.
//
// # Operations
//
// The generic functions (AllReduce, Broadcast, …) work on typed slices and return when the
// operation has ended on this rank. Communicator.Do and Start take a Call: blocks of memory and an
// element type. Every rank of a group makes the same calls in the same order; a difference is found
// and reported (fault.Mismatch). Sends and receives have no order against collectives.
//
// A context that ends while an operation runs aborts the Communicator: its channels are in a state
// that no later operation could use. The context of Work.Wait ends the wait only.
//
// # Errors
//
// Errors are *Error with a class that errors.Is matches: errors.Is(err, ccl.Timeout). After a
// failed collective every later call on the Communicator returns the same error.
package ccl

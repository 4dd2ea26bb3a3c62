// Package cudatest is a GPU driver in plain Go, on memory of the host: it keeps the contract of
// package cuda, and tells where a program does not.
//
// Device memory is shared memory of the system, so that its descriptors work between processes.
// Streams are executed by one goroutine, in an order that a seed chooses and that the contract
// allows. With Options.Queues they share hardware queues as on a GPU: what waits at the head of a
// queue also holds up what other streams have enqueued behind it. Priorities make no difference.
//
// A capture makes a Graph. Each stream that took part is a lane of it, with an agent of its own,
// and takes a hardware queue as streams do: lanes are ordered only by the events that were
// captured. A launch counts as if all of it were enqueued then: that is when words are written,
// ordering calls can be left out, and memory must be there. Retained functions are called by the
// goroutine that executes streams.
//
// # Kernels
//
// Every module has the functions of package cuda/kernel, whatever its code is. The processor
// executes them, in one piece, so the number of blocks and threads makes no difference. A tick is
// the write of a word, and no other access. Package cuda/kernel tests the code itself.
//
// # What is reported
//
// Every stream is an agent, and so is the host of every Context. Vector clocks follow what orders
// them: enqueuing, the order of a stream, events, words, Done and Synchronize. Two accesses to the
// same bytes, at least one of them a write, that nothing orders are a Report, in whatever order
// they have happened to be executed. The host tells of its accesses to registered memory by
// cuda.Observer. All goroutines that use one Context count as one agent: the race detector looks
// at those. What the hosts of two contexts tell each other is not seen (Driver.Order says it);
// Retain and Release order the hosts, too.
//
// The writes of a word are in order, each behind the one before. A flag that goes back to 0 forgets
// the earlier ones. The waits of streams must be ordered with that: those for the earlier values
// come before it, and all others after it.
//
// Reported as well are deadlocks, with the wait graph, copies and kernels that leave their memory,
// and calls against the contract. Check fails a test that has any report.
//
// # What a test can do
//
// MemoryOfDMABuf and MemoryAt are how adapters that a test has find memory of devices.
//
// Hold keeps a stream from executing anything. Driver.Launch and Begin are kernels of the program
// around a group, which say themselves what they access. Faults make calls fail. LeaveOut leaves
// out ordering calls, to show that each of them is needed and that a test notices.
package cudatest

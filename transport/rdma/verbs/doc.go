// Package verbs is RDMA as the transport uses it: a contract, with the system's libibverbs behind
// it (Open), and in tests memory of this process (package verbstest).
//
// It has the part of the verbs that reliable connected queue pairs need: writes with an immediate
// into memory that the peer has registered. What arrives is told by a completion, never by memory.
//
// # Lifetimes
//
// What was made from a Context must be closed before it: pairs first, then queues and regions. A
// Region must be closed before its memory goes; that of a device may go if nothing is posted that
// reads it, and is not posted any more. Close of anything that has ended is an error of the caller;
// the library says so where it can.
//
// # Threads
//
// Any thread may call anything at any time, with three exceptions: one thread at a time uses a
// Completions (Poll, Arm, Take), one a Receives (Post), and nothing is used during or after its
// Close. A Pair locks for itself.
//
// # Errors
//
// All errors are a *fault.Error: NotSupported where the machine has no adapters, no library or one
// that does not fit; System where the system refused; each says what was refused and, where a limit
// is known to be the reason (memory that may be locked, entries of a queue), names it.
//
// # The system's library
//
// libibverbs.so.1 is opened at run time, so whatever links this builds without it and runs
// where there is none. Most calls are symbols that it exports (calls_unsafe_linux.go). What
// happens for every message is not: verbs.h calls these functions inline, by a table in
// ibv_context, and so does this package, by offsets (layout_unsafe_linux.go). Before the first
// such call of a context everything is checked that is known of it without calling: its mark
// and size, the device, its descriptors, and that what should be functions lies in code
// (check_linux.go). Each object that is made must likewise hold what it was made of. Where
// anything else is found, the library does not fit: NotSupported, with the field and its value.
// That the functions are the right ones, only a trial between peers can show, which the
// transport makes.
//
// Post, Poll, Arm, Take and Receives.Post allocate nothing: requests and completions have
// memory outside the Go heap, which may point to itself, and arguments belong to the object.
//
// A process that forks keeps its registered pages (open_linux.go), but its child has copies of
// the open files: see Holder.
//
// # Where it has run
//
// With rdma-core 44 on soft RoCE (rdma_rxe) of Linux 6.1, in a machine that QEMU 7.2 emulates
// without KVM with two processors, on two cores that had other work too (ci/rdma-vm.sh,
// BenchmarkAdapter): an empty Poll takes 4 µs, a write of 4 KiB with its completion 0.25 to 0.36
// ms, one of 1 MiB 29 to 39 ms. ib_write_bw -t 1 of perftest beside it takes 0.24 ms and 36 ms.
// These are times of the emulation. It has not run with an adapter of hardware.
package verbs

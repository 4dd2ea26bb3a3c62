// Package group makes groups whose tensors are in the memory of GPUs. It is between package
// cuda, the driver, and package exec, which moves bytes on the processor over any transport.
//
// A Group is one rank of a device group. It has a Comm of its own, whose ranks are those of the
// group, and one device. Enqueue puts a call into streams and returns; it waits for nothing. What
// the caller's stream did before is seen by the call, and a stream that has joined the Op (Op.Join)
// sees what the call did. The processor is not involved in that order: a caller who joins goes on
// at once.
//
// How calls are moved are ways (ways.go): staged, windows, graphs. A Group has a list of those that
// work on all of its ranks. They settle that when they join (setup.go, package route): they open
// windows of their own and of the peers, read them with route.Auto (setup_probe.go), and tell all
// after each step. A rank waits for peers only there, by the Comm, which names a rank that has
// died.
//
// # The staged way
//
// Every call goes through registered memory of the host, in pieces (cut.go):
//
//	to the host   wait for the caller's stream and for the slot; copy In to the slot; write "there"
//	device thread wait for "there"; run the piece on the processor (Comm.Post); store "done"
//	to the device wait for "done"; copy the slot to Out; mark the slot as free
//
// A pipeline (pipeline.go) is a pair of such streams with its slots and its two words, "there" and
// "done". Pieces are numbered along a pipeline from 1; the words hold numbers of pieces. The slots
// are used in turn, so the copies in both directions and the transport overlap. Collectives have
// one pipeline, and send and recv have one for each rank and direction: a message that waits for
// its peer holds up nobody else. Messages between two ranks match in the order in which they were
// enqueued. A piece has the same part of every chunk of the plan, so each element is in the same
// chunk as if the call had been made at once, and the bits are those of a group on the processor.
// Ranks that do not know each other's lengths agree on the number of pieces after the first one.
//
// A rank waits only for words in memory of its own, and each has one writer. So whatever happens to
// the peers, a rank can let its streams go (close.go).
//
// # Hardware queues
//
// Streams share hardware queues, which may be fewer: a process may have only one, in which a
// wait holds up all that is enqueued behind it, in any stream. So a rank enqueues what its peers
// wait for in front of what waits for them. Calls do that, and all ranks make them in the same
// order: of a collective, the first pieces go to the host before a result is waited for
// (pipeline.go), and messages between hosts are sent as early as they can be and received as late
// (rails.go). Messages of the caller have no common order: those of a batch are held back until it
// ends (batch.go), and others go as they come. What waits for peers is not in the queue of the
// default stream, in which programs compute, if there are two queues at least (queues.go).
//
// # Windows
//
// Collectives go over windows where the ranks have some: memory of each rank that the devices of
// all ranks reach (package share). The instructions of a plan's program become copies, kernels and
// words of one stream (package emit, windows.go), and the processor moves nothing. A rank writes
// how far it has come into the page of each peer (package page), and waits in its own. Every call,
// by whatever way, leaves its print there, which the device threads of the peers compare with
// theirs.
//
// Some calls over windows have another form: a short one is one kernel, which interprets the same
// program (interpret.go), and between hosts there are messages in it (rails.go). Calls in streams
// that are in capture become part of a CUDA graph (graphs.go); only then does Enqueue wait, until
// all ranks have come to the call.
//
// # Failures
//
// A failure of the Comm, a deadline, an error of the driver, and Abort end the group: its streams
// are let go, all pending Ops fail with the same error, and later calls are refused. What is in the
// outputs then is undefined. The device may use the memory of a failed call until a stream that has
// joined it goes on. A stream that is let go may still write words of peers, for data that nobody
// has waited for: so a rank that fails first tells their hosts, which then end no call well.
package group

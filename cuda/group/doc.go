// Package group makes groups whose tensors are in the memory of GPUs. It stands between package
// cuda, the driver, and package exec, which moves bytes on the processor over any transport.
//
// A Group is one rank of a device group. It has a Comm of its own, whose ranks are those of the
// group, and one device. Enqueue puts a call into streams and returns; it waits for nothing. What
// the caller's stream did before is seen by the call, and a stream that has joined the Op (Op.Join)
// sees what the call did. The processor is not involved in that order: a caller who joins goes on
// at once.
//
// # The staged route
//
// Every call goes through registered memory of the host, in pieces:
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
// enqueued.
//
// A rank waits only for words in memory of its own, and each has one writer. So whatever happens to
// the peers, a rank can let its streams go: when the group fails, the host stores into "done" what
// no piece will ever reach (words.go).
//
// The streams of a pipeline are more urgent than ordinary ones, and those that read from the device
// are more urgent than those that wait for peers. Streams of different urgency have queues of their
// own, so the copies that a peer waits for do not stand behind a wait for that peer.
//
// # The windows route
//
// If Options has a Window and a WindowPlanner on all ranks, collectives go over windows: memory of
// each rank that the devices of all ranks reach, in the memory of its device or of the host. The
// instructions of a plan's program (package program), which is compiled for the device without
// knowing more than this rank's lengths, become copies, kernels (cuda/kernel) and words of one
// stream (windows.go). The processor moves nothing. A slot of the windows is used by every second
// piece. In a call of several pieces, what a rank offers the others in a piece is in a stream of
// its own, which is ahead of the other one by a piece, so copies in both directions overlap
// (windows_offer.go).
//
// The words are pushed: a rank writes how far it has come, and which slots it has left, into the
// page of each peer (page.go), and waits in its own. Positions count operations and pieces, and
// the end of an operation comes behind all of its pieces, so ranks may have different numbers of
// them. Every call, by whatever route, leaves its print in the rank's page, where the device
// threads of the peers compare it with theirs; a call ends when that has been done.
//
// How the ranks get windows is in windows_open.go: they open their own, tell all what works, open
// those of the peers, tell all, and with RouteAuto read a pattern of each peer (windows_probe.go)
// and tell all how that went. A rank never waits for a peer but in these exchanges, by the Comm,
// which names a rank that has died. What is settled follows from what all were told
// (windows_choose.go).
//
// Peers use the window and page of a rank also when it has closed its group: those of other
// processes by mappings of their own, and those of this process by the same ones, which are given
// back when all have left (Thread). Barriers and messages are staged.
//
// # Graphs
//
// A call over windows in a stream that is in capture becomes part of a CUDA graph (graphs.go). Only
// then does Enqueue wait: until all ranks have come to the call. A graph has slots of its own in
// each rank's window, and words that its streams set back, since a replay cannot count. The device
// thread looks now and then whether a replay waits for a rank that does not come
// (graphs_watch.go).
//
// # Pieces
//
// What follows is about the staged route. A piece has the same part of every chunk of the plan
// (cut.go), so each element is in the same chunk as if the call had been made at once, and its
// operands are combined in the same order. With Call.Whole the plan is that of the whole call, too.
// So the bits are those of a group on the processor.
//
// Ranks that do not know each other's lengths (all_to_all, gather, scatter) may need different
// numbers of pieces. After the first piece they agree on the largest number; pieces beyond a rank's
// own are empty.
//
// # The device thread
//
// A process has one device thread (thread.go), for all its groups. It looks at the words and drives
// the Comms. It naps between two looks, longer the longer nothing has happened. It makes no call to
// the driver but one now and then, while work is pending, to learn of errors of the device.
//
// # Failures
//
// A failure of the Comm, a deadline, an error of the driver, and Abort end the group: its streams
// are let go, all pending Ops fail with the same error, and later calls are refused. What is in the
// outputs then is undefined. A stream that is let go may still write words of peers, for data that
// nobody has waited for: so a rank that fails first tells their hosts, which then end no call well,
// and each goes on to let its stream go until it has ended. The device may use the memory of a
// failed call until a stream that has joined it goes on.
package group

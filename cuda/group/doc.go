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
// The streams of a pipeline are more urgent than ordinary ones, so their copies go first, and those
// that read from the device are more urgent than those that wait for peers.
//
// # Hardware queues
//
// Streams stand in hardware queues, which may be fewer: a process may have only one, in which a
// wait holds up all that is enqueued behind it, in any stream. So a rank enqueues what its peers
// wait for in front of what waits for them. Calls do that, and all ranks make them in the same
// order: of a collective, the first pieces go to the host before a result is waited for
// (pipeline.go), and messages between hosts are sent as early as they can be and received as late
// (rails.go). Messages of the caller have no common order. Those of a batch are held back until it
// ends, and then go into the streams piece by piece (batch.go). Others go as they come: a receive
// may hold up a send behind it.
//
// What waits for peers is not in the queue of the default stream, in which programs compute, if
// there are two queues at least (queues.go).
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
// (windows_offer.go). Copies that follow each other are one launch, and what the same batch of
// words would write again is left out: so a piece takes the driver eight calls (emitter.go).
//
// The words are pushed: a rank writes how far it has come, and which slots it has left, into the
// page of each peer (page.go), and waits in its own. Positions count operations and pieces, and
// the end of an operation comes behind all of its pieces, so ranks may have different numbers of
// them. Every call, by whatever route, leaves its print in the rank's page, where the device
// threads of the peers compare it with theirs; a call ends when that has been done.
//
// How the ranks get windows is in windows_open.go: they open their own, tell all what works, open
// those of the peers, tell all, and with route.Auto read a pattern of each peer (windows_probe.go)
// and tell all how that went. A rank never waits for a peer but in these exchanges, by the Comm,
// which names a rank that has died. What is settled follows from what all were told
// (route).
//
// A rank may have an Arena, which its peers reach as they do its window. Where it would copy a
// tensor from there into its window, it tells them the place instead, and their kernels read it
// (lend.go). It ends such a call when all peers have.
//
// Peers use the window and page of a rank also when it has closed its group: those of other
// processes by mappings of their own, and those of this process by the same ones, which are given
// back when all have left (Thread). Barriers and messages are staged. A group of one rank is the
// simplest case: its device copies, and waits for nobody.
//
// # Between hosts
//
// Of a group on several hosts with the same number of ranks, the ranks of a host have windows in
// common, and all_reduce, all_gather and reduce_scatter go by hierarchical plans: over windows
// within hosts, and by messages between the ranks with the same place on each host (rails.go).
// Everything else is staged. Package program puts such a plan into a form for streams: one lane for
// what is on the device, and a lane for the messages to each peer, or from it, which come after
// each other only where they use the same memory (program.Streams).
//
// A message is an Op inside that of its call. It takes a pipeline of its own, as a caller's message
// does, under a tag that callers cannot have. What it sends waits for an event of the stream of the
// windows; that stream waits for an event of what it has received, where the plan reads it.
// Operands of reductions come into Tmp, memory of the device for two pieces. A piece begins, up to
// where it waits for messages, before the one before goes on: so messages travel while the devices
// reduce. The messages of two ranks stay in the order of the pieces, so those of two pieces do not
// overtake each other.
//
// In front of its data a message has the print of its call, by which ranks of different hosts find
// out that they have called different things over windows, as those of a host do by their pages.
// (Where one of the calls is staged, the messages do not meet, and the calls end by their
// timeouts.) A call has ended for the host when its messages have left, too. A rank that fails says
// so to the ranks of its host before it lets the streams of messages go, since those of the windows
// follow them. Whom a late call waits for, the rank knows best that shares a host with the rank
// that is late: the others are in doubt for longer (blame).
//
// Calls with messages are never part of a CUDA graph.
//
// # Short calls
//
// Each operation of a stream costs some microseconds, and a short call costs little else. So where
// windows are in the memory of devices, a call of up to tune.MostInterpreted bytes, in one piece,
// is one kernel (interpret.go): it interprets the same program as a table of steps, and signals the
// kernels of the peers by flags in their windows. It has slots of its own there. Before and behind
// it the stream writes the words that the hosts look at, and ordinary calls may come in between:
// what a rank has heard of a peer by either counts for both.
//
// An all_reduce or all_gather of blocks of up to tune.MostInPackets bytes does without signals: its
// data travel in packets (interpret_packets.go), as in all_reduce=one_shot.
//
// By default this is not done, until two devices have shown a gain. It may be where each rank has a
// device of its own, since kernels that wait could keep those of peers on the same device from
// being executed. Calls of which a rank does not know
// all lengths (all_to_all, gather, scatter), groups of more than eight ranks, plans with too many
// steps, and graphs have no such kernels. All ranks decide alike, by what all know.
//
// A kernel that waits long tells its host for whom, so a rank that is late is named. When the group
// fails, the host lets the kernel go.
//
// # Graphs
//
// A call over windows in a stream that is in capture becomes part of a CUDA graph (graphs.go). Only
// then does Enqueue wait: until all ranks have come to the call. A graph has slots of its own in
// each rank's window, and words that its streams set back, since a replay cannot count. Memory for
// more graphs is made when they are captured (graphs_grow.go). The device thread looks now and then
// whether a replay waits for a rank that does not come (graphs_watch.go).
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
// the Comms. It naps between two looks, longer the longer nothing has happened. It never calls the
// driver, and takes no lock that is held by who does: a driver may keep all callers waiting until
// streams have ended that wait for this thread. What a group has to ask the driver, whether a
// device has failed or a call has ended, a goroutine of the group asks (queries.go).
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

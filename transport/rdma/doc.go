// Package rdma is the transport of RDMA adapters, InfiniBand and RoCE: the fast lane of TCP.
//
// A link is a tcp link, which knows the peer, proves it and tells of its death and its goodbye. Its
// fragments go by a queue pair while there is one that works, and else by tcp. Package verbs is
// what adapters offer; Select says which of their ports are used. They are opened when the first
// link needs them. In this package an adapter is a port, opened for itself.
//
// # Pairs, paths and connections
//
// Two processes that have links form a pair. They tell each other what they need over a tcp session
// of their own (message.go). The first port here and the first one there form a path, the second
// ones another, as far as both sides have ports. The paths of a pair know nothing of each other
// (path.go): each side makes a queue pair and says which (hello), connects it with that of the
// other (ready), and tries a write with an immediate. When the trial has come from the peer and the
// own one has completed, the connection is used. Options.Try bounds that; Connect waits for it, and
// lets fragments begin by tcp if it fails. A line says why.
//
// A connection breaks when a write fails, or an event says so, and the side that notices tells the
// other one: who has nothing on the way notices nothing. A new connection, with the next epoch, is
// then tried in the background, by the process with the smaller address, after pauses that grow
// from 100 ms to 30 s. Before, the port is looked at again. When an event says that a port is
// active or has other addresses, its process tries at once.
//
// # Which path a channel takes
//
// Channels prefer paths in turn. The receiver says where the sender writes (offer): into the slots
// of the channel, by the path that it prefers, or the next one that works. It does so when nothing
// can come into these slots any more, and everything was taken that has. So when a connection
// breaks, another path takes over as soon as both sides have left it. When the preferred path works
// again, the receiver asks for its slots (vacate), the sender leaves the connection when it has
// nothing in flight (vacated), and goes by tcp for the moment until the offer comes. Both keep
// their counters, should the channel return to the same connection.
//
// # Where a fragment is
//
// Each fragment of a channel and direction has a number. It goes by a connection or by tcp, and the
// receiver takes the next number from wherever it is. So fragments change from tcp to a connection
// and back without any agreement. A sender keeps a fragment in its own slot until the peer has
// released it. If the connection breaks before, the fragment goes by tcp, in its turn; a receiver
// that has had it drops it. Nothing new is sent before that, so numbers ascend by tcp, and on each
// connection.
//
// # Slots
//
// Each channel and direction has 8 short slots of 8 KiB at the receiver, where the sender writes in
// turn, and as many at the sender to write from; from the ninth link between two processes on they
// have 1 KiB. They are registered with each adapter that a channel takes. Longer fragments need a
// long slot of 64 KiB. Each adapter has a pool of them for each direction (Options.Pool). The
// receiver grants one to a channel while there is plenty, and more to channels whose sender says
// that it would have used one. Each grant is for one fragment. Where none is left, a fragment is
// short; nobody waits for a long slot.
//
// A slot begins with a head of 64 bytes, which slot.go describes. By tcp a fragment has as many
// bytes before it, and may come in parts.
//
// A sender writes to a slot again once the peer has released the fragment, and the write has
// completed. Every fourth write of a channel makes a completion, and every 32nd of a connection.
//
// # Sending in place
//
// Memory that Pin was given is registered with the adapter for reading, and found by a binary
// search in a table that never changes, but is replaced (memory.go). A fragment of it is one write
// of two pieces: a head in memory of the channel, and the payload where it is (gather.go). It takes
// a slot of the peer, and none of this side. Its head asks the peer to tell at once that it has
// released the fragment, since the sender waits. That its write has completed is not enough: what
// the peer's adapter has acknowledged, the peer may never get, if that adapter fails before it has
// taken it. If the connection breaks, the queue pair is destroyed before fragments go by tcp, since
// they are Sent when tcp has them.
//
// Withdraw waits for the writes; after 50 ms it breaks the connection, whose queue pair the manager
// destroys. A registration with writes that have not ended does not end. Forks: see verbs.Open.
//
// # Immediates
//
// That a fragment has arrived is told by the immediate of its write, never by its bytes. Credit and
// grants are immediates, too. An immediate has a kind, the number of the channel at the receiver,
// and a value (immediate.go). The receiver takes from its own tables whose channel that is and
// which slot comes next, and the length from the completion: a peer reaches the channels of its own
// links only, and slots that it may use. Memory is less strict: a process that has been proven gets
// the key of all long slots, and could overwrite those of others.
//
// All connections by an adapter share a completion queue and a receive queue, whose entries have no
// memory. A peer that is ahead waits for an entry for ever: adapters try that again by themselves.
//
// # The end of a link
//
// Close says goodbye by tcp after the peer's memory has what was published: goodbyes by tcp do not
// overtake fragments. The slots that peers write to stay registered until the peer has said that
// nothing of it is on the way any more, or its queue pair is gone.
//
// # Threads
//
// Publish and Consume post at once. Any thread polls the completion queue, one at a time; what has
// arrived is put into the channel's queue, from which its driver takes. One goroutine waits for the
// notices and events of an adapter, on behalf of sleeping threads. Another one, the manager, owns
// what pairs and links are about to do, and polls while that needs completions.
package rdma

// Package tcp is the transport between processes that share no memory.
//
// # Pairs
//
// A process has one listening port, bound to the addresses of the chosen interfaces
// (Options.Interfaces). Two processes that are linked form a pair. A pair has one connection, made
// when the first session needs it and shared by all sessions (groups) and channels. The process
// with the smaller id dials; it tries all wires to the peer until one answers and proves its
// identity. After a second the other one dials, too: a firewall may let only one of them through. A
// connection ends with the fabric, not with its last session.
//
// With Session.OnUse a session needs the connection once a fragment is published or a thread waits
// for one. Either side then dials, and where both do the smaller id's connection is taken. A pair
// dials for 10 s (Options.PeerTimeout), or as long as the peer keeps connections open; 64 pairs
// of a process dial at the same time. Data waits until both sides have opened the session. A side
// that leaves a session before that remembers it, and tells the peer when it opens the session.
//
// # Wires
//
// A wire is an address of the peer together with the interface of this process that leads there,
// whose address becomes the source. Loopback comes first on the same host, then the same subnet,
// then what routes lead to, then bridges, which mostly lead to containers. An address that this
// host has as well is no wire to another one. Where several interfaces lead to a host, the first
// dialer probes them all at once: each connection proves itself and then carries 512 KiB, for 300
// ms at most; where the system knows the rates of all interfaces, they count instead. The wires
// that answered come first, the fastest before the others, and every pair between the two hosts
// keeps this order. Options.Info is told.
//
// # Sockets
//
// A connection has one socket for frames, the main one. Others join it where several wires are
// about as fast as the best one, or where Options.Streams asks for more: the side that has dialled
// the main socket dials them, by one wire after the other, and each proves itself. Fragments and
// credit leave by any of them, once the peer is known to have the session's open; all other frames
// by the main one. A goodbye that overtakes fragments waits for them. Each socket holds little that
// has not left, so it takes what its path carries; and a long fragment does not leave by a socket
// that is so slow that the fastest one would have sent it, and all that waits before, in the
// meantime. Where one socket breaks, all of them end, and the connection heals.
//
// Where the system's congestion control paces (BBR) and the shortest round trip is below 1 ms, a
// socket gets another one (Options.Congestion), once its peer has proven itself. A path that seems
// longer is asked again now and then: it may have been busy.
//
// # Healing
//
// A pair is unopened, open, healing or lost. When a connection breaks that sessions need, the pair
// heals: both sides dial the other one's addresses at once, so that all learn of a death at the
// same time. The first connection that is accepted carries on; where those of both sides meet, the
// smaller id's is taken. Each begins with a resumption: both sides say which fragments have
// arrived, and send again what has not. Fragments stay in the sender's memory until the
// receiver has released them, so nothing is missing. Options.Warn is told.
//
// A peer that refuses connections at all its addresses, or where it was connected last, is dead,
// and the pair lost at once: a process listens before anybody knows its address. Where only the
// peer has ever dialled, a firewall may be what refuses; then it has half a second to dial again,
// and before the first connection Options.PeerTimeout. The pair is lost, too, after
// Options.PeerTimeout without a connection, and after a protocol error. A lost pair gets
// another epoch. The handshake compares epochs: a side that still has sessions of an epoch that the
// other side does not know ends them.
//
// Where a connection is made, but nothing of what was sent over the former one has arrived until
// the kernel gave that up, the path may lose large packets. The next connection to that host then
// has smaller segments, which both sides agree on in the handshake, and Options.Warn is told. Nor
// does a path live for ever that takes connections and carries nothing: Options.PeerTimeout counts
// from when the first one broke.
//
// With Options.Checksum a frame carries checksums. One that does not fit breaks the connection, and
// the next connection brings the fragment again. After three within a minute, or without a fragment
// that arrives between, the next resumption says that the path is given up, and both sides lose the
// pair for that reason.
//
// # Authentication
//
// An Address holds a random secret of its process; addresses travel through a store that both sides
// trust. Each side of a new connection proves that it knows both secrets (HMAC-SHA256 over both
// nonces) before any frame is read. Connections without this proof are limited in number
// (Options.MaxUnauthenticated; one more closes the oldest, so strangers keep no peer out) and in
// time (Options.HelloTimeout until the dialer has sent its hello, HandshakeTimeout in all). Each
// session is authenticated again with its own Session.Key, bound to the two processes.
//
// The secret in Options.SecretFile is mixed into those of all processes, so addresses alone are not
// enough.
//
// A process that knocks (transport.Door) was given the address of this one, which does not know it:
// both prove that they know the secret of this address, and that of Options.SecretFile. What they
// say then has no frames.
//
// With Options.TLS the handshake and all frames are records of TLS 1.3. Each process has a
// certificate of its own, whose hash is in its address; no other certificate is accepted. Encrypted
// bytes that the socket does not take wait in the connection, at most those of one frame.
//
// # Frames
//
// A frame is a header of 48 bytes, little endian, and a payload:
//
//	offset  0  kind     u8
//	        1  channel  u8
//	        2  check    u16  checksum of the header, 0 without checksums
//	        4  session  u32  index of the session, chosen by the sender of its open frame
//	        8  length   u32  bytes of payload
//	       12  credit   u32  fragments of this channel that the sender of the frame has
//	                  released so far; of several, the largest counts
//	       16  number   u32  of a fragment: its number in its channel and direction; of credit:
//	                  the scale of the room (below); of goodbye: how many fragments there were
//	       20  sum      u32  checksum of the payload
//	       24  meta     3 × u64
//
// The kinds: arrived says for one of the receiver's sessions how many fragments of each channel
// have arrived (u32 each), resume ends the resumption and says in number which index the sender of
// the frame expects next; open announces a session; data carries a fragment, credit does not;
// goodbye is the last frame of a session in its direction, after all its data; its payload is what
// Link.Leave was given. gone answers it.
//
// Both sides announce a session with an index of their own; a side sends data once it has received
// the other's open. Indices are used once, in ascending order. A fragment is placed by its number,
// so it does not matter over which connection it comes, nor whether it comes twice: the receiver
// shows the fragments that have arrived without a gap.
//
// The longest frame is what the system passes to the network card at once, in whole segments: on
// Ethernet 45 of 1448 bytes. A receiver takes any up to 64 KiB.
//
// # Credit
//
// Each direction of each channel has room for 16 fragments, 8 of which may be longer than 8 KiB, up
// to 64 KiB. A sender never has more in flight, so the thread that reads the socket can always
// place the next frame: no session and no channel waits for another. A peer that exceeds its credit
// is cut off with fault.Internal. Memory is allocated when it is first needed.
//
// On a long path more fits between sending a fragment and learning of its release. When a few
// long fragments have arrived, the receiver asks the kernel for the shortest round trip, and
// makes the room as large as what a path of this length holds at 2 GB/s, up to 16 times the first
// room (8 MiB in long fragments). All sessions of a pair may have 16 MiB more than the first room
// in each direction, all of a process 64 MiB; a channel gets at most half of what the pair has
// left. A credit frame says in its number how often the room was doubled. Short paths stay with the
// first room, whose memory stays in the cache. Before a slow wire, where data waits in a queue (the
// smoothed round trip stays above 1 ms), and with several sockets, all of which must have something
// to send, there is four times as much.
//
// # Control messages
//
// A connection has a control socket too, which no driver reads: one goroutine reads it and calls
// handlers, another one writes it. The side that has dialled the main socket dials it in the
// background, by the same wire first, and dials another one where it ends. It is proven like any
// other socket, and ends with its connection. Its end may be the first sign that the peer has died:
// the fabric's goroutine then reads the main socket for a while.
//
// A frame on it is a header of 20 bytes, little endian, and a text:
//
//	offset  0  kind     u8
//	        1  unused   u8
//	        2  length   u16  bytes of text
//	        4  session  u32  index of the session, as in the sender's open frame
//	        8  number   u64  of a text: its number in this direction of the pair, from 1; of heard:
//	                  how many texts have arrived
//	       16  sum      u32  checksum of the frame, 0 without checksums
//
// Both sides begin with heard, and then send what has not arrived there. A text leaves once both
// sides have opened its session. It may overtake the open frame, for which the receiver then waits
// (the fabric's goroutine reads it). A text for a session that the receiver has left counts as
// heard. A new epoch begins with number 1.
//
// # Threads
//
// Sockets other than control sockets do not block and have no goroutines of their own: Publish and
// Consume write at once, Poll reads and writes them all. One thread at a time reads a connection
// and one writes it (try-locks). If a thread cannot write because another is writing, that other
// thread writes for it. One goroutine for the whole fabric waits for events on behalf of sleeping
// threads (Arm), of Connect, of threads that have ceased to poll (Leave), of sessions that were
// closed before all their data was sent, and of control messages that wait. Another one polls a few
// times in Options.PeerTimeout, for processes that compute.
package tcp

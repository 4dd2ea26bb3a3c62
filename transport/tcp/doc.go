// Package tcp is the transport between processes that share no memory.
//
// # Connections
//
// A process has one listening port, bound to the addresses of the chosen interfaces
// (Options.Interfaces). There is one TCP connection for each pair of processes, made when the first
// session needs it and shared by all sessions (groups) and channels of the pair. The process with
// the smaller id dials; it tries all addresses of the peer, nearest first, until one answers and
// proves its identity. A connection ends with the fabric, not with its last session.
//
// # Authentication
//
// An Address holds a random secret of its process; addresses travel through a store that both sides
// trust. Each side of a new connection proves that it knows both secrets (HMAC-SHA256 over both
// nonces) before any frame is read. Connections without this proof are limited in number
// (Options.MaxUnauthenticated; one more closes the oldest, so strangers keep no peer out) and in
// time (Options.HelloTimeout until the dialer has sent its hello, HandshakeTimeout in all). Each
// session is authenticated again with its own Session.Key, bound to the connection. Nothing is
// encrypted: TLS, if it is ever wanted, begins where dialOne and welcome start the handshake, and
// receiveInto and sendFrom then go through it.
//
// # Frames
//
// A frame is a header of 48 bytes, little endian, and a payload:
//
//	offset  0  kind     u8   open, data, credit, goodbye
//	        1  channel  u8
//	        2  zero     u16
//	        4  session  u32  index of the session, chosen by the sender of the frame
//	        8  length   u32  bytes of payload
//	       12  credit   u32  fragments of this channel that the sender of the frame has
//	                  released so far
//	       16  sequence u64  number of the frame on this connection
//	       24  meta     3 × u64
//
// Both sides announce a session (open) with an index of their own choice; a side sends data once it
// has received the other's open. goodbye is the last frame of a session in its direction, after all
// its data.
//
// The sequence is checked. Replay will need it: fragments stay in the sender's memory until the
// receiver has released them, so after a redial each side reports the sequence that it expects
// next, and the other sends the later frames again. Several connections for a pair will carry the
// channels of its sessions in turn; a sequence then belongs to the pair, and frames of one channel
// stay on one connection.
//
// # Credit
//
// Each direction of each channel has room for 16 fragments, 8 of which may be longer than 8 KiB, up
// to 64 KiB. A sender never has more in flight, so the thread that reads the socket can always
// place the next frame: no session and no channel waits for another. A peer that exceeds its credit
// is cut off with fault.Internal. Memory is allocated when it is first needed.
//
// # Threads
//
// Sockets do not block and have no goroutines of their own: Publish and Consume write at once, Poll
// reads and writes all sockets. One thread at a time reads a socket and one writes it (try-locks).
// If a thread cannot write because another is writing, that other thread writes for it. One
// goroutine for the whole fabric waits for events on behalf of sleeping threads (Arm), of Connect,
// and of sessions that were closed before all their data was sent.
package tcp

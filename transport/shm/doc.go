// Package shm joins processes of one host through shared memory (Linux). PROTOCOL.md specifies it
// byte by byte.
//
// # Ownership
//
// Each process allocates the memory that it writes, as sealed segments without a name
// (internal/mem). Other processes only read it, although their mappings are writable: some
// processors transfer cache lines faster that way. Only the page with the doorbell is written by
// all.
//
//	doorbell       one per process: peers ring it
//	pool       one per process: the large slots, leased to all its links
//	ring       one per session and side: descriptors, small slots and release counters of its
//	           channels (package ring)
//	arena      one per process: its registered buffers (Options.Arena)
//	window     one per rank of a group that asks for it (transport.Session.Window), the same for all
//	           sessions of the group
//
// # Connections
//
// Two processes share one unix connection (SOCK_SEQPACKET, abstract name). The process with the
// smaller id dials it when the first session needs it, and the other one if the first may not. It
// carries the descriptors of the segments; it never carries payload. One goroutine reads it and
// calls the handlers of control messages, another one sends control messages.
//
// The death of the peer ends the connection, unless a forked child of the peer has a copy of it. So
// a third goroutine waits for the end of the process itself, by a descriptor of it (pidfd). Such a
// descriptor also tells how the process ended, which the error of the links says.
//
//	hello      from both: ids of both sides, a challenge; doorbell, pool and arena
//	open       a side calls Connect for a session: serial number, ranks, HMAC with the session's
//	           key; its ring, its window, and what it shares (transport.Session.Share)
//	joined     the sender has joined an open of its own with one of the receiver
//	bye        the sender has closed what it opened with that serial number, after its last Commit
//	           and its last control message
//	refuse     the sender cannot join what the receiver opened with that serial number (0: the
//	           connection itself)
//	control    a control message for the session of the sender's open
//	heard      the sender how many control messages the sender has handled
//
// Connect returns when each side has received the other's open and its joined. A Connect that gave
// up therefore joins no peer. Nothing lies in /dev/shm, and nothing stays after a kill.
//
// # Trust
//
// A peer must have this process's address (with its secret id), run as the same user, and hold the
// key of each session. A process that has not proven the first two costs a descriptor for half a
// second and keeps no peer out. Even so the memory and messages of a peer are checked: a damaged
// peer breaks its own links, not this process.
package shm

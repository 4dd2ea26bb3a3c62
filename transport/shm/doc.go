// Package shm joins processes of one host through shared memory (Linux). PROTOCOL.md says it byte
// by byte.
//
// # Who owns what
//
// All memory is made by the process that writes it, as sealed segments without a name (ccl/mem).
// Others only read it, though their mappings are writable: some processors hand lines over faster
// that way. Only the page with the bell is written by all.
//
//	bell       one page a process: peers ring it
//	pool       one a process: the large slots, leased to all its links
//	ring       one a session and side: descriptors, small slots and release counters of its channels (package ring)
//	arena      one a process: its registered buffers (Options.Arena)
//	window     one a rank of a group that asks for it (transport.Session.Window), the same for all sessions of the group
//
// # Connections
//
// Two processes share one unix connection (SOCK_SEQPACKET, abstract name), dialled by the one with
// the smaller id when the first session needs it. It carries the segments' descriptors, and its end
// is how the death of the peer is noticed; no byte of payload uses it.
//
//	hello      both: ids of both sides, a challenge; bell, pool and arena
//	open       a side calls Connect for a session: serial number, ranks, HMAC with the session's key; its ring, and its window
//	joined     the sender has joined an open of its own with one of the receiver
//	bye        the sender has closed what it opened with that serial number, after its last Commit
//	refuse     the sender cannot join what the receiver opened with that serial number (0: the connection itself)
//
// Connect returns when each side has the other's open and word that it was joined; so a Connect
// that gave up joins nobody. Nothing lies in /dev/shm and nothing stays after a kill.
//
// # Trust
//
// A peer must have this process's address (with its secret id), the same user, and for each session
// its key. Who has not shown the first two costs a descriptor, for half a second, and keeps no peer
// out. Even so a peer's memory and messages are checked: a damaged peer breaks its links, not this
// process.
package shm

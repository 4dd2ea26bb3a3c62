package p2p

import "unsafe"

const (
	// AnySource is the Peer of a receive that accepts a message from any rank.
	AnySource = -1

	// EagerLimit is the length of the longest message that is sent before its receive is known.
	EagerLimit = 256 << 10

	// EagerWindow is the memory that unmatched eager messages of one rank may use at another,
	// including their records.
	EagerWindow = 1 << 20

	// FarLimit and FarWindow are EagerLimit and EagerWindow of a peer so far away that the way of a
	// request and its answer takes longer than what they save.
	FarLimit  = 4 << 20
	FarWindow = 8 << 20

	// TagBits is the number of bits of a tag.
	TagBits = 48

	// MaxAnnounced is the number of requests to send from one rank to another that may await an
	// answer. Later sends wait at the sender.
	MaxAnnounced = 64 << 10
)

// Request is one posted send or receive. The caller owns the struct (usually inside a larger one)
// and the memory, and keeps both until done has been called for the request. Then it may post the
// struct again.
type Request struct {
	Peer  int            // destination, or source, or AnySource
	Tag   uint64         // less than 1<<TagBits
	Data  unsafe.Pointer // may be nil when Bytes is 0
	Bytes int
	Send  bool

	Source int // of a finished receive: the rank it came from; AnySource if no message was matched

	next, prev *Request // links in the engine's queues
	state      state
	queue      *queue   // while it is posted
	order      uint64   // order of posting among receives
	msg        *message // its rendezvous; of a send to oneself that waits, the unexpected message
	err        error    // between finish and report
}

// state is the place of a request in the engine. It determines what Cancel has to undo.
type state uint8

const (
	idle      state = iota // not in the engine
	posted                 // receive: in Engine.table
	filling                // receive: in peer.filling, a part of its eager message has arrived
	receiving              // receive: matched with a rendezvous
	queued                 // send: in peer.queue
	leaving                // send: in peer.leaving, a part of its eager message has left
	announced              // send: the request to send has left; the answer has not come, or the head is still leaving
	sending                // send: in peer.ring
	waiting                // send to oneself that has no receive yet
	finished               // in Engine.finished, about to be reported
)

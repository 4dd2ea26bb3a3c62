package p2p

import "unsafe"

const (
	// AnySource is the Peer of a receive that takes a message of any rank.
	AnySource = -1

	// EagerLimit is the longest message that is sent before its receive is known.
	EagerLimit = 256 << 10

	// EagerWindow is the memory that unmatched eager messages of one rank take at another, the
	// records counted.
	EagerWindow = 1 << 20

	// MaxAnnounced is how many messages of one rank to another may wait to be matched after the
	// eager window is used up.
	MaxAnnounced = 64 << 10
)

// Request is one posted send or receive. The caller owns the struct (usually inside a larger one)
// and the memory, and keeps both until done was called for it; then it may post the struct again.
type Request struct {
	Peer  int // destination, or source, or AnySource
	Tag   uint32
	Data  unsafe.Pointer // may be nil when Bytes is 0
	Bytes int
	Send  bool

	Source int // of a finished receive: the rank it came from; AnySource if no message was matched

	next, prev *Request // the engine's queues
	state      state
	order      uint64   // of posting, among receives
	msg        *message // its rendezvous, or where a message to oneself waits
	err        error    // between finish and report
}

// state says where in the engine a request is, and so what Cancel has to undo.
type state uint8

const (
	idle      state = iota // not in the engine
	posted                 // receive: in Engine.posted or Engine.postedAny
	filling                // receive: peer.filling, some of an eager message has arrived
	receiving              // receive: matched with a rendezvous
	queued                 // send: in peer.queue
	leaving                // send: peer.leaving, some of an eager message has left
	announced              // send: the request to send has left, no answer yet, or its head is leaving
	sending                // send: in peer.ring
	waiting                // send to oneself without a receive
	finished               // in Engine.finished, about to be reported
)

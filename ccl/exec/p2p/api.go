package p2p

import (
	"unsafe"

	"github.com/goccl/goccl/transport"
)

const (
	AnySource   = -1
	EagerLimit  = 8 << 10
	EagerWindow = 256 << 10
)

// Request is one posted send or receive. The caller owns the struct (usually inside a larger one) and the memory,
// and keeps both until Done was called for it.
type Request struct {
	Peer  int            // destination, or source, or AnySource
	Tag   uint32
	Data  unsafe.Pointer // may be nil when Bytes is 0
	Bytes int
	Send  bool

	Source int // of a finished receive: the rank it came from

	next, prev *Request // the engine's queues
}

// Engine matches the messages of one rank of one group. Its methods are called by one thread at a time.
type Engine struct {
	done func(*Request, error)
}

// New makes the engine of a rank. chans[p] is the channel to peer p; chans[rank] is nil, messages to oneself are matched
// inside. done is called, from Post or Advance, exactly once for each posted request.
func New(rank int, chans []transport.Channel, done func(*Request, error)) *Engine { panic("p2p: being written") }

// Post adds a request. It never blocks and does what can be done at once.
func (e *Engine) Post(r *Request) { panic("p2p: being written") }

// Advance moves everything that can move without waiting, and reports whether anything did.
func (e *Engine) Advance() bool { panic("p2p: being written") }

// Active reports whether the engine has requests that are not done, or owes its peers anything (credit, data).
func (e *Engine) Active() bool { panic("p2p: being written") }

// PeerFailed ends the requests that need that peer (AnySource receives too, unless a message that arrived matches) with
// err; requests posted later for that peer fail at once, after what had arrived from it was used up.
func (e *Engine) PeerFailed(peer int, err error) { panic("p2p: being written") }

// Cancel ends one request that is not done with err. It reports false if the request is not in the engine.
// After it returns, the engine does not touch the request's memory.
func (e *Engine) Cancel(r *Request, err error) bool { panic("p2p: being written") }

// Fail ends every request with err, now and from now on.
func (e *Engine) Fail(err error) { panic("p2p: being written") }

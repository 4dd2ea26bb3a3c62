package exec

import (
	"time"

	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// gatherFrom is the number of bytes of a message from which on it is sent in place where that is
// possible. The step then ends when the peer has taken the message, which takes longer than copying
// a shorter one. It is a guess: with the adapters in memory, and under emulation, there was no
// difference to measure from.
const gatherFrom = 128 << 10

// gatherer returns what sends a message of so many bytes in place, or nil.
func (c *Comm) gatherer(b *program.Instruction, bytes int) transport.Gatherer {
	if c.gatherers == nil || bytes < gatherFrom || !b.Plain {
		return nil
	}
	return c.gatherers[b.Peer*c.width+ownChannels+b.Step.Channel]
}

// withdrawSpan is how long the end of a Comm waits at most for adapters that read memory of calls.
const withdrawSpan = time.Second

// withdraw has nothing read any more of what was sent in place: the calls whose memory that is are
// about to end. If an adapter does not let go in time, the memory stays registered, and cannot be
// freed (transport.Registrar).
func (c *Comm) withdraw() {
	reading := false
	for _, g := range c.gatherers {
		reading = g != nil && !g.Withdraw() || reading
	}
	if !reading {
		return
	}
	until := now() + int64(withdrawSpan)
	var pace park.Spinner
	for _, g := range c.gatherers {
		for g != nil && !g.Withdraw() && now() < until {
			c.poll()
			pace.Relax()
		}
	}
}

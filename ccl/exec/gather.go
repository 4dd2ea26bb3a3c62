package exec

import (
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/transport"
)

// gatherFrom is the number of bytes of a message from which on it is sent in place where that is
// possible. The step then ends when the peer has taken the message, which takes longer than copying
// a shorter one. It is a guess: with the adapters in memory, and under emulation, there was no
// difference to measure from.
const gatherFrom = 128 << 10

// gatherer returns what sends a message of so many bytes in place, or nil.
func (r *runner) gatherer(b *program.Instruction, bytes int) transport.Gatherer {
	if bytes < gatherFrom || !b.Plain {
		return nil
	}
	return r.links.Gatherer(b.Peer, ownChannels+b.Step.Channel)
}

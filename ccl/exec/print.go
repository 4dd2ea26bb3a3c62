package exec

import (
	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/transport"
)

// Print returns what all ranks must have in common in a call of theirs with a number, as far as all
// ranks know it.
func Print(call *Call, seq uint64) transport.Meta {
	f := fingerprint.Of(call, 0)
	f.Seq = uint32(seq)
	return f.Meta(fingerprint.NoLength)
}

// DescribePrint formats a result of Print, of any rank, as a person would write the call.
func DescribePrint(m transport.Meta) string {
	f, _ := fingerprint.Decode(m)
	f.Phase = fingerprint.PhaseOf(0) // it has none, which would stand for the exchange of lengths
	return f.Describe(fingerprint.NoLength)
}

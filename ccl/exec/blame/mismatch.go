package blame

import (
	"errors"

	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// Mismatch returns the error for a fragment or record m of a peer that belongs to a different call
// than this rank's, which expects mine, with a message of want bytes.
func (d *Detector) Mismatch(peer int, m, mine transport.Meta, want int) error {
	got, bytes := fingerprint.Decode(m)
	if m == mine {
		return fault.Peer(fault.Internal, peer, "sent a fragment that does not fit its message of %d bytes", want)
	}
	x, seq := &d.Comparison, uint32(mine[0])
	ours, _ := fingerprint.Decode(mine)
	before := ""
	same := m[0] == mine[0] && m[1] == mine[1] && (m[2]^mine[2])&fingerprint.Low48 == 0
	if past, ok := x.call(uint32(m[0])); ok && uint32(m[0]) != seq { // a message of an earlier call
		theirs := Call{Head: m[0], What: m[1]&^fingerprint.Low48 | m[2]&fingerprint.Low48}
		if fingerprint.Differ(transport.Meta{past.Head, past.What}, m) {
			return x.different(peer, past, theirs)
		}
	}
	if same || uint32(m[0]) != seq { // the calls that differ are earlier ones, or the plans of this one
		if a, b, ok := x.earlier(peer); ok {
			return x.different(peer, a, b)
		}
		// It may have found that first, and left. Its report is passed on as it is.
		if gone := (*fault.Error)(nil); errors.As(d.opts.Links.All[peer].Err(), &gone) && len(gone.Left) > 0 {
			if told := d.Ending.parse(peer, gone.Left); told != nil && told.Code == fault.Mismatch {
				d.Ending.learn(peer, gone.Left)
				return told
			}
		}
	}
	if same {
		before = "; either they have run different plans, or made different calls before"
	}
	if bytes == want { // then their number tells nothing
		bytes, want = fingerprint.NoLength, fingerprint.NoLength
	}
	e := fault.Peer(fault.Mismatch, peer, "this rank called %s, rank %d called %s%s; %s",
		ours.Describe(want), peer, got.Describe(bytes), before, sameCalls)
	e.Proof = x.Proof(seq, m[0] == mine[0] && m[2] == mine[2] && !fingerprint.Differ(m, mine))
	return e
}

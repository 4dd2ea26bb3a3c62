package blame

import (
	"encoding/binary"
	"slices"

	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/transport"
)

// mostPast is how many calls that have ended a rank remembers; ranks are seldom further apart.
const mostPast = 8

// Call is a collective of a rank, as ranks compare it.
type Call struct {
	Head   uint64              // word 0 of its fingerprint
	What   uint64              // fingerprint.Fields.What
	After  fingerprint.History // of all calls up to this one
	Length uint64              // of each block, or program.Uneven; not sent
}

// Calls is what a rank remembers of its own calls that have ended. Only the driver uses it.
type Calls struct {
	History fingerprint.History // of all of them
	Unmet   bool                // the last one may have ended on this rank before it has heard from all others
	past    [mostPast]Call
}

// Add adds a call that has ended, with its digest. It meets if it could not end without the others.
func (k *Calls) Add(head, what, digest, length uint64, meets bool) {
	k.History.Add(digest)
	k.past[uint32(head)%mostPast] = Call{head, what, k.History, length}
	k.Unmet = !meets
}

func (k *Calls) at(seq uint32) (call Call, known bool) {
	call = k.past[seq%mostPast]
	return call, call.seq() == seq && seq != 0
}

func (c *Call) seq() uint32 { return uint32(c.Head) }

// same reports whether two calls are the same as far as all ranks know them.
func (c *Call) same(other *Call) bool {
	const call = 1<<56 - 1 // without the phase
	return (c.Head^other.Head)&call == 0 && c.What == other.What
}

func (c *Call) describe() string {
	f, _ := fingerprint.Decode(transport.Meta{c.Head, c.What, c.What & fingerprint.Low48})
	f.Phase = fingerprint.PhaseOf(0)
	return f.Describe(fingerprint.NoLength)
}

// callBytes is the size of a call in a message: its head, what it was, and the digest of all calls
// up to it.
const callBytes = 24

func encodeCalls(kind byte, calls []Call) []byte {
	message := []byte{kind}
	for _, call := range calls {
		for _, word := range []uint64{call.Head, call.What, uint64(call.After)} {
			message = binary.LittleEndian.AppendUint64(message, word)
		}
	}
	return message
}

func parseCalls(data []byte) (calls []Call, ok bool) {
	if len(data)%callBytes != 0 || len(data) > (mostPast+1)*callBytes {
		return nil, false
	}
	calls = []Call{} // not nil: the peer has answered
	for ; len(data) > 0; data = data[callBytes:] {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(data[8*i:]) }
		calls = append(calls, Call{Head: word(0), What: word(1), After: fingerprint.History(word(2))})
	}
	return calls, true
}

// firstDifference returns the first two calls with the same number that differ. If they are not
// among those that both ranks remember, it returns the first two that come after such calls.
func firstDifference(mine, theirs []Call) (a, b Call, found bool) {
	for i := range theirs {
		at := slices.IndexFunc(mine, func(m Call) bool { return m.seq() == theirs[i].seq() })
		if at < 0 || mine[at].seq() == 0 || mine[at].After == theirs[i].After {
			continue
		}
		if !mine[at].same(&theirs[i]) {
			return mine[at], theirs[i], true
		}
		if !found {
			a, b, found = mine[at], theirs[i], true
		}
	}
	return a, b, found
}

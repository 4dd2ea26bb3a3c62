package exec

import (
	"encoding/json"
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
)

// A rank that finds a mismatch knows two calls, its own and one peer's, and cannot know which of
// them is the odd one: it names the peer. So its report has digests of what it has called itself.
// Each rank that hears the report compares them with its own calls. Where they differ, the odd one
// is the rank that reports.

// pastCalls is how many calls a rank remembers for that; ranks are seldom further apart.
const pastCalls = 8

// pastCall is a call of this rank that has ended.
type pastCall struct {
	call   uint64  // word 0 of its fingerprint
	what   uint64  // fingerprint.what
	after  history // of all calls up to this one
	length uint64  // of each block, or program.Uneven
}

// witness is what a rank that reports a mismatch says of its own calls.
type witness struct {
	Rank    int     `json:"rank"`
	Seq     uint32  `json:"seq"` // of the call in which it was found
	Before  history `json:"before"`
	After   history `json:"after"`  // with this call
	Length  uint64  `json:"length"` // as in pastCall
	Lengths bool    `json:"lengths,omitempty"`
	// Lengths is whether the two calls differ in nothing but lengths that only some ranks know.
}

// made notes that the operation in flight has ended.
func (c *Comm) made(p *compiled) {
	c.history.add(p.digest)
	call := c.frame.fingerprint[0]
	c.past[uint32(call)%pastCalls] = pastCall{call, p.what, c.history, p.length}
	c.unmet = !p.meets
}

// callAt returns a call of this rank, in flight or not long ago.
func (c *Comm) callAt(seq uint32) (call pastCall, known bool) {
	f := &c.frame
	if f.prog != nil && uint32(f.fingerprint[0]) == seq {
		call = pastCall{f.fingerprint[0], f.prog.what, c.history, f.prog.length}
		digest := f.prog.digest
		if f.counting { // the program is that of the exchange
			var print fingerprint
			print.take(&f.op.call, 0)
			print.seq = seq
			digest, call.length = print.digest(), blockLength(&f.op.call)
			call.call, call.what = print.meta(0)[0], print.what()
		}
		call.after.add(digest)
		return call, true
	}
	call = c.past[seq%pastCalls]
	return call, call.seq() == seq && seq != 0
}

// blockLength returns the length of each block of a call, or program.Uneven.
func blockLength(call *Call) uint64 {
	switch {
	case len(call.In) > 0:
		return program.EvenCount(call.In)
	case len(call.Out) > 0:
		return program.EvenCount(call.Out)
	}
	return 0
}

// proof returns the witness of this rank in the operation in flight.
func (c *Comm) proof(lengths bool) []byte { return c.proofOf(uint32(c.frame.fingerprint[0]), lengths) }

// proofOf returns the witness of this rank in a call.
func (c *Comm) proofOf(seq uint32, lengths bool) []byte {
	call, known := c.callAt(seq)
	if !known {
		return nil
	}
	before := c.history
	if last, known := c.callAt(seq - 1); known {
		before = last.after
	}
	text, _ := json.Marshal(witness{c.rank, seq, before, call.after, call.length, lengths})
	return text
}

// weigh names the rank that reports a mismatch, if it is the odd one.
func (c *Comm) weigh(told *fault.Error) {
	var w witness
	if told.Code != fault.Mismatch || json.Unmarshal(told.Proof, &w) != nil ||
		w.Rank < 0 || w.Rank >= c.size || w.Rank == c.rank || c.agrees(&w) {
		return
	}
	told.Peer, told.Ranks = w.Rank, []int{w.Rank}
	told.Text += fmt.Sprintf("; this rank has not called what rank %d has", w.Rank)
}

// agrees reports whether this rank has made the same calls as a witness, as far as it knows.
func (c *Comm) agrees(w *witness) bool {
	if call, known := c.callAt(w.Seq); known {
		unknown := !w.Lengths || call.length == program.Uneven || w.Length == program.Uneven
		return call.after == w.After && (unknown || call.length == w.Length)
	}
	call, known := c.callAt(w.Seq - 1)
	return !known || call.after == w.Before
}

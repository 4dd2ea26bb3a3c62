package blame

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/transport"
)

// Some calls end on a rank before it has heard from all others: that of the root of a broadcast or
// scatter, of a leaf of a reduce, of an all_to_all that sends nothing. If ranks have called
// different things then, they find out in the next operation, whose fingerprint includes a digest
// of the calls before. If there is none, they compare their calls before they leave the group: by
// control messages, which a goroutine of the peer answers even if its threads compute. In the same
// way a rank learns which earlier call it was, when it finds that there must have been one.

const (
	// compareFor is how long Confirm waits for a peer that has answered, but has not made the last
	// call of this rank yet.
	compareFor = time.Second
	// answerFor is how long it waits for the first answer of a peer, and for the answer that tells
	// what the peer has called before. A process that is stopped gives none.
	answerFor = 300 * time.Millisecond
	// compareEvery is the pause before it asks again; each further pause is twice as long.
	compareEvery = time.Millisecond
	leftFor      = 30 * time.Millisecond // how long it does so when the peer has left
	compareTick  = 50 * time.Microsecond // between two looks for an answer
)

// Comparison compares what this rank has called with what the others have.
type Comparison struct {
	opts *Options

	mu     sync.Mutex
	heard  map[int][]Call // by peer, what it has told last
	answer []int          // the peers that want an answer
	fresh  bool           // heard has changed since the driver has compared it

	until, first int64 // when Confirm gives up, and when it gives up peers that have not answered; 0 before it begins
	again, pause int64 // when to ask again
}

// hear takes the calls of a peer, and reports whether they can be.
func (x *Comparison) hear(peer int, text []byte, question bool) bool {
	calls, ok := parseCalls(text)
	if !ok {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.heard == nil {
		x.heard = map[int][]Call{}
	}
	x.heard[peer], x.fresh = calls, true
	if question && !slices.Contains(x.answer, peer) {
		x.answer = append(x.answer, peer)
	}
	return true
}

// compare compares what the peers have told with the calls of this rank, and answers them. It
// returns the mismatch that it has found, or nil.
func (x *Comparison) compare() *fault.Error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.answer) > 0 {
		message := x.Answer()
		for _, peer := range x.answer {
			x.opts.Links.Tell(peer, message)
		}
		x.answer = x.answer[:0]
	}
	if !x.fresh {
		return nil
	}
	x.fresh = false
	mine := x.calls()
	for peer := range x.opts.size() {
		if a, b, differ := firstDifference(mine, x.heard[peer]); differ {
			return x.different(peer, a, b)
		}
	}
	return nil
}

// Answer returns the control message in which this rank tells its last calls.
func (x *Comparison) Answer() []byte { return encodeCalls(controlCalls, x.calls()) }

func (x *Comparison) ask(peer int) {
	x.opts.Links.Tell(peer, encodeCalls(controlCompare, x.calls()))
}

// different returns the error for earlier calls that were not the same.
func (x *Comparison) different(peer int, mine, theirs Call) *fault.Error {
	e := fault.Peer(fault.Mismatch, peer, "this rank called %s, rank %d called %s; they find out only now; %s",
		mine.describe(), peer, theirs.describe(), sameCalls)
	if mine.same(&theirs) {
		e.Text = "this rank and the peer made different calls, more than " +
			"the last few ago; " + sameCalls
	}
	e.Proof = x.Proof(mine.seq(), false)
	return e
}

const sameCalls = "all ranks of a group must make the same calls in the same order"

// earlier asks a peer what it has called, after a fragment or record of it has shown that it was
// something else. It returns the first two calls that differ. The driver has nothing else to do:
// its group has ended.
func (x *Comparison) earlier(peer int) (mine, theirs Call, found bool) {
	if x.opts.Control == nil {
		return mine, theirs, false
	}
	link := x.opts.Links.All[peer]
	tick := time.NewTicker(compareTick)
	defer tick.Stop()
	left := false
	x.ask(peer) // it is told in any case: this rank may know enough already, and leave
	begin, pause := time.Now(), compareEvery
	for end, again := answerFor, compareEvery; ; <-tick.C {
		x.compare() // the peer may wait in the same way
		x.mu.Lock()
		calls := x.heard[peer]
		x.mu.Unlock()
		if mine, theirs, found = firstDifference(x.calls(), calls); found {
			return mine, theirs, !mine.same(&theirs)
		}
		t := time.Since(begin)
		if link.Err() != nil && !left { // what it has told before may still come
			left, end = true, min(end, t+leftFor)
		}
		if t >= end || x.opts.Failure() != nil {
			return mine, theirs, false
		}
		if t >= again {
			x.ask(peer)
			again, pause = t+pause, 2*pause
		}
	}
}

// ConfirmSpan is how long Confirm takes if it waits for no rank that is late.
const ConfirmSpan = answerFor

// Confirm looks whether the peers have called what this rank has, since its last call could end
// without them, and reports whether that is over. With late set it waits for those that are late.
// It returns the mismatch, with which the group has to end.
func (x *Comparison) Confirm(late bool, t int64) (over bool, found *fault.Error) {
	begins := x.until == 0
	if begins {
		x.until, x.first, x.again, x.pause = t+int64(compareFor), t+int64(answerFor), t, int64(compareEvery)
	}
	open := x.open(late, begins, t)
	if err := x.compare(); err != nil {
		return true, err
	}
	if len(open) == 0 || t >= x.until {
		x.opts.Calls.Unmet, x.until = false, 0
		return true, nil
	}
	if t >= x.again {
		for _, peer := range open {
			x.ask(peer)
		}
		x.again, x.pause = t+x.pause, 2*x.pause
	}
	return false, nil
}

// open returns the peers whose answers Confirm waits for.
func (x *Comparison) open(late, begins bool, t int64) (open []int) {
	mine := x.calls()
	last := mine[len(mine)-1].seq()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fresh = true // this rank may have made calls since
	links := x.opts.Links
	for peer := range links.Size() {
		// The end of a link counts once it has been noted: it may have brought the mismatch.
		if peer == links.Rank || links.Lost[peer] || links.Unopened[peer] && !x.neighbours(peer) {
			continue
		}
		theirs := x.heard[peer]
		switch behind := len(theirs) == 0 || int32(theirs[len(theirs)-1].seq()-last) < 0; {
		case !behind:
		case theirs == nil || begins:
			delete(x.heard, peer) // what it told was before
			if t < x.first {
				open = append(open, peer)
			}
		case late:
			open = append(open, peer)
		}
	}
	return open
}

// neighbours reports whether a peer is a neighbour of this rank, with which it is connected in any
// case. No other path is made only to compare calls: if all neighbours have called the same, all
// ranks have.
func (x *Comparison) neighbours(peer int) bool {
	rank, size := x.opts.rank(), x.opts.size()
	return (peer+1)%size == rank || (rank+1)%size == peer
}

// calls returns the calls of this rank that it remembers, oldest first, the one in flight included.
// There is at least one.
func (x *Comparison) calls() (all []Call) {
	for _, call := range x.opts.Calls.past {
		if call.seq() != 0 {
			all = append(all, call)
		}
	}
	if call, begun := x.opts.Lanes.Call(); begun {
		all = append(all, call)
	}
	slices.SortFunc(all, func(a, b Call) int { return int(int32(a.seq() - b.seq())) })
	if all == nil {
		return []Call{{}}
	}
	return all
}

// call returns a call of this rank, in flight or not long ago.
func (x *Comparison) call(seq uint32) (call Call, known bool) {
	if call, begun := x.opts.Lanes.Call(); begun && call.seq() == seq {
		return call, true
	}
	return x.opts.Calls.at(seq)
}

// A rank that finds a mismatch knows two calls, its own and one peer's, and cannot know which of
// them is the odd one: it names the peer. So its report has digests of what it has called itself.
// Each rank that hears the report compares them with its own calls. Where they differ, the odd one
// is the rank that reports.

// witness is what a rank that reports a mismatch says of its own calls.
type witness struct {
	Rank    int                 `json:"rank"`
	Seq     uint32              `json:"seq"` // of the call in which it was found
	Before  fingerprint.History `json:"before"`
	After   fingerprint.History `json:"after"`  // with this call
	Length  uint64              `json:"length"` // as in Call
	Lengths bool                `json:"lengths,omitempty"`
	// Lengths is whether the two calls differ in nothing but lengths that only some ranks know.
}

// Proof returns the witness of this rank in a call.
func (x *Comparison) Proof(seq uint32, lengths bool) []byte {
	call, known := x.call(seq)
	if !known {
		return nil
	}
	before := x.opts.Calls.History
	if last, known := x.call(seq - 1); known {
		before = last.After
	}
	text, _ := json.Marshal(witness{x.opts.rank(), seq, before, call.After, call.Length, lengths})
	return text
}

// weigh names the rank that reports a mismatch, if it is the odd one.
func (x *Comparison) weigh(told *fault.Error) {
	var w witness
	if told.Code != fault.Mismatch || json.Unmarshal(told.Proof, &w) != nil ||
		w.Rank < 0 || w.Rank >= x.opts.size() || w.Rank == x.opts.rank() || x.agrees(&w) {
		return
	}
	told.Peer, told.Ranks = w.Rank, []int{w.Rank}
	told.Text += fmt.Sprintf("; this rank has not called what rank %d has", w.Rank)
}

// agrees reports whether this rank has made the same calls as a witness, as far as it knows.
func (x *Comparison) agrees(w *witness) bool {
	if call, known := x.call(w.Seq); known {
		unknown := !w.Lengths || call.Length == program.Uneven || w.Length == program.Uneven
		return call.After == w.After && (unknown || call.Length == w.Length)
	}
	call, known := x.call(w.Seq - 1)
	return !known || call.After == w.Before
}

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

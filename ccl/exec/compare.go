package exec

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
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

// The kinds of control messages with the last calls of a rank: of each its head, what the call was,
// and the digest of all calls up to it, 8 bytes each.
const (
	controlCompare = 'c' // wants an answer
	controlCalls   = 'd' // is one
	callBytes      = 24
)

// comparison is what a rank knows of the last calls of the others.
type comparison struct {
	// Guarded by Control.mu.
	heard  map[int][]pastCall // by peer, what it has told last
	answer []int              // the peers that want an answer
	fresh  bool               // heard has changed since the driver has compared it

	// Used only by the holder of the lock.
	until, first int64 // when Confirm gives up, and when it gives up peers that have not answered; 0 before it begins
	again, pause int64 // when to ask again
}

// hearCalls handles a message of these kinds.
func (k *Control) hearCalls(c *Comm, peer int, message []byte) {
	calls, ok := parseCalls(message[1:])
	if !ok {
		return
	}
	k.mu.Lock()
	x := &k.comparison
	if x.heard == nil {
		x.heard = map[int][]pastCall{}
	}
	x.heard[peer], x.fresh = calls, true
	if message[0] == controlCompare && !slices.Contains(x.answer, peer) {
		x.answer = append(x.answer, peer)
	}
	k.mu.Unlock()
	k.stir(c)
	go c.attendSoon()
}

// attendSoon attends to control messages where no thread drives.
func (c *Comm) attendSoon() {
	k := c.opts.Control
	for pause := 20 * time.Microsecond; k.stirred.Load() && pause < time.Second; pause *= 2 {
		if c.stop.Load() != nil { // model: none: as Check
			return
		}
		c.Check()
		if k.stirred.Load() {
			<-time.After(pause)
		}
	}
}

// compare compares what the peers have told with the calls of this rank, and answers them. It
// returns the mismatch that it has found, or nil. The caller holds the lock.
func (c *Comm) compare() (found *fault.Error) {
	k := c.opts.Control
	x := &k.comparison
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(x.answer) > 0 {
		message := c.callsMessage(controlCalls)
		for _, peer := range x.answer {
			c.opts.Links[peer].Tell(message)
		}
		x.answer = x.answer[:0]
	}
	if !x.fresh {
		return nil
	}
	x.fresh = false
	mine := c.calls()
	for peer := range c.size {
		if a, b, differ := firstDifference(mine, x.heard[peer]); differ {
			return c.different(peer, a, b)
		}
	}
	return nil
}

// different returns the error for earlier calls that were not the same.
func (c *Comm) different(peer int, mine, theirs pastCall) *fault.Error {
	e := fault.Peer(fault.Mismatch, peer, "this rank called %s, rank %d called %s; they find out only now; %s",
		mine.describe(), peer, theirs.describe(), sameCalls)
	if mine.same(&theirs) {
		e.Text = "this rank and the peer made different calls, more than " +
			"the last few ago; " + sameCalls
	}
	e.Proof = c.proofOf(mine.seq(), false)
	return e
}

const sameCalls = "all ranks of a group must make the same calls in the same order"

// earlier asks a peer what it has called, after a fragment or record of it has shown that it was
// something else. It returns the first two calls that differ. The caller, which holds the lock, has
// nothing else to do: its group has ended.
func (c *Comm) earlier(peer int) (mine, theirs pastCall, found bool) {
	k := c.opts.Control
	if k == nil {
		return mine, theirs, false
	}
	link := c.opts.Links[peer]
	tick := time.NewTicker(compareTick)
	defer tick.Stop()
	left := false
	// It is told in any case: this rank may know enough already, and leave.
	link.Tell(c.callsMessage(controlCompare))
	for end, again, pause := now()+int64(answerFor), now()+int64(compareEvery), int64(compareEvery); ; <-tick.C {
		c.compare() // the peer may wait in the same way
		k.mu.Lock()
		calls := k.comparison.heard[peer]
		k.mu.Unlock()
		if mine, theirs, found = firstDifference(c.calls(), calls); found {
			return mine, theirs, !mine.same(&theirs)
		}
		t := now()
		if link.Err() != nil && !left { // what it has told before may still come
			left, end = true, min(end, t+int64(leftFor))
		}
		if t >= end || c.stop.Load() != nil { // model: none: it gives up a little later
			return mine, theirs, false
		}
		if t >= again {
			link.Tell(c.callsMessage(controlCompare))
			again, pause = t+pause, 2*pause
		}
	}
}

// Confirm looks whether the peers have called what this rank has, where its last call could end
// without them, and reports whether there is nothing left to wait for. If they have not, the Comm
// ends with a mismatch. Call it until it returns true; that takes the time of a message to the
// peers and back, at most until those that are late have made the same call, or a second.
func (c *Comm) Confirm() bool { return c.confirm(true) }

// ConfirmNow is Confirm for as long as peers need to answer: it waits for none that is late. While
// operations are pending it does nothing. It returns the mismatch, unless a call has told of it.
func (c *Comm) ConfirmNow() error {
	if c.pending.Load() != 0 { // model: none: what is posted now is confirmed another time
		return nil
	}
	tick := time.NewTicker(compareTick)
	defer tick.Stop()
	for end := now() + int64(answerFor); !c.confirm(false) && now() < end; {
		<-tick.C
	}
	return c.untold()
}

// Told notes that a caller has heard why the Comm has ended, from the layer above.
func (c *Comm) Told() { c.told.Store(true) } // model: none: it only tells

// untold returns the mismatch with which the Comm has ended, unless a call has told of it.
func (c *Comm) untold() error {
	if why := c.Failure(); why != nil && why.Code == fault.Mismatch && !c.told.Swap(true) { // model: none: tells
		return why
	}
	return nil
}

func (c *Comm) confirm(late bool) bool {
	k := c.opts.Control
	if k == nil || c.size == 1 || c.stop.Load() != nil { // model: none: it looks again
		return true
	}
	if !c.lock.CompareAndSwap(0, 1) { // model: none: as a driver that finds nothing to do
		return false
	}
	over := !c.unmet
	if !over {
		c.look()
		over = c.broken != nil || c.asked(late)
	}
	c.unlock()
	c.handOver()
	return over
}

// asked goes on with Confirm, and reports whether it is over.
func (c *Comm) asked(late bool) bool {
	k := c.opts.Control
	x, t := &k.comparison, now()
	begins := x.until == 0
	if begins {
		x.until, x.first, x.again, x.pause = t+int64(compareFor), t+int64(answerFor), t, int64(compareEvery)
	}
	mine := c.calls()
	last := mine[len(mine)-1].seq()
	var open []int
	k.mu.Lock()
	x.fresh = true // this rank may have made calls since
	for peer, link := range c.opts.Links {
		if link == nil || link.Err() != nil || c.unopened[peer] != nil && !c.neighbours(peer) {
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
	k.mu.Unlock()
	if err := c.compare(); err != nil {
		c.failWith(err)
		return true
	}
	if len(open) == 0 || t >= x.until {
		c.unmet, x.until = false, 0
		return true
	}
	if t >= x.again {
		message := c.callsMessage(controlCompare)
		for _, peer := range open {
			c.opts.Links[peer].Tell(message)
		}
		x.again, x.pause = t+x.pause, 2*x.pause
	}
	return false
}

// neighbours reports whether a peer is a neighbour of this rank, with which it is connected in any
// case. No other path is made only to compare calls: if all neighbours have called the same, all
// ranks have.
func (c *Comm) neighbours(peer int) bool {
	return (peer+1)%c.size == c.rank || (c.rank+1)%c.size == peer
}

// calls returns the calls of this rank that it remembers, oldest first, the one in flight included.
// There is at least one.
func (c *Comm) calls() (all []pastCall) {
	for i := range c.past {
		if c.past[i].seq() != 0 {
			all = append(all, c.past[i])
		}
	}
	if c.frame.prog != nil {
		if call, ok := c.callAt(uint32(c.frame.fingerprint[0])); ok {
			all = append(all, call)
		}
	}
	slices.SortFunc(all, func(a, b pastCall) int { return int(int32(a.seq() - b.seq())) })
	if all == nil {
		return []pastCall{{}}
	}
	return all
}

func (c *Comm) callsMessage(kind byte) []byte {
	message := []byte{kind}
	for _, call := range c.calls() {
		for _, word := range []uint64{call.call, call.what, uint64(call.after)} {
			message = binary.LittleEndian.AppendUint64(message, word)
		}
	}
	return message
}

func parseCalls(data []byte) (calls []pastCall, ok bool) {
	if len(data)%callBytes != 0 || len(data) > (pastCalls+1)*callBytes {
		return nil, false
	}
	calls = []pastCall{} // not nil: the peer has answered
	for ; len(data) > 0; data = data[callBytes:] {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(data[8*i:]) }
		calls = append(calls, pastCall{call: word(0), what: word(1), after: history(word(2))})
	}
	return calls, true
}

// firstDifference returns the first two calls with the same number that differ. If they are not
// among those that both ranks remember, it returns the first two that come after such calls.
func firstDifference(mine, theirs []pastCall) (a, b pastCall, found bool) {
	for i := range theirs {
		at := slices.IndexFunc(mine, func(m pastCall) bool { return m.seq() == theirs[i].seq() })
		if at < 0 || mine[at].seq() == 0 || mine[at].after == theirs[i].after {
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

func (p *pastCall) seq() uint32 { return uint32(p.call) }

// same reports whether two calls are the same as far as all ranks know them.
func (p *pastCall) same(other *pastCall) bool {
	const call = 1<<56 - 1 // without the phase
	return (p.call^other.call)&call == 0 && p.what == other.what
}

func (p *pastCall) describe() string {
	f, _ := decode(transport.Meta{p.call, p.what, p.what & low48})
	f.phase = phaseOf(0)
	return f.describe(askLength)
}

// what is the part of a call that all ranks know, beside word 0 of its fingerprint: root (16 bits)
// and count of elements (48).
func (f *fingerprint) what() uint64 { return uint64(f.root)<<48 | uint64(f.count)&low48 }

// meets reports whether a call ends on a rank only when the rank has heard, perhaps through others,
// from all of them.
func (f *fingerprint) meets() bool {
	switch f.coll {
	case dtype.Barrier:
		return true
	case dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter:
		return f.count > 0 && f.count&unequal == 0
	}
	return false
}

package blame

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// Ending is what a rank has learned of the end of its group.
//
// A rank that breaks off tells its peers why (a report). A peer that hears it fails with the same
// error, and passes the report on unchanged, so that every rank names the one that caused it, and
// not the messenger: that is true for ranks that were never connected with the culprit, too. A
// report counts at once. A peer that died told nobody; ranks that wait for it notice at once, all
// others once their collective has not moved for a while, since whom they wait for may wait for it.
// Before a rank fails because of a death, it learns who else has died (losses.go).
type Ending struct {
	opts       *Options
	losses     *Losses
	comparison *Comparison

	report []byte       // the first one that came, or nil; not a parting
	told   *fault.Error // what it says
	bereft bool         // a peer has died
	silent int64        // when a peer was lost whose host does not answer; 0 for none

	// Since when the operation in flight has not moved, once a peer has died.
	seq   uint64
	moves uint
	since int64

	barred   atomic.Pointer[barrier] // from which collective on calls are refused; nil for none
	mu       sync.Mutex
	failures []failure
}

// silenceSpan is how long a rank that has lost a peer of a silent host waits before it ends its
// group: the others of that host are then known to be silent, too.
const silenceSpan = 300 * time.Millisecond

// stillness is how long nothing moves before a death ends a collective that does not wait for the
// dead rank itself.
const stillness = 100 * time.Millisecond

// A report fits into what a link says when it is left.
const _ = uint(transport.MaxWhy - fault.MaxReport)

// LinkEnded learns from the end of the link to a peer. It returns the error of the messages with
// that peer, or nil if they end with the group, for the reason that a peer gave.
func (e *Ending) LinkEnded(peer int, why error, t int64) *fault.Error {
	err := e.losses.named(peer, why)
	if err.Code == fault.PeerLost {
		e.losses.lose(err)
		e.bereft = true
		if err.Silent && e.silent == 0 {
			e.silent = t
		}
	}
	if len(err.Left) > 0 && !fault.Parted(err.Left) {
		e.learn(peer, err.Left)
	}
	if e.told != nil {
		return nil
	}
	return e.losses.PathEnd(peer, why)
}

// learn takes a report that a peer has sent when it left. The first one counts, or that of the
// earliest call.
func (e *Ending) learn(peer int, report []byte) {
	if told := e.parse(peer, report); told != nil && (e.told == nil || told.Seq < e.told.Seq) {
		e.report, e.told = report, told
		e.bar(told, report)
	}
}

// parse returns what a report of a peer says, nil if it counts for nothing.
func (e *Ending) parse(peer int, report []byte) *fault.Error {
	told, wrong := fault.ParseReport(report, e.opts.rank(), e.opts.size())
	if wrong != nil || told.Code == fault.PeerLost && e.losses.has(peer) { // it knows of other deaths than the living
		return nil
	}
	e.comparison.weigh(told)
	return told
}

// endedBecauseOfOthers reports whether a report says that the group has ended, and a peer is not to
// blame. Such a peer has left, or will: if it is silent, it may have gone where there was no path.
func (e *Ending) endedBecauseOfOthers(peer int) bool {
	return e.told != nil && !slices.Contains(e.told.Culprits(), peer)
}

// Scene is what the driver sees when it looks whether its group has to end.
type Scene struct {
	Begun   bool         // a collective is in flight
	Seq     uint64       // its number
	Moves   uint         // how far it has come
	Lost    *fault.Error // it waits for a peer whose path has ended for this reason
	Mourned bool         // something else that needs all ranks has ended because of a death
	Next    uint64       // the collective that the rank is in or calls next; 0 if it is in something else, too
}

// Ends reports whether the group has to end: for a reason that is known, or because of a death,
// which Settle then explains.
func (e *Ending) Ends(s *Scene, t int64) (why *fault.Error, death bool) {
	if e.told != nil && !(s.Next != 0 && s.Next < e.told.Seq) {
		return e.told, false
	}
	switch {
	case s.Lost != nil && s.Lost.Code != fault.PeerLost:
		why = s.Lost
	case s.Lost != nil || s.Begun && e.bereft && e.still(s, t):
		death = true
	default:
		death = e.bereft && s.Mourned
	}
	if why != nil && e.told != nil { // what is before cannot end, either
		why = e.told
	}
	return why, death
}

// still reports whether the operation in flight has not moved for a while.
func (e *Ending) still(s *Scene, t int64) bool {
	if e.seq != s.Seq || e.moves != s.Moves || e.since == 0 {
		e.seq, e.moves, e.since = s.Seq, s.Moves, t
	}
	return t >= e.since+int64(stillness)
}

// Dismiss notes that there is no death to explain.
func (e *Ending) Dismiss() { e.losses.sealing.begun = 0 }

// Settle returns the error of all ranks that have died once it is settled which those are, and nil
// before: the driver calls it again. With ends set the group has to end with it.
func (e *Ending) Settle(ends bool, t int64) *fault.Error {
	if e.silent != 0 && t < e.silent+int64(silenceSpan) {
		return nil
	}
	e.loseSilent()
	return e.losses.seal(ends, t)
}

// loseSilent adds to the lost peers the other ranks of hosts that do not answer. A rank that this
// one is not connected with counts if nobody of its host answers.
func (e *Ending) loseSilent() {
	if e.silent == 0 || e.opts.Group == nil {
		return
	}
	links := e.opts.Links
	for _, ranks := range e.opts.Group.Hosts() {
		var more []int
		silent, answers := false, false
		for _, peer := range ranks {
			if peer == links.Rank {
				answers = true
				continue
			}
			f := &fault.Error{}
			switch link := links.All[peer]; {
			case errors.As(link.Err(), &f):
				silent = silent || f.Silent
				answers = answers || f.Code != fault.PeerLost
			case links.Unopened[peer], link.State().Silent:
			default:
				answers = true
			}
			more = append(more, peer)
		}
		if silent && !answers {
			for _, peer := range more {
				e.losses.lose(&fault.Error{Code: fault.PeerLost, Peer: peer, Silent: true,
					Text: "nobody of its host answers"})
			}
		}
	}
}

// Time returns when a death ends the operation in flight, if one has begun and does not move until
// then, or when to look again who has died.
func (e *Ending) Time(begun bool, t int64) int64 {
	settled := e.silent + int64(silenceSpan)
	switch s := &e.losses.sealing; {
	case e.silent != 0 && settled > t:
		return settled
	case s.begun != 0:
		return s.at()
	case !e.bereft || !begun || e.since == 0:
		return math.MaxInt64
	}
	return e.since + int64(stillness)
}

// BreakOff ends this rank's part in its group, because of err, and returns what the peers are told.
// given is the error of a message that has failed before, or nil.
func (e *Ending) BreakOff(err, given *fault.Error) (why []byte) {
	why = e.report
	switch b := e.barred.Load(); {
	case why != nil:
	case b != nil && b.why.Seq <= err.Seq:
		why = b.report
	case err.Code != fault.Closed:
		why = err.Report(e.opts.rank())
		e.bar(err, why)
	case given != nil:
		why = given.Parting(e.opts.rank())
	}
	e.losses.find()
	e.losses.close(err)
	return why
}

// A rank that computes hears nothing of its links until it calls something, and then the data of
// all others may be there already: the call would end well, although the others have given it up.
// So a rank that breaks off also tells its peers by a control message, which a goroutine of theirs
// handles at once. From then on they refuse the collective in which the group has failed, and those
// after it. Calls before it go on: whoever has failed had ended them. What is under way ends as
// ever, when the links do, after what had been sent was read.

// failure is such a message.
type failure struct {
	peer   int
	report []byte
}

// barrier is the failure in a collective.
type barrier struct {
	why    *fault.Error
	report []byte
}

func (e *Ending) hearFailure(peer int, report []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.failures) < e.opts.size() {
		e.failures = append(e.failures, failure{peer, bytes.Clone(report)})
	}
}

// attend handles the messages that have come.
func (e *Ending) attend() {
	e.mu.Lock()
	failures := e.failures
	e.failures = nil
	e.mu.Unlock()
	for _, each := range failures {
		if told := e.parse(each.peer, each.report); told != nil {
			e.bar(told, each.report)
		}
	}
}

// bar has the collective in which the group has failed refused, and those after it, and tells the
// peers to which there is a path. A mismatch bars nothing: which rank is the odd one, each rank
// finds by its own call.
func (e *Ending) bar(why *fault.Error, report []byte) {
	b := e.barred.Load()
	if why.Seq == 0 || why.Code == fault.Mismatch || b != nil && b.why.Seq <= why.Seq || e.opts.Control == nil {
		return
	}
	e.barred.Store(&barrier{why, report})
	e.opts.Barred()
	message := append(head(controlFailed, 0), report...)
	for peer, link := range e.opts.Links.All {
		if link != nil && !e.opts.Links.Unopened[peer] && !e.opts.Links.Lost[peer] {
			link.Tell(message)
		}
	}
}

// Barred returns why collectives are refused, from that with its number on; nil if they are not.
// Any thread may call it.
func (e *Ending) Barred() *fault.Error {
	if b := e.barred.Load(); b != nil {
		return b.why
	}
	return nil
}

package exec

import (
	"errors"
	"math"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// ending is what a rank has learned of the end of its group.
//
// A rank that breaks off tells its peers why (a report). A peer that hears it fails with the same
// error, and passes the report on unchanged, so that every rank names the one that caused it, and
// not the messenger: that is true for ranks that were never connected with the culprit, too. A
// report counts at once. A peer that died told nobody; ranks that wait for it notice at once, all
// others once their collective has not moved for a while, since whom they wait for may wait for it.
// Before a rank fails because of a death, it learns who else has died (seal.go).
type ending struct {
	report []byte       // the first one that came, or nil; not a parting
	told   *fault.Error // what it says
	bereft bool         // a peer has died
	keyed  *Op          // a keyed operation that has failed because of it

	// Since when the operation in flight has not moved, once a peer has died.
	op    *Op
	moves uint
	since int64

	silent int64 // when a peer was lost whose host does not answer; 0 for none
}

// silenceSpan is how long a rank that has lost a peer of a silent host waits before it ends its
// group: the others of that host are then known to be silent, too.
const silenceSpan = 300 * time.Millisecond

// stillness is how long nothing moves before a death ends a collective that does not wait for the
// dead rank itself.
const stillness = 100 * time.Millisecond

// A report fits into what a link says when it is left.
const _ = uint(transport.MaxWhy - fault.MaxReport)

// hear learns from the end of the link to a peer.
func (c *Comm) hear(peer int, err *fault.Error) {
	e := &c.ending
	if err.Code == fault.PeerLost {
		c.lose(err)
		e.bereft = true
		if err.Silent && e.silent == 0 {
			e.silent = now()
		}
	}
	if len(err.Left) > 0 && !fault.Parted(err.Left) {
		c.learn(peer, err.Left)
	}
}

// learn takes a report that a peer has sent when it left. The first one counts, or that of the
// earliest call.
func (c *Comm) learn(peer int, report []byte) {
	told := c.parseReport(peer, report)
	if e := &c.ending; told != nil && (e.told == nil || told.Seq < e.told.Seq) {
		e.report, e.told = report, told
		c.bar(told, report)
	}
}

// parseReport returns what a report of a peer says, nil if it counts for nothing.
func (c *Comm) parseReport(peer int, report []byte) *fault.Error {
	told, wrong := fault.ParseReport(report, c.rank, c.size)
	if wrong != nil || told.Code == fault.PeerLost && c.losses.has(peer) { // it knows of other deaths than the living
		return nil
	}
	c.weigh(told)
	return told
}

// groupEnd looks whether the group has to end, and ends it, or the messages that wait for lost
// peers. It reports whether anything has changed.
func (c *Comm) groupEnd() bool {
	e, ends := &c.ending, false
	why := e.told
	if why == nil || c.precedes(why) {
		if why, ends = c.groupEnds(); why != nil && e.told != nil { // what is before cannot end, either
			why = e.told
		}
	}
	if why == nil && !ends && len(c.held) == 0 {
		c.sealing.begun = 0
		return false
	}
	if c.advance() { // something is left that arrived before
		return true
	}
	if why == nil {
		if e.silent != 0 && now() < e.silent+int64(silenceSpan) {
			return false
		}
		c.loseSilent()
		all := c.seal(ends)
		if all == nil {
			return false
		}
		c.endHeld(all)
		if !ends {
			return true
		}
		why = all
	}
	if e.keyed != nil && c.head == nil {
		c.fail(e.keyed, why)
	} else {
		c.failWith(why)
	}
	return true
}

// groupEnds returns why the group has to end, or reports that a death is the reason.
func (c *Comm) groupEnds() (why *fault.Error, death bool) {
	e, f := &c.ending, &c.frame
	if f.prog != nil {
		if lost := c.lostPeer(); lost != nil && lost.Code != fault.PeerLost {
			return lost, false
		} else if lost != nil || e.bereft && e.still(f) {
			return nil, true
		}
	}
	return nil, e.bereft && (c.mourned.Load() || e.keyed != nil) // model: none: as Mourn
}

// loseSilent adds to the lost peers the other ranks of hosts that do not answer. A rank that this
// one is not connected with counts if nobody of its host answers.
func (c *Comm) loseSilent() {
	if c.ending.silent == 0 || c.opts.Group == nil {
		return
	}
	for _, ranks := range c.opts.Group.Hosts() {
		var more []int
		silent, answers := false, false
		for _, peer := range ranks {
			if peer == c.rank {
				answers = true
				continue
			}
			f := &fault.Error{}
			link := c.opts.Links[peer]
			switch {
			case errors.As(link.Err(), &f):
				silent = silent || f.Silent
				answers = answers || f.Code != fault.PeerLost
			case c.unopened[peer] != nil, link.State().Silent:
			default:
				answers = true
			}
			more = append(more, peer)
		}
		if silent && !answers {
			for _, peer := range more {
				c.lose(&fault.Error{Code: fault.PeerLost, Peer: peer, Silent: true, Text: "nobody of its host answers"})
			}
		}
	}
}

// Check looks whether a peer has ended the group, for a caller who waits for peers by other means
// than operations of the Comm. It returns the error with which the Comm has ended, or nil.
func (c *Comm) Check() *fault.Error {
	if c.stop.Load() == nil && c.lock.CompareAndSwap(0, 1) { // model: none: as a driver that finds nothing to do
		c.look()
		c.unlock()
		c.handOver()
	}
	return c.Failure()
}

// Gone returns why the path to a peer has ended, or nil: it has died or left, but perhaps only
// after it had done all that others wait for.
func (c *Comm) Gone(peer int) *fault.Error {
	if err := c.opts.Links[peer].Err(); err != nil {
		return c.pathEnd(peer, err)
	}
	return nil
}

// failWith ends the Comm, and the operation in flight if there is one.
func (c *Comm) failWith(err *fault.Error) {
	if c.head != nil {
		c.fail(c.head, err)
	} else {
		c.breakOff(err.In(c.label(), ""))
	}
}

// endTime returns when a death ends the operation in flight, if it has not moved by then, or when
// to look again who has died.
func (c *Comm) endTime() int64 {
	e := &c.ending
	settled := e.silent + int64(silenceSpan)
	switch {
	case e.silent != 0 && settled > now():
		return settled
	case c.sealing.begun != 0:
		return c.sealing.at()
	case !e.bereft || c.frame.prog == nil || e.since == 0:
		return math.MaxInt64
	}
	return e.since + int64(stillness)
}

// still reports whether the operation in flight has not moved for a while.
func (e *ending) still(f *frame) bool {
	if e.op != f.op || e.moves != f.moves || e.since == 0 {
		e.op, e.moves, e.since = f.op, f.moves, now()
	}
	return now() >= e.since+int64(stillness)
}

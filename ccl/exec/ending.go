package exec

import (
	"errors"
	"fmt"
	"math"
	"slices"
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
type ending struct {
	report []byte       // the first one that came, or nil
	told   *fault.Error // what it says
	deaths []*fault.Error

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

// hear learns from the end of a link, and reports whether it has learned why the group ends. self
// is this rank.
func (e *ending) hear(err *fault.Error, self, ranks int) bool {
	if err.Code == fault.PeerLost {
		e.deaths = append(e.deaths, err)
		if err.Silent && e.silent == 0 {
			e.silent = now()
		}
	}
	if len(err.Left) == 0 || e.told != nil {
		return false
	}
	told, wrong := fault.ParseReport(err.Left, self, ranks)
	if wrong == nil {
		e.report, e.told = err.Left, told
	}
	return wrong == nil
}

// groupEnd returns the error with which the group ends, or nil.
func (c *Comm) groupEnd() *fault.Error {
	e, f := &c.ending, &c.frame
	if e.told != nil || f.prog == nil {
		return e.told
	}
	lost := c.lostPeer()
	switch {
	case lost != nil && lost.Code != fault.PeerLost:
		return lost
	case lost == nil && (len(e.deaths) == 0 || !e.still(f)), e.silent != 0 && now() < e.silent+int64(silenceSpan):
		return nil
	}
	all := e.dead(lost)
	c.addSilent(all)
	return all
}

// addSilent adds to the error of lost peers the other ranks of hosts that do not answer. A rank
// that this one is not connected with counts if nobody of its host answers.
func (c *Comm) addSilent(all *fault.Error) {
	for _, ranks := range c.opts.Hosts {
		var more []int
		silent, answers := false, false
		for _, peer := range ranks {
			if peer == c.rank {
				answers = true
				continue
			}
			f := &fault.Error{}
			link := c.opts.Links[peer]
			switch quiet, ok := link.(transport.Silencer); {
			case errors.As(link.Err(), &f):
				silent = silent || f.Silent
				answers = answers || f.Code != fault.PeerLost
			case ok && quiet.Silent(), c.unopened[peer] != nil:
			default:
				answers = true
			}
			if !slices.Contains(all.Ranks, peer) {
				more = append(more, peer)
			}
		}
		if silent && !answers && len(more) > 0 {
			all.Ranks = append(all.Ranks, more...)
			all.Text += fmt.Sprintf("; nor does anybody else of its host: %v", more)
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
		return c.named(peer, err)
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

// at returns when a death ends the operation in flight, if it has not moved by then.
func (e *ending) at() int64 {
	if settled := e.silent + int64(silenceSpan); e.silent != 0 && settled > now() {
		return settled
	}
	if len(e.deaths) == 0 || e.since == 0 {
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

// dead returns one error for all deaths. first, which may be nil, is the one that was noticed last.
func (e *ending) dead(first *fault.Error) *fault.Error {
	all := *e.deaths[0]
	if first != nil {
		all = *first
	}
	all.Ranks = []int{all.Peer}
	for _, death := range e.deaths {
		if death.Peer != all.Peer {
			all.Ranks = append(all.Ranks, death.Peer)
			all.Text += fmt.Sprintf("; rank %d: %s", death.Peer, death.Text)
		}
	}
	return &all
}

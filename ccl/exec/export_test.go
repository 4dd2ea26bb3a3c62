package exec

import (
	"runtime"

	"github.com/goccl/goccl/ccl/program"
)

// WindowChannel is the channel of puts and signals.
const WindowChannel = windowChannel

// Forget makes c forget its programs, after its planner has changed its choice. Planners outside of
// tests never do that.
func Forget(c *Comm) { c.run.programs.kept = cache{} }

// Barred reports whether c refuses calls of a number on.
func Barred(c *Comm) bool { return c.run.blame.Ending.Barred() != nil }

// LookBeforePost has a driver of c look at its links after a collective was numbered, and before it
// is posted.
func LookBeforePost(c *Comm) {
	Held(c, func() {
		c.colls.Add(1)
		c.look()
		c.colls.Add(^uint64(0))
	})
}

// Programs returns the number of programs that c keeps.
func Programs(c *Comm) int {
	n := 0
	for i := range c.run.programs.kept.each {
		if c.run.programs.kept.each[i].Low != nil {
			n++
		}
	}
	return n
}

// Foretell makes all peers of c announce what c itself will announce when its most recent program
// runs again, so that this run waits for no peer.
func Foretell(c *Comm) {
	w := &c.run.windows
	p := &c.run.programs.kept.each[c.run.programs.kept.recent]
	for r := range c.size {
		if r != c.rank {
			n := w.Record(r)
			n.Call[0] = p.fingerprint[0] | uint64(uint32(c.Seq()+1))
			n.Call[1] = p.fingerprint[1]
			n.Call[2] = p.fingerprint[2] ^ uint64(c.run.calls.History.Hash())<<48
			n.Publish(w.Word(program.MaxSignals))
			w.Rank(r).Entered(w.Begun)
		}
	}
}

// Unrung makes c believe that it has published what its peers may sleep on, and returns whether it
// still believes so after f.
func Unrung(c *Comm, f func()) bool {
	c.run.frame.unrung = true
	f()
	return c.run.frame.unrung
}

// Hear hands a Comm a control message of a peer.
func Hear(c *Comm, peer int, message []byte) { c.opts.Control.Hear(peer, message) }

// Unmet reports whether c compares its last call with its peers' before it leaves.
func Unmet(c *Comm) (unmet bool) {
	Held(c, func() { unmet = c.run.calls.Unmet })
	return unmet
}

// Calls is the control message in which c tells its last calls.
func Calls(c *Comm) (message []byte) {
	Held(c, func() { message = c.run.blame.Comparison.Answer() })
	return message
}

// Held keeps every thread from driving c while f runs.
func Held(c *Comm, f func()) {
	for !c.lock.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
	f()
	c.unlock()
}

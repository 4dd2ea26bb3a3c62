package verbstest

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// What is a kind of things that end with a status.
type What int

// The kinds.
const (
	Writes   What = iota // that a host posts
	Arrivals             // at a host
)

// ending lets one of them end with a status.
type ending struct {
	left   int // until it is its turn
	status verbs.Status
}

// refusal makes a call fail.
type refusal struct {
	call string
	left int // calls until it is its turn; 0: all
	err  error
}

// Refuse makes a call of a host fail with an error, or with one of the system if err is nil: the
// nth one from now on, 1 is the next; 0 is every one. Calls have the names of the contract's
// methods; those that several types have are "Receives.Post", "Pair.Post", "Region.Close",
// "Completions.Close", "Receives.Close", "Pair.Close", and "Close" of a Context.
func (n *Network) Refuse(host int, call string, nth int, err error) {
	if err == nil {
		err = fault.New(fault.System, "%s: refused by the test", call)
	}
	h := n.hosts[host]
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusals = append(h.refusals, refusal{call, nth, err})
	h.faulty.Store(true)
}

// Permit ends what Refuse began.
func (n *Network) Permit(host int) {
	h := n.hosts[host]
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusals = nil
}

// refuses counts a call, and returns the error that it fails with.
func (h *host) refuses(call string) (err error) {
	if !h.faulty.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.refusals {
		r := &h.refusals[i]
		switch {
		case r.call != call || r.left < 0:
		case r.left == 0:
			err = r.err
		default:
			if r.left--; r.left == 0 {
				r.left, err = -1, r.err
			}
		}
	}
	return err
}

// Complete lets the nth write that a host posts from now on, or the nth arrival at it, end with a
// status; 1 is the next. A write that does not end with success does not reach the peer.
func (n *Network) Complete(host int, what What, nth int, status verbs.Status) {
	h := n.hosts[host]
	if what == Arrivals {
		n.mu.Lock()
		defer n.mu.Unlock()
		h.arrivals = append(h.arrivals, ending{nth, status})
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, ending{nth, status})
	h.faulty.Store(true)
}

// next counts a write or an arrival, and returns how it ends.
func next(endings []ending) (status verbs.Status) {
	for i := range endings {
		if e := &endings[i]; e.left > 0 {
			if e.left--; e.left == 0 {
				status = e.status
			}
		}
	}
	return status
}

// Tap has each write seen that a host posts from now on, which must be quick.
func (n *Network) Tap(host int, see func(verbs.Write)) {
	h := n.hosts[host]
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tap = see
	h.faulty.Store(true)
}

// nextWrite counts a write that is posted, and returns how it ends.
func (h *host) nextWrite(w *verbs.Write) verbs.Status {
	if !h.faulty.Load() {
		return verbs.Success
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tap != nil {
		h.tap(*w)
	}
	return next(h.writes)
}

// Cut loses all packets between two hosts.
func (n *Network) Cut(a, b int) {
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// CutOneWay loses all packets from a host to another. Then what that one writes to the first
// arrives, and yet fails.
func (n *Network) CutOneWay(from, to int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]int{from, to}] = true
	n.wake()
}

// Heal loses no more.
func (n *Network) Heal(a, b int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, [2]int{a, b})
	delete(n.cut, [2]int{b, a})
	n.wake()
}

// CutPort loses all packets of a port, without an event, until HealPort.
func (n *Network) CutPort(host, adapter, port int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[n.hosts[host].adapters[adapter].port(port)] = true
	n.wake()
}

// HealPort loses no more.
func (n *Network) HealPort(host, adapter, port int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.silent, n.hosts[host].adapters[adapter].port(port))
	n.wake()
}

// Notices is what happens to the notices of completion queues.
type Notices struct {
	Late  time.Duration // they come so much later
	Twice bool          // two come for one
	Lost  int           // how many are lost
}

// Notices says what happens to those of a host from now on.
func (n *Network) Notices(host int, o Notices) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host].notices = o
}

// notice gives one, with mu and that of the queue.
func (n *Network) notice(q *completions) {
	o := &q.c.a.h.notices
	if o.Lost > 0 {
		o.Lost--
		return
	}
	times := 1
	if o.Twice {
		times = 2
	}
	for range times {
		if o.Late > 0 {
			n.late = append(n.late, late{time.Now().Add(o.Late), q})
		} else {
			q.bell.ring()
		}
	}
}

// SetPort takes a port down, or brings it up again. Packets of one that is down are lost.
func (n *Network) SetPort(host, adapter, port int, active bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.hosts[host].adapters[adapter]
	p, e := a.port(port), verbs.Event{Kind: verbs.PortError, Port: port}
	p.Active, p.State = active, "down"
	if active {
		p.State, e.Kind = "active", verbs.PortActive
	}
	a.raise(e)
	n.wake()
}

// Renumber gives a port other addresses, as a renewed lease or another subnet manager does: its
// GIDs have other values; on Ethernet they lie this number of places behind those of before, and on
// InfiniBand the port has another LID, too. Packets to and from what there was before are lost.
// With event, all that have the adapter open hear of it.
func (n *Network) Renumber(host, adapter, port, places int, event bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.hosts[host].adapters[adapter]
	p, e := a.port(port), verbs.Event{Kind: verbs.GIDChange, Port: port}
	n.renumbered++
	for i := range p.GIDs {
		g := &p.GIDs[i]
		delete(n.places, address{gid: g.Value, kind: g.Kind})
		if p.Ethernet {
			g.Index += places
		}
		g.Value[12] += byte(n.renumbered) // 10.x.x.x, where it is mapped
	}
	if p.LID != 0 {
		delete(n.places, address{lid: p.LID})
		for ok := true; ok; _, ok = n.places[address{lid: p.LID}] {
			p.LID++
		}
		e.Kind = verbs.LIDChange
	}
	n.addPort(a, p)
	if event {
		a.raise(e)
	}
	n.wake()
}

// Raise gives an event to all that have an adapter open.
func (n *Network) Raise(host, adapter int, e verbs.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host].adapters[adapter].raise(e)
}

// Fatal lets an adapter fail for ever: all that was posted is flushed, and calls fail, but for
// Poll, Arm, Take, Event, Fail and Close.
func (n *Network) Fatal(host, adapter int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.hosts[host].adapters[adapter]
	n.settle()
	a.fatal.Store(true)
	for _, p := range a.pairs {
		p.state.Store(failed)
	}
	a.raise(verbs.Event{Kind: verbs.DeviceFatal})
	n.wake()
}

// Kill ends a host as the death of its process does: its pairs vanish, and nothing touches its
// memory any more. All its calls fail; what it has is not a leak.
func (n *Network) Kill(host int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[host]
	n.settle()
	h.killed = true
	for c := range h.contexts {
		for _, p := range c.pairs() {
			p.vanish()
		}
		c.killed.Store(true)
		for q := range c.completions {
			q.mu.Lock()
			q.killed = true
			q.mu.Unlock()
		}
	}
	n.wake()
}

func dead() error { return fault.New(fault.Closed, "the process was killed") }

package verbstest

import (
	"runtime"
	"slices"
	"time"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// step is something that the engine can do for a pair.
type step struct {
	p, q *pair // q is the other end
	do   action
}

type action int

const (
	transfer    action = iota // copies the memory of the next write
	deliver                   // lets it arrive
	acknowledge               // ends the first one that has not ended
)

// run executes what is posted until the network is closed.
func (n *Network) run() {
	defer close(n.ended)
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.closed {
		until := n.look(time.Now())
		if len(n.steps) > 0 {
			n.take(n.steps[n.random.IntN(len(n.steps))])
			continue
		}
		n.mu.Unlock()
		n.bell.wait(until)
		n.bell.hush()
		n.mu.Lock()
	}
}

// look collects the steps that can be taken now. It returns how long to wait if there are none.
func (n *Network) look(now time.Time) (until time.Duration) {
	n.steps, until = n.steps[:0], time.Hour
	n.late = slices.DeleteFunc(n.late, func(l late) bool {
		if wait := l.at.Sub(now); wait > 0 {
			until = min(until, wait)
			return false
		}
		l.q.mu.Lock()
		defer l.q.mu.Unlock()
		l.q.bell.ring()
		return true
	})
	for _, p := range n.pairs {
		if p.acked < p.posted.Load() && p.state.Load() != fresh {
			until = min(until, n.lookAt(p, now))
		}
	}
	return until
}

// lookAt collects the steps of a pair that has something to do.
func (n *Network) lookAt(p *pair, now time.Time) (until time.Duration) {
	if p.state.Load() == failed {
		n.steps = append(n.steps, step{p, nil, acknowledge})
		return time.Hour
	}
	q := n.peer(p)
	until, lost := time.Hour, false
	if p.sent < p.posted.Load() && !p.stopped {
		if q == nil || q.state.Load() != connected || n.cuts(p, q) {
			lost = !p.refuses(p.at(p.sent))
		} else {
			until = n.lookAtNext(p, q, now)
		}
	}
	if p.acked < p.sent {
		refused := p.stopped && !local(p.at(p.sent-1).status)
		switch {
		case local(p.at(p.acked).status), q != nil && (q.state.Load() == connected || refused) && !n.cuts(q, p):
			n.steps = append(n.steps, step{p, q, acknowledge})
		default:
			lost = true
		}
	}
	t := p.own.Timing
	switch {
	case !lost:
		p.silent = time.Time{}
	case t.Timeout != 0:
		tries := time.Duration(4096<<t.Timeout) * time.Duration(t.Retries+1)
		until = min(until, p.tries(&p.silent, now, tries, verbs.RetriesExceeded, p.acked))
	}
	return until
}

// lookAtNext looks at the next write to be sent, which the peer can get.
func (n *Network) lookAtNext(p, q *pair, now time.Time) (until time.Duration) {
	s := p.at(p.sent)
	switch {
	case p.refuses(s):
	case !p.copied && s.bytes > 0 && !q.permits(s):
		s.status = verbs.RemoteAccess
		q.fail(verbs.PairAccess)
		p.stop(p.sent)
	case !p.copied && s.bytes > 0:
		n.steps = append(n.steps, step{p, q, transfer})
	case !s.Tell || q.receives().posted.Load() > q.receives().taken:
		n.steps = append(n.steps, step{p, q, deliver})
	case p.own.Timing.NotReady != 7:
		tries := time.Duration(p.own.Timing.NotReady) * time.Millisecond
		return p.tries(&p.unready, now, tries, verbs.NotReady, p.sent)
	}
	return time.Hour
}

// tries returns for how much longer to try again what is tried since then. When that is over, a
// write ends with a status.
func (p *pair) tries(since *time.Time, now time.Time, most time.Duration, status verbs.Status, i uint64) time.Duration {
	if since.IsZero() {
		*since = now
	}
	if left := since.Add(min(most, p.c.a.h.n.o.Patience)).Sub(now); left > 0 {
		return left
	}
	p.at(i).status = status
	p.stop(i)
	return 0
}

// stop sends nothing behind a write, which ends with an error.
func (p *pair) stop(i uint64) {
	p.stopped = true
	p.sent = max(p.sent, i+1)
}

// refuses reports whether a write ends before anything of it is sent.
func (p *pair) refuses(s *posted) bool {
	if s.status == verbs.Success && !p.copied {
		if _, ok := p.source(s); !ok {
			s.status = verbs.LocalProtection
			p.tellFreed(s)
		} else if s.bytes > p.c.a.port(p.own.Port).Message {
			s.status = verbs.LocalLength
		}
	}
	if s.status != verbs.Success {
		p.stop(p.sent)
	}
	return s.status != verbs.Success
}

// permits reports whether a peer may write there.
func (q *pair) permits(s *posted) bool {
	_, r := q.c.find(q.c.regions, s.Key, s.To, uint32(s.bytes))
	return r != nil && r.writable
}

// cuts reports whether packets from a pair to another one are lost.
func (n *Network) cuts(from, to *pair) bool {
	return n.cut[[2]int{from.c.a.h.index, to.c.a.h.index}] || n.silent[from.port()] || n.silent[to.port()]
}

// port returns the port of a pair that is connected.
func (p *pair) port() *verbs.Port { return p.c.a.port(p.own.Port) }

// local reports whether a write ends so without an answer of the peer.
func local(status verbs.Status) bool {
	switch status {
	case verbs.Success, verbs.RemoteInvalid, verbs.RemoteAccess, verbs.RemoteOperation, verbs.NotReady:
		return false
	}
	return true
}

// address is where packets go to: on InfiniBand without a route only the LID counts.
type address struct {
	gid  [16]byte
	kind verbs.GIDKind
	lid  uint16
}

// place is what has an address.
type place struct {
	a    *adapter
	port *verbs.Port
}

// peer returns the pair at the other end, if it is there and packets get through, cuts aside.
func (n *Network) peer(p *pair) *pair {
	own, remote := p.c.a.port(p.own.Port), &p.own.Remote
	from := gid(own, p.own.GID)
	if from == nil { // the port has other addresses now
		return nil
	}
	kind := from.Kind
	to := address{gid: remote.GID, kind: kind}
	if remote.GID == [16]byte{} {
		to = address{lid: remote.LID}
	}
	at, ok := n.places[to]
	if by, there := n.places[address{lid: remote.LID}]; !own.Ethernet && (!there || by != at) {
		return nil // a route leads to the subnet, the LID to the port
	}
	if !ok || !own.Active || !at.port.Active || at.a.fatal.Load() {
		return nil
	}
	q := at.a.pairs[remote.Pair]
	if q == nil || q.state.Load() == fresh || q.own.Port != at.port.Number || !q.expects(own, from) ||
		q.own.Remote.Pair != p.number || q.own.Sequence != remote.Sequence ||
		q.own.Remote.Sequence != p.own.Sequence || q.own.MTU != p.own.MTU {
		return nil
	}
	return q
}

// expects reports whether packets of a pair have the addresses that q was told of.
func (q *pair) expects(port *verbs.Port, from *verbs.GID) bool {
	own, remote := gid(q.port(), q.own.GID), &q.own.Remote
	switch {
	case own == nil || own.Kind != from.Kind:
		return false
	case remote.GID == [16]byte{}:
		return remote.LID == port.LID
	}
	return remote.GID == from.Value
}

// fail moves a pair to the error state, and tells its host.
func (p *pair) fail(kind verbs.EventKind) {
	if p.state.Load() == connected {
		p.state.Store(failed)
		p.c.raise(verbs.Event{Kind: kind, Pair: p.number})
	}
}

func (p *pair) receives() *receives { return p.o.Receives.(*receives) }

// take takes a step, which was possible when n looked.
func (n *Network) take(s step) {
	p, q := s.p, s.q
	switch s.do {
	case transfer:
		w := p.at(p.sent)
		from, _ := p.source(w)
		to, _ := q.c.find(q.c.regions, w.Key, w.To, uint32(w.bytes))
		if !n.copy(to, from) {
			n.reports.mistake("memory of a region went before its Close: a write of %s to %s", p, q)
		}
		p.copied = true
	case deliver:
		w := p.at(p.sent)
		if w.Tell {
			q.receives().taken++
			q.arrival(w)
		}
		c := n.carried[p.port()]
		n.carried[p.port()] = Traffic{c.Writes + 1, c.Bytes + w.bytes}
		p.copied, p.unready = false, time.Time{}
		p.sent++
	case acknowledge:
		p.end()
	}
	if pause := n.delay(64); pause > 0 {
		n.mu.Unlock()
		time.Sleep(pause)
		n.mu.Lock()
	}
}

// arrival is that of a write at its peer.
func (q *pair) arrival(w *posted) {
	c := verbs.Completion{Pair: q.number, Status: next(q.c.a.h.arrivals), Arrival: true,
		Immediate: w.Immediate, Bytes: uint32(w.bytes)}
	if c.Status != verbs.Success {
		c = verbs.Completion{Cookie: verbs.NoCookie, Pair: q.number, Status: c.Status, Vendor: vendor}
		q.fail(verbs.PairFatal)
	}
	q.o.Completions.(*completions).push(c, &q.receives().freed, 1)
}

// vendor is the adapter's own code of every error.
const vendor = 0x99

// end ends the first write that has not ended.
func (p *pair) end() {
	s := p.at(p.acked)
	p.acked++
	c := verbs.Completion{Cookie: s.Cookie, Pair: p.number, Status: s.status}
	if p.state.Load() == failed {
		c.Status = verbs.Flushed
	}
	if c.Status == verbs.Success && !s.Complete {
		return
	}
	if c.Status != verbs.Success {
		c.Vendor = vendor
		p.state.Store(failed)
	}
	for i := p.told; i < p.acked; i++ {
		if s := p.at(i); s.sum != 0 && p.sum(s) != s.sum {
			p.c.a.h.n.reports.mistake("%s: the source of a write changed, or went, before it completed: cookie %x", p, s.Cookie)
		}
	}
	frees := p.acked - p.told
	p.told = p.acked
	p.o.Completions.(*completions).push(c, &p.freed, frees)
}

// copy copies in up to four parts, in any order, without mu. It reports whether the memory is
// there.
func (n *Network) copy(to []byte, from [2][]byte) (there bool) {
	var cuts [5]int
	var pauses [4]time.Duration
	order := [4]int{0, 1, 2, 3}
	for i := range order[1:] {
		cuts[i+1] = n.random.IntN(len(to) + 1)
		pauses[i] = n.delay(64)
	}
	cuts[4] = len(to)
	slices.Sort(cuts[:])
	n.random.Shuffle(4, func(i, j int) { order[i], order[j] = order[j], order[i] })
	n.copying = true
	n.mu.Unlock()
	there = mapped(func() {
		for k, i := range order {
			copyPart(to, from, cuts[i], cuts[i+1])
			runtime.Gosched()
			time.Sleep(pauses[k])
		}
	})
	n.mu.Lock()
	n.copying = false
	n.idle.Broadcast()
	return there
}

// copyPart copies the bytes lo to hi, of what lies in two pieces.
func copyPart(to []byte, from [2][]byte, lo, hi int) {
	split := len(from[0])
	if lo < split {
		copy(to[lo:min(hi, split)], from[0][lo:])
	}
	if lo = max(lo, split); lo < hi {
		copy(to[lo:hi], from[1][lo-split:])
	}
}

// delay returns how long to sleep, which is not 0 once in a number of times.
func (n *Network) delay(times int) time.Duration {
	if n.o.Delay <= 0 || n.random.IntN(times) != 0 {
		return 0
	}
	return time.Duration(n.random.Int64N(int64(n.o.Delay)))
}

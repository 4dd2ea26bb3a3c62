package rdma

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// path is a port of this process and one of the peer, joined by one connection after another. The
// paths of a pair know nothing of each other.
type path struct {
	pair   *pair
	number int // of the port, here and there
	a      *adapter
	up     atomic.Pointer[connection] // that fragments may take
	moved  atomic.Int64               // fragments that go again by tcp

	// What follows is the manager's.
	trial *trial    // a connection that is being made
	epoch uint32    // of the last connection
	again time.Time // when the next one is tried
	eager bool      // by this side, whichever it is: its port has changed
	pause time.Duration
	tried bool // the first connection was decided on
}

// trial is a connection that is being made.
type trial struct {
	way       *connection
	connected bool
	heard     bool // the peer is connected, too
	posted    bool // the write that is the trial
	until     time.Time
}

// way returns the connection that fragments take, or the one that is being tried: the peer may know
// that it works, and this side will soon. It is nil if there is neither.
func (t *path) way() *connection {
	if way := t.up.Load(); way != nil || t.trial == nil {
		return way
	}
	return t.trial.way
}

// begin makes a queue pair, and says so.
func (t *path) begin(epoch uint32) {
	p, a := t.pair, t.a
	t.epoch, t.eager = epoch, false
	way, err := t.make()
	if err != nil {
		p.say(message{Kind: sayBroken, Path: t.number, Epoch: epoch, Why: err.Error()})
		t.postpone()
		t.decide(err)
		return
	}
	t.trial = &trial{way: way, until: time.Now().Add(p.f.opts.Try)}
	p.f.manager.pending.Add(1)
	p.say(message{Kind: sayHello, Path: t.number, Epoch: epoch, End: &endpoint{LID: way.lid,
		GID: way.gid.Value, MTU: a.port.MTU, Pair: way.qp.Number(), Sequence: way.sequence,
		Pool: remotePool{At: a.in.memory.at, Key: a.in.region.Remote(), Slots: a.in.all}}})
}

// make makes a queue pair that is not connected.
func (t *path) make() (*connection, error) {
	a := t.a
	table := *a.connections.Load()
	switch {
	case a.failed.Load():
		return nil, fault.Wrap(fault.System, a.why, "%s has failed", a.place)
	case len(table) >= a.room():
		return nil, fault.New(fault.System, "%s has room for %d connections", a.place, a.room())
	}
	if err := a.refresh(); err != nil {
		return nil, err
	}
	qp, err := a.newPair()
	if err != nil {
		a.refused(err)
		return nil, err
	}
	way := &connection{path: t, a: a, qp: qp, gid: a.gid, lid: a.port.LID, inline: min(qp.Inline(), inlines[a.inline]),
		sequence: rand.Uint32N(1 << 24)}
	a.setConnection(qp.Number(), way)
	return way, nil
}

// newPair makes a queue pair with as many bytes inline as the adapter grants, which is found out
// once.
func (a *adapter) newPair() (qp verbs.Pair, err error) {
	for i := a.inline; i < len(inlines); i++ {
		qp, err = a.context.NewPair(verbs.PairOptions{Completions: a.queue, Receives: a.receives, Posted: posted,
			Inline: inlines[i]})
		if err == nil {
			a.inline = i
			return qp, nil
		}
		// What adapters say of a limit; those that are short of memory may have it for less.
		if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.ENOMEM) {
			break
		}
	}
	return nil, err
}

// refused says, once, that an adapter which could be opened makes no pairs.
func (a *adapter) refused(err error) {
	if !a.warned {
		a.warned = true
		a.f.opts.Warn("rdma: %s is open, but gives no queue pair, and carries nothing: %v", a.place, err)
	}
}

// meet connects with the queue pair of the peer.
func (t *path) meet(m *message) {
	if m.Epoch < t.epoch {
		return
	}
	if m.Epoch == t.epoch && t.trial == nil { // that one has failed here already, perhaps before the peer has tried it
		if t.up.Load() == nil {
			t.pair.say(message{Kind: sayBroken, Path: t.number, Epoch: t.epoch, Why: "it has failed already"})
		}
		return
	}
	if m.Epoch > t.epoch {
		t.pause = 0 // the peer has a reason
		t.drop(fault.New(fault.System, "the peer has begun anew"))
		t.begin(m.Epoch)
	}
	trial, opts := t.trial, &t.pair.f.opts
	if trial == nil || trial.connected {
		return
	}
	a, end, way := t.a, m.End, trial.way
	way.pool = end.Pool
	err := way.qp.Connect(verbs.Connection{Port: a.place.Port.Number, GID: way.gid.Index,
		MTU: min(a.port.MTU, end.MTU), Sequence: way.sequence,
		Timing: opts.timing(), Class: opts.Class, Service: opts.Service,
		Remote: verbs.Remote{Pair: end.Pair, Sequence: end.Sequence, LID: end.LID, GID: end.GID}})
	if err != nil {
		a.refused(err)
		t.broken(err)
		return
	}
	trial.connected = true
	t.pair.say(message{Kind: sayReady, Path: t.number, Epoch: t.epoch})
}

// advance does what is due.
func (t *path) advance() {
	t.try()
	if way := t.up.Load(); way != nil && !way.works() {
		t.broken(way.broken.Load().err)
	}
	idle := t.trial == nil && t.up.Load() == nil
	if idle && (t.pair.first || t.eager) && !t.pair.bye && !t.again.IsZero() && !time.Now().Before(t.again) {
		t.begin(t.epoch + 1)
	}
}

// try goes on with a trial: a write with an immediate, both ways.
func (t *path) try() {
	p, trial := t.pair, t.trial
	if trial == nil {
		return
	}
	p.retrySoon = true
	way := trial.way
	switch {
	case !way.works():
		t.broken(way.broken.Load().err)
	case time.Now().After(trial.until):
		t.broken(fault.New(fault.Timeout, "a write did not arrive within %v", p.f.opts.Try))
	case trial.connected && trial.heard && !trial.posted:
		trial.posted = true
		way.claim()
		b := way.a.out.trial()
		way.post(verbs.Write{Tell: true, Complete: true, Immediate: immediate(kindProbe, 0, 0),
			From: [2]verbs.Piece{{At: address(b), Bytes: uint32(len(b)), Key: way.a.out.region.Local()}},
			To:   way.pool.At + uint64(way.pool.Slots)*longBytes, Key: way.pool.Key})
		way.fence(func(complete bool) {
			way.tried.Store(complete)
			p.schedule()
		})
	case way.probed.Load() && way.tried.Load():
		t.trial = nil
		p.f.manager.pending.Add(-1)
		t.again, t.pause = time.Time{}, 0
		t.up.Store(way)
		if t.epoch > 1 && t.tried {
			p.f.opts.Info("rdma: %s reaches %s again", t.a.place, p.who())
		}
		t.tried, p.tried = true, true
		p.why.Store(nil)
		for _, l := range p.links {
			p.offer(l)
		}
	}
}

// broken leaves a connection that does not work; a new one is tried. Fragments go by the other
// paths, or by tcp.
func (t *path) broken(err error) {
	p := t.pair
	p.say(message{Kind: sayBroken, Path: t.number, Epoch: t.epoch, Why: err.Error()})
	worked := t.up.Load() != nil
	again := t.drop(err)
	switch others := p.ports(); {
	case !worked || p.bye:
	case others == "":
		p.f.opts.Warn("rdma: the path to %s has broken, and tcp takes over with %d fragments: %v", p.who(), again, err)
	default:
		p.f.opts.Warn("rdma: a path to %s has broken, and %s takes over when tcp has sent %d fragments again: %v",
			p.who(), others, again, err)
	}
	t.a.stale.Store(true)
	t.postpone()
	t.decide(err)
}

// hasten tries the next connection at once, by this side: the port has changed, perhaps for the
// better.
func (t *path) hasten() {
	t.pause = 0
	if !t.again.IsZero() {
		t.again, t.eager = time.Now(), true
		t.advance()
	}
}

// postpone has the next connection tried after a pause.
func (t *path) postpone() {
	t.pause = min(max(2*t.pause, leastPause), mostPause)
	t.again = time.Now().Add(t.pause)
}

// The pauses before a connection is made anew.
const (
	leastPause = 100 * time.Millisecond
	mostPause  = 30 * time.Second
)

// decide lets those go on who wait for the first connection, if there will be none.
func (t *path) decide(err error) {
	p, first := t.pair, !t.tried
	t.tried = true
	if !p.hopes() {
		p.byTCP(err)
	} else if first {
		p.f.opts.Info("rdma: %s does not reach %s: %v", t.a.place, p.who(), err)
	}
}

// drop ends the connection that there is, or is being made, and returns how many fragments go by
// tcp now.
func (t *path) drop(err error) (again int64) {
	p := t.pair
	p.f.byTCP.Store(true)
	way := t.up.Swap(nil)
	if trial := t.trial; trial != nil {
		t.trial, way = nil, trial.way
		p.f.manager.pending.Add(-1)
	}
	if way == nil {
		return 0
	}
	way.fail(err)
	way.a.poll(true)
	way.a.setConnection(way.qp.Number(), nil)
	if err := way.close(); err != nil {
		p.f.opts.Warn("rdma: a queue pair could not be destroyed: %v", err)
	}
	way.a.poll(true) // the next queue pair may have its number
	for _, l := range p.links {
		l.unfit[t.number] = false
		for i := range l.channels {
			c := &l.channels[i]
			c.out.leave()
			if q := c.in.Load(); q != nil && q.way == way {
				q.end()
				q.closed = true
			}
			if l.vacates[i] == way {
				l.vacates[i] = nil
			}
		}
	}
	p.f.opts.Doorbell.Ring()
	return t.moved.Swap(0)
}

// abandon ends the connection for good.
func (t *path) abandon(err error) {
	t.drop(err)
	t.again, t.pause, t.tried = time.Time{}, 0, true
}

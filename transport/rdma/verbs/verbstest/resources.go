package verbstest

import (
	"errors"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// testAgain registers the same memory twice, and again: each registration has its own keys, and
// those of the others go on working.
func testAgain(t *testing.T, b *bench) {
	pa, _ := b.connected()
	for i := range 10 {
		again, err := b.b.c.Register(b.b.memory[:4096*(i+1)], true)
		b.b.must(err)
		want := b.a.fill(uint64(i), 0, 4096)
		w := b.a.write(b.b, 0, 4096)
		w.Key = again.Remote()
		b.a.post(pa, w)
		b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Success)
		b.told(pa)
		b.b.holds(0, want)
		b.b.must(again.Close())
		want = b.a.fill(uint64(i+100), 0, 4096)
		b.a.post(pa, b.a.write(b.b, 0, 4096))
		b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Success)
		b.told(pa)
		b.b.holds(0, want)
	}
}

// told lets the peer know that what was written is there.
func (b *bench) told(pa verbs.Pair) {
	b.t.Helper()
	b.b.receive(1)
	b.a.post(pa, verbs.Write{Tell: true, Complete: true})
	b.b.poll(1)
	b.a.poll(1)
}

// testWrongArguments: what cannot be is an error that says so, and no crash.
func testWrongArguments(t *testing.T, b *bench) {
	e := b.a
	d, err := e.c.Device()
	e.must(err)
	p := e.pair()
	good := e.connection(p, b.b, b.b.pair())
	connect := func(change func(c *verbs.Connection)) func() error {
		return func() error {
			c := good
			change(&c)
			return e.pair().Connect(c)
		}
	}
	for name, call := range map[string]func() error{
		"no entries":     func() error { _, err := e.c.NewCompletions(0); return err },
		"many entries":   func() error { _, err := e.c.NewCompletions(d.Entries + 1); return err },
		"no receives":    func() error { _, err := e.c.NewReceives(0); return err },
		"many receives":  func() error { _, err := e.c.NewReceives(d.Receive + 1); return err },
		"no memory":      func() error { _, err := e.c.Register(nil, false); return err },
		"not connected":  func() error { _, err := p.Post([]verbs.Write{e.write(b.b, 0, 1)}); return err },
		"no such port":   connect(func(c *verbs.Connection) { c.Port = 77 }),
		"no such GID":    connect(func(c *verbs.Connection) { c.GID = 99999 }),
		"an empty GID":   connect(func(c *verbs.Connection) { c.GID = 255 }),
		"an odd MTU":     connect(func(c *verbs.Connection) { c.MTU = 1000 }),
		"retries":        connect(func(c *verbs.Connection) { c.Timing.Retries = 8 }),
		"a long timeout": connect(func(c *verbs.Connection) { c.Timing.Timeout = 32 }),
		"many writes": func() error {
			_, err := e.c.NewPair(verbs.PairOptions{Completions: e.q, Receives: e.r, Posted: d.Posted + 1})
			return err
		},
	} {
		err := call()
		var said *fault.Error
		if !errors.As(err, &said) {
			t.Errorf("%s: %v, want a fault.Error", name, err)
		}
	}
	if _, ok, err := e.c.Event(); ok || err != nil {
		t.Errorf("an event, or not none: %v %v", ok, err)
	}
	if e.readable(e.c.Events(), 0) {
		t.Error("the descriptor of events is readable, and there is none")
	}
}

// testCloseOrder makes and closes all of it several times over. What is closed gives its memory
// back: limits are not reached.
func testCloseOrder(t *testing.T, b *bench) {
	for range 20 {
		e := b.a
		q, err := e.c.NewCompletions(16)
		e.must(err)
		r, err := e.c.NewReceives(16)
		e.must(err)
		o := verbs.PairOptions{Completions: q, Receives: r, Posted: 16}
		p, err := e.c.NewPair(o)
		e.must(err)
		region, err := e.c.Register(make([]byte, 1<<20), true)
		e.must(err)
		theirs := b.b.pair()
		e.must(p.Connect(e.connection(p, b.b, theirs)))
		b.b.must(theirs.Connect(b.b.connection(theirs, e, p)))
		w := e.write(b.b, 0, 10)
		e.post(p, w)
		e.ended(e.pollOf(q, 1)[0], p, 0, verbs.Success)
		w = e.tell(b.b, 0, 10, 0)
		e.post(p, w)      // waits for an entry of the peer
		e.must(p.Close()) // with what is posted
		e.must(region.Close())
		e.must(r.Close())
		var into [8]verbs.Completion
		if _, err := q.Poll(into[:]); err != nil {
			t.Error(err)
		}
		e.must(q.Close())
	}
}

// testDevices compares what a library says of an adapter with what the adapter says.
func testDevices(t *testing.T, b *bench) {
	d, err := b.a.c.Device()
	b.a.must(err)
	if d.Name == "" || d.Pairs < 1 || d.Entries < benchEntries || d.Posted < benchPosted || d.Receive < 1 ||
		d.Regions < 1 || d.Node < -1 {
		t.Errorf("this adapter is of no use: %+v", d)
	}
	p := d.Ports[b.a.port.Number-1]
	if p.Number != b.a.port.Number || !p.Active || p.State != "active" || p.MTU < 256 || p.Message < 1<<20 {
		t.Errorf("this port is of no use: %+v", p)
	}
	for i, g := range p.GIDs {
		if g.Value == [16]byte{} || i > 0 && g.Index <= p.GIDs[i-1].Index ||
			p.Ethernet == (g.Kind == verbs.InfiniBand) {
			t.Errorf("this GID is wrong: %+v", g)
		}
	}
}

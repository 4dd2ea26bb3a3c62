package transporttest

import (
	"context"
	"errors"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// ended reports whether a link has ended, as a thread looks that waits for its peer.
func ended(l transport.Link) bool {
	l.Open()
	return l.Err() != nil
}

// begin connects one side of a session, which must not wait for the other one.
func (p *pair) begin(t *testing.T, from, to *side, s transport.Session) transport.Link {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	c := p.collect(dial(ctx, from, to, s))
	if c.err != nil {
		t.Fatalf("side %s: %v", from.name, c.err)
	}
	return c.link
}

// testOpenBeforePeer sends, and closes, before the peer calls Connect. Fragments arrive all the
// same, and so does the end.
func testOpenBeforePeer(t *testing.T, p *pair) {
	for i, d := range []struct{ from, to *side }{{p.a, p.b}, {p.b, p.a}} {
		sa, sb := p.newSession(2)
		a := p.begin(t, d.from, d.to, sa)
		var lengths [][]int
		for c := range 2 {
			n := p.send(t, a.Channel(c), 3000, 0)
			lengths = append(lengths, []int{n})
		}
		if p.settle(func() bool { return a.Err() != nil }) {
			t.Fatalf("round %d: the link ended without a peer: %v", i, a.Err())
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		b := p.begin(t, d.to, d.from, sb)
		if err := drain(d.to, b, lengths); err != nil {
			t.Fatal(err)
		}
		p.until(t, "the end of the session", func() bool { return ended(b) })
		if err := isPeer(b.Err(), fault.PeerLeft, rankA); err != nil {
			t.Error(err)
		}
		b.Close()
	}
}

// testOpenToWait has one side wait for the other, which sends only after a while.
func testOpenToWait(t *testing.T, p *pair) {
	for i := range uint64(4) {
		j := p.join(t, 1)
		waiter, sender := j.a, j.b
		if i%2 == 1 {
			waiter, sender = sender, waiter
		}
		p.until(t, "the path of the side that waits", func() bool { return waiter.Open() })
		if err := errors2(waiter.Err(), sender.Err()); err != nil {
			t.Fatal(err)
		}
		n := p.send(t, sender.Channel(0), 100, i)
		p.expect(t, waiter.Channel(0), n, i)
		j.close()
	}
}

// testOpenAtOnce has both sides open their path at the same time.
func testOpenAtOnce(t *testing.T, p *pair) {
	for i := range uint64(20) {
		j := p.join(t, 1)
		n, m := p.send(t, j.a.Channel(0), 100, i), p.send(t, j.b.Channel(0), 200, i)
		p.expect(t, j.b.Channel(0), n, i)
		p.expect(t, j.a.Channel(0), m, i)
		p.until(t, "both sides see the path", func() bool { return j.a.Open() && j.b.Open() })
		if err := errors2(j.a.Err(), j.b.Err()); err != nil {
			t.Fatal(err)
		}
		j.close()
	}
}

// testOpenWrongKey checks that no data passes between sides with different keys.
func testOpenWrongKey(t *testing.T, p *pair) {
	sa, sb := p.newSession(1)
	sb.Key[31] ^= 1
	a, b := p.begin(t, p.a, p.b, sa), p.begin(t, p.b, p.a, sb)
	p.send(t, a.Channel(0), 100, 1)
	p.until(t, "both sides refuse the key", func() bool { return ended(a) && ended(b) })
	for _, l := range []transport.Link{a, b} {
		// One side may have closed the link before the other has seen its key.
		if err := l.Err(); !errors.Is(err, fault.Mismatch) && !errors.Is(err, fault.PeerLeft) {
			t.Errorf("a peer with another key: %v", err)
		}
	}
	if _, _, ok := b.Channel(0).Peek(); ok {
		t.Error("a fragment of a peer with another key has arrived")
	}
	joined{a, b}.close()
	j := p.join(t, 1)
	p.send(t, j.a.Channel(0), 1, 1)
	p.expect(t, j.b.Channel(0), 1, 1)
	j.close()
}

// testOpenLeft has one side leave before the other opens the path, which must learn of it.
func testOpenLeft(t *testing.T, p *pair) {
	for range 2 {
		j := p.join(t, 1)
		j.b.Close()
		p.until(t, "the end of the session", func() bool { return ended(j.a) })
		if err := isPeer(j.a.Err(), fault.PeerLeft, rankB); err != nil {
			t.Error(err)
		}
		j.a.Close()
	}
}

// testOpenGone has the fabric of one side close before the other opens the path.
func testOpenGone(t *testing.T, p *pair) {
	if p.a.fabric == p.b.fabric {
		return
	}
	j := p.join(t, 1)
	p.b.fabric.Close()
	p.until(t, "the end of the session", func() bool { return ended(j.a) })
	if err := isPeer(j.a.Err(), fault.PeerLost, rankB); err != nil {
		t.Error(err)
	}
	j.a.Close()
}

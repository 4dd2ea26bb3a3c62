package transporttest

import (
	"testing"

	"github.com/goccl/goccl/transport"
)

// testParts checks that a fabric, its links and their channels have the optional parts of the
// contract that belong together.
func testParts(t *testing.T, p *pair) {
	j := p.join(t, 2)
	defer j.close()
	for s, l := range map[*side]transport.Link{p.a: j.a, p.b: j.b} {
		shares := s.fabric.SharesMemory()
		if _, lends := l.(transport.Lender); lends != shares {
			t.Errorf("side %s: it shares memory: %v; its link is a Lender: %v", s.name, shares, lends)
		}
		_, registers := s.fabric.(transport.Registrar)
		for i := range 2 {
			if _, gathers := l.Channel(i).(transport.Gatherer); gathers != registers {
				t.Errorf("side %s: it is a Registrar: %v; channel %d is a Gatherer: %v", s.name, registers, i, gathers)
			}
		}
	}
}

// testState checks what links know of their paths, before and after their end.
func testState(t *testing.T, p *pair, allocates bool) {
	j := p.join(t, 1)
	p.until(t, "the path is not made", func() bool { return j.a.Open() && j.b.Open() })
	for i := range uint64(10) { // a round trip is known by then
		p.expect(t, j.b.Channel(0), p.send(t, j.a.Channel(0), 100, i), i)
		p.expect(t, j.a.Channel(0), p.send(t, j.b.Channel(0), 100, i), i)
	}
	p.until(t, "what has arrived has not left", func() bool { return j.a.Flushed() && j.b.Flushed() })
	for s, l := range map[*side]transport.Link{p.a: j.a, p.b: j.b} {
		other := map[*side]*side{p.a: p.b, p.b: p.a}[s]
		where, state := s.fabric.Locate(other.fabric.Address()), l.State()
		t.Logf("side %s: %+v, the peer at %v", s.name, state, where)
		switch shares := s.fabric.SharesMemory(); {
		case shares && (state != transport.LinkState{} || len(where) > 0):
			t.Errorf("side %s: a path through memory knows more than that", s.name)
		case !shares && (!state.Network || state.From == "" || state.To == "" || len(where) == 0):
			t.Errorf("side %s: a path through a network does not say where it leads", s.name)
		case state.RoundTrip < 0:
			t.Errorf("side %s: a round trip takes %v", s.name, state.RoundTrip)
		}
		if n := testing.AllocsPerRun(100, func() { _ = l.State() }); n > 0 && !allocates {
			t.Errorf("side %s: State allocates %v times", s.name, n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = l.Flushed(), l.Open() }); n > 0 && !allocates {
			t.Errorf("side %s: Flushed and Open allocate %v times", s.name, n)
		}
	}
	network := j.a.State().Network
	j.b.Close()
	p.until(t, "the end of the peer is not noticed", func() bool { return j.a.Err() != nil })
	for _, l := range []transport.Link{j.a, j.b} {
		if !l.Open() || l.State().Network != network {
			t.Error("the end of a link changes what it is")
		}
	}
	p.until(t, "nothing more will leave", j.a.Flushed)
	j.a.Close()
	if !j.a.Open() || j.a.State().Network != network {
		t.Error("Close changes what a link is")
	}
}

package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

func testAddress(t *testing.T, p *pair) {
	if p.a.fabric.Name() == "" || p.a.fabric.Name() != p.b.fabric.Name() {
		t.Errorf("names: %q and %q", p.a.fabric.Name(), p.b.fabric.Name())
	}
	for _, s := range []*side{p.a, p.b} {
		address := s.fabric.Address()
		if len(address) == 0 || len(address) > transport.MaxAddress {
			t.Errorf("side %s: address of %d bytes, allowed are 1 to %d", s.name, len(address), transport.MaxAddress)
		}
		if !bytes.Equal(address, s.fabric.Address()) {
			t.Errorf("side %s: Address changes between calls", s.name)
		}
	}
	a, b := p.a.fabric.Address(), p.b.fabric.Address()
	if !p.a.fabric.Reaches(b) || !p.b.fabric.Reaches(a) {
		t.Errorf("A reaches B: %v, B reaches A: %v, want both", p.a.fabric.Reaches(b), p.b.fabric.Reaches(a))
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	foreign := [][]byte{nil, {}, {0}, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), b[:len(b)/2],
		bytes.Repeat([]byte{0x7f}, 2*transport.MaxAddress)}
	for _, address := range foreign {
		if p.a.fabric.Reaches(address) {
			t.Errorf("Reaches accepts %.40q, which is no address", address)
		}
		s, _ := p.newSession(1)
		if l, err := p.a.fabric.Connect(ctx, address, s); err == nil {
			l.Close()
			t.Errorf("Connect accepts %.40q, which is no address", address)
		}
	}
}

// testConnectOrder lets A connect first, then B, then both at once.
func testConnectOrder(t *testing.T, p *pair) {
	for i, lag := range []struct{ a, b time.Duration }{{0, 20 * time.Millisecond}, {20 * time.Millisecond, 0}, {0, 0}} {
		sa, sb := p.newSession(2)
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		var da, db <-chan connected
		if lag.a <= lag.b {
			da = dial(ctx, p.a, p.b, sa)
			time.Sleep(lag.b)
			db = dial(ctx, p.b, p.a, sb)
		} else {
			db = dial(ctx, p.b, p.a, sb)
			time.Sleep(lag.a)
			da = dial(ctx, p.a, p.b, sa)
		}
		a, b := p.collect(da), p.collect(db)
		cancel()
		if a.err != nil || b.err != nil {
			t.Fatalf("connect: A says %v, B says %v", a.err, b.err)
		}
		for c := range 2 {
			p.send(t, a.link.Channel(c), 100, uint64(i))
			p.expect(t, b.link.Channel(c), 100, uint64(i))
			p.send(t, b.link.Channel(c), 100, uint64(i))
			p.expect(t, a.link.Channel(c), 100, uint64(i))
		}
		joined{a.link, b.link}.close()
	}
}

func testConnectTimeout(t *testing.T, p *pair) {
	for _, d := range []struct{ from, to *side }{{p.a, p.b}, {p.b, p.a}} {
		s, _ := p.newSession(1)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		begin := time.Now()
		c := p.collect(dial(ctx, d.from, d.to, s))
		cancel()
		if c.err == nil {
			c.link.Close()
			t.Fatalf("side %s connected to a peer that never called Connect", d.from.name)
		}
		if took := time.Since(begin); took > hang/2 {
			t.Errorf("Connect returned %v after its context had ended", took)
		}
		if err := isPeer(c.err, fault.Timeout, rankB); err != nil {
			t.Error(err)
		}
	}
	// Unanswered sessions do not affect other sessions.
	j := p.join(t, 1)
	p.send(t, j.a.Channel(0), 1, 1)
	p.expect(t, j.b.Channel(0), 1, 1)
	j.close()
}

// testGivenUp has one side give up, with a reason, before the other one connects, which is late and
// learns the reason. The first time their processes have not met before.
func testGivenUp(t *testing.T, p *pair) {
	const why = "lost another one"
	for _, d := range []struct{ early, late *side }{{p.a, p.b}, {p.b, p.a}} {
		s, other := p.newSession(1)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(&transport.GivenUp{Why: []byte(why)})
		c := p.collect(dial(ctx, d.early, d.late, s))
		if err := isPeer(c.err, fault.Aborted, rankB); err != nil {
			t.Fatal(err)
		}
		within, stop := context.WithTimeout(context.Background(), hang)
		defer stop()
		c = p.collect(dial(within, d.late, d.early, other))
		if c.err == nil { // the link opened before it ended
			p.until(t, "the late side learns that it is alone", func() bool { return c.link.Err() != nil })
			c.err = c.link.Err()
			c.link.Close()
		}
		if err := isPeer(c.err, fault.PeerLeft, rankA); err != nil {
			t.Fatal(err)
		}
		if f := (&fault.Error{}); !errors.As(c.err, &f) || string(f.Left) != why {
			t.Errorf("the late side is told %q, want %q", f.Left, why)
		}
	}
}

func testWrongKey(t *testing.T, p *pair) {
	sa, sb := p.newSession(1)
	sb.Key[31] ^= 1
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	da, db := dial(ctx, p.a, p.b, sa), dial(ctx, p.b, p.a, sb)
	for _, c := range []connected{p.collect(da), p.collect(db)} {
		if c.err == nil {
			c.link.Close()
			t.Error("a peer with another key was accepted")
		}
	}
	j := p.join(t, 1)
	p.send(t, j.a.Channel(0), 1, 1)
	p.expect(t, j.b.Channel(0), 1, 1)
	j.close()
}

// testManySessions opens 64 sessions at once, the two sides in opposite orders, and uses them all
// before closing any.
func testManySessions(t *testing.T, p *pair) {
	const sessions = 64
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	as, bs := make([]<-chan connected, sessions), make([]<-chan connected, sessions)
	var started sync.WaitGroup
	var sa, sb [sessions]transport.Session
	for i := range sessions {
		sa[i], sb[i] = p.newSession(1 + i%3)
	}
	started.Add(2)
	go func() {
		defer started.Done()
		for i := range sessions {
			as[i] = dial(ctx, p.a, p.b, sa[i])
		}
	}()
	go func() {
		defer started.Done()
		for i := sessions - 1; i >= 0; i-- {
			bs[i] = dial(ctx, p.b, p.a, sb[i])
		}
	}()
	started.Wait()
	links := make([]joined, sessions)
	for i := range sessions {
		a, b := p.collect(as[i]), p.collect(bs[i])
		if a.err != nil || b.err != nil {
			t.Fatalf("session %d: A says %v, B says %v", i, a.err, b.err)
		}
		links[i] = joined{a.link, b.link}
	}
	for round := range 3 {
		for i, j := range links {
			for c := range 1 + i%3 {
				p.send(t, j.a.Channel(c), 200, number(round, i, c))
				p.send(t, j.b.Channel(c), 20, number(round, i, c))
			}
		}
		for i, j := range links {
			for c := range 1 + i%3 {
				p.expect(t, j.b.Channel(c), 200, number(round, i, c))
				p.expect(t, j.a.Channel(c), 20, number(round, i, c))
			}
		}
	}
	for i, j := range links {
		if err := errors2(j.a.Close(), j.b.Close()); err != nil {
			t.Errorf("close of session %d: %v", i, err)
		}
	}
}

func number(round, session, channel int) uint64 {
	return uint64(round*1000000 + session*1000 + channel)
}

func errors2(a, b error) error {
	if a != nil || b != nil {
		return fmt.Errorf("A says %v, B says %v", a, b)
	}
	return nil
}

func testChannelIdentity(t *testing.T, p *pair) {
	j := p.join(t, transport.MaxChannels)
	defer j.close()
	seen := map[transport.Channel]bool{}
	for _, l := range []transport.Link{j.a, j.b} {
		for i := range transport.MaxChannels {
			if l.Channel(i) == nil || l.Channel(i) != l.Channel(i) {
				t.Errorf("Channel(%d) does not return always the same value", i)
			}
			seen[l.Channel(i)] = true
		}
		if err := l.Err(); err != nil {
			t.Errorf("Err of a new link: %v", err)
		}
	}
	if len(seen) != 2*transport.MaxChannels {
		t.Errorf("%d channels, %d of them different", 2*transport.MaxChannels, len(seen))
	}
	// Each channel is joined to the channel of the same number.
	for i := range transport.MaxChannels {
		p.send(t, j.a.Channel(i), 8, uint64(100+i))
	}
	for i := transport.MaxChannels - 1; i >= 0; i-- {
		p.expect(t, j.b.Channel(i), 8, uint64(100+i))
	}
}

package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// drain takes the remaining fragments of a link whose peer has closed: lengths[c] lists the
// fragments that must arrive on channel c before the end. It checks once more after Err, because
// the peer may have committed and closed after the first check.
func drain(s *side, l transport.Link, lengths [][]int) error {
	next := make([]int, len(lengths))
	takeAll := func() error {
		for c := range lengths {
			for {
				i := next[c]
				ok, err := take(l.Channel(c), func(b []byte, m transport.Meta) error {
					if i >= len(lengths[c]) || len(b) != lengths[c][i] || m != metaOf(uint64(i)) {
						return fmt.Errorf("channel %d: %d bytes, meta %x arrived as fragment %d", c, len(b), m, i)
					}
					return checkPattern(b, uint64(i))
				})
				if err != nil {
					return err
				}
				if !ok {
					break
				}
				next[c]++
			}
		}
		return nil
	}
	var failed error
	err := s.await("the peer closed, and Err stays nil", func() bool {
		failed = takeAll()
		return failed != nil || l.Err() != nil
	})
	if err != nil {
		return err
	}
	if failed == nil {
		failed = takeAll()
	}
	if failed != nil {
		return failed
	}
	for c := range lengths {
		if next[c] != len(lengths[c]) {
			return fmt.Errorf("channel %d: %d fragments of %d arrived before the end: %v",
				c, next[c], len(lengths[c]), l.Err())
		}
	}
	return nil
}

// testCloseDelivers closes right after the last fragment, with all channels full, one of them in
// the middle of a series.
func testCloseDelivers(t *testing.T, p *pair) {
	for round, n := range []int{8, 1500, transport.MaxFragment} {
		j := p.join(t, 3)
		lengths := make([][]int, 3)
		for c := range lengths {
			send := put
			if c == 1 {
				send = publish
			}
			for i := range 500 {
				got, err := send(j.a.Channel(c), n, pattern(uint64(i)), metaOf(uint64(i)))
				if err != nil {
					t.Fatal(err)
				}
				if got < 0 {
					break
				}
				lengths[c] = append(lengths[c], got)
			}
		}
		if err := j.a.Close(); err != nil {
			t.Fatal(err)
		}
		j.a.Close() // a second Close does no harm
		if err := drain(p.b, j.b, lengths); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for range 2 {
			if err := isPeer(j.b.Err(), fault.PeerLeft, rankA); err != nil {
				t.Error(err)
			}
		}
		// Sending to a peer that has left goes nowhere and does no harm.
		for range 100 {
			if _, err := put(j.b.Channel(0), n, pattern(0), metaOf(0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testCloseOneOfMany checks that other sessions of the same two processes go on working.
func testCloseOneOfMany(t *testing.T, p *pair) {
	stays, leaves := p.join(t, 1), p.join(t, 1)
	defer stays.close()
	n := p.send(t, leaves.a.Channel(0), 70000, 0)
	m := p.send(t, stays.a.Channel(0), 70000, 0)
	leaves.a.Close()
	if err := drain(p.b, leaves.b, [][]int{{n}}); err != nil {
		t.Fatal(err)
	}
	leaves.b.Close()
	p.expect(t, stays.b.Channel(0), m, 0)
	for i := range uint64(50) {
		n := p.send(t, stays.b.Channel(0), 70000, i)
		p.expect(t, stays.a.Channel(0), n, i)
	}
	if err := errors2(stays.a.Err(), stays.b.Err()); err != nil {
		t.Error(err)
	}
}

// testLeave has a rank leave and say why: the peer gets the fragments, and then the words, whole,
// cut off, or none.
func testLeave(t *testing.T, p *pair) {
	long := bytes.Repeat([]byte("long "), transport.MaxWhy)
	for _, why := range [][]byte{
		nil, {}, []byte("w"), []byte("because of \x00 and \xff"), long[:transport.MaxWhy], long,
	} {
		j := p.join(t, 2)
		n := p.send(t, j.a.Channel(1), 70000, 0)
		if err := j.a.Leave(why); err != nil {
			t.Fatal(err)
		}
		j.a.Leave([]byte("the first words count"))
		if err := drain(p.b, j.b, [][]int{nil, {n}}); err != nil {
			t.Fatal(err)
		}
		if err := isPeer(j.b.Err(), fault.PeerLeft, rankA); err != nil {
			t.Error(err)
		}
		said := j.b.Err().(*fault.Error).Left
		if want := why[:min(len(why), transport.MaxWhy)]; len(why) > 0 && !bytes.Equal(said, want) {
			t.Errorf("%d bytes were said, %d arrived", len(want), len(said))
		}
		j.b.Close()
	}
}

func testCloseFabric(t *testing.T, p *pair) {
	if p.a.fabric == p.b.fabric {
		j := p.join(t, 1)
		if err := errors2(p.a.fabric.Close(), p.b.fabric.Close()); err != nil {
			t.Error(err)
		}
		if j.a.Err() == nil || j.b.Err() == nil {
			t.Error("a link works after its fabric was closed")
		}
		return
	}
	j, k := p.join(t, 1), p.join(t, 1)
	n := p.send(t, j.a.Channel(0), 70000, 0)
	done := asleep(p.b, "nobody rang after the peer's fabric closed",
		func() bool { return ended(j.b) && ended(k.b) })
	if err := p.a.fabric.Close(); err != nil {
		t.Error(err)
	}
	p.awake(t, p.b, done)
	if err := drain(p.b, j.b, [][]int{{n}}); err != nil {
		t.Error(err)
	}
	for _, l := range []transport.Link{j.b, k.b} {
		code := fault.PeerLeft
		if l == k.b && p.onUse && errors.Is(l.Err(), fault.PeerLost) {
			code = fault.PeerLost // its path had not been opened, and cannot be any more
		}
		if err := isPeer(l.Err(), code, rankA); err != nil {
			t.Error(err)
		}
		l.Close()
	}
	if err := p.b.fabric.Close(); err != nil {
		t.Error(err)
	}
}

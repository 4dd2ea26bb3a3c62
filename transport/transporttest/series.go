package transporttest

import (
	"math/rand/v2"
	"testing"

	"github.com/goccl/goccl/transport"
)

// testSeries sends series of fragments, some of which end with a Commit, and takes them by either
// pair of methods. Fragments not yet flushed may or may not be there; after Flush or Commit all of
// them are.
func testSeries(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	random := rand.New(rand.NewPCG(3, 4))
	var lengths []int
	received := 0
	receive := func() bool {
		if received == len(lengths) {
			return false
		}
		get := take
		if random.IntN(2) == 0 {
			get = consume
		}
		ok, err := get(to, isFragment(lengths[received], uint64(received)))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			received++
		}
		return ok
	}
	for len(lengths) < 2000 {
		for range random.IntN(20) {
			i := uint64(len(lengths))
			send := publish
			if random.IntN(8) == 0 {
				send = put
			}
			n, err := send(from, []int{0, 1, 30, 64, 1000, 5000, 30000}[random.IntN(7)], pattern(i), metaOf(i))
			if err != nil {
				t.Fatal(err)
			}
			if n < 0 {
				break
			}
			lengths = append(lengths, n)
			if random.IntN(4) == 0 {
				receive()
			}
		}
		from.Flush()
		p.until(t, "a fragment of a series that was ended does not arrive", func() bool {
			for receive() {
			}
			return received == len(lengths)
		})
		to.Flush()
		p.until(t, "credit does not come back after Flush", func() bool { return from.Reserve(30000) != nil })
	}
}

// testLook checks that Look and Peek return the same fragment, which does not change until it is
// given back.
func testLook(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	for i, n := range []int{0, 24, 500, 3000, 100000} {
		i := uint64(i)
		if payload, m := to.Look(); m != nil || payload != nil {
			t.Fatalf("Look at an empty channel: %d bytes, meta %v", len(payload), m)
		}
		n = p.send(t, from, n, i)
		var payload []byte
		var m *transport.Meta
		p.until(t, "fragment does not arrive", func() bool { payload, m = to.Look(); return m != nil })
		p.send(t, from, 5, 100+i)
		p.send(t, to, 5, 200+i)
		p.settle(func() bool { return false })
		for _, look := range []func() ([]byte, transport.Meta){
			func() ([]byte, transport.Meta) { return payload, *m },
			func() ([]byte, transport.Meta) { b, m, _ := to.Peek(); return b, m },
			func() ([]byte, transport.Meta) { b, m := to.Look(); return b, *m },
		} {
			b, m := look()
			if err := isFragment(n, i)(b, m); err != nil {
				t.Fatal(err)
			}
		}
		// Peek can be followed by Consume, and Look by Release. Space reserved meanwhile stays
		// reserved.
		lent := to.Reserve(5000)
		to.Consume()
		p.until(t, "fragment does not arrive", func() bool { payload, m = to.Look(); return m != nil })
		if err := isFragment(5, 100+i)(payload, *m); err != nil {
			t.Fatal(err)
		}
		to.Release()
		pattern(300 + i)(lent)
		meta := metaOf(300 + i)
		to.Commit(len(lent), &meta)
		p.expect(t, from, 5, 200+i)
		p.expect(t, from, len(lent), 300+i)
	}
}

// testWakeOnFlush has a peer sleep while a series is sent; it may have seen part of the series by
// then.
func testWakeOnFlush(t *testing.T, p *pair) {
	j := p.join(t, 2)
	defer j.close()
	const fragments = 4
	for _, n := range []int{0, 8, 1000} {
		for _, d := range []struct {
			from, to     transport.Link
			here, sleeps *side
		}{{j.a, j.b, p.a, p.b}, {j.b, j.a, p.b, p.a}} {
			from, to := d.from.Channel(1), d.to.Channel(1)
			received := 0
			done := asleep(d.sleeps, "nobody rang after a Flush", func() bool {
				for ok := true; ok && received < fragments; {
					var err error
					if ok, err = take(to, isFragment(n, uint64(received))); err != nil {
						t.Error(err)
					}
					if ok {
						received++
					}
				}
				return received == fragments
			})
			for i := range uint64(fragments) {
				if got, err := publish(from, n, pattern(i), metaOf(i)); err != nil || got != n {
					t.Fatalf("Reserve(%d) lent %d on an empty channel: %v", n, got, err)
				}
			}
			from.Flush()
			p.awake(t, d.here, done)
		}
	}
}

// testWakeOnFlushOfConsumed has a sender sleep for lack of credit while the peer takes all
// fragments in one series.
func testWakeOnFlushOfConsumed(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	for _, n := range []int{8, 20000} {
		lengths := p.fill(t, from, n)
		done := asleep(p.a, "nobody rang after a Flush", func() bool { return from.Reserve(n) != nil })
		p.takeAll(t, to, lengths, consume)
		to.Flush()
		p.awake(t, p.b, done)
	}
}

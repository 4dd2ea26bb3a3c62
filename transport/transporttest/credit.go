package transporttest

import (
	"testing"

	"github.com/goccl/goccl/transport"
)

// fill commits fragments until the channel has no credit, even after fragments in flight have
// moved.
func (p *pair) fill(t *testing.T, ch transport.Channel, n int) (lengths []int) {
	t.Helper()
	bytes := 0
	for {
		got, err := put(ch, n, pattern(uint64(len(lengths))), metaOf(uint64(len(lengths))))
		if err != nil {
			t.Fatal(err)
		}
		if got < 0 {
			if p.settle(func() bool { return ch.Reserve(n) != nil }) {
				continue
			}
			return lengths
		}
		lengths = append(lengths, got)
		if bytes += got; bytes > 256<<20 || len(lengths) > 1<<17 {
			t.Fatalf("no limit: %d fragments of %d bytes (%d in all) lie in a channel that nobody reads",
				len(lengths), n, bytes)
		}
	}
}

func testCredit(t *testing.T, p *pair) {
	j := p.join(t, 2)
	defer j.close()
	for _, n := range []int{0, 8, 1000, 20000, transport.MaxFragment} {
		for _, d := range []struct{ from, to transport.Link }{{j.a, j.b}, {j.b, j.a}} {
			from, to := d.from.Channel(1), d.to.Channel(1)
			lengths := p.fill(t, from, n)
			if len(lengths) == 0 {
				t.Fatalf("Reserve(%d) lends nothing on an empty channel", n)
			}
			// Half of the fragments are taken, so that credit comes back.
			half := (len(lengths) + 1) / 2
			for i := range half {
				p.expect(t, to, lengths[i], uint64(i))
			}
			p.until(t, "credit does not come back after Release", func() bool { return from.Reserve(n) != nil })
			p.send(t, from, n, uint64(len(lengths)))
			for i := half; i < len(lengths); i++ {
				p.expect(t, to, lengths[i], uint64(i))
			}
			p.until(t, "last fragment does not arrive", func() bool {
				ok, err := take(to, func(b []byte, m transport.Meta) error {
					return checkPattern(b, uint64(len(lengths)))
				})
				if err != nil {
					t.Fatal(err)
				}
				return ok
			})
		}
	}
}

// testIndependence fills channels that no peer reads, and then uses the others.
func testIndependence(t *testing.T, p *pair) {
	full, other := p.join(t, 3), p.join(t, 2)
	defer full.close()
	defer other.close()
	var lengths [2][]int
	for i, n := range []int{64, transport.MaxFragment} {
		lengths[i] = p.fill(t, full.a.Channel(i), n)
	}
	exchange := func(from, to transport.Channel) {
		t.Helper()
		for i := range uint64(40) {
			n := p.send(t, from, 100000, 1000+i)
			p.expect(t, to, n, 1000+i)
		}
	}
	exchange(full.b.Channel(0), full.a.Channel(0)) // the other direction of a full channel
	exchange(full.a.Channel(2), full.b.Channel(2)) // another channel of the link
	exchange(other.a.Channel(0), other.b.Channel(0))
	exchange(other.b.Channel(1), other.a.Channel(1))
	late := p.join(t, 1) // a session opened while they are full
	exchange(late.a.Channel(0), late.b.Channel(0))
	late.close()
	for i := range lengths {
		for k, n := range lengths[i] {
			p.expect(t, full.b.Channel(i), n, uint64(k))
		}
	}
}

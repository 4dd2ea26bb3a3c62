package transporttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goccl/goccl/transport"
)

var sizes = []int{
	0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 1000, 2047, 2048, 2049, 4096, 65535, 65536, 65537, 131072, 131073,
	transport.MaxFragment - 1, transport.MaxFragment}

// testSizes sends messages of every size in both directions; if Reserve cuts a message, the rest
// follows.
func testSizes(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	number := uint64(0)
	for _, d := range []struct{ from, to transport.Link }{{j.a, j.b}, {j.b, j.a}} {
		from, to := d.from.Channel(0), d.to.Channel(0)
		for _, n := range sizes {
			for left := n; ; {
				number++
				sent := p.send(t, from, left, number)
				p.expect(t, to, sent, number)
				if left -= sent; left == 0 {
					break
				}
			}
		}
	}
}

func testCommitLess(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	for i, c := range []struct{ reserve, commit int }{{8, 3}, {64, 0}, {64, 20}, {2048, 33}, {100000, 1}, {100000, 64},
		{transport.MaxFragment, 0}} {
		m := metaOf(uint64(i))
		var space []byte
		p.until(t, "no credit", func() bool { space = from.Reserve(c.reserve); return space != nil })
		pattern(uint64(i))(space)
		from.Commit(c.commit, &m)
		p.expect(t, to, c.commit, uint64(i))
	}
}

func testForgottenReserve(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	// Far more reservations without Commit than any channel has credit for.
	for i := range 5000 {
		n := sizes[i%len(sizes)]
		if space := from.Reserve(n); space == nil {
			t.Fatalf("Reserve(%d) lends nothing after %d Reserves without Commit", n, i)
		} else if len(space) > 0 {
			space[0], space[len(space)-1] = 0xee, 0xee
		}
	}
	if _, _, ok := to.Peek(); ok || p.settle(func() bool { _, _, ok := to.Peek(); return ok }) {
		t.Fatal("a Reserve without Commit was published")
	}
	p.send(t, from, 40, 7)
	p.expect(t, to, 40, 7)
}

func testPeekIdempotent(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	for i, n := range []int{0, 32, 500, 3000, 100000} {
		i := uint64(i)
		n = p.send(t, from, n, i)
		p.send(t, from, 5, 100+i)
		var first []byte
		p.until(t, "fragment does not arrive", func() bool { b, _, ok := to.Peek(); first = b; return ok })
		for range 3 {
			b, m, ok := to.Peek()
			if !ok || len(b) != n || m != metaOf(i) || len(b) > 0 && &b[0] != &first[0] {
				t.Fatalf("second Peek of fragment %d (%d bytes): ok %v, %d bytes, meta %x", i, n, ok, len(b), m)
			}
		}
		// The payload does not change while more fragments arrive.
		p.settle(func() bool { return false })
		if err := checkPattern(first, i); err != nil {
			t.Fatal(err)
		}
		p.expect(t, to, n, i)
		p.expect(t, to, 5, 100+i)
	}
}

// testOrder sends numbered fragments of random sizes with random bursts.
func testOrder(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	random := rand.New(rand.NewPCG(1, 2))
	lengths := map[uint64]int{}
	var sent, received uint64
	for received < 2000 {
		for range random.IntN(20) {
			n := []int{0, 1, 30, 64, 1000, 5000}[random.IntN(6)]
			got, err := put(from, n, pattern(sent), metaOf(sent))
			if err != nil {
				t.Fatal(err)
			}
			if got < 0 {
				break
			}
			lengths[sent] = got
			sent++
		}
		for range random.IntN(20) {
			if received == sent {
				break
			}
			p.expect(t, to, lengths[received], received)
			delete(lengths, received)
			received++
		}
	}
}

// testThreadsInTurn hands both ends of a channel from goroutine to goroutine.
func testThreadsInTurn(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	for i := range 200 {
		errs := make(chan error, 1)
		go func() {
			n, err := put(from, 3000, pattern(uint64(i)), metaOf(uint64(i)))
			if err == nil && n < 0 {
				err = fmt.Errorf("fragment %d: no credit, though all before it were released", i)
			}
			errs <- err
		}()
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		go func() {
			errs <- p.b.await("fragment does not arrive", func() bool {
				p.a.poll()
				ok, err := take(to, func(b []byte, m transport.Meta) error {
					if m != metaOf(uint64(i)) {
						return fmt.Errorf("meta %x, want %x", m, metaOf(uint64(i)))
					}
					return checkPattern(b, uint64(i))
				})
				if err != nil {
					t.Error(err)
				}
				return ok
			})
		}()
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		p.until(t, "credit does not come back", func() bool { return from.Reserve(64) != nil })
	}
}

func testNoAllocations(t *testing.T, p *pair) {
	j, a, b := p.joinHeard(t)
	defer j.close()
	// What a fabric does in the background after Connect has returned takes memory.
	tell(t, j.a, nil)
	b.expect(t, nil)
	tell(t, j.b, nil)
	a.expect(t, nil)
	data := bytes.Repeat([]byte{1}, 1<<16)
	m := metaOf(1)
	deadline := time.Now().Add(hang)
	poll := func() {
		p.a.poll()
		p.b.poll()
		if !time.Now().Before(deadline) {
			t.Fatalf("hangs: A says %v, B says %v", j.a.Err(), j.b.Err())
		}
	}
	trip := func(from, to transport.Channel, n int) {
		for left := n; left > 0; {
			space := from.Reserve(left)
			if space == nil {
				poll()
				continue
			}
			left -= copy(space, data)
			from.Commit(len(space), &m)
			for {
				if _, _, ok := to.Peek(); ok {
					break
				}
				poll()
			}
			to.Release()
		}
		if err := j.a.Err(); err != nil {
			panic(err)
		}
	}
	series := func(from, to transport.Channel, n int) {
		sent := 0
		for range 4 {
			if space := from.Reserve(n); space != nil {
				from.Publish(copy(space, data), &m)
				sent++
			}
		}
		from.Flush()
		for sent > 0 {
			if _, m := to.Look(); m != nil {
				to.Consume()
				sent--
				continue
			}
			poll()
		}
		to.Flush()
	}
	for _, n := range []int{8, 1000, 1 << 16} {
		both := func() {
			trip(j.a.Channel(0), j.b.Channel(0), n)
			trip(j.b.Channel(0), j.a.Channel(0), n)
			series(j.a.Channel(0), j.b.Channel(0), n)
			series(j.b.Channel(0), j.a.Channel(0), n)
		}
		both()
		if got := testing.AllocsPerRun(100, both); got != 0 {
			t.Errorf("%d bytes there and back: %v allocations, want none", n, got)
		}
	}
}

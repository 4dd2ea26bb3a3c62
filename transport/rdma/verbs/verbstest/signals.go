package verbstest

import (
	"testing"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// testSignals lets every fourth write make a completion.
func testSignals(t *testing.T, b *bench) {
	pa, _ := b.connected()
	for round := range 3 * benchPosted / 4 {
		writes := make([]verbs.Write, 4)
		for i := range writes {
			writes[i] = b.a.write(b.b, 100*i, 100)
			writes[i].Cookie, writes[i].Complete = uint64(4*round+i), i == 3
		}
		b.a.post(pa, writes...)
		b.a.ended(b.a.poll(1)[0], pa, uint64(4*round+3), verbs.Success)
	}
	b.a.quiet()
}

// testRoom posts as many as there is room for, of which one makes a completion. There is room for
// all of them again once that was polled.
func testRoom(t *testing.T, b *bench) {
	pa, _ := b.connected()
	writes := make([]verbs.Write, benchPosted)
	for i := range writes {
		writes[i] = b.a.write(b.b, 100*i, 100)
		writes[i].Complete = i == len(writes)-1
	}
	for range 5 {
		b.a.post(pa, writes...)
		b.a.ended(b.a.poll(1)[0], pa, writes[len(writes)-1].Cookie, verbs.Success)
	}
	// Behind one that waits for an entry of the peer there is an end, at what was asked for or
	// above.
	b.a.post(pa, b.a.tell(b.b, 0, 8, 1))
	for i := range writes {
		writes[i].Complete = false
	}
	posted := 1
	for range 1000 {
		k, err := pa.Post(writes)
		posted += k
		if err != nil {
			if k == len(writes) || posted < benchPosted {
				t.Errorf("posted %d, %d in all, and %v", k, posted, err)
			}
			return
		}
	}
	t.Errorf("there is room for %d writes, %d were asked for", posted, benchPosted)
}

// testSharedReceives connects two pairs to one receive queue and one completion queue.
func testSharedReceives(t *testing.T, b *bench) {
	pa1, pb1 := b.connected()
	pa2, pb2 := b.connected()
	if pa1.Number() == pa2.Number() || pb1.Number() == pb2.Number() {
		t.Fatal("two pairs of one adapter have the same number")
	}
	const each = 20
	b.b.receive(2 * each)
	for i := range each {
		b.a.post(pa1, b.a.tell(b.b, 0, 10, uint32(i)))
		b.a.post(pa2, b.a.tell(b.b, 100, 10, uint32(1000+i)))
	}
	next := map[uint32]uint32{pb1.Number(): 0, pb2.Number(): 1000}
	for _, c := range b.b.poll(2 * each) {
		if !c.Arrival || c.Immediate != next[c.Pair] {
			t.Fatalf("got %+v, want number %d", c, next[c.Pair])
		}
		next[c.Pair]++
	}
	b.a.poll(2 * each)
}

// testWaitsForReceives tells a peer that has no entry in its receive queue yet, and more often than
// it has.
func testWaitsForReceives(t *testing.T, b *bench) {
	pa, pb := b.connected()
	want := b.a.fill(1, 0, 3000)
	for i := range 3 {
		b.a.post(pa, b.a.tell(b.b, 1000*i, 1000, uint32(i)))
	}
	b.b.quiet()
	b.a.quiet()
	for i := range 3 {
		b.b.receive(1)
		b.b.arrived(b.b.poll(1)[0], pb, uint32(i), 1000)
		b.a.ended(b.a.poll(1)[0], pa, uint64(1000*i), verbs.Success)
		b.b.holds(0, want[:1000*(i+1)])
		b.b.quiet()
	}
}

// testPollsInParts takes many completions in parts of several sizes.
func testPollsInParts(t *testing.T, b *bench) {
	pa, _ := b.connected()
	for i := range benchPosted {
		w := b.a.write(b.b, 0, 8)
		w.Cookie = uint64(i)
		b.a.post(pa, w)
	}
	next := uint64(0)
	for part := 1; next < benchPosted; part++ {
		for _, c := range b.a.poll(min(part, int(benchPosted-next))) {
			b.a.ended(c, pa, next, verbs.Success)
			next++
		}
	}
	if k, err := b.a.q.Poll(nil); k != 0 || err != nil {
		t.Errorf("polling into nothing takes %d: %v", k, err)
	}
	b.a.quiet()
}

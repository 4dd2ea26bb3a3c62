package verbstest

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// testWrite writes without an immediate: the peer hears nothing, until a later one tells it.
func testWrite(t *testing.T, b *bench) {
	pa, pb := b.connected()
	want := b.a.fill(1, 100, 5000)
	b.b.receive(1)
	b.a.post(pa, b.a.write(b.b, 100, 5000))
	b.a.ended(b.a.poll(1)[0], pa, 100, verbs.Success)
	b.b.quiet()
	b.a.post(pa, b.a.tell(b.b, 0, 0, 7))
	b.b.arrived(b.b.poll(1)[0], pb, 7, 0)
	b.b.holds(100, want)
	b.b.holds(0, make([]byte, 100))
	b.b.holds(5100, make([]byte, 1000))
	b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Success)
}

// testImmediate writes with the immediates that are special in some way.
func testImmediate(t *testing.T, b *bench) {
	pa, pb := b.connected()
	for i, immediate := range []uint32{0, 1, 0x01020304, 0x80000000, 0xffffffff} {
		want := b.a.fill(uint64(i), 1000*i, 999)
		b.b.receive(1)
		b.a.post(pa, b.a.tell(b.b, 1000*i, 999, immediate))
		b.b.arrived(b.b.poll(1)[0], pb, immediate, 999)
		b.b.holds(1000*i, want)
		b.a.ended(b.a.poll(1)[0], pa, uint64(1000*i), verbs.Success)
	}
}

// testInline writes what changes right after Post, and needs no key.
func testInline(t *testing.T, b *bench) {
	pa, pb := b.connected()
	for _, n := range []int{1, 8, 63, benchInline} {
		if n > pa.Inline() {
			break
		}
		source := make([]byte, benchInline)
		copy(source, bytes.Repeat([]byte{byte(n)}, n))
		w := b.a.tell(b.b, 0, 0, uint32(n))
		w.Inline = true
		w.From[0] = verbs.Piece{At: addressOf(source), Bytes: uint32(n / 3)}
		w.From[1] = verbs.Piece{At: addressOf(source) + uint64(n/3), Bytes: uint32(n - n/3)}
		w.To += uint64(n)
		b.b.receive(1)
		b.a.post(pa, w)
		clear(source)
		b.b.arrived(b.b.poll(1)[0], pb, uint32(n), n)
		b.b.holds(n, bytes.Repeat([]byte{byte(n)}, n))
		b.a.poll(1)
		runtime.KeepAlive(source)
	}
	w := b.a.write(b.b, 0, pa.Inline()+1)
	w.Inline = true
	if k, err := pa.Post([]verbs.Write{w}); err == nil || k != 0 {
		t.Errorf("posted %d with more bytes inline than there may be: %v", k, err)
	}
}

// testTwoPieces gathers, from two regions.
func testTwoPieces(t *testing.T, b *bench) {
	pa, pb := b.connected()
	want := b.a.fill(3, 0, 300)
	other := bytes.Repeat([]byte("other "), 100)
	region := b.a.register(other, false)
	second := verbs.Piece{At: addressOf(other) + 6, Bytes: 500, Key: region.Local()}
	first := b.a.piece(0, 300)
	for i, from := range [][2]verbs.Piece{{first, second}, {first, {}}, {second, first}, {{}, second}} {
		w := b.a.tell(b.b, 0, 0, uint32(i))
		w.From = from
		total := int(from[0].Bytes + from[1].Bytes)
		b.b.receive(1)
		b.a.post(pa, w)
		b.b.arrived(b.b.poll(1)[0], pb, uint32(i), total)
		b.a.poll(1)
		var all []byte
		for _, p := range from {
			switch {
			case p == second:
				all = append(all, other[6:506]...)
			case p.Bytes > 0:
				all = append(all, want...)
			}
		}
		b.b.holds(0, all)
	}
}

// testNoBytes writes nothing, with an immediate, to no address.
func testNoBytes(t *testing.T, b *bench) {
	pa, pb := b.connected()
	b.b.receive(3)
	for i := range uint32(3) {
		b.a.post(pa, verbs.Write{Cookie: 1 << 63, Tell: true, Immediate: i, Complete: true, Inline: i == 2})
		b.b.arrived(b.b.poll(1)[0], pb, i, 0)
		b.a.ended(b.a.poll(1)[0], pa, 1<<63, verbs.Success)
	}
}

// testOrder writes two parts of each of some slots, again and again: arrivals are in order, and
// with each the memory of all writes before it is there.
func testOrder(t *testing.T, b *bench) {
	pa, pb := b.connected()
	random := rand.New(rand.NewPCG(1, 2))
	const rounds, slots, slotBytes = 20, 8, 4096
	for round := range rounds {
		want := b.a.fill(uint64(round), 0, slots*slotBytes)
		b.b.receive(slots)
		var writes []verbs.Write
		for i := range slots {
			at, n := slotBytes*i, 1+random.IntN(slotBytes-1)
			first, last := b.a.write(b.b, at, n), b.a.tell(b.b, at+n, slotBytes-n, uint32(i))
			first.Complete, last.Complete = false, i == slots-1
			writes = append(writes, first, last)
		}
		b.a.post(pa, writes...)
		for i := range slots {
			c := b.b.poll(1)[0]
			b.b.arrived(c, pb, uint32(i), int(c.Bytes))
			b.b.holds(slotBytes*i, want[slotBytes*i:][:slotBytes])
		}
		b.a.ended(b.a.poll(1)[0], pa, writes[len(writes)-1].Cookie, verbs.Success)
	}
}

// testBig writes 1 MiB.
func testBig(t *testing.T, b *bench) {
	pa, pb := b.connected()
	const n = 1 << 20
	from, to := make([]byte, n), make([]byte, n)
	rand.NewChaCha8([32]byte{5}).Read(from)
	a, r := b.a.register(from, false), b.b.register(to, true)
	b.b.receive(1)
	b.a.post(pa, verbs.Write{Cookie: 9, From: [2]verbs.Piece{{At: addressOf(from), Bytes: n, Key: a.Local()}},
		To: addressOf(to), Key: r.Remote(), Tell: true, Complete: true})
	b.b.arrived(b.b.poll(1)[0], pb, 0, n)
	b.a.ended(b.a.poll(1)[0], pa, 9, verbs.Success)
	if !bytes.Equal(from, to) {
		t.Fatal("the bytes are others")
	}
}

// testBothWays has both ends write at once.
func testBothWays(t *testing.T, b *bench) {
	pa, pb := b.connected()
	const rounds = 50
	wantA, wantB := b.a.fill(1, 0, 4096), b.b.fill(2, 8192, 4096)
	for range rounds {
		b.a.receive(1)
		b.b.receive(1)
		b.a.post(pa, b.a.tell(b.b, 0, 4096, 1))
		b.b.post(pb, b.b.tell(b.a, 8192, 4096, 2))
		for _, e := range []*end{b.a, b.b} {
			got := e.poll(2)
			if !slices.ContainsFunc(got, func(c verbs.Completion) bool { return c.Arrival }) ||
				!slices.ContainsFunc(got, func(c verbs.Completion) bool { return !c.Arrival }) {
				t.Fatalf("got %+v, want an arrival and the end of a write", got)
			}
		}
		b.b.holds(0, wantA)
		b.a.holds(8192, wantB)
	}
}

// testNoAllocations posts, polls and arms.
func testNoAllocations(t *testing.T, b *bench) {
	pa, _ := b.connected()
	writes := []verbs.Write{b.a.tell(b.b, 0, 1000, 1), b.a.tell(b.b, 0, 32, 2)}
	writes[1].Inline = pa.Inline() >= 32
	into := make([]verbs.Completion, 8)
	drain := func(e *end, want int) {
		for got := 0; got < want; {
			k, err := e.q.Poll(into)
			if err != nil {
				t.Fatal(err)
			}
			got += k
			runtime.Gosched()
		}
	}
	allocations := testing.AllocsPerRun(100, func() {
		b.b.receive(2)
		if _, err := pa.Post(writes); err != nil {
			t.Fatal(err)
		}
		drain(b.a, 2)
		drain(b.b, 2)
		if b.a.q.Arm() != nil || b.a.q.Take() != nil {
			t.Fatal("arming fails")
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations for two writes", allocations)
	}
}

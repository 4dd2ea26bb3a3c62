package transporttest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
)

// gathering is a link with a Gatherer at A, and memory that it may send from.
type gathering struct {
	joined
	from   transport.Gatherer
	plain  transport.Channel // the same channel
	to     transport.Channel
	memory []byte
}

const gatherBytes = 1 << 20

// gathers returns a link whose fragments A can send in place.
func (p *pair) gathers(t *testing.T) *gathering {
	t.Helper()
	registrar, ok := p.a.fabric.(transport.Registrar)
	if !ok {
		t.Fatal("the fabric is no Registrar")
	}
	block, err := mem.Alloc(gatherBytes)
	if err != nil {
		t.Fatal(err)
	}
	g := &gathering{memory: block.Bytes()}
	if err := registrar.Pin(g.memory); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(registrar.Unpin(g.memory), block.Free()); err != nil {
			t.Error(err)
		}
	})
	g.joined = p.join(t, 2)
	g.plain, g.to = g.a.Channel(1), g.b.Channel(1)
	if g.from, ok = g.plain.(transport.Gatherer); !ok {
		t.Fatal("a channel of a Registrar is no Gatherer")
	}
	for _, link := range []transport.Link{g.a, g.b} {
		p.until(t, "the path is not made", link.Open)
	}
	pattern(0)(g.memory[:64])
	p.until(t, "memory that was pinned is not sent in place", func() bool {
		n, ok := g.from.Gather(g.memory[:64], ptr(metaOf(0)))
		return ok && n == 64
	})
	p.expect(t, g.to, 64, 0)
	p.until(t, "what was released is not Sent", g.from.Sent)
	return g
}

func ptr[T any](x T) *T { return &x }

// fill gathers until there is no credit, and returns the lengths of the fragments, which are
// patterns of their numbers, from 1.
func (g *gathering) fill(t *testing.T, p *pair, bytes int) (lengths []int) {
	t.Helper()
	at := 0
	for {
		i := uint64(len(lengths) + 1)
		memory := g.memory[at : at+bytes]
		pattern(i)(memory)
		n, ok := g.from.Gather(memory, ptr(metaOf(i)))
		switch {
		case !ok:
			t.Fatalf("fragment %d cannot be sent in place", i)
		case n < 0 || n > bytes || n < bytes && n%64 != 0:
			t.Fatalf("Gather of %d bytes has sent %d", bytes, n)
		case n == 0:
			return lengths
		}
		lengths = append(lengths, n)
		if at += (n + 63) &^ 63; at+bytes > len(g.memory) {
			return lengths
		}
	}
}

// testGather sends fragments in place, between others.
func testGather(t *testing.T, p *pair) {
	g := p.gathers(t)
	defer g.close()
	sizes := []int{1, 64, 1000, 9000, 30000, 100000}
	for i := range uint64(60) {
		size := sizes[i%uint64(len(sizes))]
		if i%4 == 3 {
			p.expect(t, g.to, p.send(t, g.plain, size, i), i)
			continue
		}
		if i%10 == 0 {
			p.until(t, "what was released is not Sent", g.from.Sent)
		}
		at := int(i%10) * 100032
		memory := g.memory[at : at+size]
		pattern(i)(memory)
		n := 0
		p.until(t, "no credit to send in place", func() bool {
			var ok bool
			if n, ok = g.from.Gather(memory, ptr(metaOf(i))); !ok {
				t.Fatalf("fragment %d cannot be sent in place", i)
			}
			return n > 0
		})
		p.expect(t, g.to, n, i)
	}
	p.until(t, "what was released is not Sent", g.from.Sent)
}

// testGatherOthers offers memory that was not pinned, or not all of it, or not any more.
func testGatherOthers(t *testing.T, p *pair) {
	g := p.gathers(t)
	defer g.close()
	block, err := mem.Alloc(gatherBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Free()
	other, registrar := block.Bytes(), p.a.fabric.(transport.Registrar)
	refused := func(what string, memory []byte) {
		t.Helper()
		if n, ok := g.from.Gather(memory, ptr(metaOf(1))); n != 0 || ok {
			t.Fatalf("Gather sends %d bytes of memory %s", n, what)
		}
	}
	refused("that was not pinned", other)
	if err := registrar.Unpin(other); err != nil {
		t.Fatalf("Unpin of what was not pinned: %v", err)
	}
	half := other[:gatherBytes/2]
	if err := registrar.Pin(half); err != nil {
		t.Fatal(err)
	}
	refused("that was pinned to a half", other[gatherBytes/2-64:][:128])
	refused("behind what was pinned", other[gatherBytes/2:])
	pattern(1)(half[gatherBytes/2-64:])
	if n, ok := g.from.Gather(half[gatherBytes/2-64:], ptr(metaOf(1))); n != 64 || !ok {
		t.Fatalf("Gather sends %d of the last 64 bytes", n)
	}
	p.expect(t, g.to, 64, 1)
	p.until(t, "what was released is not Sent", g.from.Sent)
	if err := registrar.Unpin(half); err != nil {
		t.Fatal(err)
	}
	refused("that is no longer pinned", half)
	// A Registrar forgets thousands.
	for range 1000 {
		if err := registrar.Pin(half); err != nil {
			t.Fatal(err)
		}
		if err := registrar.Unpin(half); err != nil {
			t.Fatal(err)
		}
	}
	refused("that is no longer pinned", half)
}

// testGatherAsleep has a sender sleep until its memory is Sent.
func testGatherAsleep(t *testing.T, p *pair) {
	g := p.gathers(t)
	defer g.close()
	for range 20 {
		lengths := g.fill(t, p, 5000)
		done := make(chan error, 1)
		go func() { done <- p.a.await("sleeps although its memory is Sent", g.from.Sent) }()
		left := len(lengths)
		if err := p.b.await("fragments do not arrive", func() bool {
			for left > 0 {
				if ok, _ := take(g.to, func([]byte, transport.Meta) error { return nil }); !ok {
					return false
				}
				left--
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// testGatherLeft has the receiver leave without looking: the sender gets its memory back.
func testGatherLeft(t *testing.T, p *pair) {
	g := p.gathers(t)
	defer g.close()
	g.fill(t, p, 20000)
	g.b.Close()
	p.until(t, "the end of the peer is not noticed", func() bool { return g.a.Err() != nil })
	p.until(t, "memory is not Sent although nobody takes it", g.from.Sent)
}

// testGatherTaken has the receiver leave at once when it has taken everything: a sender that waits
// for nothing else must not take this for a failure.
func testGatherTaken(t *testing.T, p *pair) {
	for range 20 {
		g := p.gathers(t)
		lengths := g.fill(t, p, 20000)
		for i, n := range lengths {
			p.expect(t, g.to, n, uint64(i+1))
		}
		g.b.Close()
		p.until(t, "the end of the peer is not noticed", func() bool { return g.a.Err() != nil })
		if !g.from.Sent() {
			t.Fatal("the peer has left, and memory that it has taken is not Sent")
		}
		g.close()
	}
}

// testWithdraw has the sender fail while nobody receives. What has arrived is right, whatever the
// sender does with its memory afterwards.
func testWithdraw(t *testing.T, p *pair) {
	g := p.gathers(t)
	defer g.close()
	lengths := g.fill(t, p, 20000)
	begun := time.Now()
	p.until(t, "the sender does not get its memory back", g.from.Withdraw)
	if d := time.Since(begun); d > time.Second {
		t.Errorf("Withdraw takes %v", d)
	}
	copy(g.memory, bytes.Repeat([]byte{0xee}, gatherBytes))
	if n, ok := g.from.Gather(g.memory[:64], ptr(metaOf(1))); n != 0 || ok || !g.from.Sent() || !g.from.Withdraw() {
		t.Errorf("Gather after Withdraw: %d, %v", n, ok)
	}
	if g.plain.Reserve(8) != nil {
		t.Error("Reserve after Withdraw lends space")
	}
	g.a.Close()
	i := 0
	receive := func() bool {
		moved := false
		for {
			ok, err := take(g.to, func(b []byte, m transport.Meta) error {
				return isFragment(lengths[i], uint64(i+1))(b, m)
			})
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return moved
			}
			i, moved = i+1, true
		}
	}
	p.until(t, "no goodbye", func() bool { receive(); return g.b.Err() != nil && !receive() })
	if err := isPeer(g.b.Err(), fault.PeerLeft, rankA); err != nil {
		t.Error(err)
	}
}

package transporttest

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
)

const windowBytes = 3 * 4096

// windows makes one window for each side.
func (p *pair) windows(t *testing.T, bytesA, bytesB int) (a, b *mem.Window) {
	t.Helper()
	shared := p.a.fabric.SharesMemory() && p.a.fabric != p.b.fabric
	a, err := mem.NewWindow(bytesA, shared)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = mem.NewWindow(bytesB, shared); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// testWindows reads the peer's writes after a fragment, after Notify, and after the peer has gone.
// If the ranks share no memory there is nothing to read, and the rest must still work.
func testWindows(t *testing.T, p *pair) {
	if shares := p.a.fabric.SharesMemory(); shares != p.b.fabric.SharesMemory() {
		t.Fatalf("A says that it shares memory: %v, B: %v", shares, !shares)
	}
	a, b := p.windows(t, windowBytes, windowBytes)
	defer a.Release()
	sa, sb := p.newSession(1)
	sa.Window, sb.Window = a, b
	j := p.joinAs(t, sa, sb)
	defer j.close()
	word := func(memory []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&memory[windowBytes-8])) }
	for _, d := range []struct {
		mine         *mem.Window
		from, to     transport.Link
		here, sleeps *side
	}{{a, j.a, j.b, p.a, p.b}, {b, j.b, j.a, p.b, p.a}} {
		if !p.a.fabric.SharesMemory() {
			continue
		}
		seen := d.to.(transport.Lender).Window()
		d.from.(transport.Lender).Notify()
		if len(seen) != windowBytes {
			t.Fatalf("the peer sees %d bytes of a window of %d", len(seen), windowBytes)
		}
		for i := range uint64(20) {
			pattern(i)(d.mine.Bytes()[:windowBytes-8])
			n := p.send(t, d.from.Channel(0), 8, i)
			p.expect(t, d.to.Channel(0), n, i)
			if !bytes.Equal(seen, d.mine.Bytes()) {
				t.Fatalf("round %d: what was written before a Commit is not there after it", i)
			}
		}
		done := asleep(d.sleeps, "nobody rang after Notify", func() bool { return word(seen).Load() == 77 })
		word(d.mine.Bytes()).Store(77)
		d.from.(transport.Lender).Notify()
		p.awake(t, d.here, done)
	}
	// What a departed peer has written can still be read.
	j.b.Close()
	b.Release()
	if lender, ok := j.a.(transport.Lender); ok && word(lender.Window()).Load() != 77 {
		t.Error("a window is gone with its owner")
	}
}

// testWindowSizes checks that windows of different sizes are refused and that both sides get the
// error.
func testWindowSizes(t *testing.T, p *pair) {
	if !p.a.fabric.SharesMemory() {
		return
	}
	for _, bytesB := range []int{4096, 0} {
		a, b := p.windows(t, windowBytes, max(bytesB, 1))
		sa, sb := p.newSession(1)
		if sa.Window = a; bytesB > 0 {
			sb.Window = b
		}
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		da, db := dial(ctx, p.a, p.b, sa), dial(ctx, p.b, p.a, sb)
		for i, c := range []connected{p.collect(da), p.collect(db)} {
			if c.err == nil {
				c.link.Close()
				t.Fatalf("windows of %d and %d bytes were joined", windowBytes, bytesB)
			}
			if err := isPeer(c.err, fault.Mismatch, []int{rankB, rankA}[i]); err != nil {
				t.Error(err)
			}
		}
		cancel()
		a.Release()
		b.Release()
	}
	j := p.join(t, 1)
	if j.a.(transport.Lender).Window() != nil || j.b.(transport.Lender).Window() != nil {
		t.Error("windows that nobody gave")
	}
	j.close()
}

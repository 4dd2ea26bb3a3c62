package verbstest

import (
	"testing"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// testRefused writes to where the peer lets nobody write: nothing changes there, the pair fails,
// and what was posted behind is flushed.
func testRefused(t *testing.T, b *bench) {
	closed := make([]byte, 4096)
	private := b.b.register(closed, false)
	gone, err := b.b.c.Register(make([]byte, 4096), true)
	b.b.must(err)
	goneKey := gone.Remote()
	b.b.must(gone.Close())
	base := addressOf(b.b.memory)
	for name, change := range map[string]func(w *verbs.Write){
		"another key":              func(w *verbs.Write) { w.Key ^= 0x5a5a5a00 },
		"the key of one closed":    func(w *verbs.Write) { w.Key = goneKey },
		"no right":                 func(w *verbs.Write) { w.To, w.Key = addressOf(closed), private.Remote() },
		"the byte before":          func(w *verbs.Write) { w.To = base - 1 },
		"the byte behind":          func(w *verbs.Write) { w.To = base + benchBytes - 99 },
		"far behind":               func(w *verbs.Write) { w.To = base + 1<<40 },
		"around the address space": func(w *verbs.Write) { w.To = ^uint64(0) - 10 },
	} {
		pa, _ := b.connected()
		before := append([]byte(nil), b.b.memory...)
		b.a.fill(1, 0, 1000)
		w := b.a.write(b.b, 0, 100)
		w.Complete = false
		change(&w)
		b.a.post(pa, w, b.a.write(b.b, 500, 100))
		got := b.a.poll(2)
		if got[0].Status != verbs.RemoteAccess {
			t.Errorf("%s: %s", name, got[0].Status)
		}
		b.a.ended(got[0], pa, 0, got[0].Status)
		b.a.ended(got[1], pa, 500, verbs.Flushed)
		b.b.holds(0, before)
		for _, each := range closed {
			if each != 0 {
				t.Fatal("memory that was not for peers has changed")
			}
		}
	}
}

// testOwnPieces writes from memory that is not registered, or not as the piece says. Some adapters
// do not tell a wrong key from other mistakes in a write.
func testOwnPieces(t *testing.T, b *bench) {
	for name, change := range map[string]func(p *verbs.Piece){
		"another key":     func(p *verbs.Piece) { p.Key ^= 0x5a5a5a00 },
		"the byte before": func(p *verbs.Piece) { p.At-- },
		"the byte behind": func(p *verbs.Piece) { p.At += benchBytes - 99 },
	} {
		pa, _ := b.connected()
		before := append([]byte(nil), b.b.memory...)
		w := b.a.write(b.b, 0, 100)
		change(&w.From[0])
		k, err := pa.Post([]verbs.Write{w, b.a.write(b.b, 200, 10)})
		if err != nil || k != 2 {
			t.Fatalf("%s: posted %d: %v", name, k, err)
		}
		got := b.a.poll(2)
		if got[0].Status != verbs.LocalOperation {
			b.a.ended(got[0], pa, 0, verbs.LocalProtection)
		}
		b.a.ended(got[1], pa, 200, verbs.Flushed)
		b.b.holds(0, before)
	}
}

// testFail flushes what waits for the peer, what makes no completion too, and what is posted later.
func testFail(t *testing.T, b *bench) {
	pa, _ := b.connected()
	const waiting = 10
	for i := range waiting {
		w := b.a.tell(b.b, 0, 10, 1) // the peer has no entry for it
		w.Cookie, w.Complete = uint64(i), i%2 == 0
		b.a.post(pa, w)
	}
	b.a.must(pa.Fail())
	for i, c := range b.a.poll(waiting) {
		b.a.ended(c, pa, uint64(i), verbs.Flushed)
	}
	for i := range 3 * benchPosted { // there is room for each as soon as the one before was polled
		w := b.a.write(b.b, 0, 10)
		w.Cookie, w.Complete = uint64(i), false
		b.a.post(pa, w)
		b.a.ended(b.a.poll(1)[0], pa, uint64(i), verbs.Flushed)
	}
	b.a.must(pa.Fail())
	b.a.quiet()
	b.b.quiet()
	// Other pairs work.
	other, pb := b.connected()
	b.b.receive(1)
	b.a.post(other, b.a.tell(b.b, 0, 10, 1))
	b.b.arrived(b.b.poll(1)[0], pb, 1, 10)
	b.a.poll(1)
}

// testPeerFails writes to a pair that has failed, or that is closed: whoever writes is told, after
// some tries.
func testPeerFails(t *testing.T, b *bench) {
	for _, end := range []string{"fails", "closes"} {
		pa := b.a.pair()
		pb, err := b.b.c.NewPair(verbs.PairOptions{Completions: b.b.q, Receives: b.b.r, Posted: benchPosted})
		b.b.must(err)
		soon := b.a.connection(pa, b.b, pb)
		soon.Timing = verbs.Timing{Timeout: 15, Retries: 4}
		b.a.must(pa.Connect(soon))
		b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
		b.a.post(pa, b.a.write(b.b, 0, 10))
		b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Success)
		if end == "fails" {
			b.b.must(pb.Fail())
		} else {
			b.b.must(pb.Close())
		}
		b.a.post(pa, b.a.write(b.b, 10, 10), b.a.write(b.b, 20, 10))
		got := b.a.poll(2)
		b.a.ended(got[0], pa, 10, verbs.RetriesExceeded)
		b.a.ended(got[1], pa, 20, verbs.Flushed)
		if end == "fails" {
			b.b.must(pb.Close())
		}
	}
}

package verbstest

import (
	"testing"
	"time"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// moment is how long a test waits for what must not happen.
const moment = 5 * time.Millisecond

// testArmed arms a queue that is empty: one notice comes with the next completion, and only one.
func testArmed(t *testing.T, b *bench) {
	pa, pb := b.connected()
	descriptor := b.b.q.Descriptor()
	b.b.receive(5)
	b.a.post(pa, b.a.tell(b.b, 0, 8, 0)) // nobody has asked for a notice
	b.b.arrived(b.b.poll(1)[0], pb, 0, 8)
	if b.b.readable(descriptor, moment) {
		t.Fatal("a notice of a queue that was not armed")
	}
	for i := range uint32(2) {
		b.b.must(b.b.q.Arm())
		b.quietly(descriptor)
		b.a.post(pa, b.a.tell(b.b, 0, 8, 2*i+1))
		if !b.b.readable(descriptor, patience) {
			t.Fatal("hangs: no notice comes")
		}
		b.b.arrived(b.b.poll(1)[0], pb, 2*i+1, 8)
		b.b.must(b.b.q.Take())
		b.a.post(pa, b.a.tell(b.b, 0, 8, 2*i+2)) // not armed again
		b.b.arrived(b.b.poll(1)[0], pb, 2*i+2, 8)
		b.quietly(descriptor)
	}
	b.b.must(b.b.q.Take()) // with nothing to take
	b.a.poll(5)
	// The end of a write gives a notice as well.
	b.a.must(b.a.q.Arm())
	b.a.post(pa, b.a.write(b.b, 0, 8))
	if !b.a.readable(b.a.q.Descriptor(), patience) {
		t.Fatal("hangs: no notice of the end of a write comes")
	}
	b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Success)
	b.a.must(b.a.q.Take())
}

// quietly checks that no notice comes.
func (b *bench) quietly(descriptor int) {
	b.t.Helper()
	if b.b.readable(descriptor, moment) {
		b.t.Fatal("a notice that nobody has asked for")
	}
}

// testArmedLate does what a thread does before it sleeps: arm, poll, and sleep only if there was
// nothing. However completions and that fall together, it never sleeps for ever.
func testArmedLate(t *testing.T, b *bench) {
	pa, pb := b.connected()
	const rounds = 100
	b.b.receive(rounds)
	sent := make(chan error, 1)
	go func() {
		var into [8]verbs.Completion
		for i := range rounds {
			if _, err := pa.Post([]verbs.Write{b.a.tell(b.b, 0, 8, uint32(i))}); err != nil {
				sent <- err
				return
			}
			for k := 0; k == 0; {
				var err error
				if k, err = b.a.q.Poll(into[:1]); err != nil {
					sent <- err
					return
				}
			}
			if i%3 == 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
		sent <- nil
	}()
	var into [3]verbs.Completion
	for next := uint32(0); next < rounds; {
		k, err := b.b.q.Poll(into[:])
		b.b.must(err)
		if k == 0 {
			b.b.must(b.b.q.Arm())
			if k, err = b.b.q.Poll(into[:]); k == 0 {
				b.b.must(err)
				if !b.b.readable(b.b.q.Descriptor(), patience) {
					t.Fatalf("hangs: %d of %d have come, and no notice", next, rounds)
				}
				b.b.must(b.b.q.Take())
			}
		}
		for _, c := range into[:k] {
			b.b.arrived(c, pb, next, 8)
			next++
		}
	}
	b.a.must(<-sent)
}

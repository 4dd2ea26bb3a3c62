package conformance

import (
	"math"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// testStreamOrder enqueues copies that depend on each other in one stream.
func testStreamOrder(b *bench) {
	const n, steps = 20000, 100
	host, back, s := b.register(n), b.register(n), b.stream()
	device := b.alloc(2 * n)
	b.fill(host, 0, n, 9)
	b.copy(s, device.Ptr(), host.Ptr(), n)
	for i := range steps {
		from := i % 2 * n
		b.copy(s, device.Ptr()+ptr(n-from), device.Ptr()+ptr(from), n)
		b.copy(s, device.Ptr()+ptr(from), back.Ptr(), n) // the old value is not needed any more
	}
	b.copy(s, back.Ptr(), device.Ptr(), n)
	b.must(s.Synchronize())
	b.check(back, 0, n, 9)
}

// testEvents passes data through many streams, each of which waits for an event of the last one.
func testEvents(b *bench) {
	const n, streams, rounds = 30000, 20, 10
	host, back := b.register(n), b.register(n)
	device := b.alloc(2 * n)
	var all [streams]cuda.Stream
	var events [streams]cuda.Event
	for i := range all {
		all[i], events[i] = b.newStream(i%3), b.event()
	}
	b.fill(host, 0, n, 77)
	b.copy(all[0], device.Ptr(), host.Ptr(), n)
	step := 0
	for range rounds {
		for i := range all {
			b.must(events[i].Record(all[i]))
			next := all[(i+1)%streams]
			b.must(next.Wait(events[i]))
			from := step % 2 * n
			b.copy(next, device.Ptr()+ptr(n-from), device.Ptr()+ptr(from), n)
			step++
		}
	}
	b.copy(all[0], back.Ptr(), device.Ptr()+ptr(step%2*n), n)
	b.must(all[0].Synchronize())
	b.check(back, 0, n, 77)
	for i := range events {
		if done, err := events[i].Done(); err != nil || !done {
			b.t.Errorf("event %d, which the last copy has waited for: done %v, %v", i, done, err)
		}
	}
}

func testEventNeverRecorded(b *bench) {
	s, e := b.stream(), b.event()
	if done, err := e.Done(); err != nil || !done {
		b.t.Errorf("an event that was never recorded: done %v, %v", done, err)
	}
	b.isClass(s.Wait(e), fault.Invalid, "a wait for an event that was never recorded")
	b.must(e.Record(s))
	b.must(s.Wait(e))
	b.must(s.Synchronize())
}

// testEventRecordedAgain records an event again behind a Wait, which stays with the earlier place.
func testEventRecordedAgain(b *bench) {
	words := b.words()
	e := b.event()
	slow, quick, waits := b.stream(), b.stream(), b.stream()
	b.enqueue(slow, wait(words, 0, 1))
	b.must(e.Record(slow))
	b.must(waits.Wait(e))
	b.must(e.Record(quick))
	b.stays(waits, "it waits for the place of an earlier Record")
	words.Store(0, 1)
	b.ends(waits)

	b.must(e.Record(quick))
	b.must(waits.Wait(e))
	b.enqueue(slow, wait(words, 8, 1))
	b.must(e.Record(slow))
	b.ends(waits) // and does not wait for the place of a later one
	if done, err := e.Done(); err != nil || done {
		b.t.Errorf("an event in a stream that waits: done %v, %v", done, err)
	}
	words.Store(8, 1)
	b.ends(slow)
	b.until("an event", func() bool {
		done, err := e.Done()
		b.must(err)
		return done
	})
}

// testStrangers passes what is of no driver, or no word.
func testStrangers(b *bench) {
	s, e, device := b.stream(), b.event(), b.alloc(100)
	b.isClass(s.Wait(nil), fault.Invalid, "a wait for nil")
	b.isClass(e.Record(nil), fault.Invalid, "Record in nil")
	if b.info.Words {
		b.isClass(s.Words([]cuda.WordOp{{At: device.Ptr() + 4}}), fault.Invalid, "a word that is not aligned")
	}
	b.must(s.Synchronize())
}

func testDone(b *bench) {
	words, e, s := b.words(), b.event(), b.stream()
	done, err := s.Done()
	if b.must(err); !done {
		b.t.Error("a stream without work is not done")
	}
	b.must(e.Record(s))
	b.enqueue(s, wait(words, 0, 1))
	b.until("an event before a wait", func() bool {
		done, err := e.Done()
		b.must(err)
		return done
	})
	b.stays(s, "nobody has stored the word")
	words.Store(0, 1)
	b.ends(s)
}

// testSynchronize waits in a thread of its own.
func testSynchronize(b *bench) {
	const n = 1000
	words, host, back, device, s := b.words(), b.register(n), b.register(n), b.alloc(n), b.stream()
	b.fill(host, 0, n, 5)
	b.enqueue(s, wait(words, 0, 1))
	b.copy(s, device.Ptr(), host.Ptr(), n)
	b.copy(s, back.Ptr(), device.Ptr(), n)
	var stored atomic.Bool
	result := make(chan error, 1)
	go func() {
		if err := b.c.Enter(false); err != nil {
			result <- err
			return
		}
		defer b.c.Leave()
		err := s.Synchronize()
		if !stored.Load() {
			b.t.Error("Synchronize returns before the work has ended")
		}
		result <- err
	}()
	b.stays(s, "nobody has stored the word")
	stored.Store(true)
	words.Store(0, 1)
	b.must(<-result)
	b.check(back, 0, n, 5)
}

// testAdopt uses a stream by its handle.
func testAdopt(b *bench) {
	const n = 10000
	host, back, device, s := b.register(n), b.register(n), b.alloc(n), b.stream()
	other := b.retain()
	b.must(other.Enter(false))
	if s.Native() == 0 {
		b.t.Error("a stream has the handle of the default stream")
	}
	same := other.Adopt(s.Native())
	if same.Native() != s.Native() {
		b.t.Errorf("an adopted stream has handle %#x, not %#x", same.Native(), s.Native())
	}
	b.fill(host, 0, n, 4)
	b.copy(s, device.Ptr(), host.Ptr(), n)
	e, err := other.NewEvent()
	b.must(err)
	b.must(e.Record(same))
	b.must(same.Wait(e))
	b.copy(same, back.Ptr(), device.Ptr(), n) // behind the copy in s, as it is the same stream
	b.must(s.Synchronize())
	b.check(back, 0, n, 4)
	b.must(same.Synchronize())
	b.must(same.Destroy()) // which does nothing
	b.must(e.Destroy())
	other.Leave()
	b.must(other.Release())
	b.fill(host, 0, n, 6)
	b.roundTrip(s, host, back, device, n)
	b.check(back, 0, n, 6)
}

func testDefaultStream(b *bench) {
	const n = 10000
	host, back, device, s, e := b.register(n), b.register(n), b.alloc(n), b.stream(), b.event()
	first := b.c.Adopt(0)
	if first.Native() != 0 {
		b.t.Errorf("the default stream has handle %#x", first.Native())
	}
	b.fill(host, 0, n, 8)
	b.copy(first, device.Ptr(), host.Ptr(), n)
	b.must(e.Record(first))
	b.must(s.Wait(e))
	b.copy(s, back.Ptr(), device.Ptr(), n)
	b.must(s.Synchronize())
	b.check(back, 0, n, 8)
	b.must(first.Synchronize())
	b.must(first.Destroy())
}

// testUrgentBesideWaits has some ordinary streams wait: an urgent one goes on. Fewer than seven are
// made after it, as many as leave it a hardware queue where a process has eight of them.
func testUrgentBesideWaits(b *bench) {
	const n = 5000
	words, host, back, device := b.words(), b.register(n), b.register(n), b.alloc(n)
	b.newStream(math.MaxInt) // more than any device has
	urgent := b.newStream(1)
	var ordinary []cuda.Stream
	for range 6 {
		ordinary = append(ordinary, b.stream())
	}
	for _, s := range ordinary {
		b.enqueue(s, wait(words, 0, 1))
	}
	b.fill(host, 0, n, 1)
	b.copy(urgent, device.Ptr(), host.Ptr(), n)
	b.copy(urgent, back.Ptr(), device.Ptr(), n)
	b.ends(urgent)
	b.check(back, 0, n, 1)
	words.Store(0, 1)
	for _, s := range ordinary {
		b.ends(s)
	}
}

func testNotCapturing(b *bench) {
	for _, s := range []cuda.Stream{b.stream(), b.newStream(1), b.c.Adopt(0)} {
		if id, err := s.Capture(); err != nil || id != 0 {
			b.t.Errorf("a stream that nobody captures: capture %d, %v", id, err)
		}
	}
}

// testDestroyPending destroys a stream: what was enqueued still ends.
func testDestroyPending(b *bench) {
	const n = 5000
	words, host, back, device := b.words(), b.register(n), b.register(n), b.alloc(n)
	s, err := b.c.NewStream(0)
	b.must(err)
	b.fill(host, 0, n, 1)
	b.enqueue(s, wait(words, 0, 1))
	b.copy(s, device.Ptr(), host.Ptr(), n)
	b.copy(s, back.Ptr(), device.Ptr(), n)
	b.enqueue(s, write(words, 64, 1))
	b.must(s.Destroy())
	if words.Load(64) != 0 {
		b.t.Error("a stream goes on, though nobody has stored the word")
	}
	words.Store(0, 1)
	b.reaches("the work of a destroyed stream", words, 64, 1)
	b.check(back, 0, n, 1)
}

// testDestroyWaited destroys an event for which a stream waits.
func testDestroyWaited(b *bench) {
	words, s, u := b.words(), b.stream(), b.stream()
	e, err := b.c.NewEvent()
	b.must(err)
	b.enqueue(s, wait(words, 0, 1))
	b.must(e.Record(s))
	b.must(u.Wait(e))
	b.must(e.Destroy())
	b.stays(u, "it waits for the place of a destroyed event")
	words.Store(0, 1)
	b.ends(u)
}

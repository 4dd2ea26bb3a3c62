package transporttest

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// heard is the control messages that have reached a handler. It holds more than any test sends.
type heard chan []byte

func newHeard() heard { return make(heard, 8192) }

func (h heard) handle(message []byte) { h <- bytes.Clone(message) }

// expect waits for the next message, without polling.
func (h heard) expect(t *testing.T, want []byte) {
	t.Helper()
	select {
	case got := <-h:
		if !bytes.Equal(got, want) {
			t.Fatalf("a control message of %d bytes arrived, %.20x, want one of %d, %.20x",
				len(got), got, len(want), want)
		}
	case <-time.After(hang):
		t.Fatalf("hangs: a control message of %d bytes does not arrive", len(want))
	}
}

// none checks that nothing more has arrived.
func (h heard) none(t *testing.T) {
	t.Helper()
	select {
	case got := <-h:
		t.Fatalf("a control message too many: %d bytes, %.20x", len(got), got)
	default:
	}
}

// controlMessage returns message i of link l, of one of the sizes that are allowed.
func controlMessage(l, i int) []byte {
	sizes := []int{8, 0, transport.MaxControl, 1, 100, transport.MaxControl - 1, 24, 1000}
	b := make([]byte, sizes[i%len(sizes)])
	pattern(uint64(l<<20 + i))(b)
	return b
}

// tell sends a control message, as soon as there is room for it. Nothing announces that.
func tell(t *testing.T, l transport.Link, message []byte) {
	for deadline := time.Now().Add(hang); !l.Tell(message); time.Sleep(100 * time.Microsecond) {
		if err := l.Err(); err != nil || time.Now().After(deadline) {
			t.Errorf("Tell refuses %d bytes; Err says %v", len(message), err)
			return
		}
	}
}

// joinHeard is join with handlers.
func (p *pair) joinHeard(t *testing.T) (j joined, a, b heard) {
	t.Helper()
	sa, sb := p.newSession(1)
	a, b = newHeard(), newHeard()
	sa.Control, sb.Control = a.handle, b.handle
	return p.joinAs(t, sa, sb), a, b
}

// testControl sends over many links at once, in both directions: every message arrives once, and
// those of a link in order.
func testControl(t *testing.T, p *pair) {
	const links, messages = 12, 100
	var group sync.WaitGroup
	defer group.Wait()
	var all [links][2]heard
	for l := range all {
		j, a, b := p.joinHeard(t)
		all[l] = [2]heard{a, b}
		defer j.close()
		for side, from := range []transport.Link{j.b, j.a} {
			group.Go(func() {
				for i := range messages {
					tell(t, from, controlMessage(2*l+side, i))
				}
			})
		}
	}
	for l := range all {
		for side, h := range all[l] {
			for i := range messages {
				h.expect(t, controlMessage(2*l+side, i))
			}
		}
	}
	for l := range all {
		all[l][0].none(t)
		all[l][1].none(t)
	}
}

// testControlUnattended has handlers answer each other, while nobody polls.
func testControlUnattended(t *testing.T, p *pair) {
	const rounds = 100
	p.unattended()
	var links [2]atomic.Pointer[transport.Link]
	over := make(chan bool, 2)
	answer := func(side int) func([]byte) {
		return func(message []byte) {
			if message[0] == rounds {
				over <- true
				return
			}
			l := *links[side].Load()
			if !l.Tell([]byte{message[0] + 1}) {
				t.Errorf("side %d cannot answer message %d", side, message[0])
				over <- false
			}
		}
	}
	sa, sb := p.newSession(1)
	sa.Control, sb.Control = answer(0), answer(1)
	j := p.joinAs(t, sa, sb)
	defer j.close()
	links[0].Store(&j.a)
	links[1].Store(&j.b)
	tell(t, j.a, []byte{0})
	tell(t, j.b, []byte{1})
	for range 2 {
		select {
		case <-over:
		case <-time.After(hang):
			t.Fatal("hangs: handlers that answer each other")
		}
	}
}

// testControlBeforeClose closes right after the last message: all of them arrive.
func testControlBeforeClose(t *testing.T, p *pair) {
	const messages = 40
	for round := range 4 {
		j, a, b := p.joinHeard(t)
		from, to, h := j.a, j.b, b
		if round%2 == 1 {
			from, to, h = j.b, j.a, a
		}
		if p.onUse && round > 1 { // the path has been made
			tell(t, to, nil)
			map[bool]heard{true: a, false: b}[round%2 == 0].expect(t, nil)
		}
		for i := range messages {
			tell(t, from, controlMessage(round, i))
		}
		if err := from.Close(); err != nil {
			t.Error(err)
		}
		if from.Tell(nil) {
			t.Error("Tell takes a message after Close")
		}
		for i := range messages {
			h.expect(t, controlMessage(round, i))
		}
		p.until(t, "the end of the link", func() bool { return ended(to) })
		h.none(t)
		if to.Tell(nil) {
			t.Error("Tell takes a message after the peer has closed")
		}
		to.Close()
	}
}

// testControlAfterClose has a handler close its link: it is not called again.
func testControlAfterClose(t *testing.T, p *pair) {
	const last = 5
	other, _, b := p.joinHeard(t)
	defer other.close()
	var link atomic.Pointer[transport.Link]
	var calls atomic.Int32
	sa, sb := p.newSession(1)
	sb.Control = func([]byte) {
		if calls.Add(1) == last {
			(*link.Load()).Close()
		}
	}
	j := p.joinAs(t, sa, sb)
	link.Store(&j.b)
	told := 0
	p.until(t, "Tell takes messages for a link that the peer has closed", func() bool {
		if j.a.Tell([]byte("again")) {
			told++
		}
		return told >= last && ended(j.a)
	})
	for i := range 10 {
		tell(t, other.a, controlMessage(0, i))
		b.expect(t, controlMessage(0, i))
	}
	if n := calls.Load(); n != last {
		t.Errorf("the handler was called %d times, and closed its link in call %d", n, last)
	}
	j.close()
}

// testControlLimits sends messages that are too long, and messages to a link without a handler.
func testControlLimits(t *testing.T, p *pair) {
	sa, sb := p.newSession(1)
	h := newHeard()
	sb.Control = h.handle
	j := p.joinAs(t, sa, sb)
	defer j.close()
	for range 2 {
		if j.a.Tell(make([]byte, transport.MaxControl+1)) {
			t.Error("Tell takes a message that is too long")
		}
		tell(t, j.a, []byte("short"))
		h.expect(t, []byte("short"))
	}
	for i := range 200 { // more than may wait
		tell(t, j.b, controlMessage(0, 8*i+2))
	}
	tell(t, j.a, []byte("last"))
	h.expect(t, []byte("last"))
}

// testControlBound has a handler wait: only so much is taken for it, nothing is lost, and fragments
// pass meanwhile.
func testControlBound(t *testing.T, p *pair) {
	const least, most = 32, 128 // messages of the longest kind
	j, _, h := p.joinHeard(t)
	defer j.close()
	begun, wait := make(chan struct{}), make(chan struct{})
	sa, sb := p.newSession(1)
	var once sync.Once
	blocked := newHeard()
	sb.Control = func(message []byte) {
		once.Do(func() { close(begun); <-wait })
		blocked.handle(message)
	}
	k := p.joinAs(t, sa, sb)
	defer k.close()
	// If the test fails, the handler must end before the fabrics do.
	release := sync.OnceFunc(func() { close(wait) })
	defer release()
	told := 0
	fill := func() bool {
		for k.a.Tell(controlMessage(0, 8*told+2)) {
			if told++; told > most {
				t.Fatalf("%d control messages wait for a handler", told)
			}
		}
		return false
	}
	fill()
	select {
	case <-begun:
	case <-time.After(hang):
		t.Fatal("hangs: the first control message")
	}
	p.settle(fill)
	if told < least {
		t.Errorf("only %d control messages may wait", told)
	}
	n := p.send(t, k.a.Channel(0), 5000, 1)
	p.expect(t, k.b.Channel(0), n, 1)
	release()
	for i := range told {
		blocked.expect(t, controlMessage(0, 8*i+2))
	}
	for i := range 20 {
		tell(t, j.a, controlMessage(1, i))
		h.expect(t, controlMessage(1, i))
	}
	blocked.none(t)
}

// testControlCloseFabric closes a fabric with messages that wait: the peer's handler gets them.
func testControlCloseFabric(t *testing.T, p *pair) {
	if p.a.fabric == p.b.fabric {
		return
	}
	const messages = 50
	j, _, b := p.joinHeard(t)
	for i := range messages {
		tell(t, j.a, controlMessage(0, 8*i+2))
	}
	if err := p.a.fabric.Close(); err != nil {
		t.Error(err)
	}
	for i := range messages {
		b.expect(t, controlMessage(0, 8*i+2))
	}
	p.until(t, "the end of the link", func() bool { return ended(j.b) })
	b.none(t)
	j.b.Close()
}

// testControlGone closes the fabric of the peer while nobody polls.
func testControlGone(t *testing.T, p *pair) {
	p.unattended()
	j, _, b := p.joinHeard(t)
	tell(t, j.a, []byte("there"))
	b.expect(t, []byte("there"))
	if err := p.b.fabric.Close(); err != nil {
		t.Error(err)
	}
	p.until(t, "the end of the link", func() bool { return j.a.Err() != nil })
	if err := isPeer(j.a.Err(), fault.PeerLeft, rankB); err != nil && p.a.fabric != p.b.fabric {
		t.Error(err)
	}
	for _, l := range []transport.Link{j.a, j.b} {
		if l.Tell([]byte("nobody")) {
			t.Error("Tell takes a message for a process that is gone")
		}
	}
}

// testControlLeavesNothing closes the fabrics after control messages, and with some of them
// waiting: no goroutine stays.
func testControlLeavesNothing(t *testing.T, p *pair) {
	p.unattended()
	for i := range 3 {
		j, a, b := p.joinHeard(t)
		tell(t, j.a, []byte{byte(i)})
		b.expect(t, []byte{byte(i)})
		tell(t, j.b, []byte{byte(i)})
		a.expect(t, []byte{byte(i)})
		for range 10 {
			tell(t, j.a, controlMessage(0, 2))
			tell(t, j.b, controlMessage(0, 2))
		}
	}
	if err := errors2(p.a.fabric.Close(), p.b.fabric.Close()); err != nil {
		t.Error(err)
	}
	p.until(t, "goroutines stay after Close", func() bool { return runtime.NumGoroutine() <= p.before })
}

// testControlBeforePeer sends before the peer calls Connect, while nobody polls. In every second
// round the sender has left by then.
func testControlBeforePeer(t *testing.T, p *pair) {
	const messages = 20
	p.unattended()
	for round := range 4 {
		from, to := p.a, p.b
		if round >= 2 {
			from, to = to, from
		}
		sa, sb := p.newSession(1)
		h := newHeard()
		sb.Control = h.handle
		a := p.begin(t, from, to, sa)
		for i := range messages {
			tell(t, a, controlMessage(round, i))
		}
		if round%2 == 1 {
			a.Close()
		}
		b := p.begin(t, to, from, sb)
		for i := range messages {
			h.expect(t, controlMessage(round, i))
		}
		h.none(t)
		a.Close()
		b.Close()
	}
}

// testControlWrongKey checks that no message passes between sides with different keys.
func testControlWrongKey(t *testing.T, p *pair) {
	sa, sb := p.newSession(1)
	sb.Key[31] ^= 1
	h := newHeard()
	sa.Control, sb.Control = h.handle, h.handle
	a, b := p.begin(t, p.a, p.b, sa), p.begin(t, p.b, p.a, sb)
	a.Tell([]byte("a stranger's"))
	b.Tell([]byte("a stranger's"))
	p.until(t, "both sides refuse the key", func() bool { return ended(a) && ended(b) })
	j, _, other := p.joinHeard(t)
	for i := range 10 {
		tell(t, j.a, controlMessage(0, i))
		other.expect(t, controlMessage(0, i))
	}
	h.none(t)
	joined{a, b}.close()
	j.close()
}

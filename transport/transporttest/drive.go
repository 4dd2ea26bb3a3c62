package transporttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// hang is the time after which a wait counts as a hang.
const hang = 20 * time.Second

// side is one process of a pair.
type side struct {
	name     string
	fabric   transport.Fabric
	doorbell *park.Doorbell
	poller   transport.Poller // nil where events come from memory
}

func newSide(name string, f transport.Fabric, b *park.Doorbell) *side {
	p, _ := f.(transport.Poller)
	return &side{name, f, b, p}
}

func (s *side) poll() {
	if s.poller != nil {
		s.poller.Poll()
	}
}

// await waits as the executor does: check and poll, then announce, arm, check once more and sleep.
// A lost ring shows as a hang.
func (s *side) await(what string, look func() bool) error {
	for deadline := time.Now().Add(hang); ; {
		for range 64 {
			s.poll()
			if look() {
				return nil
			}
			runtime.Gosched()
		}
		if done, err := s.sleep(what, deadline, look); done || err != nil {
			return err
		}
	}
}

// sleep is the second half of await. It sleeps at most once.
func (s *side) sleep(what string, deadline time.Time, look func() bool) (bool, error) {
	ticket := s.doorbell.Prepare()
	if s.poller != nil {
		s.poller.Arm()
	}
	s.poll()
	if look() {
		s.doorbell.Cancel()
		return true, nil
	}
	s.doorbell.Sleep(ticket, max(time.Until(deadline), 0))
	// After the deadline an event that came meanwhile does not count: no ring announced it.
	if !time.Now().Before(deadline) {
		return false, fmt.Errorf("side %s hangs: %s", s.name, what)
	}
	return false, nil
}

// pair is the state that the tests work on.
type pair struct {
	a, b    *side
	onUse   bool // of sessions
	before  int  // goroutines before the fabrics were made
	stop    atomic.Bool
	stopped sync.WaitGroup
}

func newPair(m Pair) *pair {
	p := &pair{a: newSide("A", m.A, m.DoorbellA), b: newSide("B", m.B, m.DoorbellB)}
	for _, s := range []*side{p.a, p.b} {
		if s.poller != nil {
			p.stopped.Add(1)
			go p.progress(s)
		}
	}
	return p
}

// progress is the progress thread of a process. It polls alongside the threads of the test, so it
// must ring for them after what it moves.
func (p *pair) progress(s *side) {
	defer p.stopped.Done()
	for !p.stop.Load() {
		ticket := s.doorbell.Prepare()
		s.poller.Arm()
		if s.poller.Poll() {
			s.doorbell.Cancel()
			continue
		}
		s.doorbell.Sleep(ticket, 50*time.Millisecond)
	}
}

// unattended has nobody poll from here on.
func (p *pair) unattended() {
	p.stop.Store(true)
	p.a.doorbell.Ring()
	p.b.doorbell.Ring()
	p.stopped.Wait()
	p.a.poller, p.b.poller = nil, nil
}

func (p *pair) close() {
	p.unattended()
	p.a.fabric.Close()
	p.b.fabric.Close()
}

// until polls both sides from one goroutine.
func (p *pair) until(t *testing.T, what string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !look(); {
		p.a.poll()
		p.b.poll()
		runtime.Gosched()
		if time.Now().After(deadline) {
			t.Fatalf("hangs: %s", what)
		}
	}
}

// settle gives data in flight time to arrive, and reports whether look became true. It is for
// conditions that must not become true.
func (p *pair) settle(look func() bool) bool {
	for deadline := time.Now().Add(20 * time.Millisecond); time.Now().Before(deadline); {
		p.a.poll()
		p.b.poll()
		if look() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// joined is one session with both of its ends.
type joined struct{ a, b transport.Link }

func (j joined) close() {
	j.a.Close()
	j.b.Close()
}

const rankA, rankB = 3, 11

func (p *pair) newSession(channels int) (a, b transport.Session) {
	a = transport.Session{Rank: rankA, Peer: rankB, Channels: channels, OnUse: p.onUse}
	rand.Read(a.ID[:])
	rand.Read(a.Key[:])
	b = a
	b.Rank, b.Peer = a.Peer, a.Rank
	return a, b
}

type connected struct {
	link transport.Link
	err  error
}

// dial starts Connect on one side while its fabric is polled.
func dial(ctx context.Context, from, to *side, s transport.Session) <-chan connected {
	done := make(chan connected, 1)
	address := to.fabric.Address()
	go func() {
		l, err := from.fabric.Connect(ctx, address, s)
		done <- connected{l, err}
	}()
	return done
}

// collect waits for a dial while both sides are polled.
func (p *pair) collect(ch <-chan connected) connected {
	for {
		select {
		case c := <-ch:
			return c
		case <-time.After(time.Millisecond):
			p.a.poll()
			p.b.poll()
		}
	}
}

// join connects both sides for one session.
func (p *pair) join(t *testing.T, channels int) joined {
	t.Helper()
	sa, sb := p.newSession(channels)
	return p.joinAs(t, sa, sb)
}

func (p *pair) joinAs(t *testing.T, sa, sb transport.Session) joined {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	da, db := dial(ctx, p.a, p.b, sa), dial(ctx, p.b, p.a, sb)
	a, b := p.collect(da), p.collect(db)
	if a.err != nil || b.err != nil {
		t.Fatalf("connect: A says %v, B says %v", a.err, b.err)
	}
	return joined{a.link, b.link}
}

// put sends one fragment, if there is credit, and returns its size, or -1.
func put(ch transport.Channel, n int, fill func([]byte), m transport.Meta) (int, error) {
	got, err := reserve(ch, n, fill)
	if got >= 0 && err == nil {
		ch.Commit(got, &m)
	}
	return got, err
}

// publish is put as part of a series.
func publish(ch transport.Channel, n int, fill func([]byte), m transport.Meta) (int, error) {
	got, err := reserve(ch, n, fill)
	if got >= 0 && err == nil {
		ch.Publish(got, &m)
	}
	return got, err
}

// reserve fills the space that Reserve lends: at least one byte of n, or none for n = 0. It checks
// what the contract requires of that space.
func reserve(ch transport.Channel, n int, fill func([]byte)) (int, error) {
	space := ch.Reserve(n)
	if space == nil {
		return -1, nil
	}
	switch got := len(space); {
	case got > n:
		return 0, fmt.Errorf("Reserve(%d) lent %d bytes, more than asked", n, got)
	case n > 0 && got == 0:
		return 0, fmt.Errorf("Reserve(%d) lent an empty slice", n)
	case got < n && got%64 != 0:
		return 0, fmt.Errorf("Reserve(%d) lent %d bytes, less than asked and not a multiple of 64", n, got)
	case n > 32 && uintptr(unsafe.Pointer(&space[0]))%64 != 0:
		return 0, fmt.Errorf("Reserve(%d) lent memory that is not aligned to 64 bytes: %p", n, &space[0])
	}
	fill(space)
	return len(space), nil
}

// take removes one fragment, if there is one, after look has checked it.
func take(ch transport.Channel, look func(payload []byte, m transport.Meta) error) (bool, error) {
	payload, m, ok := ch.Peek()
	if !ok {
		return false, nil
	}
	if len(payload) > transport.MaxFragment {
		return false, fmt.Errorf("Peek returned %d bytes, more than MaxFragment", len(payload))
	}
	err := look(payload, m)
	ch.Release()
	return true, err
}

// consume is take as part of a series.
func consume(ch transport.Channel, look func(payload []byte, m transport.Meta) error) (bool, error) {
	payload, m := ch.Look()
	if m == nil {
		return false, nil
	}
	if len(payload) > transport.MaxFragment {
		return false, fmt.Errorf("Look returned %d bytes, more than MaxFragment", len(payload))
	}
	err := look(payload, *m)
	ch.Consume()
	return true, err
}

// pattern returns a function that fills memory with bytes that depend on the fragment and the
// position.
func pattern(seed uint64) func([]byte) {
	return func(b []byte) {
		x := seed*0x9e3779b97f4a7c15 + 1
		for i := range b {
			b[i] = byte(x >> (8 * (i & 7)))
			if i&7 == 7 {
				x = x*6364136223846793005 + 1442695040888963407
			}
		}
	}
}

func checkPattern(b []byte, seed uint64) error {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		if want := byte(x >> (8 * (i & 7))); b[i] != want {
			return fmt.Errorf("fragment %d: byte %d of %d is %#x, want %#x", seed, i, len(b), b[i], want)
		}
		if i&7 == 7 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	return nil
}

// metaOf returns the Meta of fragment i: every bit of it matters.
func metaOf(i uint64) transport.Meta { return transport.Meta{^i, i * 0xff51afd7ed558ccd, i} }

// send waits for credit and puts exactly one fragment of n bytes or fewer.
func (p *pair) send(t *testing.T, ch transport.Channel, n int, i uint64) (sent int) {
	t.Helper()
	var err error
	p.until(t, fmt.Sprintf("no credit for fragment %d of %d bytes", i, n), func() bool {
		sent, err = put(ch, n, pattern(i), metaOf(i))
		return sent >= 0 || err != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// expect takes fragment i of exactly n bytes.
func (p *pair) expect(t *testing.T, ch transport.Channel, n int, i uint64) {
	t.Helper()
	var err error
	p.until(t, fmt.Sprintf("fragment %d of %d bytes does not arrive", i, n), func() bool {
		var ok bool
		ok, err = take(ch, isFragment(n, i))
		return ok || err != nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isFragment returns a check for take or consume that the fragment is number i and has exactly n
// bytes.
func isFragment(n int, i uint64) func([]byte, transport.Meta) error {
	return func(b []byte, m transport.Meta) error {
		if m != metaOf(i) {
			return fmt.Errorf("fragment with meta %x arrived, want number %d, %x", m, i, metaOf(i))
		}
		if len(b) != n {
			return fmt.Errorf("fragment %d has %d bytes, %d were sent", i, len(b), n)
		}
		return checkPattern(b, i)
	}
}

// isPeer checks that err is of the class and names the rank.
func isPeer(err error, code fault.Code, rank int) error {
	var e *fault.Error
	if !errors.As(err, &e) || !errors.Is(err, code) || e.Peer != rank {
		return fmt.Errorf("error is %v, want class %q naming rank %d", err, code, rank)
	}
	return nil
}

package transporttest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// asleep runs a sleeper of side s that never spins: only the doorbell can make it check again. It
// returns when the sleeper is about to sleep; the channel yields the sleeper's result.
func asleep(s *side, what string, look func() bool) <-chan error {
	done := make(chan error, 1)
	var once atomic.Bool
	ready := make(chan struct{})
	go func() {
		for deadline := time.Now().Add(hang); ; {
			ok, err := s.sleep(what, deadline, func() bool {
				found := look()
				if once.CompareAndSwap(false, true) {
					close(ready)
				}
				return found
			})
			if ok || err != nil {
				done <- err
				return
			}
		}
	}()
	<-ready
	// Now the sleeper usually sleeps; the test is valid either way.
	time.Sleep(2 * time.Millisecond)
	return done
}

// awake waits for the sleeper while the other side works.
func (p *pair) awake(t *testing.T, other *side, done <-chan error) {
	t.Helper()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		case <-time.After(time.Millisecond):
			other.poll()
		}
	}
}

func testWakeOnCommit(t *testing.T, p *pair) {
	j := p.join(t, 2)
	defer j.close()
	for i, n := range []int{0, 8, 1000, 20000} {
		for _, d := range []struct {
			from, to     transport.Link
			here, sleeps *side
		}{{j.a, j.b, p.a, p.b}, {j.b, j.a, p.b, p.a}} {
			from, to := d.from.Channel(1), d.to.Channel(1)
			done := asleep(d.sleeps, "nobody rang after a Commit", func() bool {
				b, m, ok := to.Peek()
				return ok && len(b) == n && m == metaOf(uint64(i))
			})
			if got, err := put(from, n, pattern(uint64(i)), metaOf(uint64(i))); err != nil || got != n {
				t.Fatalf("Reserve(%d) lent %d on an empty channel: %v", n, got, err)
			}
			p.awake(t, d.here, done)
			p.expect(t, to, n, uint64(i))
		}
	}
}

func testWakeOnRelease(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	from, to := j.a.Channel(0), j.b.Channel(0)
	for _, n := range []int{8, 20000} {
		lengths := p.fill(t, from, n)
		done := asleep(p.a, "nobody rang after the Releases", func() bool { return from.Reserve(n) != nil })
		p.takeAll(t, to, lengths, take)
		p.awake(t, p.b, done)
	}
}

// takeAll lets B take all fragments that fill has sent, while A sleeps.
func (p *pair) takeAll(t *testing.T, to transport.Channel, lengths []int,
	take func(transport.Channel, func([]byte, transport.Meta) error) (bool, error)) {
	t.Helper()
	for i, n := range lengths {
		err := p.b.await("fragment does not arrive", func() bool {
			ok, err := take(to, isFragment(n, uint64(i)))
			if err != nil {
				t.Error(err)
			}
			return ok
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func testWakeOnClose(t *testing.T, p *pair) {
	j := p.join(t, 2)
	defer j.close()
	done := asleep(p.b, "nobody rang after the peer closed", func() bool { return ended(j.b) })
	if err := j.a.Close(); err != nil {
		t.Fatal(err)
	}
	p.awake(t, p.a, done)
	if err := isPeer(j.b.Err(), fault.PeerLeft, rankA); err != nil {
		t.Error(err)
	}
}

// testPingPongAsleep has both sides sleep between any two fragments, so that each ring counts.
func testPingPongAsleep(t *testing.T, p *pair) {
	j := p.join(t, 1)
	defer j.close()
	const rounds = 300
	errs := make(chan error, 2)
	play := func(s *side, ch transport.Channel, serve bool) error {
		for i := range uint64(rounds) {
			for _, sending := range []bool{serve, !serve} {
				var failed error
				look := func() bool {
					if sending {
						n, err := put(ch, 24, pattern(i), metaOf(i))
						failed = err
						return n >= 0 || err != nil
					}
					ok, err := take(ch, func(b []byte, m transport.Meta) error {
						if m != metaOf(i) {
							return fmt.Errorf("meta %x, want %x", m, metaOf(i))
						}
						return checkPattern(b, i)
					})
					failed = err
					return ok || err != nil
				}
				for deadline := time.Now().Add(hang); ; {
					ok, err := s.sleep(fmt.Sprintf("round %d, sending %v", i, sending), deadline, look)
					if err != nil {
						return err
					}
					if ok {
						break
					}
				}
				if failed != nil {
					return failed
				}
			}
		}
		return nil
	}
	go func() { errs <- play(p.a, j.a.Channel(0), true) }()
	go func() { errs <- play(p.b, j.b.Channel(0), false) }()
	for _, s := range []*side{p.a, p.b} {
		p.awake(t, s, errs)
	}
}

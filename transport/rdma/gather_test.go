package rdma

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// pinned returns memory that a fabric may send from, until the end of the test.
func pinned(t testing.TB, f *Fabric, bytes int) []byte {
	t.Helper()
	block, err := mem.Alloc(bytes)
	require.NoError(t, err)
	require.NoError(t, f.Pin(block.Bytes()))
	t.Cleanup(func() {
		require.NoError(t, f.Unpin(block.Bytes()))
		require.NoError(t, block.Free())
	})
	return block.Bytes()
}

// gather sends fragments in place as far as possible, of lengths that the seed chooses. Memory is
// written again as soon as it is Sent.
func (e end) gather(channel int, seed uint64, fragments int, memory []byte) error {
	ch, random := e.link.Channel(channel), rand.New(rand.NewPCG(seed, 1))
	in := ch.(transport.Gatherer)
	for i := range fragments {
		n, m := []int{1, 100, 3000, 8128, 20000, 65000, 100000}[random.IntN(7)], transport.Meta{uint64(i), seed}
		at := i % 4 * 100032
		if i%4 == 0 {
			clear(memory[:4*100032])
		}
		b := memory[at : at+n]
		copy(b, counted(i, n))
		if err := e.await(fmt.Sprint("no credit for fragment ", i), func() bool {
			if n, ok := in.Gather(b, &m); ok {
				return n > 0
			}
			space := ch.Reserve(len(b))
			if space == nil {
				return false
			}
			ch.Commit(copy(space, b), &m)
			return true
		}); err != nil {
			return err
		}
		if i%4 == 3 {
			if err := e.await(fmt.Sprint("not sent: fragment ", i), in.Sent); err != nil {
				return err
			}
		}
	}
	return e.await("not sent at the end", in.Sent)
}

// inPlace sends over all channels in both directions.
func inPlace(t testing.TB, x, y end, channels int) func(seed uint64, fragments int) error {
	each := 4 * 100032
	memory := [2][]byte{pinned(t, x.f.Fabric, channels*each), pinned(t, y.f.Fabric, channels*each)}
	return func(seed uint64, fragments int) error {
		errs := make(chan error)
		for c := range channels {
			for k, of := range [][2]end{{x, y}, {y, x}} {
				seed := seed<<8 + uint64(2*c+k)
				go func() { errs <- of[0].gather(c, seed, fragments, memory[k][c*each:(c+1)*each]) }()
				go func() { errs <- of[1].receive(c, seed, fragments) }()
			}
		}
		var first error
		for range 4 * channels {
			if err := <-errs; first == nil {
				first = err
			}
		}
		return first
	}
}

// TestGatherCopiesNothing looks at all writes of a sender: the adapter reads each payload from the
// memory of the caller.
func TestGatherCopiesNothing(t *testing.T) {
	n := network(t, verbstest.Options{})
	x, y := two(t, n, 1, nil)
	memory := pinned(t, x.f.Fabric, 4*100032)
	from, to := address(memory), address(memory)+uint64(len(memory))
	var mu sync.Mutex
	var inPlace, copied, heads int
	n.Tap(0, func(w verbs.Write) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range w.From {
			switch {
			case p.At >= from && p.At+uint64(p.Bytes) <= to:
				inPlace += int(p.Bytes)
			case p.Bytes == headBytes:
				heads++
			default:
				copied += int(p.Bytes)
			}
		}
	})
	const fragments = 300
	received := make(chan error)
	go func() { received <- y.receive(0, 5, fragments) }()
	require.NoError(t, x.gather(0, 5, fragments, memory))
	require.NoError(t, <-received)
	mu.Lock()
	defer mu.Unlock()
	require.Zero(t, copied)
	require.Equal(t, fragments, heads)
	require.Greater(t, inPlace, fragments*3000)
}

// TestGatherCuts loses all packets again and again while fragments are sent in place.
func TestGatherCuts(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Seed: seed, Patience: 10 * time.Millisecond})
			x, y := two(t, n, 2, nil)
			send := inPlace(t, x, y, 2)
			done := make(chan error)
			go func() { done <- send(seed, 400) }()
			random := rand.New(rand.NewPCG(seed, 2))
			for cuts := 0; ; cuts++ {
				select {
				case err := <-done:
					require.NoError(t, err)
					n.Heal(0, 1)
					require.NoError(t, x.until("no connection", func() bool { return x.up(y) && y.up(x) }))
					require.NoError(t, send(seed+100, 20))
					t.Log(cuts, "cuts")
					return
				case <-time.After(time.Duration(random.IntN(150)) * time.Millisecond):
				}
				if random.IntN(2) == 0 {
					n.Cut(0, 1)
				} else {
					n.CutOneWay(int(cuts%2), int(1-cuts%2))
				}
				time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
				n.Heal(0, 1)
			}
		})
	}
}

// TestGatherStatuses ends a write, and an arrival, with each status.
func TestGatherStatuses(t *testing.T) {
	for status := verbs.LocalLength; status <= verbs.General; status++ {
		if testing.Short() && status%3 != 0 {
			continue
		}
		for what, name := range map[verbstest.What]string{verbstest.Writes: "write", verbstest.Arrivals: "arrival"} {
			t.Run(fmt.Sprintf("%v of a %s", status, name), func(t *testing.T) {
				t.Parallel()
				n := network(t, verbstest.Options{Seed: uint64(status), Patience: 20 * time.Millisecond})
				x, y := two(t, n, 2, nil)
				send := inPlace(t, x, y, 2)
				n.Complete(0, what, 20, status)
				require.NoError(t, send(uint64(status), 60))
				require.NoError(t, x.until("no connection", func() bool { return x.up(y) && y.up(x) }))
				require.NoError(t, send(uint64(status)+100, 5))
			})
		}
	}
}

// TestGatherFatal has the adapter of the receiver fail for ever, after what it has acknowledged:
// the sender still has what the receiver had not taken.
func TestGatherFatal(t *testing.T) {
	for host := range 2 {
		n := network(t, verbstest.Options{Seed: uint64(host), Patience: 20 * time.Millisecond})
		x, y := two(t, n, 1, nil)
		send := inPlace(t, x, y, 1)
		done := make(chan error)
		go func() { done <- send(1, 400) }()
		time.Sleep(20 * time.Millisecond)
		n.Fatal(host, 0)
		require.NoError(t, <-done)
	}
}

// TestWithdrawStuck withdraws memory from writes that do not end, because nothing gets through, and
// the adapter goes on trying: the sender has it back soon, and can end the registration.
func TestWithdrawStuck(t *testing.T) {
	for _, kill := range []bool{false, true} {
		n := network(t, verbstest.Options{Patience: time.Minute})
		x, y := two(t, n, 2, nil)
		memory := pinned(t, x.f.Fabric, 1<<20)
		n.Cut(0, 1)
		var all [2]transport.Gatherer
		for i := range all {
			all[i] = x.link.Channel(i).(transport.Gatherer)
			sent, ok := all[i].Gather(memory[i*100_000:][:5000], &transport.Meta{})
			require.True(t, ok)
			require.Equal(t, 5000, sent)
		}
		require.ErrorIs(t, x.f.Unpin(memory), fault.System, "it is being read")
		require.False(t, all[0].Sent())
		if kill {
			n.Kill(1)
			y.f.tcp.Close()
		}
		begun := time.Now()
		for i := range all {
			require.Eventually(t, func() bool { x.f.Poll(); return all[i].Withdraw() }, hang, time.Millisecond)
		}
		require.Less(t, time.Since(begun), time.Second)
		for i := range memory {
			memory[i] = 0xee
		}
		require.NoError(t, x.f.Unpin(memory))
		n.Heal(0, 1)
		require.NoError(t, x.link.Close())
		require.NoError(t, y.link.Close())
	}
}

// TestPins registers memory again and again: nothing is left of what has ended, and Close ends the
// rest, whether or not an adapter was open before.
func TestPins(t *testing.T) {
	n := network(t, verbstest.Options{Delay: -1})
	x, y := two(t, n, 1, nil)
	leaks := len(n.Leaks())
	block, err := mem.Alloc(2 << 20)
	require.NoError(t, err)
	defer block.Free()
	memory, random := block.Bytes(), rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		b := memory[random.IntN(1<<20)&^4095:][:random.IntN(1<<20)&^4095]
		require.NoError(t, x.f.Pin(b))
		require.NoError(t, x.f.Unpin(b))
		require.NoError(t, x.f.Unpin(b), "it has ended")
	}
	require.Len(t, n.Leaks(), leaks)
	require.Empty(t, x.f.memory.all)
	require.Empty(t, *x.f.adapters()[0].spans.Load())

	n.Refuse(0, "Region.Close", 1, nil)
	require.NoError(t, x.f.Pin(memory))
	require.Error(t, x.f.Unpin(memory))
	sent, ok := x.link.Channel(0).(transport.Gatherer).Gather(memory[:5000], &transport.Meta{})
	require.True(t, ok, "what the adapter does not let go stays registered")
	require.Equal(t, 5000, sent)
	require.NoError(t, y.await("nothing arrives", func() bool { _, m := y.link.Channel(0).Look(); return m != nil }))
	y.link.Channel(0).Release()
	require.NoError(t, x.await("not sent", x.link.Channel(0).(transport.Gatherer).Sent))

	late, _ := process(t, n.Host(0), nil)
	require.NoError(t, late.Pin(memory))
	require.Empty(t, late.adapters())
	z := end{f: late}
	z.link, y.link = joined(t, late, y.f, 1)
	_, ok = z.link.Channel(0).(transport.Gatherer).Gather(memory[:0], &transport.Meta{})
	require.False(t, ok)
	sent, ok = z.link.Channel(0).(transport.Gatherer).Gather(memory[:5000], &transport.Meta{})
	require.True(t, ok)
	require.Equal(t, 5000, sent)
	require.NoError(t, x.f.Close())
	require.ErrorIs(t, x.f.Pin(memory), fault.Closed)
	require.NoError(t, x.f.Unpin(memory))
}

// TestPinRefused reaches the limit of what may be locked: fragments are copied, a line says so, and
// memory that is registered later is sent in place.
func TestPinRefused(t *testing.T) {
	n := network(t, verbstest.Options{Delay: -1, Locked: 24 << 20})
	var said lines
	x, y := two(t, n, 1, heard(&said))
	block, err := mem.Alloc(16 << 20)
	require.NoError(t, err)
	defer block.Free()
	memory := block.Bytes()
	ch := x.link.Channel(0).(transport.Gatherer)
	for range 3 {
		require.ErrorContains(t, x.f.Pin(memory), "may be locked")
		_, ok := ch.Gather(memory[:5000], &transport.Meta{})
		require.False(t, ok)
		require.NoError(t, x.f.Unpin(memory))
	}
	require.Regexp(t, `^WARN rdma: registered memory, from 16M on, is copied before it is sent: .*may be locked`,
		onlyWarnings(&said))
	require.NoError(t, x.f.Pin(memory[:100_000]))
	sent, ok := ch.Gather(memory[:5000], &transport.Meta{})
	require.True(t, ok)
	require.Equal(t, 5000, sent)
	require.NoError(t, x.await("not withdrawn", ch.Withdraw))
	require.NoError(t, x.f.Unpin(memory[:100_000]))
	require.NoError(t, x.link.Close())
	require.NoError(t, y.link.Close())
}

func onlyWarnings(l *lines) (text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if len(line) > 4 && line[:4] == "WARN" {
			text += line
		}
	}
	return text
}

// TestUse looks memory up among others, and compares with the plain way to do that.
func TestUse(t *testing.T) {
	n := network(t, verbstest.Options{})
	c, err := n.Host(0).Open("fake_0")
	require.NoError(t, err)
	a := &adapter{f: &Fabric{}, context: c}
	a.spans.Store(&[]*span{})
	random := rand.New(rand.NewPCG(3, 3))
	memory, have := make([]byte, 1<<16), map[int]int{}
	for range 3000 {
		at, bytes := random.IntN(256)*256, 256
		switch held := have[at]; {
		case held == 0 && random.IntN(2) == 0:
			bytes = 64 * (1 + random.IntN(4))
			require.NoError(t, a.pin(memory[at:at+bytes]))
			have[at] = bytes
		case held > 0 && random.IntN(4) == 0:
			require.NoError(t, a.unpin(address(memory[at:])))
			delete(have, at)
		}
		from := random.IntN(len(memory) - 100)
		length := 1 + random.IntN(99)
		base := from &^ 255
		want := from+length <= base+have[base]
		s := a.use(memory[from : from+length])
		require.Equal(t, want, s != nil, "%d bytes at %d, %d at %d", length, from, have[base], base)
		if s != nil {
			s.done()
		}
	}
	for at := range have {
		require.NoError(t, a.unpin(address(memory[at:])))
	}
	require.NoError(t, c.Close())
}

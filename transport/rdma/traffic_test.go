package rdma

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// hang is the time after which a wait counts as a hang.
const hang = 30 * time.Second

// end is one side of a link, with its process.
type end struct {
	f        whole
	doorbell *park.Doorbell
	link     transport.Link
}

// await waits as the executor does.
func (e end) await(what string, look func() bool) error {
	for deadline := time.Now().Add(hang); ; {
		for range 20 {
			e.f.Poll()
			if look() {
				return nil
			}
		}
		ticket := e.doorbell.Prepare()
		e.f.Arm()
		e.f.Poll()
		if look() {
			e.doorbell.Cancel()
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("hangs: %s", what)
		}
		e.doorbell.Sleep(ticket, time.Second)
	}
}

// until waits for what no doorbell tells of, while the process polls.
func (e end) until(what string, look func() bool) error {
	for deadline := time.Now().Add(hang); !look(); time.Sleep(time.Millisecond) {
		e.f.Poll()
		if time.Now().After(deadline) {
			return fmt.Errorf("hangs: %s", what)
		}
	}
	return nil
}

// count is what counted takes its bytes from: under the race detector a loop takes long.
var count = bytes.Repeat(func() (b []byte) {
	for i := range 256 {
		b = append(b, byte(i))
	}
	return b
}(), 400)

// counted returns n bytes that count up from i, to be read only.
func counted(i, n int) []byte { return count[i%256:][:n] }

// send sends fragments with numbers, of lengths that the seed chooses.
func (e end) send(channel int, seed uint64, fragments int) error {
	ch, random := e.link.Channel(channel), rand.New(rand.NewPCG(seed, 1))
	for i := range fragments {
		var space []byte
		n := []int{0, 8, 100, 3000, 8128, 20000, 65000}[random.IntN(7)]
		if err := e.await(fmt.Sprint("no credit for fragment ", i), func() bool {
			space = ch.Reserve(n)
			return space != nil
		}); err != nil {
			return err
		}
		copy(space, counted(i, len(space)))
		ch.Commit(len(space), &transport.Meta{uint64(i), seed, uint64(len(space))})
	}
	return nil
}

// receive takes them.
func (e end) receive(channel int, seed uint64, fragments int) error {
	ch := e.link.Channel(channel)
	for i := range fragments {
		var wrong error
		if err := e.await(fmt.Sprint("no fragment ", i), func() bool {
			b, m, ok := ch.Peek()
			if !ok {
				return false
			}
			inPlace := transport.Meta{uint64(i), seed}
			if want := (transport.Meta{uint64(i), seed, uint64(len(b))}); m != want && m != inPlace {
				wrong = fmt.Errorf("channel %d: fragment %d has meta %v, want %v", channel, i, m, want)
			}
			if want := counted(i, len(b)); !bytes.Equal(b, want) {
				k := 0
				for b[k] == want[k] {
					k++
				}
				wrong = fmt.Errorf("channel %d: byte %d of fragment %d of %d bytes is wrong", channel, k, i, len(b))
			}
			ch.Release()
			return true
		}); err != nil {
			return err
		}
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// talk sends over all channels in both directions.
func talk(x, y end, channels int, seed uint64, fragments int) error {
	errs := make(chan error)
	for c := range channels {
		for k, of := range [][2]end{{x, y}, {y, x}} {
			seed := seed<<8 + uint64(2*c+k)
			go func() { errs <- of[0].send(c, seed, fragments) }()
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

// two returns a link between two processes.
func two(t testing.TB, n *verbstest.Network, channels int, change func(*Options)) (x, y end) {
	x.f, x.doorbell = process(t, n.Host(0), change)
	y.f, y.doorbell = process(t, n.Host(1), change)
	x.link, y.link = joined(t, x.f, y.f, channels)
	return x, y
}

// up reports whether fragments of new links would go over a connection.
func (e end) up(peer end) bool {
	return e.f.pairs[string(peer.f.Address())].ports() != ""
}

// TestTraffic sends over several channels at once, with the memory for long slots as small as it
// gets, too.
func TestTraffic(t *testing.T) {
	for _, pool := range []int{longBytes, 0} {
		n := network(t, verbstest.Options{Seed: uint64(pool)})
		x, y := two(t, n, 4, func(o *Options) { o.Pool = pool })
		require.NoError(t, talk(x, y, 4, 1, 200))
		require.True(t, x.up(y) && y.up(x))
		require.NoError(t, x.link.Close())
		require.NoError(t, y.link.Close())
	}
}

// TestCuts loses all packets again and again while fragments are sent: tcp takes over, each
// fragment arrives once and in order, and a connection is made anew.
func TestCuts(t *testing.T) {
	for seed := range seeds(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Seed: seed, Patience: 10 * time.Millisecond})
			x, y := two(t, n, 2, nil)
			done := make(chan error)
			go func() { done <- talk(x, y, 2, seed, 1500) }()
			random := rand.New(rand.NewPCG(seed, 2))
			for cuts := 0; ; cuts++ {
				select {
				case err := <-done:
					require.NoError(t, err)
					n.Heal(0, 1)
					require.NoError(t, x.until("no connection", func() bool { return x.up(y) && y.up(x) }))
					require.NoError(t, talk(x, y, 2, seed+100, 20))
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

var transportMeta = transport.Meta{1, 2, 3}

// seeds returns how many seeds of n a test takes.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return n
}

package rdma

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// byTCP is the way of a channel that has no connection.
const byTCP = -1

// ways returns by which paths the channels of an end send.
func (e end) ways() (all []int) {
	l := e.link.(*link)
	for i := range l.channels {
		q := &l.channels[i].out
		q.mu.Lock()
		q.settle()
		way := byTCP
		if q.way != nil && q.next == nil && !q.vacates {
			way = q.way.path.number
		}
		q.mu.Unlock()
		all = append(all, way)
	}
	return all
}

// settle waits until both ends of links send by the paths that a function names.
func settle(t testing.TB, ends [][2]end, by func(e end, channel int) int) {
	t.Helper()
	there := func() bool {
		for _, both := range ends {
			for _, e := range both {
				for i, way := range e.ways() {
					if way != by(e, i) {
						return false
					}
				}
			}
		}
		return true
	}
	look := func() bool { ends[0][1].f.Poll(); return there() }
	if err := ends[0][0].until("channels do not change", look); err != nil {
		for _, both := range ends {
			t.Log(both[0].ways(), both[1].ways())
		}
		require.NoError(t, err)
	}
}

// preferred returns the path that a channel prefers if there are n.
func preferred(paths int) func(e end, channel int) int {
	return func(e end, channel int) int {
		l := e.link.(*link)
		number := l.base
		if !l.pair.first {
			number = l.theirs.Load()
		}
		return (int(number)/len(l.channels) + channel) % paths
	}
}

// only returns one path.
func only(path int) func(end, int) int { return func(end, int) int { return path } }

// hasten has connections made anew without a pause.
func hasten(ends [][2]end) {
	for i, e := range ends[0] {
		e.f.manager.call(func() {
			for _, t := range e.pairTo(ends[0][1-i]).paths() {
				if !t.again.IsZero() {
					t.again, t.pause = time.Now(), 0
				}
			}
		})
	}
}

// linked returns links between two processes, with as many channels as channels says.
func linked(t testing.TB, n *verbstest.Network, change func(*Options), channels ...int) (ends [][2]end) {
	t.Helper()
	x, y := two(t, n, channels[0], change)
	ends = append(ends, [2]end{x, y})
	for _, count := range channels[1:] {
		x.link, y.link = joined(t, x.f, y.f, count)
		ends = append(ends, [2]end{x, y})
	}
	return ends
}

// talkAll talks over all channels of links at once.
func talkAll(ends [][2]end, seed uint64, fragments int) error {
	errs := make(chan error)
	for i, both := range ends {
		go func() {
			errs <- talk(both[0], both[1], len(both[0].link.(*link).channels), seed<<8+uint64(i), fragments)
		}()
	}
	var all error
	for range ends {
		all = errors.Join(all, <-errs)
	}
	return all
}

// carried returns how many writes a host has sent by each of its adapters.
func carried(n *verbstest.Network, host, adapters int) (writes []int) {
	for a := range adapters {
		writes = append(writes, n.Carried(host, a, 1).Writes)
	}
	return writes
}

// TestPorts sends over all ports: of two adapters, and of one.
func TestPorts(t *testing.T) {
	for name, o := range map[string]verbstest.Options{
		"adapters": {Adapters: 2}, "ports": {Ports: 2}, "both": {Adapters: 3, Ports: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := network(t, o)
			var said lines
			ends := linked(t, n, heard(&said), 4, 1, 1, 1, 1)
			paths := min(max(1, o.Adapters)*max(1, o.Ports), MostPorts)
			settle(t, ends, preferred(paths))
			used := map[int]int{}
			for _, both := range ends {
				require.Equal(t, both[0].ways(), both[1].ways(), "both directions go by the same path")
				for _, way := range both[0].ways() {
					used[way]++
				}
			}
			for path := range paths {
				require.Equal(t, 8/paths, used[path])
			}
			require.NoError(t, talkAll(ends, 1, 60))
			for host := range 2 {
				for i := range paths {
					a, port := i/max(1, o.Ports), i%max(1, o.Ports)+1
					require.Greater(t, n.Carried(host, a, port).Writes, 60, "host %d, path %d", host, i)
				}
			}
			from := ends[0][0].link.State().From
			require.True(t, strings.HasPrefix(from, ends[0][0].pairTo(ends[0][1]).ports()+" "), from)
			require.Equal(t, paths, len(strings.Split(strings.Fields(from)[0], ",")))
			left := strings.Contains(said.String(), "4 ports at most, and not fake_2:1, fake_2:2")
			require.Equal(t, name == "both", left, said.String())
			require.NotContains(t, said.String(), "WARN")
		})
	}
}

// TestPortCut cuts a port while all channels of several links are busy: the other one takes over,
// and tcp has nothing to do after that. When the port works again, its channels return.
func TestPortCut(t *testing.T) {
	for seed := range seeds(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Seed: seed, Adapters: 2, Patience: 10 * time.Millisecond})
			var said lines
			ends := linked(t, n, heard(&said), 3, 2, 1)
			settle(t, ends, preferred(2))
			for _, lost := range []int{0, 1, 1} { // the last time they return to a connection that they have left
				done := make(chan error)
				go func() { done <- talkAll(ends, seed+10, 120) }()
				time.Sleep(20 * time.Millisecond)
				n.CutPort(int(seed), lost, 1)
				settle(t, ends, only(1-lost))
				require.NoError(t, <-done)
				before := carried(n, 0, 2)
				require.NoError(t, talkAll(ends, seed+20, 20))
				after := carried(n, 0, 2)
				require.Equal(t, before[lost], after[lost])
				require.GreaterOrEqual(t, after[1-lost]-before[1-lost], 6*20)

				go func() { done <- talkAll(ends, seed+30, 120) }()
				time.Sleep(5 * time.Millisecond)
				n.HealPort(int(seed), lost, 1)
				hasten(ends)
				settle(t, ends, preferred(2))
				require.NoError(t, <-done)
				before = carried(n, 0, 2)
				require.NoError(t, talkAll(ends, seed+40, 20))
				after = carried(n, 0, 2)
				for path := range 2 {
					require.GreaterOrEqual(t, after[path]-before[path], 2*20)
				}
			}
			require.Contains(t, said.String(), "has broken, and fake_1:1 takes over when tcp has sent")
			require.Contains(t, said.String(), "has broken, and fake_0:1 takes over when tcp has sent")
			require.NotContains(t, said.String(), "tcp takes over")
			require.Contains(t, said.String(), "INFO rdma: fake_0:1 reaches 127.0.0.1:")
			for _, e := range ends[0] {
				require.EqualValues(t, 6, e.f.adapters()[0].bound.Load()+e.f.adapters()[1].bound.Load())
			}
			for _, both := range ends {
				require.NoError(t, both[0].link.Close())
				require.NoError(t, both[1].link.Close())
			}
			for _, e := range ends[0] {
				require.NoError(t, e.until("memory stays", func() bool {
					return e.pairTo(ends[0][0]).openLinks() == 0 && e.pairTo(ends[0][1]).openLinks() == 0
				}))
				for _, a := range e.f.adapters() {
					require.Len(t, a.in.free, a.in.all)
					require.Len(t, a.out.free, a.out.all)
				}
			}
		})
	}
}

// TestPortsCut cuts all ports: tcp takes over, and each port returns by itself.
func TestPortsCut(t *testing.T) {
	n := network(t, verbstest.Options{Adapters: 2, Patience: 10 * time.Millisecond})
	var said lines
	ends := linked(t, n, heard(&said), 2, 1)
	settle(t, ends, preferred(2))
	done := make(chan error)
	go func() { done <- talkAll(ends, 1, 400) }()
	n.Cut(0, 1)
	settle(t, ends, only(byTCP))
	require.NoError(t, <-done)
	require.Contains(t, said.String(), "has broken, and tcp takes over with")
	from := ends[0][0].link.State().From
	require.NotContains(t, from, "fake")
	require.Error(t, ends[0][0].link.State().Detour)
	n.CutPort(0, 1, 1)
	n.Heal(0, 1)
	hasten(ends)
	settle(t, ends, only(0))
	require.NoError(t, ends[0][0].link.State().Detour)
	n.HealPort(0, 1, 1)
	hasten(ends)
	settle(t, ends, preferred(2))
	require.NoError(t, talkAll(ends, 2, 50))
}

// TestPortFatal has one of two adapters fail for ever.
func TestPortFatal(t *testing.T) {
	n := network(t, verbstest.Options{Adapters: 2, Patience: 10 * time.Millisecond})
	var said lines
	ends := linked(t, n, heard(&said), 3)
	settle(t, ends, preferred(2))
	done := make(chan error)
	go func() { done <- talkAll(ends, 1, 400) }()
	n.Fatal(1, 0)
	settle(t, ends, only(1))
	require.NoError(t, <-done)
	before := carried(n, 0, 2)
	require.NoError(t, talkAll(ends, 2, 50))
	require.GreaterOrEqual(t, carried(n, 0, 2)[1]-before[1], 3*50)
	x := ends[0][0]
	x.link, _ = joined(t, x.f, ends[0][1].f, 2)
	require.Contains(t, said.String(), "WARN rdma: a path to")
}

// TestPortsDiffer has two ports meet one, and others that they do not get along with.
func TestPortsDiffer(t *testing.T) {
	one, err := ParseAdapters("=fake_1")
	require.NoError(t, err)
	n := network(t, verbstest.Options{Adapters: 2})
	var said lines
	var x, y end
	x.f, x.doorbell = process(t, n.Host(0), heard(&said))
	y.f, y.doorbell = process(t, n.Host(1), func(o *Options) { o.Wishes.Adapters = one })
	x.link, y.link = joined(t, x.f, y.f, 3)
	settle(t, [][2]end{{x, y}}, only(0))
	require.NoError(t, talk(x, y, 3, 1, 30))
	require.Regexp(t, `INFO rdma: paths to 127\.0\.0\.1:\d+: 1 \(ports there: 1, here: 2\)`, said.String())
	require.Zero(t, n.Carried(0, 1, 1).Writes)
	require.Greater(t, n.Carried(1, 1, 1).Writes, 90)

	x.f, x.doorbell = process(t, differs{n.Host(0), 1}, heard(&said))
	x.link, y.link = joined(t, x.f, y.f, 3)
	settle(t, [][2]end{{x, y}}, only(0)) // the other one is not paired with any
	y.f, y.doorbell = process(t, n.Host(1), nil)
	x.link, y.link = joined(t, x.f, y.f, 3)
	settle(t, [][2]end{{x, y}}, only(0))
	require.Contains(t, said.String(), "INFO rdma: fake_1:1 does not reach 127.0.0.1:")
	require.Contains(t, said.String(), "one side is InfiniBand, the other one Ethernet")

	y.f, y.doorbell = process(t, differs{n.Host(1), 0}, func(o *Options) {
		o.Wishes.Adapters, _ = ParseAdapters("=fake_0")
	})
	x.link, y.link = joined(t, x.f, y.f, 1)
	require.NoError(t, talk(x, y, 1, 1, 30))
	require.False(t, x.up(y) || y.up(x))
	require.Contains(t, said.String(), "is reached by tcp: goccl: not supported: one side is InfiniBand")
}

// differs is a host one of whose adapters is InfiniBand.
type differs struct {
	verbs.Library
	adapter int
}

func (d differs) Devices() ([]verbs.Device, error) {
	all, err := d.Library.Devices()
	for i := range all {
		d.change(&all[i])
	}
	return all, err
}

func (d differs) Open(name string) (verbs.Context, error) {
	c, err := d.Library.Open(name)
	return differing{c, d}, err
}

func (d differs) change(device *verbs.Device) {
	if device.Name == fmt.Sprint("fake_", d.adapter) {
		for i := range device.Ports {
			device.Ports[i].Ethernet = false
		}
	}
}

type differing struct {
	verbs.Context
	of differs
}

func (d differing) Device() (verbs.Device, error) {
	device, err := d.Context.Device()
	d.of.change(&device)
	return device, err
}

// TestPortRefused has one of two adapters refuse what is needed of it: the other one is used.
func TestPortRefused(t *testing.T) {
	for _, c := range []struct {
		call string
		nth  int
		line string
	}{
		{"Open", 1, "WARN rdma: fake_0:1 cannot be used: goccl: system error: refused by the test"},
		{"NewPair", 1, "INFO rdma: fake_0:1 does not reach "},
		{"Register", 5, ":1 does not carry fragments of a link to "},
	} {
		t.Run(fmt.Sprint(c.call, " ", c.nth), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Adapters: 2, Patience: 10 * time.Millisecond})
			n.Refuse(0, c.call, c.nth, fault.New(fault.System, "refused by the test"))
			var said lines
			x, y := two(t, n, 2, heard(&said))
			require.NoError(t, talk(x, y, 2, 1, 50))
			require.Contains(t, said.String(), c.line)
			require.NotContains(t, said.String(), " tcp")
			switch c.call {
			case "Open":
				settle(t, [][2]end{{x, y}}, only(0))
			case "NewPair":
				settle(t, [][2]end{{x, y}}, preferred(2))
			default: // of the adapter that comes first, until its connection breaks
				refused := 0
				if strings.Contains(said.String(), "WARN rdma: fake_1") {
					refused = 1
				}
				settle(t, [][2]end{{x, y}}, only(1-refused))
				x.pairTo(y).path(refused).up.Load().fail(fault.New(fault.System, "broken by the test"))
				settle(t, [][2]end{{x, y}}, preferred(2))
			}
		})
	}
}

// TestPortsWrong hears what no peer may say of paths: RDMA with it ends, and tcp goes on.
func TestPortsWrong(t *testing.T) {
	for _, kind := range []string{sayOffer, sayVacate, sayVacated} {
		n := network(t, verbstest.Options{Adapters: 2})
		var said lines
		x, y := two(t, n, 1, heard(&said))
		p := x.pairTo(y)
		x.f.manager.call(func() {
			m := message{Kind: kind, Path: 3, Epoch: 1, To: x.link.(*link).base, Bytes: shortBytes, Channels: []int{1}}
			p.hear(&m, nil)
			m.Path, m.Epoch = 1, 2
			p.hear(&m, nil)
			require.True(t, p.works(), "paths and epochs that there are not mean nothing")
			m.Epoch = 1
			p.hear(&m, nil)
			require.False(t, p.works())
		})
		require.Contains(t, said.String(), "breaks the protocol")
		require.NoError(t, talk(x, y, 1, 1, 20))
	}
}

// TestPortsGather cuts ports again and again, one at a time, with an event or without, while
// fragments are sent in place.
func TestPortsGather(t *testing.T) {
	for seed := range seeds(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Seed: seed, Adapters: 2, Patience: 10 * time.Millisecond})
			ends := linked(t, n, nil, 2)
			send := inPlace(t, ends[0][0], ends[0][1], 2)
			done := make(chan error)
			go func() { done <- send(seed, 400) }()
			random := rand.New(rand.NewPCG(seed, 2))
			for {
				select {
				case err := <-done:
					require.NoError(t, err)
					hasten(ends)
					settle(t, ends, preferred(2))
					require.NoError(t, send(seed+100, 20))
					return
				case <-time.After(time.Duration(random.IntN(200)) * time.Millisecond):
				}
				host, adapter := random.IntN(2), random.IntN(2)
				if random.IntN(2) == 0 {
					n.SetPort(host, adapter, 1, false)
				} else {
					n.CutPort(host, adapter, 1)
				}
				time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
				n.SetPort(host, adapter, 1, true)
				n.HealPort(host, adapter, 1)
			}
		})
	}
}

// TestPortsGoodbye closes links right after their last fragments, while ports are cut: the peer
// takes all fragments before it learns of the goodbye.
func TestPortsGoodbye(t *testing.T) {
	n := network(t, verbstest.Options{Seed: 7, Adapters: 2, Patience: 5 * time.Millisecond})
	ends := linked(t, n, nil, 2)
	x, y := ends[0][0], ends[0][1]
	over, cut := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(cut)
		random := rand.New(rand.NewPCG(7, 2))
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(random.IntN(100)) * time.Millisecond):
			}
			adapter := random.IntN(2)
			n.CutPort(0, adapter, 1)
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			n.HealPort(0, adapter, 1)
		}
	}()
	random := rand.New(rand.NewPCG(7, 3))
	for i := range uint64(60) {
		fragments := random.IntN(60)
		sent, received := make(chan error), make(chan error)
		for c := range 2 {
			go func() { sent <- x.send(c, i, fragments) }()
			go func() { received <- y.receive(c, i, fragments) }()
		}
		require.NoError(t, errors.Join(<-sent, <-sent))
		require.NoError(t, x.link.Close())
		require.NoError(t, errors.Join(<-received, <-received))
		left := func() bool { return errors.Is(y.link.Err(), fault.PeerLeft) }
		require.NoError(t, y.await("no goodbye", left))
		require.NoError(t, y.link.Close())
		x.link, y.link = joined(t, x.f, y.f, 2)
	}
	close(over)
	<-cut
}

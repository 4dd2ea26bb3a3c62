package rdma

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
	"github.com/goccl/goccl/transport/tcp"
)

// lines collects what a fabric says.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(level string) func(format string, args ...any) {
	return func(format string, args ...any) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, level+" "+fmt.Sprintf(format, args...))
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// heard has a fabric talk to lines.
func heard(l *lines) func(*Options) {
	return func(o *Options) { o.Warn, o.Info = l.add("WARN"), l.add("INFO") }
}

// TestStatuses ends a write, and an arrival, with each status: fragments arrive all the same, and a
// warning says what has happened.
func TestStatuses(t *testing.T) {
	for status := verbs.LocalLength; status <= verbs.General; status++ {
		if testing.Short() && status%3 != 0 {
			continue
		}
		for what, name := range map[verbstest.What]string{verbstest.Writes: "write", verbstest.Arrivals: "arrival"} {
			t.Run(fmt.Sprintf("%v of a %s", status, name), func(t *testing.T) {
				t.Parallel()
				n := network(t, verbstest.Options{Seed: uint64(status), Patience: 20 * time.Millisecond})
				var said lines
				x, y := two(t, n, 2, heard(&said))
				n.Complete(0, what, 20, status)
				require.NoError(t, talk(x, y, 2, uint64(status), 100))
				warned := func() bool { return strings.Contains(said.String(), "WARN") }
				require.NoError(t, x.until("no warning", warned))
				if what == verbstest.Writes { // otherwise an event may have come first
					require.Contains(t, said.String(), status.String())
				}
				require.NoError(t, x.until("no connection", func() bool { return x.up(y) && y.up(x) }))
			})
		}
	}
}

// TestEvents raises each event, which ends what it is about, and nothing else.
func TestEvents(t *testing.T) {
	for kind := verbs.CompletionsFailed; kind <= verbs.GIDChange; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Seed: uint64(kind)})
			var said lines
			x, y := two(t, n, 1, heard(&said))
			way := x.pairTo(y).path(0).up.Load()
			n.Raise(0, 0, verbs.Event{Kind: kind, Port: 1, Pair: way.qp.Number()})
			require.NoError(t, talk(x, y, 1, 1, 50))
			switch kind {
			case verbs.CompletionsFailed, verbs.ReceivesFailed, verbs.DeviceFatal, verbs.PairFatal, verbs.PairRequest,
				verbs.PairAccess, verbs.PortError, verbs.GIDChange, verbs.LIDChange:
				require.NoError(t, x.until("no warning", func() bool {
					return strings.Contains(said.String(), "WARN") && strings.Contains(said.String(), kind.String())
				}))
			default:
				require.NoError(t, x.until("no line", func() bool {
					return strings.Contains(said.String(), kind.String())
				}))
				require.NotContains(t, said.String(), "WARN")
			}
			require.NoError(t, talk(x, y, 1, 2, 50))
		})
	}
}

// TestRefused makes each call fail that a fabric makes: New fails, or fragments go by tcp and a
// line says why.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		call   string
		nth    int
		refuse bool // New
	}{
		{"Devices", 1, true}, {"Open", 1, false}, {"Device", 1, false}, {"NewCompletions", 1, false},
		{"NewReceives", 1, false}, {"Receives.Post", 1, false}, {"Register", 1, false}, {"Register", 2, false},
		{"Register", 3, false}, {"Register", 4, false}, {"NewPair", 1, false}, {"Connect", 1, false},
		{"Pair.Post", 1, false}, {"Pair.Post", 5, false}, {"Receives.Post", 2, false}, {"Arm", 1, false},
		{"Poll", 50, false}, {"Take", 1, false}, {"Event", 1, false},
	} {
		t.Run(fmt.Sprint(c.call, " ", c.nth), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Patience: 20 * time.Millisecond})
			var said lines
			n.Refuse(0, c.call, c.nth, fault.New(fault.System, "refused by the test"))
			if c.refuse {
				doorbell := park.NewDoorbell()
				base, err := tcp.New(tcp.Options{Doorbell: doorbell, Interfaces: "lo"})
				require.NoError(t, err)
				defer base.Close()
				_, err = New(Options{TCP: base, Library: n.Host(0), Doorbell: doorbell})
				require.ErrorContains(t, err, "refused by the test")
				return
			}
			begun := time.Now()
			x, y := two(t, n, 2, heard(&said))
			require.NoError(t, talk(x, y, 2, 1, 200))
			if c.call != "Event" {
				require.NoError(t, x.until("no line", func() bool {
					return strings.Contains(said.String(), "refused by the test")
				}), said.String())
			}
			require.Less(t, time.Since(begun), 10*time.Second)
		})
	}
}

// TestNoAdapters says that there is nothing to use.
func TestNoAdapters(t *testing.T) {
	n := network(t, verbstest.Options{Adapters: -1})
	doorbell := park.NewDoorbell()
	base, err := tcp.New(tcp.Options{Doorbell: doorbell, Interfaces: "lo"})
	require.NoError(t, err)
	defer base.Close()
	_, err = New(Options{TCP: base, Library: n.Host(0), Doorbell: doorbell})
	require.True(t, errors.Is(err, fault.NotSupported), err)
	for _, wrong := range []func(*Options){
		func(o *Options) { o.TCP = nil }, func(o *Options) { o.Library = nil }, func(o *Options) { o.Doorbell = nil },
		func(o *Options) { o.Pool = -1 }, func(o *Options) { o.Pool = 1 << 40 }, func(o *Options) { o.Try = -1 },
		func(o *Options) { o.Timeout = 13 }, func(o *Options) { o.Retries = 7 }, func(o *Options) { o.Service = 16 },
	} {
		o := Options{TCP: base, Library: n.Host(0), Doorbell: doorbell}
		wrong(&o)
		_, err = New(o)
		require.True(t, errors.Is(err, fault.Invalid), err)
	}
}

// TestNotices loses notices, and has them come late and twice: nobody sleeps for good.
func TestNotices(t *testing.T) {
	for _, o := range []verbstest.Notices{{Late: 30 * time.Millisecond}, {Twice: true}, {Lost: 5}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{})
			n.Notices(0, o)
			n.Notices(1, o)
			x, y := two(t, n, 1, nil)
			require.NoError(t, talk(x, y, 1, 1, 60))
		})
	}
}

// TestKill ends a process: the other one learns of it from tcp, after what has arrived.
func TestKill(t *testing.T) {
	n := network(t, verbstest.Options{Patience: 20 * time.Millisecond})
	x, y := two(t, n, 1, nil)
	require.NoError(t, talk(x, y, 1, 1, 20))
	ch := x.link.Channel(0)
	require.NoError(t, x.await("no credit", func() bool { return ch.Reserve(5) != nil }))
	ch.Commit(copy(ch.Reserve(5), "hello"), &transportMeta)
	require.NoError(t, y.await("nothing arrives", func() bool { _, _, ok := y.link.Channel(0).Peek(); return ok }))
	n.Kill(0)
	x.f.tcp.Close()
	require.NoError(t, y.await("nobody notices", func() bool { return y.link.Err() != nil }))
	b, _, ok := y.link.Channel(0).Peek()
	require.True(t, ok)
	require.Equal(t, "hello", string(b))
	y.link.Channel(0).Release()
	require.NoError(t, y.link.Close())
}

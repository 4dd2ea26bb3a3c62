package rdma

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/faulty"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
	"github.com/goccl/goccl/transport/tcp"
	"github.com/goccl/goccl/transport/transporttest"
)

// whole closes the tcp fabric behind a Fabric, too.
type whole struct {
	*Fabric
	tcp *tcp.Fabric
}

func (w whole) Close() error {
	err := w.Fabric.Close()
	w.tcp.Close()
	return err
}

// process returns a fabric that appears to others as a process of its own.
func process(t testing.TB, library verbs.Library, change func(*Options)) (whole, *park.Doorbell) {
	t.Helper()
	doorbell := park.NewDoorbell()
	base, err := tcp.New(tcp.Options{Doorbell: doorbell, Interfaces: "lo"})
	require.NoError(t, err)
	o := Options{TCP: base, Library: library, Doorbell: doorbell, Wishes: Wishes{GID: AnyGID},
		Warn: func(format string, args ...any) { t.Log("WARN " + fmt.Sprintf(format, args...)) },
		Info: func(format string, args ...any) { t.Log("INFO " + fmt.Sprintf(format, args...)) }}
	if change != nil {
		change(&o)
	}
	f, err := New(o)
	require.NoError(t, err)
	w := whole{f, base}
	t.Cleanup(func() { w.Close() })
	return w, doorbell
}

// network returns two hosts, and checks at the end that they were used rightly and nothing is left.
// It comes before the fabrics.
func network(t testing.TB, o verbstest.Options) *verbstest.Network {
	n := verbstest.New(o)
	t.Cleanup(func() {
		require.Empty(t, n.Leaks())
		n.Check(t)
		n.Close()
	})
	return n
}

func TestConformance(t *testing.T) {
	// The suite counts allocations while one thread runs, which does not let the network go on:
	// TestNoAllocations does it here.
	for _, c := range []struct {
		name   string
		short  bool // it runs with -short, too
		ports  int
		onUse  bool
		inline int // the limit of the adapters
	}{
		{"OnUse=false", true, 1, false, 220}, {"OnUse=true", false, 1, true, 96}, {"TwoPorts", true, 2, true, 64},
		{"NoInline", false, 1, true, -1},
	} {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			n := network(t, verbstest.Options{Delay: -1, Ports: c.ports, Inline: c.inline})
			transporttest.Run(t, func(t *testing.T) transporttest.Pair {
				a, doorbellA := process(t, n.Host(0), nil)
				b, doorbellB := process(t, n.Host(1), nil)
				return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
			}, transporttest.Options{Allocates: true, Gathers: true, OnUse: c.onUse})
		})
	}
}

// TestConformanceOfFaulty leads links that send in place through a network without faults.
func TestConformanceOfFaulty(t *testing.T) {
	n := network(t, verbstest.Options{Delay: -1})
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, doorbellA := process(t, n.Host(0), nil)
		b, doorbellB := process(t, n.Host(1), nil)
		way := faulty.NewNetwork()
		return transporttest.Pair{A: way.Wrap(a, doorbellA), B: way.Wrap(b, doorbellB),
			DoorbellA: doorbellA, DoorbellB: doorbellB}
	}, transporttest.Options{Allocates: true, Gathers: true, OnUse: true})
}

// joined returns the two ends of a link whose fragments go over a connection.
func joined(t testing.TB, a, b transport.Fabric, channels int) (x, y transport.Link) {
	t.Helper()
	number := made.Add(1)
	s := transport.Session{ID: [16]byte{byte(number), byte(number >> 8), 1}, Peer: 1, Channels: channels}
	there := make(chan transport.Link)
	go func() {
		s := s
		s.Rank, s.Peer = 1, 0
		y, err := b.Connect(t.Context(), a.Address(), s)
		if err != nil {
			t.Error(err)
		}
		there <- y
	}()
	x, err := a.Connect(t.Context(), b.Address(), s)
	require.NoError(t, err)
	return x, <-there
}

var made atomic.Int32

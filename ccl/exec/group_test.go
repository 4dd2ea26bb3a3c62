package exec_test

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/faulty"
	"github.com/goccl/goccl/transport/inproc"
	"github.com/goccl/goccl/transport/shm"
	"github.com/goccl/goccl/transport/tcp"
)

// member holds what a rank has of its own, as if it were a process.
type member struct {
	fabric   transport.Fabric
	doorbell *park.Doorbell
	pollers  []transport.Poller
	progress *exec.Progress
	links    []transport.Link
	window   *mem.Window // nil where ranks share no memory
	arena    *mem.Arena  // registered memory, nil for none
	control  *exec.Control
	keyed    exec.Planner // nil for no keyed calls
	trials   exec.Trials
	hears    sync.RWMutex                     // held while it handles a control message
	deaf     bool                             // it handles none
	on       *topo.Group                      // nil if that is unknown
	warn     func(format string, args ...any) // of operations that take longer than warnAfter
}

// warnAfter is of members that have a function for warnings.
const warnAfter = 50 * time.Millisecond

// makeUp describes a group, apart from its transport.
type makeUp struct {
	slot       int             // bytes of a window that an operation may use
	registered int             // bytes of registered memory of a process, where ranks share memory
	network    *faulty.Network // the links go through it; nil for none
	silent     []int           // ranks that do not answer control messages
}

func (m *makeUp) deaf(rank int) bool { return slices.Contains(m.silent, rank) }

// slotBytes is the number of bytes of a window that an operation may use: so few that most
// operations run in pieces.
const slotBytes = 4 << 10

// members returns n ranks that are joined by a transport. Ranks of inproc share the fabric.
func members(t testing.TB, name string, n int) []*member { return membersWith(t, name, n, slotBytes) }

// membersWith returns members whose operations may use slot bytes of a window.
func membersWith(t testing.TB, name string, n, slot int) []*member {
	return membersOf(t, name, n, makeUp{slot: slot})
}

func membersOf(t testing.TB, name string, n int, with makeUp) []*member {
	t.Helper()
	all := make([]*member, n)
	for rank := range all {
		m := &member{links: make([]transport.Link, n), control: new(exec.Control)}
		var err error
		if with.registered > 0 && (name == "shm" || name == "inproc" && rank == 0) {
			if m.arena, err = mem.NewArena(with.registered); err != nil {
				t.Skipf("memory cannot be registered here: %v", err)
			}
			t.Cleanup(func() { m.arena.Close() })
		}
		registered := func() *mem.Arena { return m.arena }
		switch name {
		case "inproc":
			if rank > 0 {
				m.fabric, m.doorbell, m.arena = all[0].fabric, all[0].doorbell, all[0].arena
				break
			}
			m.doorbell = park.NewDoorbell()
			fabric := inproc.New(m.doorbell)
			fabric.Arena = registered
			m.fabric = fabric
		case "shm":
			var fabric *shm.Fabric
			if fabric, err = shm.New(shm.Options{PoolBytes: 2 << 20, Arena: registered}); err != nil {
				t.Skipf("shared memory cannot be used here: %v", err)
			}
			m.fabric, m.doorbell = fabric, fabric.Doorbell()
		case "tcp":
			m.doorbell = park.NewDoorbell()
			m.fabric, err = tcp.New(tcp.Options{Doorbell: m.doorbell, Interfaces: "lo"})
			require.NoError(t, err)
		}
		if with.network != nil && (rank == 0 || name != "inproc") {
			m.fabric = with.network.Wrap(m.fabric, m.doorbell)
		}
		if p, ok := m.fabric.(transport.Poller); ok {
			m.pollers = []transport.Poller{p}
		}
		if m.fabric.SharesMemory() {
			m.window, err = mem.NewWindow(window.Bytes(with.slot), name == "shm")
			require.NoError(t, err)
		}
		m.progress = exec.NewProgress(m.doorbell)
		for _, p := range m.pollers {
			m.progress.Watch(p)
		}
		all[rank] = m
	}
	session := transport.Session{Channels: exec.LinkChannels(exec.PlanChannels)}
	rand.Read(session.ID[:])
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := make([]error, n*n)
	var group sync.WaitGroup
	for rank := range n {
		for peer := range n {
			if peer == rank {
				continue
			}
			group.Go(func() {
				s := session
				s.Rank, s.Peer, s.Window = rank, peer, all[rank].window
				if !with.deaf(rank) {
					s.Control = func(message []byte) {
						m := all[rank]
						m.hears.RLock()
						defer m.hears.RUnlock()
						if !m.deaf {
							m.control.Hear(peer, message)
						}
					}
				}
				all[rank].links[peer], errs[rank*n+peer] = all[rank].fabric.Connect(ctx, all[peer].fabric.Address(), s)
			})
		}
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, m := range all {
			m.progress.Close()
			m.fabric.Close()
		}
	})
	return all
}

// comm makes the Comm of a rank. Odd ranks store all results past their last-level cache.
func (m *member) comm(t testing.TB, rank int, planner exec.Planner) *exec.Comm {
	after := time.Duration(0)
	if m.warn != nil {
		after = warnAfter
	}
	c, err := exec.New(exec.Options{
		Name: "test", Control: m.control, Group: m.on, WarnAfter: after, Warn: m.warn,
		Rank: rank, Links: m.links, Pollers: m.pollers, Doorbell: m.doorbell, Planner: planner, Keyed: m.keyed,
		Trials: m.trials, Window: m.window, Arena: m.arena, Progress: m.progress, Timeout: time.Minute, Rotates: true,
		Cache: topo.Cache{Bytes: int64(rank % 2), Processors: []int{0}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// join makes a group in which every rank has its own planner.
func join(t testing.TB, name string, n int, planner func(rank int) exec.Planner) []*exec.Comm {
	t.Helper()
	all := make([]*exec.Comm, n)
	for rank, m := range members(t, name, n) {
		all[rank] = m.comm(t, rank, planner(rank))
	}
	return all
}

package pgbackend

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	_ "github.com/goccl/goccl/internal/scratch"
)

// forever is longer than any test takes.
const forever = time.Minute

// world makes a group of n ranks, all in this process.
func world(t *testing.T, n int, timeout time.Duration) []*Group {
	t.Helper()
	groups, addresses, ended := make([]*Group, n), make([][]byte, n), make(chan error, n)
	for rank := range groups {
		g, err := Open(Config{Name: t.Name(), Rank: rank, Size: n, Timeout: timeout, Shim: "test"})
		require.NoError(t, err)
		t.Cleanup(func() { g.Close() })
		groups[rank], addresses[rank] = g, g.Address()
	}
	for _, g := range groups {
		go func() { ended <- g.Join(addresses) }()
	}
	for range groups {
		require.NoError(t, <-ended)
	}
	return groups
}

// bytesOf returns one block of n bytes.
func bytesOf(n int) []ccl.Block {
	return []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(make([]byte, n))), Count: n}}
}

func start(t *testing.T, g *Group, call ccl.Call) *ccl.Work {
	t.Helper()
	call.Type = dtype.U8
	w, err := g.Start(&call)
	require.NoError(t, err)
	return w
}

func TestRefusedConfigurations(t *testing.T) {
	good := Config{Name: "g", Rank: 1, Size: 2, Timeout: time.Second, Shim: "test"}
	for name, c := range map[string]struct {
		change func(*Config)
		text   string
	}{
		"no timeout":       {func(c *Config) { c.Timeout = 0 }, "timeout 0s is not longer than zero"},
		"negative timeout": {func(c *Config) { c.Timeout = -time.Second }, "timeout -1s is not longer than zero"},
		"rank":             {func(c *Config) { c.Rank = 2 }, "rank 2"},
		"options":          {func(c *Config) { c.Options = "GOCCL_NONSENSE=1" }, "GOCCL_NONSENSE"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			_, err := Open(cfg)
			require.ErrorIs(t, err, fault.Invalid)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "open")
		})
	}
}

// TestOneDeadline has the store take nearly all of the timeout: what is left is for connecting.
func TestOneDeadline(t *testing.T) {
	var groups []*Group
	for rank := range 2 {
		g, err := Open(Config{Name: t.Name(), Rank: rank, Size: 2, Timeout: forever, Shim: "test"})
		require.NoError(t, err)
		t.Cleanup(func() { g.Close() })
		groups = append(groups, g)
	}
	groups[0].opened = time.Now().Add(50*time.Millisecond - forever)
	begun := time.Now()
	err := groups[0].Join([][]byte{groups[0].Address(), groups[1].Address()})
	require.ErrorIs(t, err, fault.Timeout)
	require.Less(t, time.Since(begun), forever/4)
}

func TestBeforeJoining(t *testing.T) {
	g, err := Open(Config{Name: "early", Rank: 0, Size: 2, Timeout: time.Second, Shim: "test"})
	require.NoError(t, err)
	call := ccl.Call{Coll: dtype.Barrier}
	_, started := g.Start(&call)
	for _, err := range []error{started, g.Run(&call), g.Abort("no"), g.SetTimeout(time.Second)} {
		require.ErrorContains(t, err, "the group has not joined yet")
	}
	require.ErrorContains(t, g.SetTimeout(0), "not longer than zero")
	require.Equal(t, State{Size: 2}, g.State())
	require.True(t, g.Drain(forever))
	require.NoError(t, g.Close())
}

func TestStates(t *testing.T) {
	barrier := ccl.Call{Coll: dtype.Barrier}
	all := func(groups []*Group) {
		t.Helper()
		for _, err := range each(t, groups, []int{0, 1}, func(g *Group) error { return g.Run(&barrier) }) {
			require.NoError(t, err)
		}
	}
	var groups []*Group
	for range 2 {
		g, err := Open(Config{Name: "changing", Timeout: forever, Shim: "test"})
		require.NoError(t, err)
		require.Empty(t, g.Address())
		groups = append(groups, g)
	}
	for _, err := range []error{groups[0].Run(&barrier), groups[0].Join(nil), groups[0].MonitoredBarrier(-1, false)} {
		require.ErrorIs(t, err, fault.Closed)
		require.ErrorContains(t, err, "has no members yet; call reconfigure first")
	}
	require.Equal(t, State{}, groups[0].State())
	for generation := range 3 {
		next := world(t, 2, forever)
		if generation == 1 { // the ranks swap places
			next[0], next[1] = next[1], next[0]
		}
		for i, g := range groups {
			require.NoError(t, g.Become(next[i]))
			require.Error(t, next[i].Run(&barrier), "it is the other one now")
		}
		require.Equal(t, State{Generation: uint64(generation) + 1, Joined: true, Rank: generation % 2, Size: 2},
			groups[0].State())
		all(groups)
		all(groups)
		require.EqualValues(t, 2, groups[1].State().Seq)
		for _, err := range each(t, groups, []int{0, 1}, func(g *Group) error {
			return g.MonitoredBarrier(forever, true)
		}) {
			require.NoError(t, err, "its messages are those of the first one again")
		}
	}
	unjoined, err := Open(Config{Name: "early", Size: 2, Timeout: forever, Shim: "test"})
	require.NoError(t, err)
	require.ErrorContains(t, groups[0].Become(unjoined), "have not joined yet")
	for range 2 {
		require.NoError(t, groups[0].Close())
	}
	require.Equal(t, State{Generation: 3, Seq: 2, Closed: true, Size: 2}, groups[0].State())
	require.True(t, groups[0].Drain(forever))
	_, started := groups[0].Start(&barrier)
	_, sparse := groups[0].StartSparse(coo([]int64{1}, nil))
	for _, err := range []error{
		groups[0].Run(&barrier), started, sparse,
		groups[0].MonitoredBarrier(-1, false), groups[0].Become(world(t, 2, forever)[0]),
	} {
		require.ErrorIs(t, err, fault.Closed)
		require.ErrorContains(t, err, "group changing, rank 0 of 2: ")
		require.ErrorContains(t, err, "was shut down (destroy_process_group) after seq 2 and cannot be used any more")
	}
	require.ErrorContains(t, started, "barrier: closed")
}

func TestJoinNamesWhoIsMissing(t *testing.T) {
	var groups [2]*Group
	for rank := range groups {
		var err error
		groups[rank], err = Open(Config{
			Name: "alone", Rank: rank, Size: 2, Timeout: 100 * time.Millisecond, Shim: "test",
		})
		require.NoError(t, err)
	}
	err := groups[0].Join([][]byte{groups[0].Address(), groups[1].Address()})
	require.ErrorIs(t, err, fault.Timeout)
	require.ErrorContains(t, err, "rank 1")
}

func TestTimeouts(t *testing.T) {
	groups := world(t, 2, forever)
	require.NoError(t, groups[0].SetTimeout(20*time.Millisecond))
	err := groups[0].Run(&ccl.Call{Coll: dtype.Barrier})
	require.ErrorIs(t, err, fault.Timeout)
}

func TestAbortEndsWhatIsPending(t *testing.T) {
	groups := world(t, 2, forever)
	w := start(t, groups[0], ccl.Call{Coll: dtype.AllReduce, In: bytesOf(8), Out: bytesOf(8)})
	require.NoError(t, groups[0].Abort("for a test"))
	require.ErrorIs(t, w.Wait(context.Background()), fault.Aborted)
	require.True(t, groups[0].Drain(forever), "nothing is waited for after an abort")
}

// Operations that rank 0 has started complete although it leaves before its peers call them.
func TestDrainWaitsForPeers(t *testing.T) {
	for _, n := range []int{2, 3} {
		groups := world(t, n, forever)
		all := ccl.Call{Coll: dtype.AllReduce, In: bytesOf(1 << 20), Out: bytesOf(1 << 20)}
		large := ccl.Call{Coll: dtype.Send, Root: 1, In: bytesOf(1 << 22)}
		works := []*ccl.Work{start(t, groups[0], all), start(t, groups[0], large), start(t, groups[0], all)}
		require.False(t, groups[0].Drain(10*time.Millisecond), "it does not wait")
		left := make(chan error)
		go func() {
			for !groups[0].Drain(forever) {
			}
			left <- groups[0].Close()
		}()
		var late []*ccl.Work
		for _, g := range groups[1:] {
			call := ccl.Call{Coll: dtype.AllReduce, In: bytesOf(1 << 20), Out: bytesOf(1 << 20)}
			late = append(late, start(t, g, call), start(t, g, call))
		}
		late = append(late, start(t, groups[1], ccl.Call{Coll: dtype.Recv, Out: bytesOf(1 << 22)}))
		for _, w := range late {
			require.NoError(t, w.Wait(context.Background()))
		}
		require.NoError(t, <-left)
		for _, w := range works {
			require.NoError(t, w.Wait(context.Background()))
		}
	}
}

func TestDrainEnds(t *testing.T) {
	all := ccl.Call{Coll: dtype.AllReduce, In: bytesOf(8), Out: bytesOf(8)}
	for name, c := range map[string]struct {
		timeout time.Duration
		call    ccl.Call
		peer    func(*Group) error
		within  time.Duration
		code    fault.Code
	}{
		"when the peer leaves": {forever, all, (*Group).Close, forever / 4, fault.PeerLeft},
		"when the peer aborts": {
			forever, all, func(g *Group) error { return g.Abort("no") }, forever / 4, fault.Aborted,
		},
		"at the timeout of the group": {500 * time.Millisecond, all, nil, forever / 4, fault.Timeout},
		"without what nobody will send": {
			forever, ccl.Call{Coll: dtype.Recv, Root: 1, Out: bytesOf(8)}, nil, forever / 4, fault.Closed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			groups := world(t, 2, c.timeout)
			w := start(t, groups[0], c.call)
			if c.peer != nil {
				require.NoError(t, c.peer(groups[1]))
			}
			begin := time.Now()
			for !groups[0].Drain(c.within) {
			}
			require.Less(t, time.Since(begin), c.within, "HANG")
			require.NoError(t, groups[0].Close())
			require.ErrorIs(t, w.Wait(context.Background()), c.code)
		})
	}
}

// A queue that moves is drained however long it takes: the timeout counts from the last end.
func TestDrainWhileTheQueueMoves(t *testing.T) {
	const steps, step = 8, 300 * time.Millisecond
	groups := world(t, 2, 700*time.Millisecond)
	all := ccl.Call{Coll: dtype.AllReduce, In: bytesOf(8), Out: bytesOf(8)}
	var works []*ccl.Work
	for range steps {
		works = append(works, start(t, groups[0], all))
	}
	go func() {
		for range steps {
			time.Sleep(step)
			groups[1].Run(&ccl.Call{Coll: dtype.AllReduce, Type: dtype.U8, In: bytesOf(8), Out: bytesOf(8)})
		}
	}()
	for !groups[0].Drain(50 * time.Millisecond) {
	}
	require.NoError(t, groups[0].Close())
	for _, w := range works {
		require.NoError(t, w.Wait(context.Background()))
	}
}

// The members of a smaller group have other ranks, its own timeout, and know where the others are.
func TestShrinkFrom(t *testing.T) {
	groups := world(t, 4, forever)
	smaller, ended := make([]*Group, 4), make(chan error, 4)
	stay := []int{0, 2, 3}
	for _, rank := range stay {
		smaller[rank] = groups[rank].Empty(forever / 2)
		require.ErrorIs(t, smaller[rank].Run(&ccl.Call{Coll: dtype.Barrier}), fault.Closed)
		go func() { ended <- smaller[rank].ShrinkFrom(groups[rank], ccl.Majority, []int{1}) }()
	}
	for range stay {
		require.NoError(t, <-ended)
	}
	for now, rank := range stay {
		g := smaller[rank]
		t.Cleanup(func() { g.Close() })
		require.Equal(t, stay, g.Members())
		require.Equal(t, fault.Label(t.Name(), now, 3), g.member())
		comm, err := g.joined()
		require.NoError(t, err)
		require.Equal(t, forever/2, comm.Timeout())
		where, err := g.Locate(0)
		require.NoError(t, err)
		require.NotEmpty(t, where)
		require.True(t, where[0].IsLoopback())
		_, err = g.Locate(3)
		require.ErrorIs(t, err, fault.Invalid)
		require.Empty(t, groups[rank].Members())
	}
	require.ErrorIs(t, smaller[0].ShrinkFrom(groups[0], ccl.Majority, nil), fault.Invalid) // it has members
	groups[0].Close()
	require.ErrorIs(t, groups[0].Empty(forever).ShrinkFrom(groups[0], ccl.Majority, nil), fault.Closed)
}

// Abort ends a ShrinkFrom that waits for others, with the name of the former group.
func TestAbortEndsShrinkFrom(t *testing.T) {
	groups := world(t, 2, forever)
	next, ended := groups[0].Empty(forever), make(chan error, 1)
	go func() { ended <- next.ShrinkFrom(groups[0], ccl.Majority, nil) }()
	for next.Abort("no") != nil { // until it runs
		time.Sleep(time.Millisecond)
	}
	err := <-ended
	require.ErrorIs(t, err, fault.Aborted)
	require.ErrorContains(t, err, fault.Label(t.Name(), 0, 2)+": shrink: aborted: no")
	require.NoError(t, next.Close())
}

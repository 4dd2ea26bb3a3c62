package exec_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/faulty"
)

// mourners is a group of which some ranks die. Those never make a call.
type mourners struct {
	t       *testing.T
	network *faulty.Network
	members []*member
	comms   []*exec.Comm
	rng     *rand.Rand
	dying   sync.WaitGroup
}

func newMourners(t *testing.T, transport string, ranks int, seed uint64, plan algo.Algorithm) *mourners {
	t.Helper()
	// Answers are late, and come in any order.
	network := faulty.NewNetwork(
		faulty.Fault{From: faulty.Any, To: faulty.Any, Channel: faulty.Control, OneIn: 2, Jitter: 2 * time.Millisecond})
	network.Seed = seed
	m := &mourners{t: t, network: network, rng: rand.New(rand.NewPCG(seed, 1))}
	m.members = membersOf(t, transport, ranks, makeUp{slot: slotBytes, network: network})
	gather, err := algo.Find(dtype.AllGather, "ring")
	require.NoError(t, err)
	for rank, each := range m.members {
		each.keyed = fixed{gather}
		m.comms = append(m.comms, each.comm(t, rank, fixed{plan}))
	}
	t.Cleanup(m.dying.Wait)
	return m
}

// die ends all that a rank does by itself, at one moment, as the death of its process does: what it
// says is of before.
func (m *member) die() {
	m.hears.Lock()
	defer m.hears.Unlock()
	m.deaf = true
}

// kill has a rank die: it answers no more, and its links break one after the other, within a span.
func (m *mourners) kill(dead int, after, span time.Duration) {
	m.dying.Add(1)
	cuts := map[int]time.Duration{}
	for rank := range m.comms {
		if rank != dead {
			cuts[rank] = time.Duration(m.rng.Int64N(int64(span)))
		}
	}
	time.AfterFunc(after, func() {
		defer m.dying.Done()
		m.members[dead].die()
		for rank, at := range cuts {
			m.dying.Add(1)
			time.AfterFunc(at, func() {
				defer m.dying.Done()
				m.network.Cut(rank, dead)
			})
		}
	})
}

// survivors runs a function on all ranks that live, and returns whom each has named.
func (m *mourners) survivors(dead []int, run func(rank int) error) map[int][]int {
	m.t.Helper()
	named := map[int][]int{}
	errs := make(chan []error, 1)
	go func() {
		errs <- eachRank(len(m.comms), func(rank int) error {
			if slices.Contains(dead, rank) {
				return nil
			}
			return run(rank)
		})
	}()
	select {
	case errs := <-errs:
		for rank, err := range errs {
			if slices.Contains(dead, rank) {
				continue
			}
			var f *fault.Error
			require.True(m.t, errors.As(err, &f), "rank %d: %v", rank, err)
			require.ErrorIs(m.t, err, fault.PeerLost, "rank %d", rank)
			named[rank] = f.Culprits()
			m.t.Log(err)
		}
	case <-time.After(hang):
		m.t.Fatal("HANG")
	}
	return named
}

// mourning has ways in which ranks wait for a dead one, directly or not.
var mourning = map[string]func(m *mourners, rank, dead int) error{
	"collective": func(m *mourners, rank, _ int) error {
		return m.comms[rank].Run(&exec.Call{Coll: dtype.Barrier})
	},
	"posted": func(m *mourners, rank, _ int) error {
		op, err := m.comms[rank].Post(&exec.Call{Coll: dtype.Barrier})
		if err != nil {
			return err
		}
		return op.Wait(nil)
	},
	"late": func(m *mourners, rank, _ int) error { // one rank comes when the others have failed
		if rank == 0 {
			time.Sleep(150 * time.Millisecond)
		}
		return m.comms[rank].Run(&exec.Call{Coll: dtype.Barrier})
	},
	"keyed": func(m *mourners, rank, _ int) error {
		op, err := m.comms[rank].PostKeyed(&exec.Call{Coll: dtype.Barrier}, exec.Key{ID: 77})
		if err != nil {
			return err
		}
		return op.Wait(nil)
	},
	"receive": func(m *mourners, rank, dead int) error {
		return m.comms[rank].Run(messageCall(dtype.Recv, make([]byte, 100), dead, 7))
	},
	"any source": func(m *mourners, rank, _ int) error {
		return m.comms[rank].Run(messageCall(dtype.Recv, make([]byte, 100), p2p.AnySource, 7))
	},
	"send": func(m *mourners, rank, dead int) error {
		return m.comms[rank].Run(messageCall(dtype.Send, make([]byte, 1<<20), dead, 7))
	},
	"mourn": func(m *mourners, rank, dead int) error {
		for m.comms[rank].Gone(dead) == nil {
			time.Sleep(time.Millisecond)
		}
		for {
			if err := m.comms[rank].Mourn(); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	},
}

// TestAllNameAllDeaths has two and three ranks die at once. Their links break much later, in any
// order.
func TestAllNameAllDeaths(t *testing.T) {
	const ranks = 6
	for how, call := range mourning {
		for _, transport := range []string{"inproc", "tcp"} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("%s/%s/%d", how, transport, seed), func(t *testing.T) {
					t.Parallel()
					plan, err := algo.Find(dtype.Barrier, "dissemination")
					require.NoError(t, err)
					m := newMourners(t, transport, ranks, seed, plan)
					dead := [][]int{{1, 3}, {1, 3, 5}, {2, 3}}[seed]
					for _, rank := range dead {
						m.kill(rank, 5*time.Millisecond, 60*time.Millisecond)
					}
					named := m.survivors(dead, func(rank int) error { return call(m, rank, dead[0]) })
					for rank, who := range named {
						require.Equal(t, dead, who, "rank %d", rank)
					}
				})
			}
		}
	}
}

// TestAllNameTheSame has ranks die one after the other, while the others settle who has. Whoever
// they name, it is the same for all.
func TestAllNameTheSame(t *testing.T) {
	const ranks = 7
	plans := []string{"dissemination", "tree"}
	for seed := range uint64(16) {
		for _, name := range plans {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				plan, err := algo.Find(dtype.Barrier, name)
				require.NoError(t, err)
				m := newMourners(t, "inproc", ranks, seed, plan)
				dead := m.rng.Perm(ranks)[:3]
				for i, rank := range dead {
					span := time.Duration(m.rng.Int64N(int64(30 * time.Millisecond)))
					m.kill(rank, time.Duration(i)*span, 10*time.Millisecond)
				}
				var first []int
				named := m.survivors(dead, func(rank int) error {
					return m.comms[rank].Run(&exec.Call{Coll: dtype.Barrier})
				})
				for rank, who := range named {
					if first == nil {
						first = who
					}
					require.Equal(t, first, who, "rank %d", rank)
					for _, one := range who {
						require.Contains(t, dead, one)
					}
				}
			})
		}
	}
}

// TestStoppedRankIsNotAwaited has one rank die, and another one answer nothing.
func TestStoppedRankIsNotAwaited(t *testing.T) {
	plan, err := algo.Find(dtype.Barrier, "dissemination")
	require.NoError(t, err)
	m := newMourners(t, "inproc", 4, 1, plan)
	m.members[3].die()
	m.kill(1, 0, time.Millisecond)
	begun := time.Now()
	for rank, who := range m.survivors([]int{1, 3}, func(rank int) error {
		return m.comms[rank].Run(&exec.Call{Coll: dtype.Barrier})
	}) {
		require.Equal(t, []int{1}, who, "rank %d", rank)
	}
	require.Less(t, time.Since(begun), 5*time.Second)
}

// TestMeanwhileAlsoLost has a rank hear whom the others have lost, and know of one more.
func TestMeanwhileAlsoLost(t *testing.T) {
	plan, err := algo.Find(dtype.Barrier, "dissemination")
	require.NoError(t, err)
	m := newMourners(t, "inproc", 4, 1, plan)
	report := fault.Peer(fault.PeerLost, 2, "it died").Report(1)
	m.members[1].links[0].Leave(report)
	m.network.Cut(0, 3)
	err = m.comms[0].Run(&exec.Call{Coll: dtype.Barrier})
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Equal(t, []int{2}, f.Culprits())
	for _, again := range []error{
		m.comms[0].Run(&exec.Call{Coll: dtype.Barrier}),
		m.comms[0].Run(messageCall(dtype.Recv, make([]byte, 100), 1, 7)),
	} {
		require.ErrorContains(t, again, "(rank 2)")
		require.ErrorContains(t, again, "; meanwhile also lost: rank 3")
	}
	var lost []int
	for _, each := range m.comms[0].Losses() {
		lost = append(lost, each.Peer)
	}
	require.Equal(t, []int{3}, lost)
}

// TestALostRankThatLeaves has one rank lost by another, and leave when it hears of that. To a third
// one it is lost as well, even where that one sees the end of its path to it first.
func TestALostRankThatLeaves(t *testing.T) {
	plan, err := algo.Find(dtype.Barrier, "dissemination")
	require.NoError(t, err)
	for what, call := range map[string]*exec.Call{"barrier": {Coll: dtype.Barrier},
		"recv": messageCall(dtype.Recv, make([]byte, 100), 2, 7)} {
		t.Run(what, func(t *testing.T) {
			m := newMourners(t, "inproc", 3, 1, plan)
			report := fault.Peer(fault.PeerLost, 2, "the path to it has broken").Report(1)
			exec.Hear(m.comms[0], 1, append([]byte("l\x01\x00\x00\x00"),
				fmt.Sprintf(`{"ranks":[2],"reports":[%s]}`, report)...))
			m.members[2].links[0].Leave(report)
			err := m.comms[0].Run(call)
			require.ErrorIs(t, err, fault.PeerLost)
			require.ErrorContains(t, err, "the path to it has broken")
			var f *fault.Error
			require.ErrorAs(t, err, &f)
			require.Equal(t, []int{2}, f.Culprits())
		})
	}
}

// TestMessageFailsAndTheGroupLives has one rank die. Messages with it fail, also later ones; others
// do not.
func TestMessageFailsAndTheGroupLives(t *testing.T) {
	plan, err := algo.Find(dtype.Barrier, "dissemination")
	require.NoError(t, err)
	m := newMourners(t, "inproc", 3, 1, plan)
	m.kill(2, 0, time.Millisecond)
	for range 3 {
		for rank, who := range m.survivors([]int{2}, func(rank int) error {
			return m.comms[rank].Run(messageCall(dtype.Recv, make([]byte, 100), 2, 7))
		}) {
			require.Equal(t, []int{2}, who, "rank %d", rank)
		}
		for _, err := range eachRank(2, func(rank int) error {
			coll := []dtype.Collective{dtype.Send, dtype.Recv}[rank]
			return m.comms[rank].Run(messageCall(coll, make([]byte, 100), 1-rank, 8))
		}) {
			require.NoError(t, err)
		}
	}
}

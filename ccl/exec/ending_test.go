package exec_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/faulty"
)

// endings are calls in which most ranks do not wait for the rank that is missing.
var endings = []struct {
	coll      dtype.Collective
	algorithm string
}{
	{dtype.AllReduce, "ring"},
	{dtype.AllReduce, "recursive_doubling"},
	{dtype.AllReduce, "double_binary_tree"},
	{dtype.Broadcast, "chain"},
	{dtype.Barrier, "dissemination"},
}

// TestEveryRankNamesTheCulprit has one of six ranks not come. Then all its links break, or one of
// them; or another rank aborts. All the others must fail with the same reason, and soon.
func TestEveryRankNamesTheCulprit(t *testing.T) {
	const ranks, missing = 6, 3
	for _, how := range []struct {
		name string
		code fault.Code
		who  int
		text string
		end  func(network *faulty.Network, comms []*exec.Comm)
	}{
		{"all links break", fault.PeerLost, missing, "cut by the test",
			func(network *faulty.Network, _ []*exec.Comm) {
				for rank := range ranks {
					if rank != missing {
						network.Cut(rank, missing)
					}
				}
			}},
		{"one link breaks", fault.PeerLost, missing, "rank 4 reports, in",
			func(network *faulty.Network, _ []*exec.Comm) { network.Cut(4, missing) }},
		{"a rank aborts", fault.Aborted, 1, "it has seen enough",
			func(_ *faulty.Network, comms []*exec.Comm) {
				comms[1].Abort(fault.New(fault.Aborted, "it has seen enough"))
			}},
	} {
		for _, call := range endings {
			for _, name := range []string{"inproc", "shm", "tcp"} {
				t.Run(how.name+"/"+call.coll.String()+"/"+call.algorithm+"/"+name, func(t *testing.T) {
					a, err := algo.Find(call.coll, call.algorithm)
					require.NoError(t, err)
					network := faulty.NewNetwork()
					comms := make([]*exec.Comm, ranks)
					for rank, m := range membersOf(t, name, ranks, makeUp{slot: slotBytes, network: network}) {
						comms[rank] = m.comm(t, rank, fixed{a})
					}
					begun, ended := make(chan bool, ranks), make(chan []error, 1)
					go func() {
						ended <- eachRank(ranks, func(rank int) error {
							if rank == missing {
								return nil
							}
							x := make([]float64, 100)
							c := exec.Call{Coll: call.coll, Type: dtype.F64, Op: dtype.Sum}
							if call.coll != dtype.Barrier {
								c.Out = []exec.Block{block(x)}
							}
							if call.coll == dtype.AllReduce || call.coll == dtype.Broadcast && rank == 0 {
								c.In = []exec.Block{block(x)}
							}
							op, err := comms[rank].Post(&c)
							begun <- true
							if err != nil {
								return err
							}
							return op.Wait(nil)
						})
					}()
					for range ranks - 1 {
						<-begun
					}
					how.end(network, comms)
					var errs []error
					select {
					case errs = <-ended:
					case <-time.After(hang):
						t.Fatal("HANG")
					}
					said := 0
					for rank, err := range errs {
						var f *fault.Error
						if rank == missing || err == nil && call.coll == dtype.Broadcast {
							continue // its part may be complete
						}
						require.True(t, errors.As(err, &f), "rank %d: %v", rank, err)
						require.ErrorIs(t, err, how.code, "rank %d", rank)
						if rank != how.who { // its own error says only what its caller knows
							require.Equal(t, []int{how.who}, f.Culprits(), "rank %d: %v", rank, err)
						}
						if rank != how.who && rank != 4 {
							require.ErrorContains(t, err, how.text, "rank %d", rank)
						}
						said++
						// Later calls fail alike.
						_, again := comms[rank].Post(&exec.Call{Coll: dtype.Barrier})
						require.ErrorIs(t, again, how.code)
					}
					require.Positive(t, said)
				})
			}
		}
	}
}

// TestNobodyIsWokenAfterTheEnd ends a Comm that was about to ring its peers' doorbells: with the
// last link to a process that has died its doorbell goes, too.
func TestNobodyIsWokenAfterTheEnd(t *testing.T) {
	comms := join(t, "shm", 2, func(int) exec.Planner { return fixed{} })
	require.False(t, exec.Unrung(comms[0], func() { comms[0].Abort(fault.New(fault.Aborted, "the test ends it")) }))
}

// TestAllDeathsAreNamed breaks the links of two ranks.
func TestAllDeathsAreNamed(t *testing.T) {
	const ranks = 5
	a, err := algo.Find(dtype.Barrier, "dissemination")
	require.NoError(t, err)
	network := faulty.NewNetwork()
	comms := make([]*exec.Comm, ranks)
	for rank, m := range membersOf(t, "inproc", ranks, makeUp{slot: slotBytes, network: network}) {
		comms[rank] = m.comm(t, rank, fixed{a})
	}
	for rank := range ranks {
		for _, dead := range []int{1, 3} {
			if rank != dead {
				network.Cut(rank, dead)
			}
		}
	}
	for rank, err := range eachRank(ranks, func(rank int) error {
		if rank == 1 || rank == 3 {
			return nil
		}
		return comms[rank].Run(&exec.Call{Coll: dtype.Barrier})
	}) {
		var f *fault.Error
		if rank == 1 || rank == 3 {
			continue
		}
		require.True(t, errors.As(err, &f), "rank %d: %v", rank, err)
		require.ErrorIs(t, err, fault.PeerLost)
		require.ElementsMatch(t, []int{1, 3}, f.Culprits(), "rank %d: %v", rank, err)
	}
}

// TestHowAProcessEndedIsTold has one rank see how another one ended, while the others see only that
// a connection broke: all are told.
func TestHowAProcessEndedIsTold(t *testing.T) {
	const ranks, lost, observer = 4, 3, 1
	members := membersOf(t, "inproc", ranks, makeUp{slot: slotBytes})
	a, err := algo.Find(dtype.Barrier, "dissemination")
	require.NoError(t, err)
	paths := make([]*mute, lost)
	comms := make([]*exec.Comm, ranks)
	for rank, m := range members {
		if rank != lost {
			link := m.links[lost]
			paths[rank] = &mute{Link: link, Lender: link.(transport.Lender)}
			m.links[lost] = paths[rank]
		}
		comms[rank] = m.comm(t, rank, fixed{a})
	}
	for rank, path := range paths {
		e := fault.Peer(fault.PeerLost, lost, "the connection broke")
		e.Cause = syscall.ECONNRESET
		if rank == observer {
			e = fault.Peer(fault.PeerLost, lost, "process 7 was killed by signal 9")
			e.Seen = true
		}
		path.err.Store(e)
	}
	for rank, err := range eachRank(lost, func(rank int) error {
		return comms[rank].Run(&exec.Call{Coll: dtype.Barrier, Timeout: hang})
	}) {
		var f *fault.Error
		require.ErrorAs(t, err, &f, "rank %d", rank)
		require.Equal(t, []int{lost}, f.Culprits(), "rank %d: %v", rank, err)
		require.ErrorContains(t, err, "process 7 was killed by signal 9", "rank %d", rank)
		require.Equal(t, 1, strings.Count(err.Error(), "signal 9"), "rank %d: %v", rank, err)
	}
}

// mute is a link whose peer ceases to answer.
type mute struct {
	transport.Link
	transport.Lender
	err    atomic.Pointer[fault.Error]
	silent atomic.Bool
}

func (l *mute) Err() error {
	if err := l.err.Load(); err != nil {
		return err
	}
	return l.Link.Err()
}

func (l *mute) State() transport.LinkState { return transport.LinkState{Silent: l.silent.Load()} }

// TestSilentHost has a host of two ranks cease to answer. The path to one of them is given up, by
// one rank of the other host. Both ranks there name both, but only if the other one is silent, too.
func TestSilentHost(t *testing.T) {
	const ranks, lost, other = 4, 2, 3
	for name, silent := range map[string]bool{"the whole host": true, "one path": false} {
		t.Run(name, func(t *testing.T) {
			members := membersOf(t, "inproc", ranks, makeUp{slot: slotBytes})
			a, err := algo.Find(dtype.Barrier, "dissemination")
			require.NoError(t, err)
			paths := map[int]*mute{}
			for _, peer := range []int{lost, other} {
				link := members[0].links[peer]
				paths[peer] = &mute{Link: link, Lender: link.(transport.Lender)}
				members[0].links[peer] = paths[peer]
			}
			comms := make([]*exec.Comm, ranks)
			for rank, m := range members {
				m.on = topo.OnHosts(0, 0, 1, 1)
				comms[rank] = m.comm(t, rank, fixed{a})
			}
			ended := make(chan []error, 1)
			go func() {
				ended <- eachRank(2, func(rank int) error {
					return comms[rank].Run(&exec.Call{Coll: dtype.Barrier, Timeout: hang})
				})
			}()
			time.Sleep(20 * time.Millisecond) // most of the times both wait by now
			begun := time.Now()
			paths[other].silent.Store(silent)
			paths[lost].err.Store(&fault.Error{Code: fault.PeerLost, Peer: lost, Text: "does not answer", Silent: true})
			members[0].doorbell.Ring()
			want := []int{lost}
			if silent {
				want = append(want, other)
			}
			for rank, err := range <-ended {
				var f *fault.Error
				require.ErrorIs(t, err, fault.PeerLost)
				require.ErrorAs(t, err, &f)
				require.Equal(t, want, f.Culprits(), "rank %d: %v", rank, err)
			}
			require.Less(t, time.Since(begun), 5*time.Second)
		})
	}
}

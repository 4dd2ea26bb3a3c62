package exec_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/mem"
)

// alone are calls of which each rank can end its own, if each is root, or sends and receives
// nothing.
var alone = []struct {
	coll  dtype.Collective
	plans []string
	roots bool // the ranks have different roots; otherwise different types
	count int
}{
	{dtype.Broadcast, []string{"flat", "binomial", "window"}, true, 100},
	{dtype.Scatter, []string{"linear", "binomial", "window"}, true, 100},
	{dtype.AllToAll, []string{"pairwise"}, false, 0},
}

// lonely runs a case on all ranks of each transport: every rank makes its call, and then next.
func lonely(t *testing.T, ranks int, next func(t *testing.T, c *exec.Comm, rank int) error) {
	for _, name := range []string{"inproc", "shm", "tcp"} {
		for _, test := range alone {
			for _, algorithm := range test.plans {
				if name == "tcp" && algorithm == "window" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%s", name, test.coll, algorithm), func(t *testing.T) {
					comms := join(t, name, ranks, plans{test.coll: catalogued(algorithm),
						dtype.AllGather: catalogued("ring"), dtype.Barrier: catalogued("dissemination")}.of)
					errs := eachRank(ranks, func(rank int) error {
						v := view{coll: test.coll, typ: dtype.F32, length: func(plan.Extent) int { return test.count }}
						if odd := rank == ranks-1; odd && test.roots {
							v.root = rank
						} else if odd {
							v.typ = dtype.I64
						}
						if err := comms[rank].Run(v.call(ranks, rank)); err != nil {
							return err
						}
						return next(t, comms[rank], rank)
					})
					for rank, err := range errs {
						require.ErrorIs(t, err, fault.Mismatch, "rank %d of %v", rank, errs)
						ours, theirs := "root 0", fmt.Sprintf("root %d", ranks-1)
						if !test.roots {
							ours, theirs = "f32", "i64"
						}
						require.ErrorContains(t, err, ours, "rank %d of %v", rank, errs)
						require.ErrorContains(t, err, theirs, "rank %d of %v", rank, errs)
						require.ErrorContains(t, err, test.coll.String()+" seq 1", "rank %d", rank)
					}
				})
			}
		}
	}
}

// TestAnEarlierDifferenceIsNamed has the ranks find in a barrier that the call before it was not
// the same.
func TestAnEarlierDifferenceIsNamed(t *testing.T) {
	lonely(t, 2, func(_ *testing.T, c *exec.Comm, _ int) error {
		return c.Run(&exec.Call{Coll: dtype.Barrier, Timeout: 20 * time.Second})
	})
}

// TestTheLastCallIsComparedAtTheEnd has the ranks leave the group after the call that was not the
// same, one of them late. Who is late finds what the other has told before, or is awaited.
func TestTheLastCallIsComparedAtTheEnd(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		lonely(t, ranks, func(_ *testing.T, c *exec.Comm, rank int) error {
			time.Sleep(time.Duration(rank) * 5 * time.Millisecond) // either order is right, and both are met
			require.True(t, c.Drain(10*time.Second, time.Second, time.Second, nil))
			return c.Close()
		})
	}
}

// TestTwoReasonsAtOnce has a rank find, in one look, that its last call differs from a peer's, and
// that this peer has left for that reason. It gives its window back once: the third rank reads it.
func TestTwoReasonsAtOnce(t *testing.T) {
	const ranks = 3
	comms := join(t, "inproc", ranks, plans{dtype.Broadcast: catalogued("window")}.of)
	each(t, ranks, func(rank int) error {
		v := view{coll: dtype.Broadcast, typ: dtype.F32, root: rank, length: func(plan.Extent) int { return 100 }}
		return comms[rank].Run(v.call(ranks, rank))
	})
	before := mem.InUse()
	first, second := exec.Calls(comms[0]), exec.Calls(comms[1])
	exec.Held(comms[0], func() {
		exec.Hear(comms[1], 0, first)
		exec.Hear(comms[0], 1, second)
		require.Eventually(t, func() bool { return comms[0].Gone(1) != nil }, 10*time.Second, time.Millisecond)
	})
	require.Eventually(t, func() bool { return comms[0].Check() != nil }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, comms[0].Failure(), fault.Mismatch)
	comms[1].Told()
	require.NoError(t, comms[1].Close(), "its caller knows")
	require.Equal(t, before, mem.InUse(), "a window that rank 2 reads is gone")
}

// TestTheOddRankPassesTheReportOn has one rank call all_reduce where the others reduce, and one of
// those go on and find the difference. When the odd one looks, that rank's next call and its end
// are there. It passes the report on, and the last one, which has heard nothing else, names the odd
// one.
func TestTheOddRankPassesTheReportOn(t *testing.T) {
	const ranks, first, odd, root = 3, 0, 1, 2
	for _, name := range []string{"inproc", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			comms := join(t, name, ranks, plans{dtype.Reduce: catalogued("binomial"),
				dtype.AllReduce: catalogued("naive"), dtype.Barrier: catalogued("dissemination")}.of)
			v := view{coll: dtype.Reduce, typ: dtype.F32, root: root, length: func(plan.Extent) int { return 300 }}
			reduces := func(rank int) error { return comms[rank].Run(v.call(ranks, rank)) }
			last := make(chan error, 1)
			go func() { last <- reduces(root) }()
			other := v
			other.coll, other.root = dtype.AllReduce, 0
			op, err := comms[odd].Post(other.call(ranks, odd)) // which sends to the first one
			require.NoError(t, err)
			defer op.Free()
			var found error
			exec.Held(comms[odd], func() {
				if found = reduces(first); found == nil {
					found = comms[first].Run(&exec.Call{Coll: dtype.Barrier, Timeout: 5 * time.Second})
				}
				for end := time.Now().Add(5 * time.Second); comms[odd].Gone(first) == nil && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
			})
			require.ErrorIs(t, found, fault.Mismatch)
			require.ErrorIs(t, op.Wait(nil), fault.Mismatch)
			f := &fault.Error{}
			require.ErrorAs(t, <-last, &f)
			require.ErrorIs(t, f, fault.Mismatch)
			require.Equal(t, []int{odd}, f.Culprits(), "%v", f)
		})
	}
}

// pair joins two ranks that broadcast from rank 0.
func pair(t *testing.T, with makeUp) (comms []*exec.Comm, broadcast func(rank int) error) {
	with.slot = slotBytes
	plan2 := plans{dtype.Broadcast: catalogued("flat"), dtype.Barrier: catalogued("dissemination")}
	for rank, m := range membersOf(t, "shm", 2, with) {
		comms = append(comms, m.comm(t, rank, plan2))
	}
	return comms, func(rank int) error {
		v := view{coll: dtype.Broadcast, typ: dtype.F32, length: func(plan.Extent) int { return 3 }}
		return comms[rank].Run(v.call(2, rank))
	}
}

func drains(t *testing.T, c *exec.Comm) {
	t.Helper()
	require.True(t, c.Drain(10*time.Second, time.Second, time.Second, nil))
	require.NoError(t, c.Close())
}

// TestAMeetingNeedsNoComparison leaves after a barrier, in which all calls were compared.
func TestAMeetingNeedsNoComparison(t *testing.T) {
	comms, broadcast := pair(t, makeUp{})
	each(t, 2, func(rank int) error {
		if err := broadcast(rank); err != nil {
			return err
		}
		return comms[rank].Run(&exec.Call{Coll: dtype.Barrier})
	})
	for _, c := range comms {
		require.False(t, exec.Unmet(c))
		drains(t, c)
	}
}

// TestNobodyWaitsLongForAComparison has a rank leave whose peer has left, or does not answer, or
// never makes the call.
func TestNobodyWaitsLongForAComparison(t *testing.T) {
	t.Run("left", func(t *testing.T) {
		comms, broadcast := pair(t, makeUp{})
		require.NoError(t, broadcast(0))
		require.NoError(t, comms[1].Close())
		drains(t, comms[0])
	})
	t.Run("silent", func(t *testing.T) {
		comms, broadcast := pair(t, makeUp{silent: []int{1}})
		require.NoError(t, broadcast(0))
		require.True(t, exec.Unmet(comms[0]))
		drains(t, comms[0])
	})
	t.Run("behind", func(t *testing.T) {
		comms, broadcast := pair(t, makeUp{})
		require.NoError(t, broadcast(0))
		drains(t, comms[0])
		require.NoError(t, broadcast(1)) // what rank 0 has sent is there
		drains(t, comms[1])
	})
}

// TestALateDifferenceEndsTheGroup has rank 1 call something else only after rank 0 has given up
// waiting for it and left: rank 1 finds the difference when it leaves.
func TestALateDifferenceEndsTheGroup(t *testing.T) {
	comms, broadcast := pair(t, makeUp{})
	require.NoError(t, broadcast(0))
	comms[0].ConfirmNow()
	v := view{coll: dtype.Broadcast, typ: dtype.F32, root: 1, length: func(plan.Extent) int { return 3 }}
	require.NoError(t, comms[1].Run(v.call(2, 1)))
	require.NoError(t, comms[0].Close())
	require.True(t, comms[1].Drain(10*time.Second, time.Second, time.Second, nil))
	require.ErrorIs(t, comms[1].Close(), fault.Mismatch)
	require.NoError(t, comms[1].Close(), "it is told once")
}

// TestCallsThatCannotBeAreIgnored hands a Comm messages that no peer of this version sends.
func TestCallsThatCannotBeAreIgnored(t *testing.T) {
	comms, broadcast := pair(t, makeUp{})
	for _, kind := range []byte{'c', 'd'} {
		for _, n := range []int{0, 1, 23, 25, 24 * 10, 4095} {
			exec.Hear(comms[0], 1, append([]byte{kind}, make([]byte, n)...))
		}
	}
	each(t, 2, broadcast)
	each(t, 2, func(rank int) error {
		return comms[rank].Run(&exec.Call{Coll: dtype.Barrier, Timeout: 10 * time.Second})
	})
}

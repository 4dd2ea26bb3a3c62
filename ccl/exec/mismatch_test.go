package exec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo/algotest"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// view is the call that one rank believes all ranks make.
type view struct {
	coll   dtype.Collective
	typ    dtype.Type
	op     dtype.Op
	root   int
	length func(e plan.Extent) int
}

func (v view) call(ranks, rank int) *exec.Call {
	call := &exec.Call{Coll: v.coll, Type: v.typ, Op: v.op, Root: v.root, Timeout: 20 * time.Second}
	spec := plan.Spec{Coll: v.coll, Ranks: ranks, Root: v.root}
	blocks := func(buf plan.Buffer, n int) (all []exec.Block) {
		for b := range n {
			all = append(all, blockOf(roomFor[float32](v.length(spec.Extent(1, rank, buf, b)))))
		}
		return all
	}
	call.In = blocks(plan.In, v.coll.InBlocks(ranks, rank, v.root))
	call.Out = blocks(plan.Out, v.coll.OutBlocks(ranks, rank, v.root))
	return call
}

// otherViews returns the views that the last rank may have instead of v.
func otherViews(v view, ranks int) map[string]view {
	other := map[string]view{}
	if v.coll == dtype.Barrier {
		v.coll, v.typ, v.length = dtype.Broadcast, dtype.F32, func(plan.Extent) int { return 5 }
		other["collective"] = v
		return other
	}
	change := func(name string, edit func(v *view)) {
		o := v
		edit(&o)
		other[name] = o
	}
	change("collective", func(o *view) { o.coll = dtype.Barrier })
	change("type", func(o *view) { o.typ = dtype.I32 })
	change("lengths", func(o *view) { o.length = func(e plan.Extent) int { return v.length(e) + 1 } })
	if v.coll.Reduces() {
		change("operator", func(o *view) { o.op = dtype.Max })
	}
	if v.coll.Rooted() {
		change("root", func(o *view) { o.root = ranks - 1 })
	}
	switch v.coll {
	case dtype.AllGather, dtype.ReduceScatter:
		// Only blocks of other ranks differ, and the sum of the lengths is the same.
		change("order of lengths", func(o *view) {
			o.length = func(e plan.Extent) int {
				if e.From < 2 {
					return v.length(e) + 1 - 2*e.From
				}
				return v.length(e)
			}
		})
		change("one length", func(o *view) {
			o.length = func(e plan.Extent) int {
				if e.From == 0 {
					return v.length(e) + 1
				}
				return v.length(e)
			}
		})
	case dtype.AllToAll:
		change("one length", func(o *view) {
			o.length = func(e plan.Extent) int {
				if e.From == 0 && e.To == ranks-1 {
					return v.length(e) + 1
				}
				return v.length(e)
			}
		})
		// Only rank 0 sees that, and the ranks between hear of it.
		change("one length sent", func(o *view) {
			o.length = func(e plan.Extent) int {
				if e.From == ranks-1 && e.To == 0 {
					return v.length(e) + 1
				}
				return v.length(e)
			}
		})
	}
	return other
}

// TestEveryAlgorithmNoticesAnotherCall has the last rank make another call than the others, over
// every algorithm. All ranks must get an error in this call or the next, no rank may wait for its
// timeout, and at least one must report that the calls differ. Each call is made over one of the
// transports, in a full run over all.
func TestEveryAlgorithmNoticesAnotherCall(t *testing.T) {
	const ranks = 3
	transports := []string{"inproc", "shm", "tcp"}
	all, _ := algotest.Subjects(ranks)
	for i, s := range all {
		for _, n := range []int{1, 5000} {
			mine := view{coll: s.Coll, typ: dtype.F32, op: dtype.Sum, length: func(plan.Extent) int { return n }}
			if s.Coll == dtype.Barrier && n > 1 {
				continue
			}
			for what, theirs := range otherViews(mine, ranks) {
				names := transports
				if testing.Short() || underRace {
					names = transports[:1]
				} else if !*everywhere {
					names = transports[(i+n+len(what))%3:][:1]
				}
				for _, name := range names {
					if name == "tcp" && s.Gets {
						continue
					}
					t.Run(fmt.Sprintf("%s/%v-%s/%s/%d", name, s.Coll, s.Name, strings.ReplaceAll(what, " ", "-"), n),
						func(t *testing.T) {
							// Only two ranks know the length of a block of all_to_all.
							named := s.Coll != dtype.AllToAll || what != "one length"
							noticed(t, name, ranks, &catalogue{all: all, now: i}, mine, theirs, named)
						})
				}
			}
		}
	}
}

// noticed has the last rank make another call. If named is set, all others must name it.
func noticed(t *testing.T, name string, ranks int, planner *catalogue, mine, theirs view, named bool) {
	comms := join(t, name, ranks, func(int) exec.Planner { return planner })
	begin := time.Now()
	errs := eachRank(ranks, func(rank int) error {
		v := mine
		if rank == ranks-1 {
			v = theirs
		}
		if err := comms[rank].Run(v.call(ranks, rank)); err != nil {
			return err
		}
		return comms[rank].Run(&exec.Call{Coll: dtype.Barrier, Timeout: 20 * time.Second})
	})
	require.Less(t, time.Since(begin), 20*time.Second, "%v", errs)
	compared := 0
	for rank, err := range errs {
		require.Error(t, err, "rank %d of %v", rank, errs)
		require.NotErrorIs(t, err, fault.Timeout, "rank %d of %v", rank, errs)
		if !errors.Is(err, fault.Mismatch) {
			continue
		}
		compared++
		var f *fault.Error
		if require.ErrorAs(t, err, &f); named && rank < ranks-1 { // the odd rank cannot know that it is
			require.Equal(t, []int{ranks - 1}, f.Culprits(), "rank %d of %v", rank, errs)
		}
	}
	require.NotZero(t, compared, "%v", errs)
}

// TestAPeerThatHasGoneOnSaysSo has rank 0 wait for a message or a word that its peer never sends.
// The peer has ended another gather, whose root is the third rank, and waits in the next operation;
// the third rank never comes. So only the peer can tell rank 0 that the calls differ.
func TestAPeerThatHasGoneOnSaysSo(t *testing.T) {
	for _, test := range []struct {
		coll       dtype.Collective
		peer       int // the rank for which rank 0 waits first
		transports []string
	}{
		{dtype.Gather, 1, []string{"inproc", "shm", "tcp"}},
		{dtype.AllGather, 2, []string{"inproc", "shm"}},
	} {
		for _, name := range test.transports {
			t.Run(name+"/"+test.coll.String(), func(t *testing.T) {
				comms := join(t, name, 3, plans{
					dtype.Gather: catalogued("linear"), dtype.AllGather: catalogued("window"),
					dtype.Barrier: catalogued("dissemination"),
				}.of)
				three := func(plan.Extent) int { return 3 }
				other, gone :=
					view{coll: dtype.Gather, typ: dtype.F32, root: 3 - test.peer, length: three}, comms[test.peer]
				errs := eachRank(2, func(rank int) error {
					if rank == 0 {
						return comms[0].Run(view{coll: test.coll, typ: dtype.F32, length: three}.call(3, 0))
					}
					if err := gone.Run(other.call(3, test.peer)); err != nil {
						return err
					}
					return gone.Run(&exec.Call{Coll: dtype.Barrier, Timeout: time.Second}) // the third rank never comes
				})
				require.ErrorIs(t, errs[0], fault.Mismatch)
				require.ErrorContains(t, errs[0], "this rank called "+test.coll.String()+" seq 1")
				require.ErrorContains(t, errs[0], fmt.Sprintf("rank %d called gather seq 1, f32, root %d", test.peer, other.root))
				require.Error(t, errs[1])
			})
		}
	}
}

// TestLateRanksAreAskedAndRight has another rank come late in each operation, so late that the
// others ask which operation it is in. All ranks have made the same call, and no rank may report a
// mismatch.
func TestLateRanksAreAskedAndRight(t *testing.T) {
	const ranks = 3
	all, _ := algotest.Subjects(ranks)
	var list []runner
	var at []int
	for i, s := range all {
		if s.Coll == dtype.Barrier {
			continue // it has no data to compare
		}
		tr := newTrial[float32](t, all, i, ranks, 0, 2003, s.Coll == dtype.AllToAll, dtype.F32, dtype.Sum, nil)
		list, at = append(list, &tr), append(at, i)
	}
	if testing.Short() || underRace {
		list, at = list[:len(list)/3], at[:len(at)/3]
	}
	for _, name := range []string{"inproc", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTrials(t, name, ranks, all, list, at, func(i, rank int) {
				if i%ranks == rank {
					time.Sleep(70 * time.Millisecond)
				}
			})
		})
	}
}

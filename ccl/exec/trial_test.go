package exec_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// several is a planner of several algorithms, of which Choose takes the first.
type several []algo.Algorithm

func (s several) Choose(coll dtype.Collective, _ int64) int {
	return slices.IndexFunc(s, func(a algo.Algorithm) bool { return a.Coll == coll })
}

func (s several) Make(algorithm int, spec plan.Spec) (*plan.Plan, error) {
	if algorithm == len(s) {
		return nil, fault.New(fault.NotSupported, "it has no plan")
	}
	return s[algorithm].Make(spec)
}

// script tries the algorithms 0 and 1 of a planner in turns, and a third one that has no plan, has
// the ranks agree before every fifth call, and ends with algorithm 1.
type script struct {
	rank, last int
	asked      int
	trials     int
	times      [2]uint64
	ran        []string // of each call that asked
	agreed     [][2]uint64
	took       int
}

func (s *script) Turn(_ dtype.Collective, _ int64, number uint64) exec.Turn {
	s.asked++
	switch {
	case number <= 3:
		return s.say("usual", exec.Turn{Until: 4})
	case s.trials == s.last:
		return s.say("won", exec.Turn{Algorithm: 1, Until: 1 << 63})
	case s.trials%5 == 4 && len(s.agreed) < (s.trials+1)/5:
		s.times = [2]uint64{uint64(100*s.rank + s.trials), uint64(1000 - s.rank)}
		return s.say("agree", exec.Turn{Agree: true})
	}
	s.trials++
	return s.say("trial", exec.Turn{Algorithm: []int{0, 1, 3}[s.trials%3], Trial: true})
}

func (s *script) say(what string, turn exec.Turn) exec.Turn {
	if len(s.ran) < cap(s.ran) {
		s.ran = append(s.ran, what)
	}
	return turn
}

func (s *script) Took(nanoseconds uint64) {
	if nanoseconds > 0 {
		s.took++
	}
}

func (s *script) Drop() bool { return s.trials%3 == 2 }

func (s *script) Times() []uint64 { return s.times[:] }

func (s *script) Agree(largest []uint64, _ uint64) { s.agreed = append(s.agreed, [2]uint64(largest)) }

func scripted(t testing.TB, transport string, ranks, last int, algorithms several) ([]*exec.Comm, []*script) {
	all, scripts := make([]*exec.Comm, ranks), make([]*script, ranks)
	for rank, m := range members(t, transport, ranks) {
		scripts[rank] = &script{rank: rank, last: last, ran: make([]string, 0, 100)}
		m.trials = scripts[rank]
		all[rank] = m.comm(t, rank, algorithms)
	}
	return all, scripts
}

// algorithmsFor returns algorithms of a collective, and one of all_gather for the times.
func algorithmsFor(t testing.TB, coll dtype.Collective, names ...string) (all several) {
	for _, name := range names {
		a, err := algo.Find(coll, name)
		require.NoError(t, err)
		all = append(all, a)
	}
	direct, err := algo.Find(dtype.AllGather, "direct")
	require.NoError(t, err)
	return append(all, direct)
}

// Calls that are trials, that exchange times first, and that are neither follow each other, however
// they are made, and keep their results and numbers. Times are the largest of all ranks.
func TestTrials(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, size := range []int{1, 5000, 1_000_000} {
			t.Run(fmt.Sprintf("%s/%d", transport, size), func(t *testing.T) {
				const ranks, calls = 3, 30
				all, scripts := scripted(t, transport, ranks, 12, algorithmsFor(t, dtype.AllReduce, "ring", "direct"))
				each(t, ranks, func(rank int) error {
					for i := range calls {
						in, out := make([]float32, size), make([]float32, size)
						in[size-1] = float32(rank + i)
						call, c := sumCall(in, out), all[rank]
						var err error
						if i%3 == 2 {
							var op *exec.Op
							if op, err = c.Post(call); err == nil {
								err = op.Wait(nil)
								op.Free()
							}
						} else {
							err = c.Run(call)
						}
						if err != nil || out[size-1] != float32(3*i+3) {
							return fmt.Errorf("call %d: %v, %w", i, out[size-1], err)
						}
					}
					return nil
				})
				for rank, s := range scripts {
					require.EqualValues(t, calls, all[rank].Seq())
					require.Equal(t, scripts[0].ran, s.ran)
					require.Equal(t, [][2]uint64{{204, 1000}, {209, 1000}}, s.agreed)
					require.Equal(t, 8, s.took, "those that were dropped took no time")
				}
				require.Equal(t, []string{"usual", "usual"}, scripts[0].ran[:2])
			})
		}
	}
}

// A rank that does not come to a call before which the ranks exchange times is named, and so is a
// different call.
func TestTrialsFail(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			names := algorithmsFor(t, dtype.AllReduce, "ring", "direct")
			all, _ := scripted(t, transport, 3, 12, names)
			x, y := make([]float32, 10), make([]float32, 20)
			errs := make([]error, 3)
			// The seventh call is the first with an exchange: after three usual ones and four
			// trials, one of which was dropped.
			const before = 6
			each(t, 3, func(rank int) error {
				for range before {
					if err := all[rank].Run(sumCall(x, make([]float32, 10))); err != nil {
						return err
					}
				}
				if rank < 2 {
					all[rank].SetTimeout(200 * time.Millisecond)
					errs[rank] = all[rank].Run(sumCall(x, make([]float32, 10)))
				}
				return nil
			})
			for rank := range 2 {
				require.ErrorIs(t, errs[rank], fault.Timeout)
				require.ErrorContains(t, errs[rank], "all_reduce of 10 x f32 (sum), seq 7: timeout (rank 2)")
			}

			all, _ = scripted(t, transport, 3, 12, names)
			each(t, 3, func(rank int) error {
				for range before {
					if err := all[rank].Run(sumCall(x, make([]float32, 10))); err != nil {
						return err
					}
				}
				if rank == 1 {
					errs[rank] = all[rank].Run(sumCall(y, make([]float32, 20)))
				} else {
					errs[rank] = all[rank].Run(sumCall(x, make([]float32, 10)))
				}
				return nil
			})
			for rank := range errs {
				require.ErrorIs(t, errs[rank], fault.Mismatch)
			}
		})
	}
}

// Programs that are kept are asked about at the call that Turn.Until names, and not before.
func TestUntilIsKept(t *testing.T) {
	all, scripts := scripted(t, "inproc", 2, 3, algorithmsFor(t, dtype.AllReduce, "ring", "direct"))
	each(t, 2, func(rank int) error {
		call := sumCall(make([]float32, 8), make([]float32, 8))
		for range 50 {
			if err := all[rank].Run(call); err != nil {
				return err
			}
		}
		return nil
	})
	// A program is kept when a call comes for the second time, and the winner's likewise.
	require.Equal(t, []string{"usual", "usual", "trial", "trial", "trial", "won", "won"}, scripts[0].ran)
	require.Equal(t, 7, scripts[0].asked)
}

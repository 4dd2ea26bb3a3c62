package exec_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
)

const stallTimeout = 200 * time.Millisecond

// stall has all ranks but some make a call that times out, and returns their errors.
func stall(t *testing.T, transport string, ranks int, absent []int, silent []int,
	coll dtype.Collective, algorithm string, prepare func(comms []*exec.Comm)) []error {
	t.Helper()
	a, err := algo.Find(coll, algorithm)
	require.NoError(t, err)
	comms := make([]*exec.Comm, ranks)
	for rank, m := range membersOf(t, transport, ranks, makeUp{slot: slotBytes, silent: silent}) {
		comms[rank] = m.comm(t, rank, fixed{a})
	}
	if prepare != nil {
		prepare(comms)
	}
	begun := time.Now()
	errs := eachRank(ranks, func(rank int) error {
		for _, each := range absent {
			if rank == each {
				return nil
			}
		}
		x := make([]float64, 100)
		c := exec.Call{Coll: coll, Type: dtype.F64, Op: dtype.Sum, Timeout: stallTimeout}
		if coll != dtype.Barrier {
			c.Out = []exec.Block{block(x)}
		}
		if coll == dtype.AllReduce || coll == dtype.Broadcast && rank == 0 {
			c.In = []exec.Block{block(x)}
		}
		return comms[rank].Run(&c)
	})
	require.Less(t, time.Since(begun), hang)
	return errs
}

// TestStallNamesTheRoot has some ranks not call: all others name them, and none that waits itself.
func TestStallNamesTheRoot(t *testing.T) {
	const ranks = 6
	for i, call := range endings {
		for j, transport := range []string{"inproc", "shm", "tcp"} {
			absent := [][]int{{3}, {1, 4}}[(i+j)%2]
			t.Run(fmt.Sprintf("%v/%s/%s/%v", call.coll, call.algorithm, transport, absent), func(t *testing.T) {
				errs := stall(t, transport, ranks, absent, nil, call.coll, call.algorithm, nil)
				failed := 0
				for rank, err := range errs {
					if err == nil {
						continue // its part may be complete
					}
					failed++
					var f *fault.Error
					require.True(t, errors.As(err, &f), "rank %d: %v", rank, err)
					require.ErrorIs(t, err, fault.Timeout, "rank %d", rank)
					require.Equal(t, absent, f.Culprits(), "rank %d: %v", rank, err)
					for _, each := range absent {
						require.ErrorContains(t, err, fmt.Sprintf("rank %d is in no call", each), "rank %d", rank)
					}
					require.ErrorContains(t, err, "waits for", "rank %d", rank)
				}
				require.Positive(t, failed)
			})
		}
	}
}

// TestReceivesThatNobodyWaitsFor do not make a rank one that waits.
func TestReceivesThatNobodyWaitsFor(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			buffer := make([]float64, 4)
			errs := stall(t, transport, 3, []int{2}, nil, dtype.AllReduce, "ring", func(comms []*exec.Comm) {
				op, err := comms[2].Post(&exec.Call{Coll: dtype.Recv, Type: dtype.F64, Root: 0,
					Out: []exec.Block{block(buffer)}})
				require.NoError(t, err)
				op.Free()
			})
			for _, rank := range []int{0, 1} {
				var f *fault.Error
				require.True(t, errors.As(errs[rank], &f), "rank %d: %v", rank, errs[rank])
				require.Equal(t, []int{2}, f.Culprits(), "rank %d: %v", rank, f)
			}
		})
	}
}

// TestAbortSaysWhoIsLate has a rank abort while it waits: it, and those that it tells, learn who
// has not come.
func TestAbortSaysWhoIsLate(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, silent := range [][]int{nil, {4}} {
			t.Run(fmt.Sprintf("%s/%v", transport, silent), func(t *testing.T) {
				a, err := algo.Find(dtype.AllReduce, "ring")
				require.NoError(t, err)
				const ranks, late = 6, 4
				comms := make([]*exec.Comm, ranks)
				for rank, m := range membersOf(t, transport, ranks, makeUp{slot: slotBytes, silent: silent}) {
					comms[rank] = m.comm(t, rank, fixed{a})
				}
				errs := eachRank(ranks, func(rank int) error {
					x := make([]float64, 100)
					c := exec.Call{Coll: dtype.AllReduce, Type: dtype.F64, Op: dtype.Sum,
						In: []exec.Block{block(x)}, Out: []exec.Block{block(x)}}
					switch rank {
					case late:
						return nil
					case 0:
						op, err := comms[0].Post(&c)
						require.NoError(t, err)
						defer op.Free()
						waited := make(chan error)
						go func() { waited <- op.Wait(nil) }()
						time.Sleep(20 * time.Millisecond) // the others may be in the call, or not yet
						begun := time.Now()
						comms[0].Abort(fault.New(fault.Aborted, "enough"))
						require.Less(t, time.Since(begun), 500*time.Millisecond)
						return <-waited
					}
					return comms[rank].Run(&c)
				})
				for rank, err := range errs {
					if rank == late {
						continue
					}
					require.ErrorIs(t, err, fault.Aborted, "rank %d", rank)
					require.ErrorContains(t, err, "enough, while all_reduce of 100 x f64", "rank %d", rank)
					how := "is in no call"
					if silent != nil {
						how = "does not answer"
					}
					require.ErrorContains(t, err, fmt.Sprintf("rank %d %s", late, how), "rank %d", rank)
				}
			})
		}
	}
}

// TestRankThatDoesNotAnswer is named when the time for answers is over.
func TestRankThatDoesNotAnswer(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			begun := time.Now()
			errs := stall(t, transport, 4, []int{1}, []int{1}, dtype.AllReduce, "ring", nil)
			require.Less(t, time.Since(begun), stallTimeout+2*time.Second)
			for rank, err := range errs {
				if rank == 1 {
					continue
				}
				var f *fault.Error
				require.True(t, errors.As(err, &f), "rank %d: %v", rank, err)
				require.Equal(t, []int{1}, f.Culprits(), "rank %d: %v", rank, err)
				require.ErrorContains(t, err, "rank 1 does not answer")
			}
		})
	}
}

// TestThoseThatHaveLeftCannotAnswer has all ranks but one send to a root, and fail in their next
// call before the root's own time is over: it does not take those that have left for stopped ones.
func TestThoseThatHaveLeftCannotAnswer(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			const ranks, root, absent = 5, 1, 4
			comms := join(t, transport, ranks, plans{dtype.Gather: catalogued("linear"),
				dtype.Barrier: catalogued("dissemination")}.of)
			errs := eachRank(ranks, func(rank int) error {
				if rank == absent {
					return nil
				}
				x := make([]float64, 4)
				c := exec.Call{Coll: dtype.Gather, Type: dtype.F64, Root: root, In: []exec.Block{block(x)},
					Timeout: 2 * stallTimeout}
				if rank == root {
					for range ranks {
						c.Out = append(c.Out, block(make([]float64, 4)))
					}
				}
				if err := comms[rank].Run(&c); err != nil {
					return err
				}
				return comms[rank].Run(&exec.Call{Coll: dtype.Barrier, Timeout: stallTimeout})
			})
			for rank, err := range errs {
				if rank == absent {
					continue
				}
				var f *fault.Error
				require.True(t, errors.As(err, &f), "rank %d: %v", rank, err)
				require.Equal(t, []int{absent}, f.Culprits(), "rank %d: %v", rank, err)
				require.ErrorContains(t, err, "rank 4 is in no call", "rank %d", rank)
			}
			require.ErrorContains(t, errs[root], "gather")
		})
	}
}

// TestChainOfReceives has each rank receive from the next one; the last one does nothing, or
// receives from the first, so that nobody is to blame.
func TestChainOfReceives(t *testing.T) {
	const ranks = 4
	for _, circle := range []bool{false, true} {
		for _, transport := range []string{"shm", "tcp"} {
			t.Run(fmt.Sprintf("%s/circle %v", transport, circle), func(t *testing.T) {
				comms := join(t, transport, ranks, func(int) exec.Planner { return fixed{} })
				errs := eachRank(ranks, func(rank int) error {
					if rank == ranks-1 && !circle {
						return nil
					}
					// The first one asks first: the others have not failed by then.
					wait := stallTimeout + time.Duration(rank)*3*time.Second
					x := make([]float64, 4)
					op, err := comms[rank].Post(&exec.Call{Coll: dtype.Recv, Type: dtype.F64, Root: (rank + 1) % ranks,
						Out: []exec.Block{block(x)}, Timeout: wait})
					if err != nil {
						return err
					}
					defer op.Free()
					if rank > 0 {
						return waitFor(comms[rank], op, time.Second)
					}
					return op.Wait(nil)
				})
				var f *fault.Error
				require.True(t, errors.As(errs[0], &f), "%v", errs[0])
				if circle {
					require.Equal(t, []int{0, 1, 2, 3}, f.Culprits(), "they all wait for each other")
					require.ErrorContains(t, f, "rank 1 waits in recv of 4 x f64 from rank 2, tag 0, seq 1; ")
					require.ErrorContains(t, f, "rank 0 waits for 1 (the message has not come), 1 for 2, 2 for 3, 3 for 0")
				} else {
					require.Equal(t, []int{ranks - 1}, f.Culprits(), "%v", f)
					require.ErrorContains(t, f, "rank 0 waits for 1 (the message has not come), 1 for 2, 2 for 3")
				}
			})
		}
	}
}

// waitFor waits for an operation for some time, whatever its end.
func waitFor(c *exec.Comm, op *exec.Op, d time.Duration) error {
	var cancel exec.Cancel
	timer := time.AfterFunc(d, func() {
		cancel.Fire()
		c.Nudge()
	})
	defer timer.Stop()
	op.Wait(&cancel)
	return nil
}

// TestWarning has a rank come late: the others are told whom they wait for, and go on.
func TestWarning(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			const ranks, late = 3, 1
			a, err := algo.Find(dtype.Barrier, "dissemination")
			require.NoError(t, err)
			var mu sync.Mutex
			warnings := make([][]string, ranks)
			comms := make([]*exec.Comm, ranks)
			warned := make(chan bool, 1)
			for rank, m := range membersOf(t, transport, ranks, makeUp{slot: slotBytes}) {
				m.warn = func(format string, args ...any) {
					mu.Lock()
					defer mu.Unlock()
					warnings[rank] = append(warnings[rank], fmt.Sprintf(format, args...))
					if len(warnings[0]) > 1 && len(warnings[2]) > 1 {
						select {
						case warned <- true:
						default:
						}
					}
				}
				comms[rank] = m.comm(t, rank, fixed{a})
			}
			for _, err := range eachRank(ranks, func(rank int) error {
				if rank == late {
					select {
					case <-warned:
					case <-time.After(hang):
						return errors.New("nobody was warned")
					}
				}
				return comms[rank].Run(&exec.Call{Coll: dtype.Barrier})
			}) {
				require.NoError(t, err)
			}
			for _, rank := range []int{0, 2} {
				for _, each := range warnings[rank] {
					require.True(t, strings.HasPrefix(each, "barrier, seq 1 has not ended for "), each)
					require.Contains(t, each, "rank 1 is in no call, and has not made one yet")
				}
			}
		})
	}
}

// TestStanding asks ranks what they are in, while others drive or nobody does.
func TestStanding(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			const ranks, late = 3, 2
			a, err := algo.Find(dtype.Barrier, "dissemination")
			require.NoError(t, err)
			comms := make([]*exec.Comm, ranks)
			for rank, m := range membersOf(t, transport, ranks, makeUp{slot: slotBytes}) {
				comms[rank] = m.comm(t, rank, fixed{a})
			}
			for _, c := range comms {
				require.Equal(t, exec.Standing{}, c.Standing(hang), "it is in no call")
			}
			barrier := &exec.Call{Coll: dtype.Barrier, Timeout: 2 * hang}
			posted, err := comms[1].Post(barrier) // nobody waits for it yet
			require.NoError(t, err)
			defer posted.Free()
			told := make(chan error, ranks)
			for rank, op := range []func() error{
				func() error { return comms[0].Run(barrier) },
				func() error { return nil },
				func() error {
					for _, rank := range []int{0, 1, 0} {
						var s exec.Standing
						for begun := time.Now(); len(s.Waits) == 0; s = comms[rank].Standing(time.Second) {
							if time.Since(begun) > hang {
								return fmt.Errorf("rank %d tells nothing", rank)
							}
						}
						if s.Op != "barrier, seq 1" || s.Seq != 1 || s.Busy {
							return fmt.Errorf("rank %d: %+v", rank, s)
						}
					}
					if s := comms[late].Standing(hang); s.Op != "" || s.Busy {
						return fmt.Errorf("rank %d: %+v", late, s)
					}
					return comms[late].Run(barrier)
				},
			} {
				go func() {
					if err := op(); err != nil {
						told <- fmt.Errorf("rank %d: %w", rank, err)
						return
					}
					told <- nil
				}()
			}
			for range ranks {
				require.NoError(t, <-told)
			}
			require.NoError(t, posted.Wait(nil))
			require.EqualValues(t, 1, comms[0].Standing(0).Seq)
		})
	}
}

// FuzzControl has a peer send any control message.
func FuzzControl(f *testing.F) {
	comms := join(f, "inproc", 2, func(int) exec.Planner { return fixed{} })
	f.Add([]byte("q\x01\x00\x00\x00"))
	f.Add([]byte("a\x01\x00\x00\x00" + `{"seq":3,"op":"barrier, seq 3","waits":[0],"busy":true,"idle":4}`))
	f.Add([]byte("a\x01\x00\x00\x00" + `{"waits":[-1]}`))
	for _, kind := range []string{"l", "L"} {
		f.Add([]byte(kind + "\x01\x00\x00\x00" + `{"ranks":[0],"reports":[{"code":4,"ranks":[0],"from":1,"text":"it died"}]}`))
		f.Add([]byte(kind + "\x01\x00\x00\x00" + `{"ranks":[1,0]}`))
	}
	f.Fuzz(func(t *testing.T, message []byte) { exec.Hear(comms[0], 1, message) })
}

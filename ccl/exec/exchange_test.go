package exec_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// hub is an all_to_all in which rank 0 forwards every block, so that it has chunks whose lengths it
// cannot know.
func hub(spec plan.Spec) *plan.Plan {
	n := spec.Ranks
	return &plan.Plan{Name: "hub", Spec: spec, Split: 1, Chans: 1, Needs: plan.Messages | plan.Counts,
		Program: func(rank int) plan.Program {
			own := plan.Step{Kind: plan.Copy, Dst: chunk(plan.Out, rank), Src: []plan.Ref{chunk(plan.In, rank)}}
			send := func(from plan.Ref, to int) plan.Step {
				return plan.Step{Kind: plan.Send, Src: []plan.Ref{from}, Peer: to}
			}
			recv := func(to plan.Ref, from int) plan.Step { return plan.Step{Kind: plan.Recv, Dst: to, Peer: from} }
			if rank != 0 {
				sends, recvs := []plan.Step{own}, []plan.Step(nil)
				for i := range n {
					if i != rank {
						sends, recvs =
							append(sends, send(chunk(plan.In, i), 0)), append(recvs, recv(chunk(plan.Out, i), 0))
					}
				}
				return plan.Program{Lanes: [][]plan.Step{sends, recvs}}
			}
			var tmp []plan.Extent
			recvs, sends := []plan.Step{own}, []plan.Step(nil)
			for from := 1; from < n; from++ {
				for to := range n {
					switch to {
					case from:
					case 0:
						recvs = append(recvs, recv(chunk(plan.Out, from), from))
					default:
						tmp = append(tmp, plan.Extent{From: from, To: to})
						recvs = append(recvs, recv(chunk(plan.Tmp, len(tmp)-1), from))
					}
				}
			}
			for to := 1; to < n; to++ {
				sends = append(sends, send(chunk(plan.In, to), to))
				for i, e := range tmp {
					if e.To == to {
						sends = append(sends, send(chunk(plan.Tmp, i), to))
					}
				}
			}
			if len(sends) > 0 {
				sends[0].After = []plan.Point{{Lane: 0, Step: len(recvs) - 1}}
			}
			return plan.Program{Tmp: tmp, Lanes: [][]plan.Step{recvs, sends}}
		}}
}

// lengthOf returns how many elements one rank sends to another: any number, including none.
func lengthOf(from, to, turn int) int { return (from*13 + to*7 + turn*3) % 5 * (1 + turn*turn*9) }

// TestCounts checks that ranks which forward blocks of other ranks learn the lengths first, anew in
// each operation.
func TestCounts(t *testing.T) {
	for _, name := range []string{"inproc", "shm", "tcp"} {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				all := join(t, name, n, plans{dtype.AllToAll: hub, dtype.AllGather: everybody}.of)
				each(t, n, func(rank int) error {
					for turn := range 30 {
						if err := exchangeOnce(all[rank], turn); err != nil {
							return fmt.Errorf("turn %d: %w", turn, err)
						}
					}
					return nil
				})
			})
		}
	}
}

func exchangeOnce(c *exec.Comm, turn int) error {
	call := exec.Call{Coll: dtype.AllToAll, Type: dtype.F32}
	value := func(from, to, i int) float32 { return float32(from*1000 + to*100 + i%97) }
	var outs [][]float32
	for peer := range c.Size() {
		in, out := make([]float32, lengthOf(c.Rank(), peer, turn)), make([]float32, lengthOf(peer, c.Rank(), turn))
		for i := range in {
			in[i] = value(c.Rank(), peer, i)
		}
		call.In, call.Out, outs = append(call.In, blockOf(in)), append(call.Out, blockOf(out)), append(outs, out)
	}
	if err := c.Run(&call); err != nil {
		return err
	}
	for peer, out := range outs {
		for i, x := range out {
			if x != value(peer, c.Rank(), i) {
				return fmt.Errorf("element %d of %d from rank %d is %v, want %v",
					i, len(out), peer, x, value(peer, c.Rank(), i))
			}
		}
	}
	return nil
}

// bySize is a planner that has an all_to_all exchange the lengths, and then chooses by the size.
type bySize struct {
	limit int64 // up to which the hub takes it
	seen  *[]int64
}

func (b bySize) Choose(coll dtype.Collective, bytes int64) int {
	if coll != dtype.AllToAll {
		return 0
	}
	*b.seen = append(*b.seen, bytes)
	if bytes <= b.limit {
		return 1
	}
	return 2
}

func (b bySize) Make(algorithm int, spec plan.Spec) (*plan.Plan, error) {
	switch algorithm {
	case 1:
		return hub(spec), nil
	case 2:
		a, err := algo.Find(dtype.AllToAll, "linear")
		if err != nil {
			return nil, err
		}
		return a.Make(spec)
	}
	return everybody(spec), nil
}

// TestCountsChoice checks that an all_to_all is chosen anew once the lengths are known, on all
// ranks alike, also for calls that come again and for those in place.
func TestCountsChoice(t *testing.T) {
	const n, limit = 3, 100
	var seen [n][]int64
	all := join(t, "inproc", n, func(rank int) exec.Planner { return bySize{limit, &seen[rank]} })
	each(t, n, func(rank int) error {
		for turn := range 20 {
			if err := exchangeOnce(all[rank], turn/4); err != nil {
				return fmt.Errorf("turn %d: %w", turn, err)
			}
		}
		for range 4 {
			for _, count := range []int{2, 50} {
				both := make([]float32, n*count)
				call := exec.Call{Coll: dtype.AllToAll, Type: dtype.F32}
				for peer := range n {
					block := both[peer*count : (peer+1)*count]
					block[0] = float32(rank*10 + peer)
					call.In, call.Out = append(call.In, blockOf(block)), append(call.Out, blockOf(block))
				}
				if err := all[rank].Run(&call); err != nil {
					return err
				}
				for peer := range n {
					if got := both[peer*count]; got != float32(peer*10+rank) {
						return fmt.Errorf("%d elements in place: got %v from rank %d", count, got, peer)
					}
				}
			}
		}
		return nil
	})
	require.Contains(t, seen[0], int64(24), "bytes of a rank")
	require.Contains(t, seen[0], int64(600))
	require.Equal(t, seen[0], seen[1])
	require.Equal(t, seen[0], seen[2])
}

// TestCountsMismatch checks that a rank which expects another length than its peer sends detects
// this before other data moves, and names both lengths.
func TestCountsMismatch(t *testing.T) {
	all := join(t, "inproc", 3, plans{dtype.AllToAll: hub, dtype.AllGather: everybody}.of)
	var x [10]float32
	var errs [3]error
	each(t, 3, func(rank int) error {
		call := exec.Call{Coll: dtype.AllToAll, Type: dtype.F32}
		for peer := range 3 {
			call.In = append(call.In, blockOf(x[:4]))
			n := 4
			if rank == 2 && peer == 1 {
				n = 5
			}
			call.Out = append(call.Out, blockOf(make([]float32, n)))
		}
		errs[rank] = all[rank].Run(&call)
		return nil
	})
	require.ErrorIs(t, errs[2], fault.Mismatch)
	require.ErrorContains(t, errs[2], "(rank 1): the block from it has 5 elements here, and rank 1 says 4")
	require.Error(t, errs[0])
	require.Error(t, errs[1])
}

// TestCountsLimit checks that every rank refuses lengths above the limit before it allocates memory
// for them, and that the group still works afterwards.
func TestCountsLimit(t *testing.T) {
	all := join(t, "inproc", 2, plans{dtype.AllToAll: hub, dtype.AllGather: everybody}.of)
	var x float32 // never read
	each(t, 2, func(rank int) error {
		var none, huge exec.Block
		huge = exec.Block{Ptr: unsafe.Pointer(&x), Count: exec.MaxCounted/4 + 1}
		call := exec.Call{Coll: dtype.AllToAll, Type: dtype.F32,
			In: []exec.Block{none, none}, Out: []exec.Block{none, none}}
		if rank == 0 {
			call.In[1] = huge
		} else {
			call.Out[0] = huge
		}
		err := all[rank].Run(&call)
		require.ErrorIs(t, err, fault.NotSupported)
		require.ErrorContains(t, err, "together they have 17179869188 bytes, and it may take 17179869184 at most")
		return exchangeOnce(all[rank], 3)
	})
}

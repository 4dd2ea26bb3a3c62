package exec_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// plans is a planner that has one plan for each collective.
type plans map[dtype.Collective]func(plan.Spec) *plan.Plan

func (p plans) Choose(dtype.Collective, int64) int { return 0 }

func (p plans) Make(_ int, spec plan.Spec) (*plan.Plan, error) {
	if p[spec.Coll] == nil {
		return nil, fmt.Errorf("no plan of %v", spec)
	}
	return p[spec.Coll](spec), nil
}

func (p plans) of(int) exec.Planner { return p }

func chunk(buf plan.Buffer, i int) plan.Ref { return plan.Ref{Buf: buf, At: i, N: 1} }

// packets is an all_reduce in one shot: every rank sends its vector into the windows of all others,
// and reduces in rank order.
func packets(spec plan.Spec) *plan.Plan {
	n := spec.Ranks
	return &plan.Plan{Name: "packets", Spec: spec, Split: 1, Flags: 1, Win: n, Needs: plan.Puts,
		Program: func(rank int) plan.Program {
			var lane []plan.Step
			for i := 1; i < n; i++ {
				lane = append(lane, plan.Step{Kind: plan.Packet, Dst: chunk(plan.Win, rank),
					Src: []plan.Ref{chunk(plan.In, 0)}, Peer: (rank + i) % n})
			}
			for i := 1; i < n; i++ {
				lane = append(lane, plan.Step{Kind: plan.Wait, Peer: (rank + i) % n})
			}
			lane = append(lane, sumOfWindow(rank, n, chunk(plan.Out, 0), chunk(plan.In, 0)))
			return plan.Program{Win: make([]plan.Extent, n), Lanes: [][]plan.Step{lane}}
		}}
}

// sumOfWindow reduces the first n chunks of a window, one from each rank, with own in place of the
// chunk of the rank itself.
func sumOfWindow(rank, n int, dst, own plan.Ref) plan.Step {
	sum := plan.Step{Kind: plan.Reduce, Dst: dst, Final: true}
	for r := range n {
		from := chunk(plan.Win, r)
		if r == rank {
			from = own
		}
		sum.Src = append(sum.Src, from)
	}
	return sum
}

// twoShot is an all_reduce in two shots: rank r reduces part r of all vectors, and sends the result
// into the windows of all others. It puts and signals in loops, in another lane than the one that
// waits.
func twoShot(spec plan.Spec) *plan.Plan {
	n := spec.Ranks
	around := plan.Stride{By: 1, Mod: n}
	return &plan.Plan{Name: "two-shot", Spec: spec, Split: n, Flags: 2, Win: 2 * n, Needs: plan.Puts,
		Program: func(rank int) plan.Program {
			next := (rank + 1) % n
			out := chunk(plan.Out, rank)
			puts := []plan.Step{
				{Kind: plan.Loop, Times: n - 1, Body: []plan.Step{
					{Kind: plan.Put, Dst: chunk(plan.Win, rank), Src: []plan.Ref{chunk(plan.In, next)}, Peer: next,
						By: &plan.Advance{Peer: around, Src: []plan.Stride{around}}},
					{Kind: plan.Signal, Peer: next, By: &plan.Advance{Peer: around}}}},
				{Kind: plan.Put, Dst: chunk(plan.Win, n+rank), Src: []plan.Ref{out}, Peer: next,
					After: []plan.Point{{Lane: 1, Step: n - 1}}},
				{Kind: plan.Signal, Peer: next, Chan: 1}}
			for i := 2; i < n; i++ {
				puts = append(puts, plan.Step{Kind: plan.Packet, Dst: chunk(plan.Win, n+rank), Src: []plan.Ref{out},
					Peer: (rank + i) % n, Chan: 1})
			}
			var waits []plan.Step
			for i := 1; i < n; i++ {
				waits = append(waits, plan.Step{Kind: plan.Wait, Peer: (rank + i) % n})
			}
			waits = append(waits, sumOfWindow(rank, n, out, chunk(plan.In, rank)))
			for i := 1; i < n; i++ {
				from := (rank + n - i) % n
				waits = append(waits, plan.Step{Kind: plan.Wait, Peer: from, Chan: 1},
					plan.Step{Kind: plan.Copy, Dst: chunk(plan.Out, from), Src: []plan.Ref{chunk(plan.Win, n+from)}})
			}
			var win []plan.Extent
			for range n {
				win = append(win, plan.Extent{Part: rank})
			}
			for r := range n {
				win = append(win, plan.Extent{Part: r})
			}
			return plan.Program{Win: win, Lanes: [][]plan.Step{puts, waits}}
		}}
}

// everybody is an all_gather in which each rank sends its block to every other rank.
func everybody(spec plan.Spec) *plan.Plan {
	n := spec.Ranks
	return &plan.Plan{Name: "everybody", Spec: spec, Split: 1, Chans: 1, Needs: plan.Messages, Alias: plan.InPlace,
		Program: func(rank int) plan.Program {
			sends := []plan.Step{{Kind: plan.Copy, Dst: chunk(plan.Out, rank), Src: []plan.Ref{chunk(plan.In, 0)}}}
			var recvs []plan.Step
			for i := 1; i < n; i++ {
				to, from := (rank+i)%n, (rank+n-i)%n
				sends = append(sends, plan.Step{Kind: plan.Send, Src: []plan.Ref{chunk(plan.In, 0)}, Peer: to})
				recvs = append(recvs, plan.Step{Kind: plan.Recv, Dst: chunk(plan.Out, from), Peer: from})
			}
			return plan.Program{Lanes: [][]plan.Step{sends, recvs}}
		}}
}

func vector(rank, n, turn int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32((rank*31+turn*7+i)%997 - 400)
	}
	return x
}

func blockOf[T any](x []T) exec.Block {
	return exec.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x)}
}

func sumCall(in, out []float32) *exec.Call {
	return &exec.Call{Coll: dtype.AllReduce, Type: dtype.F32,
		In: []exec.Block{blockOf(in)}, Out: []exec.Block{blockOf(out)}}
}

// TestWindows checks puts, signals, packets and waits on every transport, with several operations
// in flight over the same windows, and with other kinds of plans between them.
func TestWindows(t *testing.T) {
	for _, name := range []string{"inproc", "shm", "tcp"} {
		for _, ranks := range []int{2, 4} {
			algorithms := []func(plan.Spec) *plan.Plan{packets, twoShot}
			if name != "tcp" {
				algorithms = append(algorithms, catalogued("two_shot_window"))
			}
			for _, algorithm := range algorithms {
				p := algorithm(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
				t.Run(fmt.Sprintf("%s/%s/%d", name, p.Name, ranks), func(t *testing.T) {
					all := join(t, name, ranks, plans{dtype.AllReduce: algorithm, dtype.AllGather: everybody}.of)
					each(t, ranks, func(rank int) error { return windows(all[rank]) })
				})
			}
		}
	}
}

// catalogued returns a function that makes plans by an algorithm of the catalogue.
func catalogued(name string) func(plan.Spec) *plan.Plan {
	return func(spec plan.Spec) *plan.Plan {
		a, err := algo.Find(spec.Coll, name)
		if err != nil {
			panic(err)
		}
		p, err := a.Make(spec)
		if err != nil {
			panic(err)
		}
		return p
	}
}

func windows(c *exec.Comm) error {
	type started struct {
		op        *exec.Op
		got, want []float32
	}
	var open []started
	turns := 40
	if testing.Short() {
		turns = 15
	}
	for turn := range turns {
		n := []int{0, 1, 7, 1000, 70_001}[turn%5]
		want := make([]float32, n)
		for r := range c.Size() {
			for i, v := range vector(r, n, turn) {
				want[i] += v
			}
		}
		got := make([]float32, n)
		op, err := c.Post(sumCall(vector(c.Rank(), n, turn), got))
		if err != nil {
			return err
		}
		open = append(open, started{op, got, want})
		if turn%7 == 3 {
			mine, blocks := vector(c.Rank(), 5, turn), make([]float32, 5*c.Size())
			call := exec.Call{Coll: dtype.AllGather, Type: dtype.F32, In: []exec.Block{blockOf(mine)}}
			for r := range c.Size() {
				call.Out = append(call.Out, blockOf(blocks[5*r:5*r+5]))
			}
			if err := c.Run(&call); err != nil {
				return err
			}
		}
	}
	for turn, s := range open {
		if err := s.op.Wait(nil); err != nil {
			return err
		}
		s.op.Free()
		for i := range s.want {
			if s.got[i] != s.want[i] {
				return fmt.Errorf("turn %d: element %d of %d is %v, want %v",
					turn, i, len(s.want), s.got[i], s.want[i])
			}
		}
	}
	return nil
}

// TestWaitFails checks how a rank fails that waits for a signal. At the deadline, and when the peer
// leaves, the error names the peer that did not give the signal. An abort and another call of the
// peer end the wait, too.
func TestWaitFails(t *testing.T) {
	for _, name := range []string{"inproc", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			planner := plans{dtype.AllReduce: packets, dtype.AllGather: everybody}.of
			call := func(rank int) *exec.Call { return sumCall(vector(rank, 9, 0), make([]float32, 9)) }
			t.Run("deadline", func(t *testing.T) {
				all := join(t, name, 3, planner)
				late := call(0)
				late.Timeout = 50 * time.Millisecond
				op, err := all[1].Post(call(1))
				require.NoError(t, err)
				defer op.Free()
				err = all[0].Run(late)
				require.ErrorIs(t, err, fault.Timeout)
				require.ErrorContains(t, err, "rank 2 is in no call, and has not made one yet; rank 0 waits for 2")
			})
			t.Run("leaves", func(t *testing.T) {
				all := join(t, name, 2, planner)
				op, err := all[0].Post(call(0))
				require.NoError(t, err)
				defer op.Free()
				require.NoError(t, all[1].Close())
				err = op.Wait(nil)
				require.ErrorIs(t, err, fault.PeerLeft)
				require.ErrorContains(t, err, "rank 1")
			})
			t.Run("abort", func(t *testing.T) {
				all := join(t, name, 2, planner)
				op, err := all[0].Post(call(0))
				require.NoError(t, err)
				defer op.Free()
				all[0].Abort(fault.New(fault.Aborted, "enough"))
				require.ErrorIs(t, op.Wait(nil), fault.Aborted)
			})
			t.Run("other call", func(t *testing.T) {
				all := join(t, name, 2, planner)
				var ops [2]*exec.Op
				var err error
				ops[0], err = all[0].Post(call(0))
				require.NoError(t, err)
				var mine, out [2]float32
				ops[1], err = all[1].Post(&exec.Call{
					Coll: dtype.AllGather, Type: dtype.F32,
					In: []exec.Block{blockOf(mine[:1])}, Out: []exec.Block{blockOf(out[:1]), blockOf(out[1:])},
				})
				require.NoError(t, err)
				// The rank that checks first finds the mismatch, and leaves the group.
				begun := time.Now()
				first, second := ops[0].Wait(nil), ops[1].Wait(nil)
				require.Less(t, time.Since(begun), 30*time.Second)
				require.Error(t, first)
				require.Error(t, second)
				require.True(t, errors.Is(first, fault.Mismatch) || errors.Is(second, fault.Mismatch),
					"%v; %v", first, second)
			})
		})
	}
}

// TestForeignFrames checks that a peer which sends invalid frames is named. No such frame may write
// a byte outside the window.
func TestForeignFrames(t *testing.T) {
	frame := func(data int, offset uint64, flag, what uint8, chunk uint64) []byte {
		x := make([]byte, data+16)
		binary.LittleEndian.PutUint64(x[data:], offset&(1<<48-1)|uint64(flag)<<48|uint64(what)<<56)
		binary.LittleEndian.PutUint64(x[data+8:], chunk)
		return x
	}
	for what, payload := range map[string][]byte{
		"no trailer":           make([]byte, 15),
		"nothing":              {},
		"no kind":              frame(8, 0, 0, 0, 1),
		"unknown kind":         frame(8, 0, 0, 7, 1),
		"signal with data":     frame(8, 0, 0, 2, 1),
		"data without bytes":   frame(0, 0, 0, 1, 1),
		"no such chunk":        frame(8, 0, 0, 1, 2),
		"chunk overflows":      frame(8, 0, 0, 1, 1<<63|1),
		"behind the chunk":     frame(8, 36, 0, 1, 1),
		"offset overflows":     frame(8, 1<<48-4, 0, 1, 1),
		"longer than it":       frame(44, 0, 0, 1, 1),
		"cuts an element":      frame(6, 0, 0, 1, 1),
		"between elements":     frame(4, 2, 0, 1, 1),
		"no such flag":         frame(0, 0, 1, 2, 0),
		"no such flag, packet": frame(8, 0, 255, 3, 1),
	} {
		t.Run(what, func(t *testing.T) {
			two := members(t, "inproc", 2)
			c := two[0].comm(t, 0, plans{dtype.AllReduce: packets})
			op, err := c.Post(sumCall(vector(0, 10, 0), make([]float32, 10)))
			require.NoError(t, err)
			defer op.Free()
			// The other end is not a Comm but this test. The first frame that arrives shows it what
			// the frames of this call carry.
			ch := two[1].links[0].Channel(exec.WindowChannel)
			var m transport.Meta
			for ok := false; !ok; {
				_, m, ok = ch.Peek()
			}
			if what != "no trailer" && what != "nothing" && payload[len(payload)-9]&1 == 0 {
				m[1] &^= 1<<48 - 1 // the Meta of a signal has 0 bytes
			}
			if what == "no such chunk" || what == "chunk overflows" {
				m[1] &^= 1<<48 - 1
			}
			copy(ch.Reserve(len(payload)), payload)
			ch.Commit(len(payload), &m)
			err = op.Wait(nil)
			f := &fault.Error{}
			require.ErrorAs(t, err, &f)
			require.Contains(t, []fault.Code{fault.Internal, fault.Mismatch}, f.Code)
			require.Equal(t, 1, f.Peer, "%v", err)
		})
	}
}

//go:build !race

package group_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/group"
)

// Whatever call that orders something is left out, the driver sees that: in calls that end, or in
// calls that are aborted before the caller's stream has come to them. A word that is not written
// does no harm if it is written again later: what waits for it waits longer. Slots of the last call
// are not used again, so its events of that kind are not needed.
//
// What is left out may make threads race, so the race detector is left out, too.
func TestEachOrderingCounts(t *testing.T) {
	eachCounts(t, []bool{false, true}, fewer(3), func(t *testing.T, lame, device cudatest.Options) []*rank {
		return worldOf(t, []cudatest.Options{lame, device}, ccl.GroupOptions{CudaBuffSize: 256 << 10}, 4*lameApart)
	})
}

// Over windows the host moves nothing: it only looks how far the device is. That the rest of a
// piece comes after its offer follows from what the peers wait for, too, in most plans: not in
// those that overwrite in place what was offered.
func TestWindowsEachOrderingCounts(t *testing.T) {
	eachCounts(t, []bool{false}, fewer(3), func(t *testing.T, lame, _ cudatest.Options) []*rank {
		return machine(t, 2, lame, overWindows, 4*lameApart)
	})
}

// Where ranks lend their buffers, too. A place that is not told has the peers read what is in the
// window.
func TestLendEachOrderingCounts(t *testing.T) {
	eachCounts(t, []bool{false}, fewer(3), func(t *testing.T, lame, _ cudatest.Options) []*rank {
		return lenders(t, 2, lame, overWindows, 4*lameApart, all(2))
	})
}

// Each flag of a kernel that interprets short calls counts as well, and so does each wait for
// packets.
func TestInterpretedEachOrderingCounts(t *testing.T) {
	for _, count := range []int{9_000, 200} { // the shorter ones are made in packets
		calls := fewer(2)
		calls.count = count
		eachCounts(t, []bool{false}, calls, func(t *testing.T, lame, _ cudatest.Options) []*rank {
			return machine(t, 2, lame, interpreted, 4*lameApart)
		})
	}
}

// eachCounts leaves out the ordering calls of a driver, one at a time: those by streams, those by
// the host.
func eachCounts(t *testing.T, byHosts []bool, calls lameCalls, world lameWorld) {
	for _, byHost := range byHosts {
		whole := lameSequence(t, -1, byHost, false, calls, world)
		require.Empty(t, whole.found)
		require.Greater(t, whole.total, 20)
		for n := calls.every / 2; n < whole.total; n += calls.every {
			var left cudatest.Ordering
			caught := false
			for try := 0; try < calls.tries && !caught; try++ {
				caught, left = catches(t, n, byHost, whole, calls, world)
			}
			require.True(t, caught, "ordering call %d of %d may be left out: %s", n, whole.total, left)
		}
	}
}

// catches reports whether the driver sees that an ordering call was left out, or whether that does
// no harm.
func catches(t *testing.T, n int, byHost bool, whole lame, calls lameCalls, world lameWorld) (bool, cudatest.Ordering) {
	result := lameSequence(t, n, byHost, false, calls, world)
	const offered = group.OfferedOfTwo
	harmless := result.left.Kind == cudatest.WriteWord || result.left.Kind == cudatest.Store ||
		result.left.Kind == cudatest.RecordEvent && n >= whole.last && n < whole.total-1 ||
		strings.Contains(result.left.Text, "windows_offer.go") ||
		strings.Contains(result.left.Text, fmt.Sprintf(" bytes %d..%d, at", offered, offered+8)) ||
		strings.Contains(result.left.Text, "rails_return.go")
	place := result.left.Kind == cudatest.WriteWord && result.ended && !result.right // the results tell
	if len(result.found) > 0 || harmless && result.right || place {
		return true, result.left
	}
	result = lameSequence(t, n, byHost, true, calls, world)
	return len(result.found) > 0, result.left
}

// lameCalls are calls of so many elements a block, one after the other, of which every so many-th
// ordering call is left out.
type lameCalls struct {
	colls []dtype.Collective
	count int
	every int
	tries int // at most, until it shows: more than one if messages of other hosts may be early or late
}

// fewer are calls of some pieces, by different plans, of which every nth ordering call is left out;
// in a full run each, in a short one half as many.
func fewer(every int) lameCalls {
	switch {
	case *full:
		every = 1
	case testing.Short():
		every *= 2
	}
	return lameCalls{[]dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.AllReduce}, 90_000, every, 1}
}

// lameWorld makes the ranks, of which the first ones have the lame device.
type lameWorld func(t *testing.T, lame, device cudatest.Options) []*rank

// lameApart is the distance between the buffers of the calls.
const lameApart = 360 << 10

// lame is what came of a sequence of calls with an ordering call left out.
type lame struct {
	total int               // ordering calls
	last  int               // those before the last of the calls
	left  cudatest.Ordering // the one that was left out
	ended bool              // the calls of a rank have
	right bool              // the results are
	found []cudatest.Report // in an aborted sequence: of the stream of the caller
}

// lameSequence makes calls with one ordering call of rank 0's device left out, and fetches the
// results. It counts the ordering calls of streams only, or those by the host.
func lameSequence(t *testing.T, leaveOut int, byHost, abort bool, calls lameCalls, world lameWorld) (l lame) {
	t.Run("", func(t *testing.T) { l = lameRun(t, leaveOut, byHost, abort, calls, world) }) // so it is cleaned up
	return l
}

func lameRun(t *testing.T, leaveOut int, byHost, abort bool, calls lameCalls, world lameWorld) (l lame) {
	device := cudatest.Options{Delay: -1, Stuck: 100 * time.Millisecond}
	lame, joined := device, false
	lame.LeaveOut = func(o cudatest.Ordering) bool { // one at a time
		if !joined || byHost != (o.Kind == cudatest.Load || o.Kind == cudatest.Store) {
			return false
		}
		l.total++
		if l.total-1 != leaveOut {
			return false
		}
		l.left = o
		return true
	}
	const apart = lameApart
	w := world(t, lame, device)
	joined = true
	// Nothing begins before all is enqueued. Otherwise the driver would take what one thread of the
	// host has enqueued to come after what another one has done by then.
	n := len(w)
	first := firstOfEach(w)
	for _, r := range first {
		r.driver.Hold(r.stream)
	}
	data := make([][]byte, n)
	for i := range w {
		data[i] = random(uint64(i), apart)
	}
	var ops []*ccl.DeviceWork
	length := func(int) int { return calls.count }
	for k, coll := range calls.colls {
		for i, r := range w {
			r.put(t, k*apart, data[i])
		}
		if !byHost {
			l.last = l.total
		}
		for i, r := range w {
			b := buffersOf(coll, dtype.I32, n, i, 0, true, length, length)
			at := pointerOf(r.device.Ptr() + cuda.Ptr(k*apart))
			call := b.call(ccl.Call{Coll: coll, Type: dtype.I32, Op: ccl.Sum}, at, 4)
			op, err := r.Enqueue(call, r.stream)
			require.NoError(t, err)
			ops = append(ops, op)
		}
	}
	for i, op := range ops {
		if err := op.Join(w[i%n].stream); err != nil {
			l.found = append(l.found, cudatest.Report{Text: err.Error()}) // the contract refused
		}
		w[i%n].fetch(t, i/n*apart, apart)
		w[i%n].overwrite(t, i/n*apart, len(calls.colls)*apart, apart) // what the call may still read
		op.Free()
	}
	if abort {
		w[0].Abort(fault.New(fault.Aborted, "the test ends it"))
		w[0].driver.Settle() // streams that nothing holds go on
	}
	for _, r := range first {
		r.driver.Release(r.stream)
	}
	begin := time.Now()
	for i, r := range w {
		require.NoError(t, r.ctx.Enter(false))
		for len(reports(w)) == 0 || abort {
			done, err := r.stream.Done()
			require.NoError(t, err)
			if done {
				r.observe(0, len(calls.colls)*apart, false)
				l.right = l.right || !l.ended // of all ranks
				l.ended = true
				for k, coll := range calls.colls {
					b := buffersOf(coll, dtype.I32, n, i, 0, true, length, length)
					at := k*apart + b.atOut[0]
					want := expected(coll, data, b.atOut[0], 4*calls.count)
					l.right = l.right && bytes.Equal(r.host.Host()[at:at+len(want)], want)
				}
				break
			}
			require.Less(t, time.Since(begin), hang, "%v", l.left)
			time.Sleep(100 * time.Microsecond)
		}
		r.ctx.Leave()
	}
	for _, r := range first {
		r.driver.Settle()
	}
	caller := fmt.Sprintf("stream %d of", (w[0].stream.Native()-0x5000)/16)
	for _, report := range reports(w) {
		if !abort || report.Kind == cudatest.Race && strings.Contains(report.Text, caller) {
			l.found = append(l.found, report)
		}
	}
	for _, r := range w {
		r.DeviceGroup.Close()
	}
	return l
}

// expected returns what a call leaves at a place of its buffers, of which data are the bytes of
// each rank: the sum, or what rank 0 had.
func expected(coll dtype.Collective, data [][]byte, at, bytes int) []byte {
	sum := slices.Clone(data[0][at : at+bytes])
	if coll == dtype.Broadcast {
		return sum
	}
	for _, other := range data[1:] {
		for i := 0; i < bytes; i += 4 {
			a, b := binary.NativeEndian.Uint32(sum[i:]), binary.NativeEndian.Uint32(other[at+i:])
			binary.NativeEndian.PutUint32(sum[i:], a+b)
		}
	}
	return sum
}

// reports returns what the drivers of ranks have seen.
func reports(w []*rank) (all []cudatest.Report) {
	for _, r := range firstOfEach(w) {
		all = append(all, r.driver.Reports()...)
	}
	return all
}

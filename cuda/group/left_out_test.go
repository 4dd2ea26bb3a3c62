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
)

// Whatever call that orders something is left out, the driver sees that: in calls that end, or in
// calls that are aborted before the caller's stream has come to them. A word that is not written
// does no harm if it is written again later: what waits for it waits longer. Slots of the last call
// are not used again, so its events of that kind are not needed.
//
// What is left out may make threads race, so the race detector is left out, too.
func TestEachOrderingCounts(t *testing.T) {
	eachCounts(t, []bool{false, true}, func(lame, device cudatest.Options) []*rank {
		return worldOf(t, []cudatest.Options{lame, device}, ccl.Options{CudaBuffSize: 256 << 10}, 4*lameApart)
	})
}

// Over windows the host moves nothing: it only looks how far the device is. That the rest of a
// piece comes after its offer follows from what the peers wait for, too, in most plans: not in
// those that overwrite in place what was offered.
func TestWindowsEachOrderingCounts(t *testing.T) {
	eachCounts(t, []bool{false}, func(lame, _ cudatest.Options) []*rank {
		return machine(t, 2, lame, overWindows, 4*lameApart)
	})
}

// eachCounts leaves out the ordering calls of a driver, one at a time: those by streams, those by
// the host.
func eachCounts(t *testing.T, byHosts []bool, world func(lame, device cudatest.Options) []*rank) {
	for _, byHost := range byHosts {
		whole := lameSequence(t, -1, byHost, false, world)
		require.Empty(t, whole.found)
		require.Greater(t, whole.total, 20)
		for n := range whole.total {
			result := lameSequence(t, n, byHost, false, world)
			harmless := result.left.Kind == cudatest.WriteWord || result.left.Kind == cudatest.Store ||
				result.left.Kind == cudatest.RecordEvent && n >= whole.last && n < whole.total-1 ||
				strings.Contains(result.left.Text, "windows_offer.go")
			if len(result.found) == 0 && !(harmless && result.right) {
				result = lameSequence(t, n, byHost, true, world)
			}
			require.True(t, len(result.found) > 0 || harmless && result.right,
				"ordering call %d of %d may be left out: %s", n, whole.total, result.left)
		}
	}
}

// lameApart is the distance between the buffers of the calls.
const lameApart = 360 << 10

// lame is what came of a sequence of calls with an ordering call left out.
type lame struct {
	total int               // ordering calls
	last  int               // those before the last of the calls
	left  cudatest.Ordering // the one that was left out
	right bool              // the results are
	found []cudatest.Report // in an aborted sequence: of the stream of the caller
}

// lameSequence makes calls with one ordering call of rank 0's device left out, and fetches the
// results. It counts the ordering calls of streams only, or those by the host.
func lameSequence(t *testing.T, leaveOut int, byHost, abort bool,
	world func(lame, device cudatest.Options) []*rank) (l lame) {
	device := cudatest.Options{Delay: -1, Stuck: 100 * time.Millisecond}
	lame := device
	lame.LeaveOut = func(o cudatest.Ordering) bool { // one at a time
		if byHost != (o.Kind == cudatest.Load || o.Kind == cudatest.Store) {
			return false
		}
		l.total++
		if l.total-1 != leaveOut {
			return false
		}
		l.left = o
		return true
	}
	const count, apart = 90_000, lameApart // some pieces
	w := world(lame, device)
	// Nothing begins before all is enqueued. Otherwise the driver would take what one thread of the
	// host has enqueued to come after what another one has done by then.
	w[0].driver.Hold(w[0].stream)
	want, other := random(0, 4*count), random(1, 4*count)
	var ops []*ccl.DeviceWork
	length := func(int) int { return count }
	for k, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.AllReduce} {
		w[0].put(t, k*apart, want)
		w[1].put(t, k*apart, other)
		if !byHost {
			l.last = l.total
		}
		for i, r := range w {
			b := buffersOf(coll, dtype.I32, 2, i, 0, true, length, length)
			at := pointerOf(r.device.Ptr() + cuda.Ptr(k*apart))
			call := b.call(ccl.Call{Coll: coll, Type: dtype.I32, Op: ccl.Sum}, at, 4)
			op, err := r.Enqueue(call, r.stream)
			require.NoError(t, err)
			ops = append(ops, op)
		}
	}
	sum := slices.Clone(want)
	for i := 0; i < len(want); i += 4 {
		a, b := binary.NativeEndian.Uint32(want[i:]), binary.NativeEndian.Uint32(other[i:])
		binary.NativeEndian.PutUint32(sum[i:], a+b)
	}
	for i, op := range ops {
		if err := op.Join(w[i%2].stream); err != nil {
			l.found = append(l.found, cudatest.Report{Text: err.Error()}) // the contract refused
		}
		w[i%2].fetch(t, i/2*apart, 4*count)
		w[i%2].overwrite(t, i/2*apart, 3*apart, 4*count) // what the call may still read
		op.Free()
	}
	if abort {
		w[0].Abort(fault.New(fault.Aborted, "the test ends it"))
		w[0].driver.Settle() // streams that nothing holds go on
	}
	w[0].driver.Release(w[0].stream)
	begin := time.Now()
	for _, r := range w {
		require.NoError(t, r.ctx.Enter(false))
		for len(w[0].driver.Reports()) == 0 || abort {
			done, err := r.stream.Done()
			require.NoError(t, err)
			if done {
				r.observe(0, 2*apart+4*count, false)
				l.right = true
				for k, data := range [][]byte{sum, want, sum} {
					l.right = l.right && bytes.Equal(r.host.Host()[k*apart:k*apart+4*count], data)
				}
				break
			}
			require.Less(t, time.Since(begin), hang, "%v", l.left)
			time.Sleep(100 * time.Microsecond)
		}
		r.ctx.Leave()
	}
	w[0].driver.Settle()
	caller := fmt.Sprintf("stream %d of", (w[0].stream.Native()-0x5000)/16)
	for _, report := range w[0].driver.Reports() {
		if !abort || report.Kind == cudatest.Race && strings.Contains(report.Text, caller) {
			l.found = append(l.found, report)
		}
	}
	for _, r := range w {
		r.DeviceGroup.Close()
	}
	return l
}

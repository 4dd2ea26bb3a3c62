package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/cudatest"
)

// post enqueues a message of a batch.
func (r *rank) post(t testing.TB, coll dtype.Collective, peer, at, bytes int, batch uint32) *ccl.DeviceWork {
	t.Helper()
	call := r.message(coll, peer, at, bytes, 3)
	call.Batch = batch
	op, err := r.Enqueue(call, r.stream)
	require.NoError(t, err)
	return op
}

// joinAll joins ops and frees them.
func (r *rank) joinAll(t testing.TB, ops []*ccl.DeviceWork) {
	t.Helper()
	for _, op := range ops {
		require.NoError(t, op.Join(r.stream))
		op.Free()
	}
}

// fewQueues are numbers of hardware queues.
var fewQueues = []int{1, 2, 3, 8}

// All ranks of a ring receive before they send, in both directions, in a batch: none waits for
// another, however few queues there are, and however long the messages.
func TestBatchInRing(t *testing.T) {
	const room = 3 << 20
	for _, queues := range fewQueues {
		for ranks := 2; ranks <= 4; ranks++ {
			if testing.Short() && ranks != 3 {
				continue
			}
			t.Run(fmt.Sprint(queues, " queues, ", ranks, " ranks"), func(t *testing.T) {
				t.Parallel()
				devices := make([]cudatest.Options, ranks)
				for i := range devices {
					devices[i] = cudatest.Options{Delay: -1, Queues: queues, Seed: uint64(ranks*100 + i)}
				}
				w := worldOf(t, devices, small(), 4*room)
				for round, n := range []int{0, 1, 65_536, 262_145, room} {
					inRing(t, w, n, room, uint32(round+1))
				}
				end(t, w)
			})
		}
	}
}

// Two ranks exchange messages of more pieces than slots hold, each of which is as long as what the
// processor takes in (p2p.EagerWindow) before the receiver has room.
func TestBatchOfLongMessages(t *testing.T) {
	const room = 10 << 20
	device := cudatest.Options{Delay: -1, Queues: 1}
	w := worldOf(t, []cudatest.Options{device, device}, ccl.GroupOptions{CudaBuffSize: 8 << 20}, 2*room)
	var ops [2][]*ccl.DeviceWork
	for i, r := range w {
		r.put(t, 0, random(uint64(i), room))
		ops[i] = []*ccl.DeviceWork{r.post(t, dtype.Recv, 1-i, room, room, 2), r.post(t, dtype.Send, 1-i, 0, room, 2)}
		require.NoError(t, r.EndBatch(2))
	}
	for i, r := range w {
		r.joinAll(t, ops[i])
		r.fetch(t, room, room)
	}
	for i, r := range w {
		require.True(t, string(random(uint64(1-i), room)) == string(r.get(t, room, room)))
	}
	end(t, w)
}

// inRing has each rank receive from both neighbours and send to them, in a batch.
func inRing(t *testing.T, w []*rank, n, room int, batch uint32) {
	want := make([][2][]byte, len(w))
	ops := make([][]*ccl.DeviceWork, len(w))
	neighbours := func(i int) (next, last int) { return (i + 1) % len(w), (i + len(w) - 1) % len(w) }
	for i, r := range w {
		next, last := neighbours(i)
		for k := range want[i] {
			want[i][k] = random(uint64(batch)*100+uint64(10*i+k), n+1)[:n]
			r.put(t, k*room, want[i][k])
		}
		// Of two ranks, each sends first what the other receives first.
		ops[i] = []*ccl.DeviceWork{
			r.post(t, dtype.Recv, last, 2*room, n, batch), r.post(t, dtype.Recv, next, 3*room, n, batch),
			r.post(t, dtype.Send, next, 0, n, batch), r.post(t, dtype.Send, last, room, n, batch),
		}
		require.NoError(t, r.EndBatch(batch))
	}
	for i, r := range w {
		r.joinAll(t, ops[i])
		r.fetch(t, 2*room, n)
		r.fetch(t, 3*room, n)
	}
	for i, r := range w {
		next, last := neighbours(i)
		for at, from := range map[int]struct{ rank, message int }{2 * room: {last, 0}, 3 * room: {next, 1}} {
			got := r.get(t, at, n)
			same := string(want[from.rank][from.message]) == string(got)
			require.True(t, same, "%d bytes from rank %d to %d", n, from.rank, i)
		}
	}
}

// A batch may have messages to the own rank, and several of one pair, which keep their order.
func TestBatchToOneself(t *testing.T) {
	const n, several = 150_000, 4
	device := quick
	device.Queues = 1
	w := world(t, 2, device, small())
	for i, r := range w {
		var ops []*ccl.DeviceWork
		for k := range several {
			r.put(t, k*n, random(uint64(10*i+k), n))
			ops = append(ops, r.post(t, dtype.Recv, i, (several+k)*n, n, 9))
		}
		for k := range several {
			ops = append(ops, r.post(t, dtype.Send, i, k*n, n, 9))
		}
		require.NoError(t, r.EndBatch(9))
		r.joinAll(t, ops)
		for k := range several {
			r.fetch(t, (several+k)*n, n)
			require.Equal(t, random(uint64(10*i+k), n), append([]byte{}, r.get(t, (several+k)*n, n)...))
		}
	}
	end(t, w)
}

// What is held back goes into the streams when somebody joins a message or waits for it, makes
// another call, or closes the group. A message that is held back has not ended, and nothing waits
// for the end of the batch.
func TestBatchIsLeftOpen(t *testing.T) {
	const n = 100_000
	for name, goOn := range map[string]func(t *testing.T, r *rank, op *ccl.DeviceWork){
		"join": func(t *testing.T, r *rank, op *ccl.DeviceWork) { require.NoError(t, op.Join(r.stream)) },
		"wait": func(t *testing.T, r *rank, op *ccl.DeviceWork) {
			done, err := op.Wait(hang)
			require.True(t, done)
			require.NoError(t, err)
		},
		"another batch": func(t *testing.T, r *rank, op *ccl.DeviceWork) {
			r.joinAll(t, []*ccl.DeviceWork{
				r.post(t, dtype.Recv, 0, 1<<20, 9, 5), r.post(t, dtype.Send, 0, 2<<20, 9, 5)})
		},
		"no batch": func(t *testing.T, r *rank, op *ccl.DeviceWork) {
			require.NoError(t, r.issue(&ccl.Call{Coll: dtype.Barrier}))
		},
		"drain": func(t *testing.T, r *rank, op *ccl.DeviceWork) {
			require.NoError(t, r.EndBatch(7)) // another one
			done, err := op.Done()
			require.False(t, done)
			require.NoError(t, err)
			require.NoError(t, r.EndBatch(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			device := quick
			device.Queues = 1
			w := world(t, 1, device, small())
			r := w[0]
			r.put(t, 0, random(3, n))
			receive := r.post(t, dtype.Recv, 0, n, n, 4)
			receive.OnEnd(func() {})
			send := r.post(t, dtype.Send, 0, 0, n, 4)
			r.driver.Settle()
			done, err := send.Done()
			require.False(t, done)
			require.NoError(t, err)
			goOn(t, r, receive)
			for _, op := range []*ccl.DeviceWork{receive, send} {
				require.Eventually(t, func() bool {
					done, err := op.Done()
					require.NoError(t, err)
					return done
				}, hang, time.Millisecond)
			}
			r.joinAll(t, []*ccl.DeviceWork{receive, send})
			r.fetch(t, n, n)
			require.Equal(t, random(3, n), append([]byte{}, r.get(t, n, n)...))
			end(t, w)
		})
	}
}

// A group that fails, or is closed, with an open batch ends what is held back. Messages may still
// arrive that peers have sent before they learn of it.
func TestBatchEndsWithGroup(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed ", closed), func(t *testing.T) {
			device := quick
			device.Queues = 1
			w := world(t, 2, device, small())
			var ops []*ccl.DeviceWork
			for i, r := range w {
				ops = append(ops,
					r.post(t, dtype.Recv, 1-i, 0, 100_000, 4), r.post(t, dtype.Send, 1-i, 1<<20, 100_000, 4))
			}
			if closed {
				for _, r := range w {
					require.NoError(t, r.DeviceGroup.Close())
				}
			} else {
				w[0].Abort(fault.New(fault.Aborted, "enough"))
			}
			for i, op := range ops {
				done, err := op.Wait(hang)
				require.True(t, done)
				require.Equal(t, err, op.Join(w[i/2].stream))
				if !closed && i/2 == 0 {
					require.ErrorIs(t, err, fault.Aborted)
				}
				op.Free()
			}
			if !closed { // which has given the context back
				bury(t, w)
			}
		})
	}
}

// Where a call to the driver fails when a batch ends, EndBatch and the messages have the error, and
// the streams go on.
func TestBatchFails(t *testing.T) {
	for _, call := range []string{"cuMemcpyAsync", "cuStreamBatchMemOp", "cuEventRecord"} {
		t.Run(call, func(t *testing.T) {
			w := world(t, 2, cudatest.Options{Delay: -1, Queues: 1}, small())
			var ops []*ccl.DeviceWork
			for i, r := range w {
				ops = append(ops,
					r.post(t, dtype.Recv, 1-i, 0, 200_000, 4), r.post(t, dtype.Send, 1-i, 1<<20, 200_000, 4))
			}
			w[1].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: 1, Code: 2}}})
			require.NoError(t, w[0].EndBatch(4))
			require.ErrorContains(t, w[1].EndBatch(4), call)
			w[1].driver.SetFaults(cudatest.Faults{})
			for i, op := range ops {
				done, err := op.Wait(hang)
				require.True(t, done)
				if i/2 == 1 {
					require.ErrorContains(t, err, call)
				}
				require.Equal(t, err, op.Join(w[i/2].stream))
				op.Free()
			}
			bury(t, w)
		})
	}
}

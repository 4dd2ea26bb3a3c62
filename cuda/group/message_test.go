package group_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda"
)

// message makes a send or recv of bytes at a place of a rank's device memory.
func (r *rank) message(coll dtype.Collective, peer, at, bytes int, tag uint32) *ccl.Call {
	block := []ccl.Block{{Ptr: pointerOf(r.device.Ptr() + cuda.Ptr(at)), Count: bytes}}
	call := &ccl.Call{Coll: coll, Type: dtype.U8, Root: peer, Tag: tag}
	if coll == dtype.Send {
		call.In = block
	} else {
		call.Out = block
	}
	return call
}

// issue enqueues a call and joins it, or does that by a graph.
func (r *rank) issue(call *ccl.Call) error {
	if r.captures {
		return r.once(func() error { return r.enqueue(call) })
	}
	return r.enqueue(call)
}

func (r *rank) enqueue(call *ccl.Call) error {
	op, err := r.Enqueue(call, r.stream)
	if err != nil {
		return err
	}
	defer op.Free()
	return op.Join(r.stream)
}

// Messages of all lengths arrive, also where each rank receives before it sends: the streams of
// messages do not hold up each other.
func TestMessages(t *testing.T) {
	const ranks = 4
	lengths := []int{0, 1, 4095, 65536, 65537, 400_000}
	w := world(t, ranks, quick, ccl.GroupOptions{CudaBuffSize: 256 << 10})
	const room = 450_000
	for seed, n := range lengths {
		data := make([][]byte, ranks)
		for i, r := range w {
			data[i] = random(uint64(10*seed+i), n+1)[:n]
			r.put(t, 0, data[i])
		}
		// The streams of receives wait for peers; the callers' streams are joined only after the
		// sends.
		var received [ranks][ranks]*ccl.DeviceWork
		for i, r := range w {
			for peer := range ranks {
				if peer != i {
					op, err := r.Enqueue(r.message(dtype.Recv, peer, (1+peer)*room, n, 7), r.stream)
					require.NoError(t, err)
					received[i][peer] = op
				}
			}
		}
		for i, r := range w {
			for peer := range ranks {
				if peer != i {
					require.NoError(t, r.issue(r.message(dtype.Send, peer, 0, n, 7)))
				}
			}
		}
		for i, r := range w {
			for peer := range ranks {
				if peer != i {
					require.NoError(t, received[i][peer].Join(r.stream))
					r.fetch(t, (1+peer)*room, n)
				}
			}
		}
		for i, r := range w {
			for peer := range ranks {
				if peer != i {
					got := append([]byte{}, r.get(t, (1+peer)*room, n)...)
					require.Equal(t, data[peer], got, "%d bytes from %d to %d", n, peer, i)
					done, err := received[i][peer].Wait(hang)
					require.True(t, done)
					require.NoError(t, err)
					require.Equal(t, peer, received[i][peer].Source())
					received[i][peer].Free()
				}
			}
		}
	}
	end(t, w)
}

// A receive from any rank takes all pieces of its message from the same one.
func TestReceiveFromAny(t *testing.T) {
	const n = 300_000
	w := world(t, 3, quick, ccl.GroupOptions{CudaBuffSize: 256 << 10})
	for i, r := range w[1:] {
		r.put(t, 0, random(uint64(i), n))
		require.NoError(t, r.issue(r.message(dtype.Send, 0, 0, n, 3)))
	}
	seen := map[int]bool{}
	for range 2 {
		op, err := w[0].Enqueue(w[0].message(dtype.Recv, -1, 0, n, 3), w[0].stream)
		require.NoError(t, err)
		require.NoError(t, op.Join(w[0].stream))
		w[0].fetch(t, 0, n)
		got := w[0].get(t, 0, n)
		done, err := op.Wait(hang)
		require.True(t, done)
		require.NoError(t, err)
		require.False(t, seen[op.Source()])
		seen[op.Source()] = true
		require.Equal(t, random(uint64(op.Source()-1), n), append([]byte{}, got...))
		op.Free()
	}
	end(t, w)
}

// A message that waits for its peer holds up neither collectives nor other messages.
func TestMessagesHoldUpNobody(t *testing.T) {
	w := world(t, 3, quick, ccl.GroupOptions{CudaBuffSize: 256 << 10})
	const n = 2_000_000 // more than its slots and p2p.EagerWindow hold
	w[0].put(t, 0, random(1, n))
	late, err := w[0].Enqueue(w[0].message(dtype.Send, 1, 0, n, 1), w[0].stream)
	require.NoError(t, err)
	early, err := w[2].Enqueue(w[2].message(dtype.Recv, 1, 0, 100, 1), w[2].stream)
	require.NoError(t, err)
	length := func(int) int { return 50_000 }
	call := ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum}
	for i := range 3 {
		b := buffersOf(call.Coll, call.Type, 3, i, 0, true, length, length)
		op, err := w[i].Enqueue(b.call(call, pointerOf(w[i].device.Ptr()+cuda.Ptr(2<<20)), 4), w[i].stream)
		require.NoError(t, err)
		defer func() {
			done, err := op.Wait(hang)
			require.True(t, done)
			require.NoError(t, err)
			op.Free()
		}()
		if i == 2 {
			done, err := op.Wait(hang)
			require.True(t, done)
			require.NoError(t, err)
		}
	}
	for _, op := range []*ccl.DeviceWork{late, early} {
		done, err := op.Done()
		require.False(t, done)
		require.NoError(t, err)
	}
	require.NoError(t, w[1].issue(w[1].message(dtype.Recv, 0, 0, n, 1)))
	require.NoError(t, w[1].issue(w[1].message(dtype.Send, 2, 0, 100, 1)))
	for _, op := range []*ccl.DeviceWork{late, early} {
		done, err := op.Wait(hang)
		require.True(t, done)
		require.NoError(t, err)
		op.Free()
	}
	w[2].fetch(t, 0, 100)
	require.Equal(t, random(1, n)[:100], append([]byte{}, w[2].get(t, 0, 100)...))
	end(t, w)
}

// A call that has more operations than a stream holds goes on while it is enqueued.
func TestLongerThanStreams(t *testing.T) {
	short := quick
	short.Depth = 12
	w := world(t, 2, short, ccl.GroupOptions{CudaBuffSize: 256 << 10})
	length := func(_, _ int) int { return 200_000 }
	for seed, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllToAll} {
		same(t, w, ccl.Call{Coll: coll, Type: dtype.I16, Op: ccl.Sum}, true, uint64(seed), length, length)
	}
	end(t, w)
}

// Messages to oneself need no order of send and receive either.
func TestMessagesToOneself(t *testing.T) {
	const n = 300_000
	w := world(t, 2, quick, small())
	for i, r := range w {
		for round, source := range []int{i, -1} {
			data := random(uint64(10*i+round), n)
			r.put(t, 0, data)
			op, err := r.Enqueue(r.message(dtype.Recv, source, 1<<20, n, 5), r.stream)
			require.NoError(t, err)
			require.NoError(t, r.issue(r.message(dtype.Send, i, 0, n, 5)))
			require.NoError(t, op.Join(r.stream))
			op.Free()
			r.fetch(t, 1<<20, n)
			require.Equal(t, data, append([]byte{}, r.get(t, 1<<20, n)...))
		}
	}
	end(t, w)
}

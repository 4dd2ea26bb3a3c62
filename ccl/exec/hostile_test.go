package exec_test

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// Where the records begin in a window, and the call in one (exec/window/PROTOCOL.md).
const (
	recordAt = 128
	callAt   = 8
)

func wordAt(m *member, at int) *uint64 { return (*uint64)(unsafe.Pointer(&m.window.Bytes()[at])) }

// begun posts a call of rank 0 and drives it until look finds what it waits for.
func begun(t *testing.T, c *exec.Comm, call *exec.Call, look func() bool) *exec.Op {
	t.Helper()
	op, err := c.Post(call)
	require.NoError(t, err)
	for end := time.Now().Add(10 * time.Second); !look(); {
		require.True(t, time.Now().Before(end), "the operation does not begin")
		op.Poll()
	}
	return op
}

// bytesCall is a call of rank 0 of two ranks, over bytes.
func bytesCall(coll dtype.Collective, elements int, timeout time.Duration) *exec.Call {
	call := &exec.Call{Coll: coll, Type: dtype.U8, Timeout: timeout}
	blocks := func(n int) (all []exec.Block) {
		for range n {
			all = append(all, blockOf(make([]uint8, elements)))
		}
		return all
	}
	call.In, call.Out = blocks(coll.InBlocks(2, 0, 0)), blocks(coll.OutBlocks(2, 0, 0))
	return call
}

// TestPiecesThatFollowFromNoBlock has a peer announce more pieces of an all_to_all than the longest
// block of any rank has. The piece itself is in order.
func TestPiecesThatFollowFromNoBlock(t *testing.T) {
	const low48 = 1<<48 - 1
	for _, last := range []uint64{1, 1 << 20, low48} {
		all := members(t, "shm", 2)
		t.Cleanup(all[1].window.Release)
		c := all[0].comm(t, 0, plans{dtype.AllToAll: catalogued("window")})
		op := begun(t, c, bytesCall(dtype.AllToAll, 8, 20*time.Second),
			func() bool { return atomic.LoadUint64(wordAt(all[0], recordAt)) > 0 })
		defer op.Free()
		for i := range 3 {
			said := *wordAt(all[0], recordAt+callAt+8*i)
			if i == 1 {
				said = said&^low48 | last
			}
			*wordAt(all[1], recordAt+callAt+8*i) = said
		}
		atomic.StoreUint64(wordAt(all[1], recordAt), atomic.LoadUint64(wordAt(all[0], recordAt))|0xffff)
		err := op.Wait(nil)
		require.ErrorIs(t, err, fault.Internal)
		require.ErrorContains(t, err, "rank 1")
		require.ErrorContains(t, err, "announces piece")
	}
}

// end drives an operation whose peer is hostile for a while, and then leaves.
func end(c *exec.Comm, op *exec.Op) {
	for range 100 {
		if done, _ := op.Poll(); done {
			break
		}
	}
	c.Close()
	op.Free()
}

// FuzzHostileWindow has a peer write anything into its window while this rank makes a call: it ends
// with an error or without, and nothing outside of the windows is touched.
func FuzzHostileWindow(f *testing.F) {
	for kind := range uint8(4) {
		f.Add(kind, uint8(2), []byte{0, 0, 1, 0, 0, 0, 0, 0})
		f.Add(kind, uint8(200), bytes.Repeat([]byte{0xff}, 200))
		f.Add(kind, uint8(7), bytes.Repeat([]byte{1, 0, 1, 0}, 300))
	}
	planner := plans{dtype.AllToAll: catalogued("window"), dtype.AllGather: catalogued("window"),
		dtype.ReduceScatter: catalogued("window"), dtype.AllReduce: catalogued("two_shot_window")}
	colls := []dtype.Collective{dtype.AllToAll, dtype.AllGather, dtype.ReduceScatter, dtype.AllReduce}
	f.Fuzz(func(t *testing.T, kind, elements uint8, said []byte) {
		all := membersOf(t, "inproc", 2, makeUp{slot: slotBytes, registered: 2 << 20})
		t.Cleanup(all[1].window.Release)
		c := all[0].comm(t, 0, planner)
		call := bytesCall(colls[kind%4], 40*int(elements), time.Minute)
		op := begun(t, c, call, func() bool { return atomic.LoadUint64(wordAt(all[0], recordAt)) > 0 })
		// What this rank has announced: from there on the peer differs.
		mine, theirs := all[0].window.Bytes(), all[1].window.Bytes()
		copy(theirs[recordAt:][:window.RecordBytes], mine[recordAt:])
		for at := 0; at+3 <= len(said); at += 3 {
			theirs[int(binary.LittleEndian.Uint16(said[at:]))%(recordAt+window.RecordBytes)] ^= said[at+2]
		}
		end(c, op)
	})
}

// FuzzHostileFragments has a peer send any fragments while this rank makes a call: messages of
// plans, puts and signals, questions.
func FuzzHostileFragments(f *testing.F) {
	const askLength = 1<<48 - 1
	for kind := range uint8(3) {
		f.Add(kind, uint8(9), []byte{})
		f.Add(kind, uint8(9), append([]byte{1, 8, 1}, binary.LittleEndian.AppendUint64(nil, askLength)...))
		f.Add(kind, uint8(9), bytes.Repeat([]byte{1, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 5))
		f.Add(kind, uint8(0), bytes.Repeat([]byte{2, 16, 2, 1}, 50))
	}
	planner := plans{dtype.AllReduce: packets, dtype.AllGather: everybody, dtype.AllToAll: catalogued("pairwise")}
	colls := []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.AllToAll}
	f.Fuzz(func(t *testing.T, kind, elements uint8, said []byte) {
		all := members(t, "inproc", 2)
		t.Cleanup(all[1].window.Release)
		c := all[0].comm(t, 0, planner)
		link := all[1].links[0]
		var first transport.Meta
		op := begun(t, c, bytesCall(colls[kind%3], int(elements), time.Minute), func() bool {
			for i := range exec.LinkChannels(exec.PlanChannels) {
				if _, m, ok := link.Channel(i).Peek(); ok {
					first = m
					return true
				}
			}
			return false
		})
		for sent := 0; len(said) >= 3 && sent < 64; sent++ {
			channel, n, word := int(said[0])%exec.LinkChannels(exec.PlanChannels), int(said[1]), int(said[2])%4
			var bits [8]byte
			said = said[3:]
			said = said[copy(bits[:], said):]
			m := first
			if word < 3 {
				m[word] ^= binary.LittleEndian.Uint64(bits[:])
			}
			if space := link.Channel(channel).Reserve(n); len(space) == n && space != nil {
				copy(space, said)
				link.Channel(channel).Commit(n, &m)
			}
		}
		end(c, op)
	})
}

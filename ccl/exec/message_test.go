package exec_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
)

func messageCall(coll dtype.Collective, data []byte, peer int, tag uint32) *exec.Call {
	b := []exec.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(data)), Count: len(data)}}
	call := &exec.Call{Coll: coll, Type: dtype.U8, Root: peer, Tag: tag}
	if coll == dtype.Send {
		call.In = b
	} else {
		call.Out = b
	}
	return call
}

// letter is one message of a list that all ranks know.
type letter struct {
	from, to int
	tag      uint32
	any      bool // received from any rank
	size     int
	seed     uint64
}

func (l *letter) content() []byte {
	data := make([]byte, l.size)
	rand.NewChaCha8([32]byte{byte(l.seed), byte(l.seed >> 8), byte(l.seed >> 16)}).Read(data)
	return data
}

// TestMessagesRunAndPosted checks that sends and receives match in their order, in any mixture of
// run and posted calls. All ranks go through one list of messages, so that no two ranks wait for
// each other.
func TestMessagesRunAndPosted(t *testing.T) {
	sizes := []int{0, 1, 8, 100, 2000, 5000, 16 << 10, 40_000, 200_000, p2p.EagerLimit, p2p.EagerLimit + 1, 700_000}
	for _, name := range []string{"inproc", "shm", "tcp"} {
		for _, ranks := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, ranks), func(t *testing.T) {
				all := join(t, name, ranks, func(int) exec.Planner { return plans{} })
				rng := rand.New(rand.NewPCG(1, uint64(ranks)))
				letters := make([]letter, 300)
				for i := range letters {
					l := &letters[i]
					*l = letter{from: rng.IntN(ranks), to: rng.IntN(ranks), tag: uint32(rng.IntN(3)), seed: uint64(i)}
					l.size = sizes[rng.IntN(len(sizes))]
					if l.to == l.from {
						l.to = (l.from + 1) % ranks
					}
					if l.any = rng.IntN(8) == 0; l.any {
						l.tag = uint32(100 + i) // its own tag, so that only one source can match
					}
				}
				each(t, ranks, func(rank int) error { return correspond(all[rank], letters, rank) })
			})
		}
	}
}

// correspond makes the calls of one rank.
func correspond(c *exec.Comm, letters []letter, rank int) error {
	type posted struct {
		letter *letter
		op     *exec.Op
		data   []byte
	}
	rng := rand.New(rand.NewPCG(2, uint64(rank)))
	var open []posted
	received := func(l *letter, data []byte) error {
		if !bytes.Equal(data, l.content()) {
			return fmt.Errorf("message %d, of %d bytes with tag %d from rank %d, is not what was sent",
				l.seed, l.size, l.tag, l.from)
		}
		return nil
	}
	finish := func(p posted) error {
		err := p.op.Wait(nil)
		if err == nil && p.letter.to == rank {
			if err = received(p.letter, p.data); p.op.Source() != p.letter.from {
				err = fmt.Errorf("message %d came from rank %d, not %d", p.letter.seed, p.op.Source(), p.letter.from)
			}
		}
		p.op.Free()
		return err
	}
	for i := range letters {
		l := &letters[i]
		if rank != l.from && rank != l.to {
			continue
		}
		data, call := make([]byte, l.size), (*exec.Call)(nil)
		if rank == l.from {
			data = l.content()
			call = messageCall(dtype.Send, data, l.to, l.tag)
		} else {
			call = messageCall(dtype.Recv, data, l.from, l.tag)
			if l.any {
				call.Root = p2p.AnySource
			}
		}
		if rng.IntN(3) == 0 {
			op, err := c.Post(call)
			if err != nil {
				return err
			}
			open = append(open, posted{l, op, data})
		} else if err := c.Run(call); err != nil {
			return err
		} else if rank == l.to {
			if err := received(l, data); err != nil {
				return err
			}
		}
		for len(open) > 0 && rng.IntN(3) == 0 { // operations that may have ended by now
			p := open[0]
			if done, _ := p.op.Done(); !done {
				break
			}
			if err := finish(p); err != nil {
				return err
			}
			open = open[1:]
		}
		if rng.IntN(20) == 0 {
			time.Sleep(100 * time.Microsecond) // messages that arrive meanwhile are unexpected
		}
	}
	for _, p := range open {
		if err := finish(p); err != nil {
			return err
		}
	}
	return nil
}

// TestMessageTimeout checks that the timeout of a receive without a matching send fails only that
// receive, and that the next one succeeds.
func TestMessageTimeout(t *testing.T) {
	all := join(t, "inproc", 2, func(int) exec.Planner { return plans{} })
	data := []byte("01234567")
	for range 3 {
		call := messageCall(dtype.Recv, make([]byte, 8), 1, 5)
		call.Timeout = 5 * time.Millisecond
		require.ErrorIs(t, all[0].Run(call), fault.Timeout)
		require.NoError(t, all[1].Run(messageCall(dtype.Send, data, 0, 5)))
		got := make([]byte, 8)
		require.NoError(t, all[0].Run(messageCall(dtype.Recv, got, 1, 5)))
		require.Equal(t, data, got)
	}
}

// TestMessageMismatch checks that a message whose length differs from that of its receive is a
// mismatch, and that later messages arrive.
func TestMessageMismatch(t *testing.T) {
	for _, size := range []int{8, 30_000, p2p.EagerLimit + 8} {
		all := join(t, "inproc", 2, func(int) exec.Planner { return plans{} })
		errs := make(chan error, 1)
		go func() { errs <- all[1].Run(messageCall(dtype.Send, make([]byte, size), 0, 5)) }()
		require.ErrorIs(t, all[0].Run(messageCall(dtype.Recv, make([]byte, size-1), 1, 5)), fault.Mismatch)
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, fault.Mismatch)
		}
		each(t, 2, func(rank int) error {
			if rank == 0 {
				return all[0].Run(messageCall(dtype.Recv, make([]byte, 16), 1, 5))
			}
			if err := all[1].Run(messageCall(dtype.Send, make([]byte, 16), 0, 5)); err != nil && size > p2p.EagerLimit {
				return err
			}
			return nil
		})
	}
}

// TestMessagePeerCloses checks that a rank which waits for a message learns that its peer has left,
// after it has received what the peer sent before.
func TestMessagePeerCloses(t *testing.T) {
	all := join(t, "inproc", 2, func(int) exec.Planner { return plans{} })
	require.NoError(t, all[1].Run(messageCall(dtype.Send, []byte("last"), 0, 1)))
	require.NoError(t, all[1].Close())
	got := make([]byte, 4)
	require.NoError(t, all[0].Run(messageCall(dtype.Recv, got, 1, 1)))
	require.Equal(t, "last", string(got))
	require.ErrorIs(t, all[0].Run(messageCall(dtype.Recv, got, 1, 1)), fault.PeerLeft)
	require.Error(t, all[0].Run(messageCall(dtype.Send, got, 1, 1)))
}

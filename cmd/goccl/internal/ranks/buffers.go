package ranks

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// Buffers holds the memory of one size and the calls that use it.
type Buffers struct {
	Comm    *ccl.Communicator
	Bytes   int64 // of the whole vector
	Call    ccl.Call
	spec    *Spec
	in, out []byte
	back    ccl.Call // the other direction of a ping-pong
}

// NewBuffers allocates the memory of a size.
func NewBuffers(comm *ccl.Communicator, spec *Spec, size int64) (*Buffers, error) {
	elem, n := int64(spec.Type.Size()), int64(spec.Ranks)
	count := size / elem
	blocks := func(many bool) int64 {
		if many {
			return n
		}
		return 1
	}
	coll := spec.Coll
	nIn, nOut := coll.InBlocks(spec.Ranks, spec.Rank, spec.Root), coll.OutBlocks(spec.Ranks, spec.Rank, spec.Root)
	if coll.PerRank() {
		count = max(1, count/n)
	}
	b := &Buffers{Comm: comm, spec: spec, Bytes: count * blocks(coll.PerRank()) * elem}
	if coll == dtype.Barrier {
		b.Bytes, count = 0, 0
	}
	if err := b.alloc(int64(max(nIn, 1))*count*elem, int64(max(nOut, 1))*count*elem); err != nil {
		return nil, err
	}
	b.Call = ccl.Call{Coll: coll, Type: spec.Type, Op: spec.Op, Root: spec.Root, Factor: 1}
	b.Call.In, b.Call.Out = Cut(b.in, nIn, count, elem), Cut(b.out, nOut, count, elem)
	if spec.InPlace && nIn > 0 && nOut > 0 {
		switch {
		case coll == dtype.AllToAll:
			return nil, fmt.Errorf("--in-place: all_to_all has no in-place form")
		case nIn >= nOut:
			b.Call.Out = b.Call.In[:1]
			if nOut < nIn {
				b.Call.Out = b.Call.In[spec.Rank : spec.Rank+1]
			}
		default:
			b.Call.In = b.Call.Out[spec.Rank : spec.Rank+1]
		}
	}
	if coll == dtype.Send {
		ping := ccl.Call{Coll: dtype.Send, Type: spec.Type, Root: 1, In: Cut(b.in, 1, count, elem)}
		pong := ccl.Call{Coll: dtype.Recv, Type: spec.Type, Root: 1, Out: Cut(b.out, 1, count, elem)}
		if spec.Rank == 1 {
			ping, pong = pong, ping
			ping.Root, pong.Root = 0, 0
		}
		b.Call, b.back = ping, pong
	}
	return b, nil
}

// alloc allocates the buffers.
func (b *Buffers) alloc(in, out int64) (err error) {
	if !b.spec.Registered {
		b.in, b.out = make([]byte, in), make([]byte, out)
		return nil
	}
	if b.in, err = b.Comm.Node().Alloc(int(max(in, 1))); err == nil {
		b.out, err = b.Comm.Node().Alloc(int(max(out, 1)))
	}
	return err
}

// Free gives registered buffers back.
func (b *Buffers) Free() {
	if b.spec.Registered {
		b.Comm.Node().Free(b.in)
		b.Comm.Node().Free(b.out)
	}
}

// Cut returns n blocks of memory, one behind the other.
func Cut(mem []byte, n int, count, elem int64) []ccl.Block {
	blocks := make([]ccl.Block, n)
	for i := range blocks {
		blocks[i] = ccl.Block{
			Ptr:   unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), int64(i)*count*elem),
			Count: int(count),
		}
	}
	return blocks
}

// Run makes the calls once.
func (b *Buffers) Run(ctx context.Context) error {
	if b.spec.Coll == dtype.Send && b.spec.Rank > 1 {
		return nil
	}
	if err := b.Comm.Do(ctx, &b.Call); err != nil {
		return err
	}
	if b.spec.Coll == dtype.Send {
		return b.Comm.Do(ctx, &b.back)
	}
	return nil
}

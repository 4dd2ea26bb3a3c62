package ccl

import (
	"context"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// Element lists the element types of the generic functions. For other types (16-bit floats, Bool)
// use Communicator.Do.
type Element interface {
	float64 | float32 | int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | complex64 | complex128
}

// TypeOf returns the dtype of T.
func TypeOf[T Element]() Type {
	var x T
	switch any(x).(type) {
	case float64:
		return dtype.F64
	case float32:
		return dtype.F32
	case int8:
		return dtype.I8
	case uint8:
		return dtype.U8
	case int16:
		return dtype.I16
	case uint16:
		return dtype.U16
	case int32:
		return dtype.I32
	case uint32:
		return dtype.U32
	case int64:
		return dtype.I64
	case uint64:
		return dtype.U64
	case complex64:
		return dtype.C64
	}
	return dtype.C128
}

func block[T Element](s []T) Block {
	return Block{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s)}
}

func one[T Element](s []T) []Block { return []Block{block(s)} }

// even splits a slice into one block for each rank.
func even[T Element](c *Communicator, coll dtype.Collective, s []T) ([]Block, error) {
	n := c.Size()
	if len(s)%n != 0 {
		return nil, fault.New(fault.Invalid, "%v: %d elements cannot be cut into %d equal blocks", coll, len(s), n)
	}
	blocks := make([]Block, n)
	for i := range blocks {
		blocks[i] = block(s[i*len(s)/n : (i+1)*len(s)/n])
	}
	return blocks, nil
}

// Broadcast sends the root's buf to every rank's buf. All have the same length.
func Broadcast[T Element](ctx context.Context, c *Communicator, buf []T, root int) error {
	call := Call{Coll: dtype.Broadcast, Type: TypeOf[T](), Root: root, Out: one(buf)}
	if c.Rank() == root {
		call.In = one(buf)
	}
	return c.Do(ctx, &call)
}

// AllReduce combines the in of all ranks, element by element, into every rank's out. in and out may
// be the same slice.
func AllReduce[T Element](ctx context.Context, c *Communicator, in, out []T, op Op) error {
	return c.Do(ctx, &Call{Coll: dtype.AllReduce, Type: TypeOf[T](), Op: op, In: one(in), Out: one(out)})
}

// Reduce combines the in of all ranks into the root's out. Other ranks do not use out, which may be
// nil there.
func Reduce[T Element](ctx context.Context, c *Communicator, in, out []T, op Op, root int) error {
	call := Call{Coll: dtype.Reduce, Type: TypeOf[T](), Op: op, Root: root, In: one(in)}
	if c.Rank() == root {
		call.Out = one(out)
	}
	return c.Do(ctx, &call)
}

// ReduceScatter combines the in of all ranks and leaves block r of the result in rank r's out.
// len(in) = Size × len(out).
func ReduceScatter[T Element](ctx context.Context, c *Communicator, in, out []T, op Op) error {
	blocks, err := even(c, dtype.ReduceScatter, in)
	if err != nil {
		return err
	}
	return c.Do(ctx, &Call{Coll: dtype.ReduceScatter, Type: TypeOf[T](), Op: op, In: blocks, Out: one(out)})
}

// AllGather puts the in of rank r into block r of every rank's out. len(out) = Size × len(in).
func AllGather[T Element](ctx context.Context, c *Communicator, in, out []T) error {
	blocks, err := even(c, dtype.AllGather, out)
	if err != nil {
		return err
	}
	return c.Do(ctx, &Call{Coll: dtype.AllGather, Type: TypeOf[T](), In: one(in), Out: blocks})
}

// Gather puts the in of rank r into block r of the root's out. Other ranks do not use out.
func Gather[T Element](ctx context.Context, c *Communicator, in, out []T, root int) error {
	call := Call{Coll: dtype.Gather, Type: TypeOf[T](), Root: root, In: one(in)}
	if c.Rank() == root {
		blocks, err := even(c, dtype.Gather, out)
		if err != nil {
			return err
		}
		call.Out = blocks
	}
	return c.Do(ctx, &call)
}

// Scatter puts block r of the root's in into rank r's out. Other ranks do not use in.
func Scatter[T Element](ctx context.Context, c *Communicator, in, out []T, root int) error {
	call := Call{Coll: dtype.Scatter, Type: TypeOf[T](), Root: root, Out: one(out)}
	if c.Rank() == root {
		blocks, err := even(c, dtype.Scatter, in)
		if err != nil {
			return err
		}
		call.In = blocks
	}
	return c.Do(ctx, &call)
}

// AllToAll puts block r of this rank's in into block Rank of rank r's out. in and out have Size
// equal blocks.
func AllToAll[T Element](ctx context.Context, c *Communicator, in, out []T) error {
	from, err := even(c, dtype.AllToAll, in)
	if err != nil {
		return err
	}
	to, err := even(c, dtype.AllToAll, out)
	if err != nil {
		return err
	}
	return c.Do(ctx, &Call{Coll: dtype.AllToAll, Type: TypeOf[T](), In: from, Out: to})
}

// Barrier returns when every rank has called it.
func Barrier(ctx context.Context, c *Communicator) error {
	return c.Do(ctx, &Call{Coll: dtype.Barrier})
}

// Send sends buf to a peer, which takes it by a Recv with the same tag and length. It returns when
// buf may be used again.
func Send[T Element](ctx context.Context, c *Communicator, buf []T, peer int, tag uint32) error {
	return c.Do(ctx, &Call{Coll: dtype.Send, Type: TypeOf[T](), Root: peer, Tag: tag, In: one(buf)})
}

// Recv receives a message with a tag from a peer, or from AnySource, into buf, and returns the rank
// that sent it.
func Recv[T Element](ctx context.Context, c *Communicator, buf []T, peer int, tag uint32) (source int, err error) {
	work, err := c.Start(&Call{Coll: dtype.Recv, Type: TypeOf[T](), Root: peer, Tag: tag, Out: one(buf)})
	if err != nil {
		return -1, err
	}
	defer work.Free()
	if err = work.Wait(ctx); err != nil {
		if ended, _ := work.Done(); !ended {
			c.comm.Abort(fault.Wrap(fault.Aborted, err, "the context of recv ended"))
		}
		return -1, err
	}
	return work.Source(), nil
}

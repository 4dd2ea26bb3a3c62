package ccl

import (
	"context"

	"github.com/goccl/goccl/ccl/dtype"
)

// do is Communicator.Do of a call, unless it cannot be made.
func (c *Communicator) do(ctx context.Context, call Call, err error) error {
	if err != nil {
		return err
	}
	return c.Do(ctx, &call)
}

// Broadcast sends the root's buf to every rank's buf. All have the same length.
func Broadcast[T Element](ctx context.Context, c *Communicator, buf []T, root int) error {
	return c.do(ctx, broadcastCall(c, buf, root), nil)
}

// AllReduce combines the in of all ranks, element by element, into every rank's out. in and out may
// be the same slice.
func AllReduce[T Element](ctx context.Context, c *Communicator, in, out []T, op Op) error {
	return c.do(ctx, allReduceCall(in, out, op), nil)
}

// Reduce combines the in of all ranks into the root's out. Other ranks do not use out, which may be
// nil there.
func Reduce[T Element](ctx context.Context, c *Communicator, in, out []T, op Op, root int) error {
	return c.do(ctx, reduceCall(c, in, out, op, root), nil)
}

// ReduceScatter combines the in of all ranks and leaves block r of the result in rank r's out.
// len(in) = Size × len(out).
func ReduceScatter[T Element](ctx context.Context, c *Communicator, in, out []T, op Op) error {
	call, err := reduceScatterCall(c, in, out, op)
	return c.do(ctx, call, err)
}

// AllGather puts the in of rank r into block r of every rank's out. len(out) = Size × len(in).
func AllGather[T Element](ctx context.Context, c *Communicator, in, out []T) error {
	call, err := allGatherCall(c, in, out)
	return c.do(ctx, call, err)
}

// Gather puts the in of rank r into block r of the root's out. Other ranks do not use out.
func Gather[T Element](ctx context.Context, c *Communicator, in, out []T, root int) error {
	call, err := gatherCall(c, in, out, root)
	return c.do(ctx, call, err)
}

// Scatter puts block r of the root's in into rank r's out. Other ranks do not use in.
func Scatter[T Element](ctx context.Context, c *Communicator, in, out []T, root int) error {
	call, err := scatterCall(c, in, out, root)
	return c.do(ctx, call, err)
}

// AllToAll puts block r of this rank's in into block Rank of rank r's out. in and out have Size
// equal blocks.
func AllToAll[T Element](ctx context.Context, c *Communicator, in, out []T) error {
	call, err := allToAllCall(c, in, out)
	return c.do(ctx, call, err)
}

// Barrier returns when every rank has called it.
func Barrier(ctx context.Context, c *Communicator) error {
	return c.Do(ctx, &Call{Coll: dtype.Barrier})
}

// Send sends buf to a peer, which takes it by a Recv with the same tag and length. It returns when
// buf may be used again.
func Send[T Element](ctx context.Context, c *Communicator, buf []T, peer int, tag uint32) error {
	return c.do(ctx, sendCall(buf, peer, tag), nil)
}

// Recv receives a message with a tag from a peer, or from AnySource, into buf, and returns the rank
// that sent it.
func Recv[T Element](ctx context.Context, c *Communicator, buf []T, peer int, tag uint32) (source int, err error) {
	call := recvCall(buf, peer, tag)
	work, err := c.within(ctx, &call)
	if err != nil {
		return -1, err
	}
	defer work.Free()
	return work.Source(), nil
}

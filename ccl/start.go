package ccl

import "github.com/goccl/goccl/ccl/dtype"

// The functions of this file make a call and return at once. Every rank makes the same calls in the
// same order, started or not. The memory must stay as it is until the Work is done; Free gives the
// Work back.

// start is Communicator.Start of a call, unless it cannot be made.
func (c *Communicator) start(call Call, err error) (*Work, error) {
	if err != nil {
		return nil, err
	}
	return c.Start(&call)
}

// StartBroadcast starts Broadcast.
func StartBroadcast[T Element](c *Communicator, buf []T, root int) (*Work, error) {
	return c.start(broadcastCall(c, buf, root), nil)
}

// StartAllReduce starts AllReduce.
func StartAllReduce[T Element](c *Communicator, in, out []T, op Op) (*Work, error) {
	return c.start(allReduceCall(in, out, op), nil)
}

// StartReduce starts Reduce.
func StartReduce[T Element](c *Communicator, in, out []T, op Op, root int) (*Work, error) {
	return c.start(reduceCall(c, in, out, op, root), nil)
}

// StartReduceScatter starts ReduceScatter.
func StartReduceScatter[T Element](c *Communicator, in, out []T, op Op) (*Work, error) {
	return c.start(reduceScatterCall(c, in, out, op))
}

// StartAllGather starts AllGather.
func StartAllGather[T Element](c *Communicator, in, out []T) (*Work, error) {
	return c.start(allGatherCall(c, in, out))
}

// StartGather starts Gather.
func StartGather[T Element](c *Communicator, in, out []T, root int) (*Work, error) {
	return c.start(gatherCall(c, in, out, root))
}

// StartScatter starts Scatter.
func StartScatter[T Element](c *Communicator, in, out []T, root int) (*Work, error) {
	return c.start(scatterCall(c, in, out, root))
}

// StartAllToAll starts AllToAll.
func StartAllToAll[T Element](c *Communicator, in, out []T) (*Work, error) {
	return c.start(allToAllCall(c, in, out))
}

// StartBarrier starts Barrier.
func StartBarrier(c *Communicator) (*Work, error) {
	return c.Start(&Call{Coll: dtype.Barrier})
}

// StartSend starts Send.
func StartSend[T Element](c *Communicator, buf []T, peer int, tag uint32) (*Work, error) {
	return c.start(sendCall(buf, peer, tag), nil)
}

// StartRecv starts Recv. Work.Source says who has sent it.
func StartRecv[T Element](c *Communicator, buf []T, peer int, tag uint32) (*Work, error) {
	return c.start(recvCall(buf, peer, tag), nil)
}

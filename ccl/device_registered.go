package ccl

import (
	"errors"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/internal/humanize"
)

// DeviceArena is registered memory of a device.
type DeviceArena = share.Arena

// gpu is a device of a driver.
type gpu struct {
	driver cuda.Driver
	index  int
}

// DeviceArena returns the registered memory of this process on a device: the first call makes it,
// if the options ask for it (CudaRegistered), and may wait for all streams of the process.
// Collectives over windows in the memory of devices read tensors in it in place, in groups whose
// DeviceWindow lends it. It is nil if the options ask for none: those that are given, or, with nil,
// those of the Node.
func (n *Node) DeviceArena(driver cuda.Driver, index int, asked *NodeOptions) (*DeviceArena, error) {
	opts, err := n.optionsFor(asked)
	if err != nil || opts.CudaRegistered <= 0 {
		return nil, err
	}
	bytes := opts.CudaRegistered &^ (registeredUnit - 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fault.New(fault.Closed, "the node is closed")
	}
	device := gpu{driver, index}
	if arena, known := n.arenas[device]; known {
		n.tellVain(optionOf("GOCCL_CUDA_REGISTERED"), humanize.FormatSize(int64(bytes)),
			humanize.FormatSize(int64(arena.Bytes())), n.Warn)
		return arena, nil
	}
	context, err := driver.Retain(index)
	if err != nil {
		return nil, err
	}
	arena, err := share.NewArena(context, bytes)
	if err != nil {
		return nil, errors.Join(err, context.Release())
	}
	n.arenas[device] = arena
	return arena, nil
}

// closeArenas gives the registered memory of devices back, as far as it was freed.
func (n *Node) closeArenas() error {
	var errs []error
	for _, arena := range n.arenas {
		errs = append(errs, arena.Close())
	}
	return errors.Join(errs...)
}

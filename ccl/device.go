package ccl

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/record"
)

// DeviceWork is a call that was enqueued.
type DeviceWork = group.Op

// DeviceGroup is one rank of a group whose tensors are in the memory of a GPU.
type DeviceGroup struct {
	*group.Group
	comm  *Communicator
	close func() error
}

// DeviceWindow is memory that the devices of all ranks of a group use. Its descriptors must be in
// Config.Share of the rank.
type DeviceWindow = share.Window

// NewDeviceWindow makes the window of a rank in a group of the given size, or returns nil if groups
// with these options need none.
func NewDeviceWindow(device cuda.Context, opts GroupOptions, ranks int) (*DeviceWindow, error) {
	grows := opts.CudaBuffSize == 0
	opts, err := opts.settled()
	if err != nil || opts.CudaRoute == route.Staged {
		return nil, err
	}
	return share.NewWindow(device, opts.CudaBuffSize, max(opts.CudaGraphs, 0), ranks, opts.CudaRoute, grows)
}

// OnDevice makes a DeviceGroup, which takes c over: calls go through the DeviceGroup from then on,
// and c ends with it. What c tells of itself is about the DeviceGroup. All ranks of c must do the
// same, at the same time. The context is taken over, too; both remain the caller's only if OnDevice
// fails. Then c has ended with that error, which the other ranks get, too. The window may be nil,
// and is taken over in any case.
//
// With Config.Device the recorder has one record for each call. Otherwise it has one for each piece
// that the processor moves.
//
// OnDevice allocates and registers memory, and so may wait for all streams of the process.
func (c *Communicator) OnDevice(device cuda.Context, window *DeviceWindow) (*DeviceGroup, error) {
	d, err := c.onDevice(device, window)
	if err != nil {
		err = c.origin.endpoint.in("join", err)
		c.fail(err.(*fault.Error))
		return nil, err
	}
	c.device.Store(d)
	return d, nil
}

func (c *Communicator) onDevice(device cuda.Context, window *DeviceWindow) (*DeviceGroup, error) {
	e := c.origin.endpoint
	var ring *record.Ring
	if e.cfg.Device {
		ring = c.comm.Recorded()
	}
	opts := group.Options{
		Name: e.cfg.Name, Comm: c.comm, Planner: c.planner.twin(c.group), Context: device,
		Thread:  c.node.deviceThread(),
		Staging: e.cfg.Options.CudaBuffSize, Alloc: c.node.allocStaging, Record: ring,
		Window: window, Route: e.cfg.Options.CudaRoute, Graphs: max(e.cfg.Options.CudaGraphs, 0),
		Interpret: e.cfg.Options.interpret(),
	}
	onDevice := c.planner.twin(c.group.WithDevices(topo.Devices{}))
	if opts.Why = c.whyStaged(); opts.Why == "" {
		opts.WindowPlanner, opts.Peers = onDevice, c.devicePeers()
	}
	g, err := group.New(opts)
	if window != nil {
		c.closeShared()
	}
	if err != nil {
		return nil, err
	}
	settled := g.Route()
	onDevice.group = c.group.WithDevices(topo.Devices{Rate: settled.Rate(), Word: settled.Word})
	if c.Rank() == 0 { // all ranks would print the same
		e.log("INFO", "collectives on devices: %v", settled)
	}
	if g.Crowded() {
		c.node.crowded.Do(func() {
			e.log("WARN", "the streams of a group share a hardware queue with the default stream of the device: what the "+
				"program computes stops while the group waits for other ranks. A process has eight queues, or as many "+
				"as CUDA_DEVICE_MAX_CONNECTIONS says when CUDA starts, and here it seems to have one; set it to 32, unless "+
				"something else needs that")
		})
	}
	d := &DeviceGroup{Group: g, comm: c}
	d.close = sync.OnceValue(func() error { return errors.Join(g.Close(), c.close()) })
	return d, nil
}

// closeShared closes descriptors of windows that were not needed: they keep memory of devices.
func (c *Communicator) closeShared() {
	for rank := range c.links {
		_, descriptors := c.Shared(rank)
		for _, descriptor := range descriptors {
			syscall.Close(descriptor)
		}
	}
}

// whyStaged says why collectives of devices are staged in this group, whatever the devices can do:
// "" if they may go over windows. All ranks answer alike.
func (c *Communicator) whyStaged() string {
	opts := &c.origin.endpoint.cfg.Options
	switch opts.CudaRoute {
	case route.Staged:
		return "GOCCL_CUDA_ROUTE=staged was set"
	case route.Auto:
		return route.Unfit(c.group)
	}
	return "" // or it is an error, which says what is lacking
}

// devicePeers says how the ranks of c reach each other's windows.
func (c *Communicator) devicePeers() group.Peers {
	id, _ := sessionOf(c.origin.addresses)
	return group.Peers{
		Group: string(id[:]), On: c.group,
		Descriptors: func(rank int) []int {
			_, descriptors := c.Shared(rank)
			return descriptors
		},
	}
}

// Device returns the DeviceGroup that has taken c over, or nil.
func (c *Communicator) Device() *DeviceGroup { return c.device.Load() }

// Close leaves the group: calls that have not ended fail with Closed. It waits until the streams of
// the group have ended, so what was enqueued in the callers' streams before must be able to end. If
// they do not end in some seconds, it leaves their memory allocated and returns Timeout.
func (d *DeviceGroup) Close() error { return d.close() }

// drain is Communicator.Drain. What goes through the processor is all that peers wait for.
func (d *DeviceGroup) drain(most, receives, doubt time.Duration) bool {
	d.EndBatch(0) // an error ends the group, and so the wait
	return d.comm.comm.Drain(most, receives, doubt, func(butReceives bool) bool {
		messages, others := d.Pending()
		return d.Failure() == nil && (others > 0 || messages > 0 && !butReceives)
	})
}

// deviceThread returns the thread that serves the device groups of the process.
func (n *Node) deviceThread() *group.Thread {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.devices == nil {
		n.devices = group.NewThread()
	}
	return n.devices
}

// allocStaging returns whole pages to which the device has access, and what gives them back:
// registered memory, so that peers read them in place, or if this process has none, memory of its
// own.
func (n *Node) allocStaging(bytes int, device mem.Pinner) ([]byte, func() error, error) {
	if arena := n.registered(); arena != nil {
		memory, err := arena.Alloc(bytes, device)
		return memory, func() error { return n.Free(memory) }, err
	}
	block, err := mem.Alloc(bytes)
	if err != nil {
		return nil, nil, err
	}
	pins, err := mem.Pin(block.Bytes(), device)
	if err != nil {
		return nil, nil, errors.Join(err, block.Free())
	}
	return block.Bytes(), func() error {
		if err := pins.Unpin(); err != nil {
			return err
		}
		return block.Free()
	}, nil
}

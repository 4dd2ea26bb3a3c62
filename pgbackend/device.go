package pgbackend

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/driver"
	"github.com/goccl/goccl/cuda/group"
)

// gpus opens the GPU driver of this process.
var gpus = struct {
	sync.Mutex
	open func() (cuda.Driver, error)
}{open: driver.Open}

// SetDriver has groups that are opened from now on use what open returns as the GPU driver, and
// returns a function that undoes that. It is for tests.
func SetDriver(open func() (cuda.Driver, error)) (undo func()) {
	gpus.Lock()
	defer gpus.Unlock()
	former := gpus.open
	gpus.open = open
	return func() {
		gpus.Lock()
		defer gpus.Unlock()
		gpus.open = former
	}
}

// place is the device on which a group has its tensors.
type place struct {
	name   string // "cuda:0"
	index  int
	driver cuda.Driver
}

// placeOf finds the device with a name, and checks that groups can be on it. The name "" is that of
// the host, for which placeOf returns nil.
func placeOf(name string) (*place, error) {
	if name == "" {
		return nil, nil
	}
	number, cuda := strings.CutPrefix(name, "cuda:")
	index, err := strconv.ParseUint(number, 10, 31)
	if !cuda || err != nil {
		return nil, fault.New(fault.Invalid, "device %q is not of the form cuda:0", name)
	}
	gpus.Lock()
	open := gpus.open
	gpus.Unlock()
	d, err := open()
	if err != nil {
		return nil, err
	}
	devices, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if index >= uint64(len(devices)) {
		return nil, fault.New(fault.NotSupported, "there is no %s: the driver offers this process %s "+
			"(CUDA_VISIBLE_DEVICES may hide devices)", name, counted(len(devices)))
	}
	if err := group.Check(devices[index]); err != nil {
		return nil, err
	}
	return &place{name, int(index), d}, nil
}

func counted(devices int) string {
	switch devices {
	case 0:
		return "no device"
	case 1:
		return "one device, cuda:0"
	}
	return fmt.Sprintf("%d devices, cuda:0 to cuda:%d", devices, devices-1)
}

// Device returns the name of the device on which the group has its tensors, "" for the memory of
// the host.
func (g *Group) Device() string {
	if g.place == nil {
		return ""
	}
	return g.place.name
}

// orHost names a place in messages.
func orHost(p *place) string {
	if p == nil {
		return "the host"
	}
	return p.name
}

// Enqueue puts an operation behind what is in a stream of the caller (CUstream; 0 is the default
// one) and returns at once. The blocks of the call are on the group's device.
func (g *Group) Enqueue(call *ccl.Call, stream uintptr) (*ccl.DeviceWork, error) {
	if g.place == nil {
		return nil, fault.New(fault.NotSupported, "the tensors of this group are in the memory of the host, "+
			"and not on a device: use goccl_run or goccl_start").In(g.member(), title(call))
	}
	comm := g.comm.Load()
	if comm == nil {
		return nil, g.absent(title(call))
	}
	d := comm.Device()
	return d.Enqueue(call, d.Stream(stream))
}

// elsewhere returns the error of what a group on a device does not do.
func (g *Group) elsewhere(op string) error {
	return fault.New(fault.NotSupported, "the tensors of this group are on %s: use goccl_enqueue", g.place.name).
		In(g.member(), op)
}

// device is what a group has of its device from Open to Join or Close.
type device struct {
	context cuda.Context      // nil for nothing
	window  *ccl.DeviceWindow // or nil
}

// retain takes hold of the device, so that it is known before anybody waits for this rank whether
// that works.
func (p *place) retain(n *ccl.Node, opts *ccl.Options, ranks int) (d device, err error) {
	if d.context, err = p.driver.Retain(p.index); err != nil {
		return device{}, err
	}
	if d.window, err = ccl.NewDeviceWindow(d.context, opts.GroupOptions, ranks); err == nil && d.window != nil {
		var arena *ccl.DeviceArena
		if arena, err = p.openArena(n, &opts.NodeOptions); err == nil {
			err = d.window.Lend(arena)
		}
	}
	if err != nil {
		return device{}, errors.Join(err, d.release())
	}
	return d, nil
}

// release undoes retain.
func (d device) release() error {
	if d.context == nil {
		return nil
	}
	var err error
	if d.window != nil {
		err = d.window.Free()
	}
	return errors.Join(err, d.context.Release())
}

// taken returns what retain has got, which is the caller's then.
func (g *Group) taken() device {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.device
	g.device = device{}
	return d
}

// onDevice makes a Communicator one of the group's device. If that fails, it closes the
// Communicator, and the other ranks learn why.
func (g *Group) onDevice(comm *ccl.Communicator) (err error) {
	d := g.taken()
	if d.window != nil {
		d.window.Shared()
	}
	if d.context == nil {
		if d.context, err = g.place.driver.Retain(g.place.index); err != nil {
			comm.Abort(err.Error())
			comm.Close()
			return err
		}
	}
	if _, err = comm.OnDevice(d.context, d.window); err != nil {
		comm.Close()
		d.context.Release()
	}
	return err
}

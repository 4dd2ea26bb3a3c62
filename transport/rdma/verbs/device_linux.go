//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"path/filepath"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo/probe"
)

// Devices implements Library. An adapter that cannot be opened is left out, unless that is so with
// all.
func (l *library) Devices() ([]Device, error) {
	var all []Device
	var failed error
	err := l.each(func(device uintptr, name string) (bool, error) {
		handle, errno := l.openDevice(device)
		if errno != 0 {
			failed = unopened(errno, name)
			return true, nil
		}
		defer l.closeDevice(handle)
		described, err := l.describe(handle, name)
		if err != nil {
			failed = err
			return true, nil
		}
		all = append(all, described)
		return true, nil
	})
	if err == nil && len(all) == 0 {
		err = failed
	}
	return all, err
}

// each calls a function for each adapter until it returns false or fails.
func (l *library) each(do func(device uintptr, name string) (bool, error)) error {
	list, errno := l.getDeviceList()
	switch errno {
	case 0:
	case syscall.ENOSYS, syscall.ENOENT, syscall.EIO: // no part of the kernel knows adapters; EIO: it set no errno
		return nil
	default:
		return refused(errno, "the list of adapters")
	}
	defer l.freeDeviceList(list)
	const most = 1024
	for index := range uintptr(most) {
		device := *at[uintptr](list + index*8)
		if device == 0 {
			return nil
		}
		if more, err := do(device, l.getDeviceName(device)); err != nil || !more {
			return err
		}
	}
	return nil
}

// describe returns what an open adapter is.
func (l *library) describe(handle uintptr, name string) (Device, error) {
	var attr cDeviceAttr
	if errno := l.queryDevice(handle, &attr); errno != 0 {
		return Device{}, refused(errno, "limits of %s", name)
	}
	d := Device{Name: name, Node: l.nodeOf(name), PCI: l.busOf(name),
		Path: probe.BusPath(filepath.Join(l.sysfs, name, "device")), Pairs: int(attr.pairs),
		Entries: int(attr.entries), Posted: int(attr.posted), Receive: int(attr.receives), Regions: int(attr.regions)}
	for number := 1; number <= int(attr.ports); number++ {
		port, err := l.port(handle, name, number)
		if err != nil {
			return Device{}, err
		}
		d.Ports = append(d.Ports, port)
	}
	return d, nil
}

var portStates = [...]string{"no state", "down", "initialising", "armed", "active", "active, about to fail"}

// port returns what a port of an open adapter is.
func (l *library) port(handle uintptr, name string, number int) (Port, error) {
	var attr cPortAttr
	if errno := l.queryPort(handle, number, &attr); errno != 0 {
		return Port{}, refused(errno, "port %d of %s", number, name)
	}
	const leastMTU, mostMTU, mostGIDs = 1, 5, 1 << 16
	if attr.state < 0 || int(attr.state) >= len(portStates) {
		return Port{}, misfit("ibv_port_attr.state", uint64(attr.state), "a state")
	}
	if attr.activeMTU < leastMTU || attr.activeMTU > mostMTU {
		return Port{}, misfit("ibv_port_attr.active_mtu", uint64(attr.activeMTU), "an MTU")
	}
	if attr.gids < 0 || attr.gids > mostGIDs {
		return Port{}, misfit("ibv_port_attr.gid_tbl_len", uint64(attr.gids), "a length")
	}
	p := Port{Number: number, Active: attr.state == portActive, State: portStates[attr.state],
		Ethernet: attr.link == linkEthernet, LID: attr.lid, MTU: 128 << attr.activeMTU, Message: int(attr.message),
		Rate: l.rateOf(name, number)}
	const usable = 256 // a path has a byte for the index
	for index := range min(int(attr.gids), usable) {
		gid := GID{Index: index}
		if errno := l.queryGID(handle, number, index, &gid.Value); errno != 0 {
			if errno == syscall.ENODATA || errno == syscall.EAGAIN { // of an entry that is empty
				continue
			}
			return Port{}, refused(errno, "GID %d of port %d of %s", index, number, name)
		}
		if gid.Value == [16]byte{} {
			continue
		}
		gid.Kind, gid.Interface = l.gidOf(name, number, index, p.Ethernet)
		p.GIDs = append(p.GIDs, gid)
	}
	return p, nil
}

// Open implements Library.
func (l *library) Open(name string) (Context, error) {
	var opened *context
	var names []string
	err := l.each(func(device uintptr, each string) (bool, error) {
		names = append(names, each)
		if each != name {
			return true, nil
		}
		var err error
		opened, err = l.openContext(device, name)
		return false, err
	})
	if err != nil {
		return nil, err
	}
	if opened == nil {
		return nil, fault.New(fault.NotSupported, "rdma: there is no adapter %q; there are %q", name, names)
	}
	return opened, nil
}

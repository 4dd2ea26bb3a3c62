package hosts

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	vnetHeader  = 10 // before each packet: what is left to do of checksums and segments
	mostPacket  = vnetHeader + 1<<16
	mostDelayed = 4096 // packets on their way to one host
)

// packet is on its way to a host.
type packet struct {
	due  int64 // by the monotonic clock, in ns
	data []byte
	of   *[mostPacket]byte
}

// relay makes a wire of tun devices and carries their packets. Devices leave checksums and the
// cutting of large packets to the next one, so a packet may have 64 KiB.
func (n *Network) relay(wire int) error {
	devices := make([]*os.File, n.Hosts)
	for host := range devices {
		device, err := openTun(fmt.Sprintf("tun%d.%d", wire, host))
		if err != nil {
			return err
		}
		devices[host] = device
		name, eth := Host(host), Interface(wire)
		err = run("", fmt.Sprintf("ip link set tun%d.%d netns %s name %s", wire, host, name, eth),
			"ip -n "+name+" link set "+eth+" txqueuelen 10000")
		if err == nil {
			err = n.address(wire, host)
		}
		if err == nil {
			err = n.shape(name, eth, wire)
		}
		if err != nil {
			return err
		}
	}
	by := map[netip.Addr]chan packet{}
	buffers := &sync.Pool{New: func() any { return new([mostPacket]byte) }}
	for host, device := range devices {
		queue := make(chan packet, mostDelayed)
		by[netip.MustParseAddr(n.Address(wire, host))] = queue
		go deliver(device, queue, buffers)
	}
	for _, device := range devices {
		go collect(device, by, n.Wires[wire].Delay/2, buffers)
	}
	return nil
}

// openTun makes a device that passes large packets with a header for what is left to do.
func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("a wire with a delay needs /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD,
			unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// collect reads what a host sends, until its device is gone.
func collect(device *os.File, by map[netip.Addr]chan packet, delay time.Duration, buffers *sync.Pool) {
	for {
		of := buffers.Get().(*[mostPacket]byte)
		n, err := device.Read(of[:])
		if err != nil {
			return
		}
		select {
		case by[destination(of[vnetHeader:n])] <- packet{now() + int64(delay), of[:n], of}:
		default: // no such host, or a full queue: as in a switch, it is lost
			buffers.Put(of)
		}
	}
}

// destination returns the address that an IP packet goes to.
func destination(p []byte) (to netip.Addr) {
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		to, _ = netip.AddrFromSlice(p[16:20])
	case len(p) >= 40 && p[0]>>4 == 6:
		to, _ = netip.AddrFromSlice(p[24:40])
	}
	return to
}

// deliver hands packets to a host when they are due. It sleeps in the kernel, since timers of Go
// may be a millisecond late.
func deliver(device *os.File, queue chan packet, buffers *sync.Pool) {
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // in ns; where it fails, packets are 50 µs late
	for p := range queue {
		if p.due > now() {
			until := unix.NsecToTimespec(p.due)
			for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
			}
		}
		device.Write(p.data) // fails while the interface is down: then the packet is lost
		buffers.Put(p.of)
	}
}

func now() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

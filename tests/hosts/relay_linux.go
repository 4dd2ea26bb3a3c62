package hosts

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"

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
// cutting of large packets to the next one, so a packet may have 64 KiB, unless packets get lost.
func (n *Network) relay(wire int) error {
	devices := make([]*os.File, n.Hosts)
	w := &n.Wires[wire]
	for host := range devices {
		device, err := openTun(fmt.Sprintf("tun%d.%d", wire, host), w.Loss == 0 && w.Flow == 0)
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
		go collect(device, by, w, buffers)
	}
	return nil
}

// openTun makes a device that passes packets with a header for what is left to do, and large ones
// if asked.
func openTun(name string, large bool) (*os.File, error) {
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
		offload := unix.TUN_F_CSUM
		if large {
			offload |= unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
		}
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// collect reads what a host sends, until its device is gone.
func collect(device *os.File, by map[netip.Addr]chan packet, w *Wire, buffers *sync.Pool) {
	buckets := map[[connectionBytes]byte]*bucket{}
	for {
		of := buffers.Get().(*[mostPacket]byte)
		n, err := device.Read(of[:])
		if err != nil {
			return
		}
		at := now()
		p := of[vnetHeader:n]
		if w.Loss > 0 && rand.Float64() < w.Loss {
			buffers.Put(of)
			continue
		}
		if w.Flow > 0 {
			key := connection(p)
			b := buckets[key]
			if b == nil {
				b = &bucket{tokens: burst}
				buckets[key] = b
			}
			if !b.takes(at, len(p), w.Flow) {
				buffers.Put(of)
				continue
			}
		}
		select {
		case by[destination(p)] <- packet{at + int64(w.Delay/2), of[:n], of}:
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

// connectionBytes is the length of both addresses and ports.
const connectionBytes = 16 + 16 + 2 + 2

// connection identifies the connection that a packet belongs to, in one direction.
func connection(p []byte) (key [connectionBytes]byte) {
	switch {
	case len(p) >= 24 && p[0]>>4 == 4:
		n := copy(key[:], p[12:20])
		if header := int(p[0]&15) * 4; len(p) >= header+4 {
			copy(key[n:], p[header:header+4])
		}
	case len(p) >= 44 && p[0]>>4 == 6:
		copy(key[copy(key[:], p[8:40]):], p[40:44])
	}
	return key
}

// burst is how much of a connection passes at once, whatever its limit.
const burst = 256 << 10

// bucket limits a connection.
type bucket struct {
	tokens float64
	at     int64
}

// takes reports whether a packet of n bytes passes now.
func (b *bucket) takes(at int64, n int, rate int64) bool {
	b.tokens = min(burst, b.tokens+float64(at-b.at)*float64(rate)/1e9)
	b.at = at
	if b.tokens < float64(n) {
		return false
	}
	b.tokens -= float64(n)
	return true
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

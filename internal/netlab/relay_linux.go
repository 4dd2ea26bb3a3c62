package netlab

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
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
// cutting of large packets to the next one, so a packet may have 64 KiB, unless single ones get
// lost.
func (n *Network) relay(wire int) error {
	devices := make([]*os.File, n.Hosts)
	w := &n.Wires[wire]
	for host := range devices {
		device, err := openTun(fmt.Sprintf("tun%d.%d", wire, host), w.Loss == 0 && w.Flow == 0 && w.Most == 0)
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
	by := map[netip.Addr]mailbox{}
	buffers := &sync.Pool{New: func() any { return new([mostPacket]byte) }}
	for host, device := range devices {
		box := mailbox{host, make(chan packet, mostDelayed), make(chan packet, mostDelayed)}
		by[netip.MustParseAddr(n.Address(wire, host))] = box
		go deliver(device, box.far, buffers)
		if w.Site > 0 {
			go deliver(device, box.near, buffers)
		}
	}
	for host, device := range devices {
		go collect(host, device, by, w, buffers)
	}
	return nil
}

// mailbox has the packets on their way to a host, in the order in which they are due.
type mailbox struct {
	host      int
	far, near chan packet // from other sites, and from its own
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
func collect(host int, device *os.File, by map[netip.Addr]mailbox, w *Wire, buffers *sync.Pool) {
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
		if w.Most > 0 && n-vnetHeader > w.Most || slices.Contains(w.Drops, host) && opens(p) {
			buffers.Put(of)
			continue
		}
		if slices.Contains(w.Refuses, host) && opens(p) {
			n = vnetHeader + refuse(of)
			p = of[vnetHeader:n]
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
		to := by[destination(p)]
		queue, due := to.far, at+int64(w.Delay/2)
		if w.near(host, to.host) {
			queue, due = to.near, at
		}
		select {
		case queue <- packet{due, of[:n], of}:
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

const (
	tcpProtocol         = 6
	flagSYN, flagReset  = 2, 4
	flagACK             = 16
	headerIP, headerTCP = 20, 20 // without options
)

// opens reports whether an IPv4 packet would open a TCP connection.
func opens(p []byte) bool {
	if len(p) < headerIP+headerTCP || p[0]>>4 != 4 || p[9] != tcpProtocol {
		return false
	}
	header := int(p[0]&15) * 4
	return len(p) >= header+headerTCP && p[header+13]&(flagSYN|flagACK) == flagSYN
}

// refuse replaces a packet that opens a connection by the answer of a closed port, and returns its
// length.
func refuse(of *[mostPacket]byte) int {
	p := of[vnetHeader:]
	header := int(p[0]&15) * 4
	asked := slices.Clone(p[:header+headerTCP])
	syn := asked[header:]
	clear(of[:vnetHeader+headerIP+headerTCP])
	of[0] = 2 // of the header for what is left to do: checksums are valid
	be := binary.BigEndian
	p[0], p[8], p[9] = 4<<4|headerIP/4, 64, tcpProtocol
	be.PutUint16(p[2:], headerIP+headerTCP)
	copy(p[12:16], asked[16:20])
	copy(p[16:20], asked[12:16])
	sum := uint32(0)
	for i := 0; i < headerIP; i += 2 {
		sum += uint32(be.Uint16(p[i:]))
	}
	be.PutUint16(p[10:], ^uint16(sum+sum>>16))
	tcp := p[headerIP:]
	copy(tcp, syn[2:4])
	copy(tcp[2:], syn[:2])
	be.PutUint32(tcp[8:], be.Uint32(syn[4:])+1)
	tcp[12], tcp[13] = headerTCP/4<<4, flagReset|flagACK
	return headerIP + headerTCP
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

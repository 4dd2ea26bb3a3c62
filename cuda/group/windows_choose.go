package group

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda/kernel"
)

// Routes of collectives, as a user names them.
const (
	RouteAuto        = "auto"         // the best of these that works
	RouteStaged      = "staged"       // through memory of the host, by the processor
	RouteWindows     = "windows"      // over windows in the memory of devices
	RouteHostWindows = "host-windows" // over windows in memory of the host
)

// kind is where windows are.
type kind int

const (
	inHost kind = iota
	onDevice
	kinds
)

func (k kind) route() string { return [kinds]string{RouteHostWindows, RouteWindows}[k] }

// wanted reports whether a route may be over windows of a kind.
func (k kind) wanted(route string) bool { return route == RouteAuto || route == k.route() }

// Route says how a group moves its collectives, and why.
type Route struct {
	Name    string // RouteStaged, RouteWindows or RouteHostWindows
	Why     string // why it is not a better one; "" if there is none, or if the user has chosen
	Devices int    // of the ranks, the most of any host; 0 if nobody has asked
	Hosts   int    // of the ranks; 0 if all share memory
	// Interpreted is the most bytes of a call that is one kernel; 0 if none is.
	Interpreted int64
	// Device and Host say how the slowest device reads windows of a peer, in the memory of its
	// device and in memory of the host.
	Device, Host Reads
	// Word is what the slowest stream takes to write a word, in seconds; 0 if that was not
	// measured.
	Word float64
}

// Reads is how a device reads memory: a copy takes Latency, in seconds, and its bytes besides at
// Rate, in bytes a second. Its zero value was not measured.
type Reads struct{ Rate, Latency float64 }

// Rate returns the bytes a second at which the slowest device reads the windows of its peers, 0 if
// that was not measured.
func (r Route) Rate() float64 {
	switch r.Name {
	case RouteWindows:
		return r.Device.Rate
	case RouteHostWindows:
		return r.Host.Rate
	}
	return 0
}

func (r Route) String() string {
	text := r.Name
	if r.Hosts > 1 && r.Name != RouteStaged {
		text += fmt.Sprintf(" within hosts, staged between %d hosts", r.Hosts)
	}
	if r.Devices > 0 {
		text += fmt.Sprintf(", %d device", r.Devices)
		if r.Devices > 1 {
			text += "s"
		}
		if r.Hosts > 1 {
			text += " a host"
		}
	}
	for _, each := range []struct {
		of    string
		reads Reads
	}{{"devices", r.Device}, {"the host", r.Host}} {
		if each.reads.Rate > 0 {
			text += fmt.Sprintf(", peers read memory of %s at %.3g GB/s or more after %.3g µs", each.of,
				each.reads.Rate/1e9, each.reads.Latency*1e6)
		}
	}
	if r.Word > 0 {
		text += fmt.Sprintf(", a word takes %.3g µs", r.Word*1e6)
	}
	if r.Interpreted > 0 {
		text += fmt.Sprintf(", calls of up to %d bytes are one kernel", r.Interpreted)
	}
	if r.Why != "" {
		text += "; no better route: " + r.Why
	}
	return text
}

// note is what the ranks tell each other when they join.
type note struct {
	Has        bool // it has a Window
	Slot       uint64
	Graphs     uint64
	Interprets byte // what the user wants of it: InterpretAuto
	Device     [16]byte
	DeviceSlot uint64        // of its window in the memory of its device
	Arena      uint64        // bytes of its Arena; 0 for none
	Works      [kinds]bool   // as far as this rank knows
	Reads      [kinds]Reads  // of the slowest peer
	Word       float64       // see Route
	Why        [kinds]string // why it does not work
}

const (
	whyBytes  = 103
	whyOffset = 96
	noteBytes = whyOffset + int(kinds)*(whyBytes+1)
)

func (n *note) encode(b []byte) {
	flag := func(at int, is bool) {
		if is {
			b[at] = 1
		}
	}
	flag(0, n.Has)
	b[3] = n.Interprets
	binary.LittleEndian.PutUint64(b[8:], n.Slot)
	copy(b[16:], n.Device[:])
	binary.LittleEndian.PutUint64(b[48:], n.Graphs)
	binary.LittleEndian.PutUint64(b[56:], n.Arena)
	binary.LittleEndian.PutUint64(b[88:], n.DeviceSlot)
	binary.LittleEndian.PutUint64(b[80:], math.Float64bits(n.Word))
	for k := range kinds {
		flag(1+int(k), n.Works[k])
		binary.LittleEndian.PutUint64(b[32+8*k:], math.Float64bits(n.Reads[k].Rate))
		binary.LittleEndian.PutUint64(b[64+8*k:], math.Float64bits(n.Reads[k].Latency))
		at := whyOffset + int(k)*(whyBytes+1)
		b[at] = byte(copy(b[at+1:at+1+whyBytes], n.Why[k]))
	}
}

func decodeNote(b []byte) (n note) {
	n.Has, n.Slot, n.Device = b[0] == 1, binary.LittleEndian.Uint64(b[8:]), [16]byte(b[16:])
	n.Graphs, n.Arena = binary.LittleEndian.Uint64(b[48:]), binary.LittleEndian.Uint64(b[56:])
	n.DeviceSlot = binary.LittleEndian.Uint64(b[88:])
	n.Interprets, n.Word = b[3], math.Float64frombits(binary.LittleEndian.Uint64(b[80:]))
	for k := range kinds {
		n.Works[k] = b[1+k] == 1
		n.Reads[k].Rate = math.Float64frombits(binary.LittleEndian.Uint64(b[32+8*k:]))
		n.Reads[k].Latency = math.Float64frombits(binary.LittleEndian.Uint64(b[64+8*k:]))
		text := b[whyOffset+int(k)*(whyBytes+1):]
		n.Why[k] = strings.ToValidUTF8(string(text[1:1+min(int(text[0]), whyBytes)]), "")
	}
	return n
}

// What follows are functions of the notes of all ranks, so that these come to the same result.

// several returns the number of hosts, or 0 if there is one.
func several(on *topo.Group) int {
	if hosts := len(on.Hosts()); hosts > 1 {
		return hosts
	}
	return 0
}

// devices returns how many devices the ranks are on, the most of any host.
func devices(notes []note, on *topo.Group) (most int) {
	for _, ranks := range on.Hosts() {
		seen := map[[16]byte]bool{}
		for _, rank := range ranks {
			seen[notes[rank].Device] = true
		}
		most = max(most, len(seen))
	}
	return most
}

// works reports whether windows of a kind work on all ranks.
func works(notes []note, k kind) bool {
	return !slices.ContainsFunc(notes, func(n note) bool { return !n.Works[k] })
}

// next returns the kinds of windows that the ranks open next, none if there is nothing more to try.
// Where they share a device, windows in its memory are better than those of the host, which cost
// time and memory only if they are needed. Otherwise both are opened, to be compared.
func next(notes []note, on *topo.Group, tried [kinds]bool) (open []kind) {
	for k := range kinds {
		if !tried[k] && works(notes, k) {
			open = append(open, k)
		}
	}
	if len(open) == 2 && devices(notes, on) == 1 {
		return []kind{onDevice}
	}
	return open
}

// choose returns the route of a group whose ranks have opened what they could. All that is known of
// which route is better stands here: windows are better than memory of the host through which the
// processor moves everything, since they leave the processor alone (for 64 MiB on one GPU that two
// processes shared, 4 times as fast, and 25 times under MPS; without MPS short calls are slower,
// since kernels wait for the turn of their process); in memory of a device that all share they are
// better than in memory of the host; and between devices, what peers read faster is better.
func choose(notes []note, on *topo.Group) Route {
	r := Route{Name: RouteStaged, Devices: devices(notes, on), Hosts: several(on)}
	r.Device, r.Host = slowest(notes, onDevice), slowest(notes, inHost)
	for i := range notes {
		r.Word = max(r.Word, notes[i].Word)
	}
	device, host := works(notes, onDevice), works(notes, inHost)
	switch {
	case device && (!host || r.Devices == 1 || r.Device.Rate >= r.Host.Rate):
		r.Name = RouteWindows
	case device:
		r.Name, r.Why = RouteHostWindows, "peers read memory of the host faster than that of devices"
	case host:
		r.Name, r.Why = RouteHostWindows, lacking(notes, onDevice)
	default:
		r.Why = lacking(notes, onDevice)
		if other := lacking(notes, inHost); other != r.Why {
			r.Why += "; " + other
		}
	}
	return r
}

// interprets reports whether short calls are one kernel, if windows are in the memory of devices.
func interprets(notes []note, on *topo.Group) bool {
	wanted := Interpret(notes[0].Interprets)
	auto := len(on.Hosts()) == 1 && devices(notes, on) == len(notes)
	return len(notes) > 1 && len(notes) <= kernel.MostRanks &&
		(wanted == InterpretAlways || wanted == InterpretAuto && auto)
}

// slowest returns how the slowest rank reads windows of a kind; its rate is 0 if not all have
// measured one.
func slowest(notes []note, k kind) Reads {
	all := notes[0].Reads[k]
	for i := range notes {
		all.Rate = min(all.Rate, notes[i].Reads[k].Rate)
		all.Latency = max(all.Latency, notes[i].Reads[k].Latency)
	}
	return all
}

// lacking says which rank has no windows of a kind, and why.
func lacking(notes []note, k kind) string {
	for rank := range notes {
		if !notes[rank].Works[k] {
			return fmt.Sprintf("rank %d: %s", rank, notes[rank].Why[k])
		}
	}
	return ""
}

// sameSlots returns an error if a rank has other slots than this one, or uses them otherwise.
func sameSlots(notes []note, own int) error {
	for rank := range notes {
		switch {
		case notes[rank].Graphs != notes[own].Graphs:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_GRAPHS is %d, that of rank %d is %d", notes[rank].Graphs,
				own, notes[own].Graphs)
		case notes[rank].Interprets != notes[own].Interprets:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_INTERPRET is %v, that of rank %d is %v",
				Interpret(notes[rank].Interprets), own, Interpret(notes[own].Interprets))
		case notes[rank].Slot != notes[own].Slot:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_BUFFSIZE gives slots of %d bytes, that of rank %d %d",
				notes[rank].Slot, own, notes[own].Slot)
		}
	}
	return nil
}

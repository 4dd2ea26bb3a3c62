package route

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda/kernel"
)

// Offer is what the ranks tell each other when they join.
type Offer struct {
	Facts
	Why [Kinds]string // why it does not work
}

// Facts are what has the same length in all offers.
type Facts struct {
	Has        bool // it has a Window
	Interprets byte // what the user wants of it: InterpretAuto
	Slot       uint64
	Graphs     uint64
	Device     [16]byte
	DeviceSlot uint64       // of its window in the memory of its device
	Arena      uint64       // bytes of its Arena; 0 for none
	Works      [Kinds]bool  // as far as this rank knows
	Reads      [Kinds]Reads // of the slowest peer
	Word       float64      // see Route
}

const whyBytes = 103

// OfferBytes is the length of an offer.
var OfferBytes = binary.Size(Facts{}) + int(Kinds)*(1+whyBytes)

// Encode writes an offer into OfferBytes bytes.
func (o *Offer) Encode(b []byte) {
	at, _ := binary.Encode(b, binary.LittleEndian, &o.Facts)
	for _, why := range o.Why {
		b[at] = byte(copy(b[at+1:at+1+whyBytes], why))
		at += 1 + whyBytes
	}
}

// Decode reads one.
func Decode(b []byte) (o Offer) {
	at, _ := binary.Decode(b, binary.LittleEndian, &o.Facts)
	for k := range o.Why {
		text := b[at+1:]
		o.Why[k] = strings.ToValidUTF8(string(text[:min(int(b[at]), whyBytes)]), "")
		at += 1 + whyBytes
	}
	return o
}

// Unfit says why collectives do not go over windows in a group; "" if they may.
func Unfit(on *topo.Group) string {
	hosts := len(on.Hosts())
	if hosts == 1 {
		return ""
	}
	switch most := (plan.MaxLanes - 1) / 2; {
	case !on.Levels():
		return "the ranks share no memory: each is on a host of its own, or is linked by TCP"
	case !on.Even():
		return "the ranks are on hosts of " + on.Sizes() + ": windows are for hosts with the same number of ranks"
	case hosts > most+1:
		return fmt.Sprintf("the ranks are on %d hosts; windows are for up to %d", hosts, most+1)
	}
	return ""
}

// What follows are functions of the offers of all ranks, so that these come to the same result.

// several returns the number of hosts, or 0 if there is one.
func several(on *topo.Group) int {
	if hosts := len(on.Hosts()); hosts > 1 {
		return hosts
	}
	return 0
}

// devices returns how many devices the ranks are on, the most of any host.
func devices(offers []Offer, on *topo.Group) (most int) {
	for _, ranks := range on.Hosts() {
		seen := map[[16]byte]bool{}
		for _, rank := range ranks {
			seen[offers[rank].Device] = true
		}
		most = max(most, len(seen))
	}
	return most
}

// Works reports whether windows of a Kind work on all ranks.
func Works(offers []Offer, k Kind) bool {
	return !slices.ContainsFunc(offers, func(n Offer) bool { return !n.Works[k] })
}

// Next returns the kinds of windows that the ranks open next, none if there is nothing more to try.
// Where they share a device, windows in its memory are better than those of the host, which cost
// time and memory only if they are needed. Otherwise both are opened, to be compared.
func Next(offers []Offer, on *topo.Group, tried [Kinds]bool) (open []Kind) {
	for k := range Kinds {
		if !tried[k] && Works(offers, k) {
			open = append(open, k)
		}
	}
	if len(open) == 2 && devices(offers, on) == 1 {
		return []Kind{OnDevice}
	}
	return open
}

// Choose returns the route of a group whose ranks have opened what they could: the one that they
// want, or the best with Auto. All that is known of which route is better is here: windows are
// better than memory of the host through which the processor moves everything, since they leave the
// processor alone (for 64 MiB on one GPU that two processes shared, 4 times as fast, and 25 times
// under MPS; without MPS short calls are slower, since kernels wait for the turn of their process);
// in memory of a device that all share they are better than in memory of the host; and between
// devices, what peers read faster is better.
func Choose(wanted string, offers []Offer, on *topo.Group) Route {
	r := Route{Name: Staged, Devices: devices(offers, on), Hosts: several(on)}
	if wanted != Auto {
		r.Name = wanted
		return r
	}
	r.Device, r.Host = slowest(offers, OnDevice), slowest(offers, InHost)
	for i := range offers {
		r.Word = max(r.Word, offers[i].Word)
	}
	device, host := Works(offers, OnDevice), Works(offers, InHost)
	switch {
	case device && (!host || r.Devices == 1 || r.Device.Rate >= r.Host.Rate):
		r.Name = Windows
	case device:
		r.Name, r.Why = HostWindows, "peers read memory of the host faster than that of devices"
	case host:
		r.Name, r.Why = HostWindows, lacking(offers, OnDevice)
	default:
		r.Why = lacking(offers, OnDevice)
		if other := lacking(offers, InHost); other != r.Why {
			r.Why += "; " + other
		}
	}
	return r
}

// Interprets reports whether short calls are one kernel, if windows are in the memory of devices.
func Interprets(offers []Offer, on *topo.Group) bool {
	wanted := Interpret(offers[0].Interprets)
	auto := len(on.Hosts()) == 1 && devices(offers, on) == len(offers)
	return len(offers) > 1 && len(offers) <= kernel.MostRanks &&
		(wanted == InterpretAlways || wanted == InterpretAuto && auto)
}

// slowest returns how the slowest rank reads windows of a kind; its rate is 0 if not all have
// measured one.
func slowest(offers []Offer, k Kind) Reads {
	all := offers[0].Reads[k]
	for i := range offers {
		all.Rate = min(all.Rate, offers[i].Reads[k].Rate)
		all.Latency = max(all.Latency, offers[i].Reads[k].Latency)
	}
	return all
}

// lacking says which rank has no windows of a Kind, and why.
func lacking(offers []Offer, k Kind) string {
	for rank := range offers {
		if !offers[rank].Works[k] {
			return fmt.Sprintf("rank %d: %s", rank, offers[rank].Why[k])
		}
	}
	return ""
}

// SameSlots returns an error if a rank has other slots than this one, or uses them otherwise.
func SameSlots(offers []Offer, own int) error {
	for rank := range offers {
		switch {
		case offers[rank].Graphs != offers[own].Graphs:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_GRAPHS is %d, that of rank %d is %d", offers[rank].Graphs,
				own, offers[own].Graphs)
		case offers[rank].Interprets != offers[own].Interprets:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_INTERPRET is %v, that of rank %d is %v",
				Interpret(offers[rank].Interprets), own, Interpret(offers[own].Interprets))
		case offers[rank].Slot != offers[own].Slot:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_BUFFSIZE gives slots of %d bytes, that of rank %d %d",
				offers[rank].Slot, own, offers[own].Slot)
		}
	}
	return nil
}

// Package route decides how a device group moves its collectives. Ranks that join tell all what
// they have and what works (Offer); what follows from that is a pure function of all offers, so all
// ranks come to the same route.
package route

import "fmt"

// Routes of collectives, as a user names them.
const (
	Auto        = "auto"         // the best of these that works
	Staged      = "staged"       // through memory of the host, by the processor
	Windows     = "windows"      // over windows in the memory of devices
	HostWindows = "host-windows" // over windows in memory of the host
)

// Kind is where windows are.
type Kind int

// The kinds.
const (
	InHost Kind = iota
	OnDevice
	Kinds // how many there are
)

// Route returns the name of the route over windows of a kind.
func (k Kind) Route() string { return [Kinds]string{HostWindows, Windows}[k] }

// Wanted reports whether a route may be over windows of a kind.
func (k Kind) Wanted(route string) bool { return route == Auto || route == k.Route() }

// Route says how a group moves its collectives, and why.
type Route struct {
	Name    string // Staged, Windows or HostWindows
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
	case Windows:
		return r.Device.Rate
	case HostWindows:
		return r.Host.Rate
	}
	return 0
}

func (r Route) String() string {
	text := r.Name
	if r.Hosts > 1 && r.Name != Staged {
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

// Interpret says whether short calls over windows are kernels that interpret their program.
type Interpret byte

// The values of Interpret.
const (
	InterpretAuto   Interpret = iota // where each rank has a device of its own
	InterpretNever                   // by nobody
	InterpretAlways                  // wherever windows are in the memory of devices
)

func (i Interpret) String() string { return [...]string{"auto", "0", "1"}[i%3] }

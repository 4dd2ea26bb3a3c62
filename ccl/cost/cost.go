// Package cost has what the parts of a call cost: one table, which goccl tune fit measures, and
// which the simulator, the choice of algorithms and estimates read.
//
// The model is LogGP (Alexandrov, Ionescu, Schauser, Scheiman, "LogGP: incorporating long messages
// into the LogP model", 1995) for fragments: one takes the sender's core some time, then it crosses
// a network whose ports carry a number of bytes a second, after a latency the receiver finds it,
// and takes it in some time of its own core. LogGP's o is Send.Each and Receive.Each, its L is
// Latency, its G the larger of 1/Bandwidth and the times for a byte.
package cost

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// Table is what calls of a group cost. Times are in seconds, sizes in bytes.
type Table struct {
	Network Path    `json:"network"` // messages between hosts
	Far     Path    `json:"far"`     // messages between hosts of different sites
	Memory  Path    `json:"memory"`  // messages between ranks that share memory
	Windows Windows `json:"windows"` // memory that ranks read of each other
	Copy    Work    `json:"copy"`    // a copy within a rank
	Reduce  Work    `json:"reduce"`  // combining one operand more
	Call    float64 `json:"call"`    // a rank enters and leaves a call
	Cache   float64 `json:"cache"`   // bytes that a core has for itself
}

// Path is what messages from one rank to another cost. A message is cut into fragments.
type Path struct {
	Latency   float64 `json:"latency"`   // from when a fragment has left until the receiver finds it
	Bandwidth float64 `json:"bandwidth"` // bytes a second of a port, in each direction; 0 for memory
	Burst     float64 `json:"burst"`     // bytes that a port lets through at once after a pause
	Send      Work    `json:"send"`      // of the sender's core, for a fragment
	Receive   Work    `json:"receive"`   // of the receiver's core
	Fragment  int64   `json:"fragment"`  // bytes of a fragment at most
	Credit    int     `json:"credit"`    // fragments of a channel that the receiver has not taken, at most
	Switch    float64 `json:"switch"`    // a core turns to the next rank, which looks whether it can go on
}

// Work is what a core does.
type Work struct {
	Each float64 `json:"each"`           // each time
	Byte float64 `json:"byte"`           // for each byte
	Far  float64 `json:"far,omitempty"`  // for each byte more, if another core has touched it last
	Miss float64 `json:"miss,omitempty"` // for each byte more, as far as a core's cache does not hold the call
}

// Of returns the time of work on some bytes. far is whether another core has touched them last,
// miss the part that is not in the core's cache.
func (w Work) Of(bytes int64, far bool, miss float64) float64 {
	byte := w.Byte + w.Miss*miss
	if far {
		byte += w.Far
	}
	return w.Each + byte*float64(bytes)
}

// Windows is what ranks pay that read memory of each other.
type Windows struct {
	Signal  float64 `json:"signal"`  // to publish a word
	Latency float64 `json:"latency"` // until a peer finds it
	Wait    float64 `json:"wait"`    // to find it
	Read    Work    `json:"read"`    // of an operand, beside its copy or its reduction
}

// Credit of channels of TCP: a path that is long holds more (transport/tcp, Credit).
const (
	tcpFragment = 45 * 1448
	tcpCredit   = 16
	mostCredit  = 128
	fastPath    = 2e9 // bytes a second
)

// TCP sets what follows from the latency of a network: fragments and credit.
func (p *Path) TCP() {
	p.Fragment, p.Credit = tcpFragment, tcpCredit
	for p.Credit < mostCredit && float64(p.Credit)*tcpFragment < fastPath*2*p.Latency {
		p.Credit *= 2
	}
}

// Usual returns the costs of machines that nobody has measured. They are those of two cores of an
// Intel Xeon (Emerald Rapids), and of a network of 10 Gbit/s, of 2026-11-29.
func Usual() *Table {
	t := &Table{
		Network: Path{Latency: 5e-6, Bandwidth: 1.18e9, Send: Work{Each: 4e-6, Byte: 0.3e-9},
			Receive: Work{Each: 4e-6, Byte: 0.3e-9}, Switch: 3e-6},
		Memory: Path{Latency: 0.06e-6, Send: Work{0.15e-6, 0.03e-9, 0.03e-9, 0.05e-9},
			Receive: Work{0.15e-6, 0.03e-9, 0.03e-9, 0.05e-9}, Fragment: 64 << 10, Credit: 8, Switch: 1e-6},
		Windows: Windows{Signal: 0.02e-6, Latency: 0.07e-6, Wait: 0.05e-6,
			Read: Work{0.02e-6, 0.02e-9, 0.03e-9, 0.05e-9}},
		Copy:   Work{0.05e-6, 0.02e-9, 0.03e-9, 0.05e-9},
		Reduce: Work{0.05e-6, 0.03e-9, 0.01e-9, 0.05e-9},
		Call:   0.1e-6,
		Cache:  2 << 20,
	}
	t.Far = t.Network
	t.Far.Latency = 5e-3
	t.Network.TCP()
	t.Far.TCP()
	return t
}

// Limits on a table that was read: what any machine has.
const (
	mostSeconds   = 60
	mostByte      = 1e-3
	mostBandwidth = 1e15
	mostBytes     = 1 << 30
)

// Validate reports what is wrong with a table that was read.
func (t *Table) Validate() error {
	type value struct {
		name        string
		value, most float64
	}
	all := []value{
		{"network.latency", t.Network.Latency, mostSeconds}, {"memory.latency", t.Memory.Latency, mostSeconds},
		{"far.latency", t.Far.Latency, mostSeconds}, {"far.burst", t.Far.Burst, mostBytes},
		{"far.switch", t.Far.Switch, mostSeconds},
		{"network.burst", t.Network.Burst, mostBytes}, {"memory.burst", t.Memory.Burst, mostBytes},
		{"windows.signal", t.Windows.Signal, mostSeconds}, {"windows.latency", t.Windows.Latency, mostSeconds},
		{"windows.wait", t.Windows.Wait, mostSeconds}, {"call", t.Call, mostSeconds},
		{"network.switch", t.Network.Switch, mostSeconds},
		{"memory.switch", t.Memory.Switch, mostSeconds}, {"cache", t.Cache, mostBytes},
	}
	for _, of := range []struct {
		name string
		*Work
	}{
		{"network.send", &t.Network.Send}, {"network.receive", &t.Network.Receive},
		{"far.send", &t.Far.Send}, {"far.receive", &t.Far.Receive},
		{"memory.send", &t.Memory.Send}, {"memory.receive", &t.Memory.Receive},
		{"windows.read", &t.Windows.Read}, {"copy", &t.Copy}, {"reduce", &t.Reduce},
	} {
		all = append(all, value{of.name + ".each", of.Each, mostSeconds}, value{of.name + ".byte", of.Byte, mostByte},
			value{of.name + ".far", of.Far, mostByte}, value{of.name + ".miss", of.Miss, mostByte})
	}
	for _, of := range all {
		if !(of.value >= 0 && of.value <= of.most) {
			return fault.New(fault.Invalid, "costs: %s is %v, want 0 to %v", of.name, of.value, of.most)
		}
	}
	for name, p := range map[string]*Path{"network": &t.Network, "far": &t.Far, "memory": &t.Memory} {
		if b := p.Bandwidth; p != &t.Memory && !(b >= 1 && b <= mostBandwidth) {
			return fault.New(fault.Invalid, "costs: %s.bandwidth is %v bytes a second, want 1 to %v", name, b, mostBandwidth)
		}
		if p.Fragment < 1 || p.Fragment > mostBytes || p.Credit < 1 || p.Credit > 1<<20 {
			return fault.New(fault.Invalid, "costs: %s.fragment is %d and %s.credit %d, want 1 or more", name, p.Fragment,
				name, p.Credit)
		}
	}
	return nil
}

// File is a table as it is kept, and where its parts come from. What nobody has measured is Usual.
type File struct {
	Format  int   `json:"goccl_costs"`
	Network *Part `json:"network,omitempty"` // Costs.Network; nil if it was not measured
	Far     *Part `json:"far,omitempty"`     // Costs.Far; likewise
	Host    *Part `json:"host,omitempty"`    // the other costs; likewise
	Costs   Table `json:"costs"`
}

// Paths returns what was measured of networks: between hosts, and between sites; nil for what was
// not.
func (f *File) Paths() (network, far *Path) {
	if f.Network != nil {
		network = &f.Costs.Network
	}
	if f.Far != nil {
		far = &f.Costs.Far
	}
	return network, far
}

// Part says where costs come from.
type Part struct {
	Measured time.Time `json:"measured"`
	Of       string    `json:"of"` // what was measured, for people
	// Misfit is by how much the table misses the calls that it was made of, in the middle.
	Misfit float64 `json:"misfit"`
	// Spread is by how much blocks of these calls differ, in the middle.
	Spread float64 `json:"spread"`
}

// Off is named in place of a file where no costs are to be used.
const Off = "off"

// Kept returns where the costs of this user and host are kept.
func Kept() string {
	host, _ := os.Hostname()
	return filepath.Join(Folder(), "costs-"+host+".json")
}

// Folder returns where what is measured is kept for this user.
func Folder() string {
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir()
	}
	return filepath.Join(folder, "goccl")
}

// mostFile is the most bytes of a file.
const mostFile = 1 << 20

// Read reads a file. The error of one that does not exist is os.ErrNotExist.
func Read(name string) (*File, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("costs: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostFile))
	f := new(File)
	f.Costs.Far = Usual().Far // files of older versions lack it
	if err == nil {
		err = json.Unmarshal(text, f)
	}
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("costs in %s: %w", name, err)
	}
	return f, nil
}

// Format is that of files.
const Format = 1

// Validate reports what is wrong with a file that was read.
func (f *File) Validate() error {
	if f.Format != Format {
		return fault.New(fault.Invalid, "costs: format %d, want %d (goccl_costs); measure again with goccl tune fit",
			f.Format, Format)
	}
	return f.Costs.Validate()
}

// Slowest returns a path that is as slow as the slower of two in each of its costs.
func Slowest(a, b Path) Path {
	work := func(a, b Work) Work {
		return Work{max(a.Each, b.Each), max(a.Byte, b.Byte), max(a.Far, b.Far), max(a.Miss, b.Miss)}
	}
	return Path{
		Latency: max(a.Latency, b.Latency), Bandwidth: min(a.Bandwidth, b.Bandwidth), Burst: min(a.Burst, b.Burst),
		Send: work(a.Send, b.Send), Receive: work(a.Receive, b.Receive),
		Fragment: min(a.Fragment, b.Fragment), Credit: min(a.Credit, b.Credit),
		Switch: max(a.Switch, b.Switch),
	}
}

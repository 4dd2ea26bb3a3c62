package topo

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/internal/park"
)

// Group is what a group runs on, as all its ranks know it. It is made by Agree and never changes:
// what the ranks find out together afterwards is added to a copy (WithSlot, WithDevices). All ranks
// have the same, so what follows from it alone needs no further agreement.
//
// The lists that its methods return belong to it.
type Group struct {
	ranks          []Rank
	hosts          [][]int  // by host: its ranks, in ascending order; hosts are in the order of their first ranks
	host           []int    // by rank: its host
	sites          [][]int  // by site: its ranks, likewise
	site           []int    // by rank: its site
	cores          []string // by rank: names those that may share cores with it
	oversubscribed bool
	claims         bool
	slot           int
	network, far   *cost.Path // nil if a rank does not know it
	rates          *Rates     // likewise, of a machine
	devices        *Devices   // nil for none
}

// Devices says how the devices of a group work, as far as the ranks have measured it.
type Devices struct {
	Rate float64 `json:"rate"` // bytes a second at which the slowest reads windows of its peers; 0 if unknown
	Word float64 `json:"word"` // seconds that the slowest stream takes to write a word; 0 if unknown
}

// OnHosts makes up a group: rank r is on host hosts[r].
func OnHosts(hosts ...int) *Group { return AtSites(hosts, nil) }

// AtSites makes up a group: rank r is on host hosts[r], which is at site sites[hosts[r]], or at
// none where sites has no such element.
func AtSites(hosts, sites []int) *Group {
	ranks := make([]Rank, len(hosts))
	for rank, host := range hosts {
		name := strconv.Itoa(host)
		ranks[rank] = Rank{Number: rank, Size: len(hosts), Host: name, Place: Place{Machine: name},
			Process: strconv.Itoa(rank), Transports: []string{"shm"}}
		if host < len(sites) {
			ranks[rank].Site = strconv.Itoa(sites[host])
		}
	}
	g, err := Agree(ranks)
	if err != nil {
		panic("topo: " + err.Error()) // cannot happen: there is each rank once
	}
	return g
}

// Spread makes up a group whose ranks are spread evenly over hosts, each of which has consecutive
// ranks.
func Spread(ranks, hosts int) *Group {
	on := make([]int, ranks)
	for rank := range on {
		on[rank] = rank * hosts / ranks
	}
	return OnHosts(on...)
}

// WithSlot returns g with windows whose slots have that many bytes; 0 for no windows.
func (g *Group) WithSlot(bytes int) *Group {
	made := *g
	made.slot = bytes
	return &made
}

// WithDevices returns g for calls that the devices of its ranks execute.
func (g *Group) WithDevices(d Devices) *Group {
	made := *g
	made.devices = &d
	return &made
}

// Size returns the number of ranks.
func (g *Group) Size() int { return len(g.ranks) }

// Rank returns what a rank has said of itself.
func (g *Group) Rank(rank int) Rank { return g.ranks[rank] }

// Hosts returns the ranks of each host, in ascending order; hosts are in the order of their first
// ranks. The ranks of a host share memory. A rank that shares memory with no other is a host.
func (g *Group) Hosts() [][]int { return g.hosts }

// HostOf returns the host of a rank, as its index in Hosts.
func (g *Group) HostOf(rank int) int { return g.host[rank] }

// Neighbours returns the other ranks on the host of a rank.
func (g *Group) Neighbours(rank int) []int {
	return slices.DeleteFunc(slices.Clone(g.hosts[g.host[rank]]), func(peer int) bool { return peer == rank })
}

// Rails returns the ranks with the same place on the other hosts as a rank, where hosts have the
// same number of ranks.
func (g *Group) Rails(rank int) (peers []int) {
	place := slices.Index(g.hosts[g.host[rank]], rank)
	for host, ranks := range g.hosts {
		if host != g.host[rank] && place < len(ranks) {
			peers = append(peers, ranks[place])
		}
	}
	return peers
}

// Levels reports whether the hosts are levels: there are several, and some have several ranks.
func (g *Group) Levels() bool { return len(g.hosts) > 1 && len(g.hosts) < len(g.ranks) }

// Even reports whether all hosts have the same number of ranks.
func (g *Group) Even() bool {
	return !slices.ContainsFunc(g.hosts, func(ranks []int) bool { return len(ranks) != len(g.hosts[0]) })
}

// Sites returns the ranks of each site, in ascending order; sites are in the order of their first
// ranks. Between sites a message takes long, and all hosts of one are near each other. Hosts
// without a site are at one together.
func (g *Group) Sites() [][]int { return g.sites }

// SiteOf returns the site of a rank, as its index in Sites.
func (g *Group) SiteOf(rank int) int { return g.site[rank] }

// Grid returns the levels of the group: how many ranks each host has, how many hosts each site, and
// how many sites there are. ok is false where hosts, or sites, differ in that.
func (g *Group) Grid() (ranks, hosts, sites int, ok bool) {
	ranks, hosts, sites = len(g.hosts[0]), len(g.hosts)/len(g.sites), len(g.sites)
	ok = g.Even()
	for _, site := range g.sites {
		ok = ok && len(site) == ranks*hosts
	}
	return ranks, hosts, sites, ok
}

// InOrder reports whether the ranks of each host are consecutive.
func (g *Group) InOrder() bool { return slices.IsSorted(g.host) }

// Sizes returns the number of ranks of each host, for messages: "4, 4, 2".
func (g *Group) Sizes() string {
	const most = 16
	var words []string
	for _, ranks := range g.hosts[:min(len(g.hosts), most)] {
		words = append(words, strconv.Itoa(len(ranks)))
	}
	if len(g.hosts) > most {
		words = append(words, "…")
	}
	return strings.Join(words, ", ")
}

// Claims reports whether all ranks claim lines of shared memory before they write them.
func (g *Group) Claims() bool { return g.claims }

// Oversubscribed reports whether, on any machine, ranks outnumber the cores that they share.
func (g *Group) Oversubscribed() bool { return g.oversubscribed }

// Network returns what messages between hosts cost: each cost is that of the rank for which it is
// highest. It returns nil where a rank does not know.
func (g *Group) Network() *cost.Path { return g.network }

// Far is Network for messages between sites.
func (g *Group) Far() *cost.Path { return g.far }

// AmongHosts makes up the group of which each host is a rank, at the same sites.
func (g *Group) AmongHosts() *Group {
	hosts, sites := make([]int, len(g.hosts)), make([]int, len(g.hosts))
	for i := range hosts {
		hosts[i] = i
	}
	for rank, site := range g.site {
		sites[g.host[rank]] = site
	}
	return AtSites(hosts, sites)
}

// Rates returns what cores do: each rate is that of the slowest machine. They are not Known where
// no rank of a machine knows them.
func (g *Group) Rates() Rates {
	if g.rates == nil {
		return Rates{}
	}
	return *g.rates
}

// Has reports whether a rank has a transport.
func (g *Group) Has(transport string) bool {
	return slices.ContainsFunc(g.ranks, func(r Rank) bool { return slices.Contains(r.Transports, transport) })
}

// Machine names the ranks that may share cores with a rank: they have the same.
func (g *Group) Machine(rank int) string { return g.cores[rank] }

// Cores returns on how many cores a rank and those that share them with it may run.
func (g *Group) Cores(rank int) int {
	r := &g.ranks[rank]
	set, err := park.ParseCPUs(r.Cores)
	switch {
	case err != nil || set.Count() == 0:
		return max(1, r.Usable)
	case r.Usable > 0:
		return min(r.Usable, set.Count())
	}
	return set.Count()
}

// Threads returns the ranks that may share cores with a rank, itself too, as package park counts
// them. Ranks of one process wait in threads of their own.
func (g *Group) Threads(rank int) (all []park.Local) {
	inProcess := map[string]int{}
	for peer := range g.ranks {
		if r := &g.ranks[peer]; g.cores[peer] == g.cores[rank] {
			all = append(all, park.Local{
				Process: fmt.Sprintf("%s/%d", r.Process, inProcess[r.Process]), Cores: r.Cores})
			inProcess[r.Process]++
		}
	}
	return all
}

// LocalRank returns how many ranks that may share cores with a rank come before it.
func (g *Group) LocalRank(rank int) (local int) {
	for peer := range rank {
		if g.cores[peer] == g.cores[rank] {
			local++
		}
	}
	return local
}

// Room returns the bytes of a slot that the windows of all ranks can have; 0 for no windows. It is
// the same on all hosts, since it decides into how many pieces operations are cut.
func (g *Group) Room() int {
	least := g.ranks[0].Slot
	for i := range g.ranks {
		least = min(least, g.ranks[i].Slot)
	}
	return least
}

// Slot returns the bytes of a slot of the windows that the ranks of each host read of each other; 0
// if they have none.
func (g *Group) Slot() int { return g.slot }

// Windows reports whether all ranks read each other's windows.
func (g *Group) Windows() bool { return g.slot > 0 && len(g.hosts) == 1 }

// Devices returns how the devices work that execute the calls, and whether devices do.
func (g *Group) Devices() (d Devices, execute bool) {
	if g.devices == nil {
		return Devices{}, false
	}
	return *g.devices, true
}

// Form returns what the plans of a group depend on, and the form in which they run. Many groups
// have the same one.
func (g *Group) Form() string {
	hosts := "one host"
	if len(g.hosts) > 1 {
		hosts = fmt.Sprintf("hosts %v", g.hosts)
	}
	if len(g.sites) > 1 {
		hosts += fmt.Sprintf(", sites %v", g.sites)
	}
	return fmt.Sprintf("%s, windows %v, device %v", hosts, g.slot > 0, g.devices != nil)
}

// Bytes returns all that there is to know of the group: equal for equal groups, unlike for others.
func (g *Group) Bytes() []byte {
	return encode(struct {
		Ranks   []Rank   `json:"ranks"`
		Slot    int      `json:"slot"`
		Devices *Devices `json:"devices"`
	}{g.ranks, g.slot, g.devices})
}

// Hash returns a hash of Bytes.
func (g *Group) Hash() string {
	sum := sha256.Sum256(g.Bytes())
	return hex.EncodeToString(sum[:8])
}

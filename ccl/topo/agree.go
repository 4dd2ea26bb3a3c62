package topo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

// Agree makes the Group of ranks from what each has said. It depends on nothing else, and not on
// the order: so all ranks of a group get the same Group, or the same error.
func Agree(said []Rank) (*Group, error) {
	if len(said) == 0 {
		return nil, fault.New(fault.Invalid, "a group of no ranks")
	}
	ranks := slices.Clone(said)
	for i := range ranks {
		r := &ranks[i]
		r.Transports = slices.Compact(slices.Sorted(slices.Values(r.Transports)))
	}
	slices.SortFunc(ranks, func(a, b Rank) int {
		if by := cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Size, b.Size)); by != 0 {
			return by
		}
		return bytes.Compare(encode(a), encode(b))
	})
	if err := complete(ranks); err != nil {
		return nil, err
	}
	g := &Group{ranks: ranks, host: make([]int, len(ranks)), cores: make([]string, len(ranks)), claims: true}
	places := make([]park.Place, len(ranks))
	index := map[string]int{}
	for rank := range ranks {
		r := &ranks[rank]
		memory := r.memory()
		at, known := index[memory]
		if !known {
			at = len(g.hosts)
			index[memory], g.hosts = at, append(g.hosts, nil)
		}
		g.host[rank], g.hosts[at] = at, append(g.hosts[at], rank)
		g.cores[rank] = r.cores()
		g.claims = g.claims && r.Claims
		places[rank] = park.Place{Host: g.cores[rank], Cores: r.Cores, Usable: r.Usable}
	}
	if err := g.place(); err != nil {
		return nil, err
	}
	for rank := range ranks {
		if n := ranks[rank].Described; n != 0 && n < len(g.hosts) {
			return nil, fault.Peer(fault.Invalid, rank,
				"GOCCL_TOPO: the network has %d ranks, this group has %d hosts; describe as many, or leave it out",
				n, len(g.hosts))
		}
	}
	g.oversubscribed = park.Oversubscribed(places)
	g.network = slowest(ranks, func(r *Rank) *cost.Path { return r.Network })
	g.far = slowest(ranks, func(r *Rank) *cost.Path { return r.Far })
	g.rates = slowestRates(g)
	return g, nil
}

// place finds the sites.
func (g *Group) place() error {
	g.site = make([]int, len(g.ranks))
	index := map[string]int{}
	for rank := range g.ranks {
		first, site := g.hosts[g.host[rank]][0], g.ranks[rank].Site
		if of := g.ranks[first].Site; of != site {
			return fault.Peer(fault.Mismatch, rank, "its site is %q, that of rank %d on the same host %q; "+
				"a host is at one site (GOCCL_SITE)", site, first, of)
		}
		at, known := index[site]
		if !known {
			at = len(g.sites)
			index[site], g.sites = at, append(g.sites, nil)
		}
		g.site[rank], g.sites[at] = at, append(g.sites[at], rank)
	}
	return nil
}

// slowestRates returns what the cores of the slowest machine do, nil if of a machine no rank knows.
func slowestRates(g *Group) (all *Rates) {
	each := map[string]*Rates{}
	for rank := range g.ranks {
		r, machine := g.ranks[rank].Rates, g.cores[rank]
		if r != nil && !r.Known() {
			r = nil
		}
		switch known, seen := each[machine]; {
		case !seen || known == nil:
			each[machine] = r
		case r != nil && *r != *known: // most ranks of a machine have read one file
			each[machine] = slower(known, r)
		}
	}
	for _, r := range each { // minima do not depend on the order
		switch {
		case r == nil:
			return nil
		case all == nil:
			all = r
		default:
			all = slower(all, r)
		}
	}
	return all
}

// slowest returns what messages on a kind of path cost at most, nil if a rank does not know.
func slowest(ranks []Rank, of func(*Rank) *cost.Path) *cost.Path {
	all := of(&ranks[0])
	for i := range ranks {
		one := of(&ranks[i])
		if one == nil || all == nil {
			return nil
		}
		slower := cost.Slowest(*all, *one)
		all = &slower
	}
	return all
}

// complete checks that ranks, in the order of their numbers, are all of one group, each once.
func complete(ranks []Rank) error {
	first := &ranks[0]
	for i := range ranks {
		switch r := &ranks[i]; {
		case r.Size != first.Size:
			return fault.Peer(fault.Mismatch, r.Number,
				"number of ranks: rank %d has %d, rank %d has %d; all ranks of a group need the same",
				first.Number, first.Size, r.Number, r.Size)
		case r.Number < 0 || r.Number >= r.Size:
			return fault.New(fault.Invalid, "rank %d of a group of %d: ranks are 0 to %d",
				r.Number, r.Size, r.Size-1)
		case r.Number > i:
			return fault.Peer(fault.Mismatch, i, "it has said nothing, of a group of %d ranks", first.Size)
		case r.Number < i:
			twin := &ranks[i-1]
			return fault.Peer(fault.Mismatch, r.Number,
				"two processes are this rank: pid %d of host %s, and pid %d of host %s",
				twin.Pid, twin.Host, r.Pid, r.Host)
		case r.Slot < 0:
			return fault.Peer(fault.Invalid, r.Number, "its windows have slots of %d bytes", r.Slot)
		}
	}
	if len(ranks) < first.Size {
		return fault.Peer(fault.Mismatch, len(ranks), "it has said nothing, of a group of %d ranks", first.Size)
	}
	return nil
}

// encode returns a value in a form that is the same wherever it is made.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("topo: " + err.Error()) // cannot happen: there are only numbers, texts and lists of them
	}
	return text
}

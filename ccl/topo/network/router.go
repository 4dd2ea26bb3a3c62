package network

import "github.com/goccl/goccl/ccl/fault"

// unreached is the distance of a node without a path to the target.
const unreached = ^uint16(0)

// maxDistances limits the distances that a Router keeps, to 512 MiB.
const maxDistances = 512 << 20 / 2

// Router finds paths in a Topology, which must not change meanwhile. It remembers distances, so
// only one goroutine at a time may use it.
type Router struct {
	t        *Topology
	ranks    []int32 // node of each rank
	out, in  adjacency
	distance [][]uint16 // [target rank][node]: links from the node to the target; nil if not yet known
	kept     int        // numbers in distance
	queue    []int32
}

// adjacency lists, for each node, the links at it.
type adjacency struct{ start, links []int32 }

func (a *adjacency) at(node int32) []int32 { return a.links[a.start[node]:a.start[node+1]] }

// NewRouter checks t and makes a Router for it.
func NewRouter(t *Topology) (*Router, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	r := &Router{t: t}
	for i := range t.Nodes {
		if t.Nodes[i].Rank {
			r.ranks = append(r.ranks, int32(i))
		}
	}
	r.distance = make([][]uint16, len(r.ranks))
	r.out = adjacent(t, func(l *Link) int { return l.From })
	r.in = adjacent(t, func(l *Link) int { return l.To })
	return r, nil
}

func adjacent(t *Topology, end func(l *Link) int) adjacency {
	a := adjacency{start: make([]int32, len(t.Nodes)+1), links: make([]int32, len(t.Links))}
	for i := range t.Links {
		a.start[end(&t.Links[i])+1]++
	}
	for i := range t.Nodes {
		a.start[i+1] += a.start[i]
	}
	next := append([]int32(nil), a.start...)
	for i := range t.Links {
		n := end(&t.Links[i])
		a.links[next[n]] = int32(i)
		next[n]++
	}
	return a
}

// Topology returns the topology that r finds paths in.
func (r *Router) Topology() *Topology { return r.t }

// Ranks returns the number of ranks of the topology.
func (r *Router) Ranks() int { return len(r.ranks) }

// Route appends the links of the path from one rank to another to path.
func (r *Router) Route(path []int32, from, to int) ([]int32, error) {
	if from < 0 || to < 0 || from >= len(r.ranks) || to >= len(r.ranks) {
		return path, invalid("no path from rank %d to rank %d: there are %d ranks", from, to, len(r.ranks))
	}
	distance := r.distance[to]
	if distance == nil {
		distance = r.distances(to)
	}
	node, target := r.ranks[from], r.ranks[to]
	if distance[node] == unreached {
		return path, fault.New(fault.Invalid, "topology: rank %d (%s) has no path to rank %d (%s); add links",
			from, r.t.Nodes[node].Name, to, r.t.Nodes[target].Name)
	}
	seed := uint64(from)<<32 | uint64(to)
	for node != target {
		link := r.next(distance, node, target, seed)
		path = append(path, link)
		node = int32(r.t.Links[link].To)
		seed += 0x9e3779b97f4a7c15
	}
	return path, nil
}

// next returns the link that a message takes at a node.
func (r *Router) next(distance []uint16, node, target int32, seed uint64) int32 {
	links := r.out.at(node)
	nearer := distance[node] - 1
	ways, first := 0, int32(-1)
	for _, l := range links {
		if r.leads(distance, l, target, nearer) {
			if first < 0 {
				first = l
			}
			if r.t.Routing == First {
				return first
			}
			ways++
		}
	}
	if ways == 1 {
		return first
	}
	k := int(mix(seed) % uint64(ways))
	for _, l := range links {
		if r.leads(distance, l, target, nearer) {
			if k == 0 {
				return l
			}
			k--
		}
	}
	return first
}

// leads reports whether link l goes to the target, or to a node that forwards, and that node has
// distance near to the target.
func (r *Router) leads(distance []uint16, l, target int32, near uint16) bool {
	to := int32(r.t.Links[l].To)
	return distance[to] == near && (to == target || r.forwards(to))
}

func (r *Router) forwards(node int32) bool {
	n := &r.t.Nodes[node]
	return !n.Rank || n.Forwards
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// distances counts the links from every node to a rank.
func (r *Router) distances(to int) []uint16 {
	if r.kept += len(r.t.Nodes); r.kept > maxDistances {
		clear(r.distance)
		r.kept = len(r.t.Nodes)
	}
	d := make([]uint16, len(r.t.Nodes))
	for i := range d {
		d[i] = unreached
	}
	target := r.ranks[to]
	d[target] = 0
	r.queue = append(r.queue[:0], target)
	for head := 0; head < len(r.queue); head++ {
		node := r.queue[head]
		if node != target && !r.forwards(node) || d[node] == unreached-1 {
			continue
		}
		for _, l := range r.in.at(node) {
			if from := int32(r.t.Links[l].From); d[from] == unreached {
				d[from] = d[node] + 1
				r.queue = append(r.queue, from)
			}
		}
	}
	r.distance[to] = d
	return d
}

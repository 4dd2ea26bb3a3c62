package network

import (
	"fmt"
	"strconv"
)

// Wire is the latency and the bandwidth of one class of links.
type Wire struct{ Alpha, Bandwidth float64 }

// fits checks the sizes of a network before it is made: ranks are the sizes whose product is the
// number of ranks, others are its other sizes, and links counts its links. It returns false for
// sizes that are out of range; then the network stays without nodes, and Validate reports the
// reason.
func (t *Topology) fits(ranks, others []int, links func() int) bool {
	total := 1
	for _, size := range ranks {
		if size < 1 || size > MaxRanks || total*size > MaxRanks {
			t.refused = fmt.Sprintf("%s: size %v, want 1 to %d ranks in all", t.Name, ranks, MaxRanks)
			return false
		}
		total *= size
	}
	for _, size := range others {
		if size < 1 || size > MaxRanks {
			t.refused = fmt.Sprintf("%s: size %d, want 1 to %d", t.Name, size, MaxRanks)
			return false
		}
	}
	if links != nil && links() > MaxLinks {
		t.refused = fmt.Sprintf("%s: it has more than %d links", t.Name, MaxLinks)
		return false
	}
	return true
}

// Uniform has full bisection bandwidth: every rank has one port in and one port out, and nothing
// else is ever busy. A message costs w.Alpha, then 1/w.Bandwidth per byte. It is the model of the
// closed formulas (package sim).
func Uniform(ranks int, w Wire) *Topology {
	t := &Topology{Name: fmt.Sprintf("uniform-%d", ranks), Startup: w.Alpha}
	if !t.fits([]int{ranks}, nil, nil) {
		return t
	}
	t.star(ranks, t.AddClass("port", 0, w.Bandwidth))
	return t
}

// star connects new ranks to a new switch.
func (t *Topology) star(ranks, class int) {
	first := len(t.Nodes)
	for i := range ranks {
		t.AddRank("r"+strconv.Itoa(i), false)
	}
	hub := t.AddSwitch("switch")
	for i := range ranks {
		t.AddDuplex(first+i, hub, class)
	}
}

// NVLink is a host whose GPUs are connected by NVSwitches. In hardware a GPU has one link to each
// switch and spreads every message over all of them; here it has one link with the bandwidth of
// all. Half of Alpha is spent on each side of the switch.
func NVLink(ranks int, w Wire) *Topology {
	t := &Topology{Name: fmt.Sprintf("nvlink-%d", ranks)}
	if !t.fits([]int{ranks}, nil, nil) {
		return t
	}
	t.star(ranks, t.AddClass("nvlink", w.Alpha/2, w.Bandwidth))
	return t
}

// PCIe is a host with two sockets. Each socket has a host bridge and, below it, switches with two
// GPUs each; an inter-socket link joins the bridges. With four ranks or fewer there is one socket.
func PCIe(ranks int, lane, socket Wire) *Topology {
	t := &Topology{Name: fmt.Sprintf("pcie-%d", ranks)}
	if !t.fits([]int{ranks}, nil, nil) {
		return t
	}
	pcie := t.AddClass("pcie", lane.Alpha, lane.Bandwidth)
	for i := range ranks {
		t.AddRank("r"+strconv.Itoa(i), false)
	}
	switches := (ranks + 1) / 2
	sockets := 1
	if ranks > 4 {
		sockets = 2
	}
	bridge := make([]int, sockets)
	for i := range bridge {
		bridge[i] = t.AddSwitch("host" + strconv.Itoa(i))
	}
	if sockets == 2 {
		t.AddDuplex(bridge[0], bridge[1], t.AddClass("socket", socket.Alpha, socket.Bandwidth))
	}
	for i := range switches {
		s := t.AddSwitch("plx" + strconv.Itoa(i))
		for r := 2 * i; r < min(2*i+2, ranks); r++ {
			t.AddDuplex(r, s, pcie)
		}
		t.AddDuplex(s, bridge[i*sockets/switches], pcie)
	}
	return t
}

// Ring connects each rank to the next and the previous one.
func Ring(ranks int, w Wire) *Topology {
	t := Torus([]int{ranks}, w)
	t.Name = fmt.Sprintf("ring-%d", ranks)
	return t
}

// Torus is a grid in any number of dimensions, the first the innermost, whose rows are closed to
// rings. Messages go in dimension order. A dimension of two has one link each way, not two.
func Torus(dims []int, w Wire) *Topology {
	t := &Topology{Name: "torus"}
	for _, d := range dims {
		t.Name += fmt.Sprintf("-%d", d)
	}
	if !t.fits(dims, nil, nil) {
		return t
	}
	class := t.AddClass("hop", w.Alpha, w.Bandwidth)
	total := 1
	for _, d := range dims {
		total *= d
	}
	for i := range total {
		t.AddRank("r"+strconv.Itoa(i), true)
	}
	for i := range total {
		stride := 1
		for _, d := range dims {
			at := i / stride % d
			if d > 1 {
				t.AddLink(i, i+((at+1)%d-at)*stride, class)
			}
			if d > 2 {
				t.AddLink(i, i+((at+d-1)%d-at)*stride, class)
			}
			stride *= d
		}
	}
	return t
}

// FatTree has leaf switches with leaf ranks each, and spine switches. Each leaf switch has one link
// to each spine switch. There are leaf/over spines, rounded up, so over ranks share the bandwidth
// of one uplink: over = 1 is full bisection.
func FatTree(ranks, leaf, over int, w Wire) *Topology {
	t := &Topology{Name: fmt.Sprintf("fattree-%d-%d-%d", ranks, leaf, over), Routing: ECMP}
	if !t.fits([]int{ranks}, []int{leaf, over}, func() int { return fatTreeLinks(ranks, leaf, over) }) {
		return t
	}
	down := t.AddClass("down", w.Alpha, w.Bandwidth)
	up := t.AddClass("up", w.Alpha, w.Bandwidth)
	for i := range ranks {
		t.AddRank("r"+strconv.Itoa(i), false)
	}
	leaves, spines := (ranks+leaf-1)/leaf, (leaf+over-1)/over
	first := len(t.Nodes)
	for i := range leaves {
		t.AddSwitch("leaf" + strconv.Itoa(i))
	}
	for i := range ranks {
		t.AddDuplex(i, first+i/leaf, down)
	}
	if leaves == 1 {
		return t
	}
	for i := range spines {
		s := t.AddSwitch("spine" + strconv.Itoa(i))
		for l := range leaves {
			t.AddDuplex(first+l, s, up)
		}
	}
	return t
}

func fatTreeLinks(ranks, leaf, over int) int {
	return 2 * (ranks + (ranks+leaf-1)/leaf*((leaf+over-1)/over))
}

// Dragonfly has groups of routers. All routers of a group are connected to each other, and there is
// one link between each two groups (Kim, Dally, Scott, Abts, "Technology-driven, highly-scalable
// dragonfly topology", 2008). Each router has the given number of ranks. The global links of a
// group are dealt out to its routers in turn.
func Dragonfly(groups, routers, ranks int, local, global Wire) *Topology {
	t := &Topology{Name: fmt.Sprintf("dragonfly-%d-%d-%d", groups, routers, ranks), Routing: ECMP}
	if !t.fits([]int{groups, routers, ranks}, nil, func() int { return dragonflyLinks(groups, routers, ranks) }) {
		return t
	}
	near := t.AddClass("local", local.Alpha, local.Bandwidth)
	far := t.AddClass("global", global.Alpha, global.Bandwidth)
	total := groups * routers * ranks
	for i := range total {
		t.AddRank("r"+strconv.Itoa(i), false)
	}
	for g := range groups {
		for r := range routers {
			node := t.AddSwitch(fmt.Sprintf("g%d/router%d", g, r))
			for k := range ranks {
				t.AddDuplex((g*routers+r)*ranks+k, node, near)
			}
			for other := range r {
				t.AddDuplex(node-r+other, node, near)
			}
		}
	}
	// The link to the kth group after g is at router (k-1) mod routers of g.
	router := func(g, other int) int { return total + g*routers + ((other-g+groups)%groups-1)%routers }
	for a := range groups {
		for b := a + 1; b < groups; b++ {
			t.AddDuplex(router(a, b), router(b, a), far)
		}
	}
	return t
}

func dragonflyLinks(groups, routers, ranks int) int {
	return groups*routers*(routers-1) + groups*(groups-1) + 2*groups*routers*ranks
}

// Rail is a cluster of hosts with the given number of GPUs each. Inside a host an NVSwitch connects
// the GPUs. GPU i of every host has a NIC on rail switch i. The rail switches are connected by as
// many spines as there are rails. Rank h·gpus+i is GPU i of host h.
func Rail(hosts, gpus int, inside, nic Wire) *Topology {
	t := &Topology{Name: fmt.Sprintf("rail-%d-%d", hosts, gpus), Routing: ECMP}
	if !t.fits([]int{hosts, gpus}, nil, func() int { return railLinks(hosts, gpus) }) {
		return t
	}
	nvlink := t.AddClass("nvlink", inside.Alpha/2, inside.Bandwidth)
	port := t.AddClass("nic", nic.Alpha/2, nic.Bandwidth)
	up := t.AddClass("spine", nic.Alpha/2, nic.Bandwidth*float64(hosts)/float64(gpus))
	for i := range hosts * gpus {
		t.AddRank("r"+strconv.Itoa(i), false)
	}
	for h := range hosts {
		s := t.AddSwitch("host" + strconv.Itoa(h))
		for i := range gpus {
			t.AddDuplex(h*gpus+i, s, nvlink)
		}
	}
	if hosts == 1 {
		return t
	}
	rail := len(t.Nodes)
	for i := range gpus {
		s := t.AddSwitch("rail" + strconv.Itoa(i))
		for h := range hosts {
			t.AddDuplex(h*gpus+i, s, port)
		}
	}
	for i := range gpus {
		if gpus == 1 {
			break
		}
		s := t.AddSwitch("spine" + strconv.Itoa(i))
		for k := range gpus {
			t.AddDuplex(rail+k, s, up)
		}
	}
	return t
}

func railLinks(hosts, gpus int) int { return 4*hosts*gpus + 2*gpus*gpus }

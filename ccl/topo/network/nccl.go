package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/topo"
)

// ncclForm is what NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE reads.
var ncclForm = form{
	"system": {[]string{""}, []string{"version", "name"}},
	"cpu":    {[]string{"system"}, []string{"numaid", "host_hash", "arch", "vendor", "familyid", "modelid"}},
	"pci":    {[]string{"cpu", "pci"}, []string{"busid", "class", "link_speed", "link_width"}},
	"gpu":    {[]string{"pci"}, []string{"dev", "sm"}},
	"nvlink": {[]string{"gpu"}, []string{"target", "count", "tclass"}},
	"c2c":    {[]string{"gpu"}, []string{"bw", "count"}},
	"nic":    {[]string{"cpu", "pci"}, nil},
	"net":    {[]string{"nic"}, []string{"name", "dev", "speed", "port", "net"}},
}

const (
	ncclVersion  = "1"
	hiddenSwitch = "fffffff:ffff:ff" // the target of links to switches that a virtual machine does not see
	maxLanes     = 1024              // of NVLink, at one GPU
)

// nccl is the network of one of NCCL's files.
type nccl struct {
	drawing
	hosts    []string // what host_hash each has
	cpus     []*cpu
	gpus     []*gpu
	at       map[*element]*gpu // those of <gpu>, and of <pci> that is a GPU
	slots    map[slotOf]*element
	lanes    map[[2]int]lane   // by the nodes that they lead from and to
	order    [][2]int          // of lanes
	leads    map[*element]bool // devices, and what has one below it
	rank     map[int]*element  // by node
	nvswitch int               // the node of all of them, -1 without
}

type cpu struct {
	*element
	host, memory int
	numa         int64
}

type gpu struct {
	*element
	bus  uint64
	cpu  *cpu
	dev  int64 // below 0 until it is known
	sm   int64
	node int
}

// slotOf is a place on the bus of a host.
type slotOf struct {
	host int
	bus  uint64
}

// lane is what connects two nodes beside the bus.
type lane struct {
	kind  string
	count int64
	rate  float64 // 0 if unknown
}

func readNCCL(f *xmlFile, root *element) (*Topology, error) {
	n := &nccl{drawing: newDrawing(f, root, root.get("name")), nvswitch: -1,
		at: map[*element]*gpu{}, slots: map[slotOf]*element{}, lanes: map[[2]int]lane{},
		leads: map[*element]bool{}, rank: map[int]*element{}}
	if version := root.get("version"); version != ncclVersion {
		return nil, f.wrong(root.offset, "version %s of NCCL's form; this version reads %s", quote(version), ncclVersion)
	}
	n.processors()
	if n.err == nil {
		n.ranks()
	}
	if n.err == nil {
		n.nvlinks()
		n.buses()
		n.between()
		n.reached()
	}
	return n.finish()
}

// processors finds the CPUs, and the GPUs below them.
func (n *nccl) processors() {
	type key struct {
		host int
		numa int64
	}
	seen := map[key]bool{}
	for _, e := range n.root.inside {
		c := &cpu{element: e, numa: n.integer(e, "numaid", -1, 1<<16, -2)}
		if c.host = slices.Index(n.hosts, e.get("host_hash")); c.host < 0 {
			c.host = len(n.hosts)
			n.hosts = append(n.hosts, e.get("host_hash"))
		}
		switch {
		case c.numa == -2:
			n.wrong(e, "a <cpu> without numaid")
		case seen[key{c.host, c.numa}]:
			n.wrong(e, "a second <cpu> with numaid %d", c.numa)
		case len(n.cpus) == maxMemories:
			n.wrong(e, "more than %d <cpu>", maxMemories)
		}
		if n.err != nil {
			return
		}
		seen[key{c.host, c.numa}] = true
		n.cpus = append(n.cpus, c)
		n.find(c, e)
	}
}

// find finds the GPUs below an element of a CPU.
func (n *nccl) find(c *cpu, above *element) {
	for _, e := range above.inside {
		if e.name != "pci" {
			continue
		}
		bus := n.bus(e, "busid")
		at := slotOf{c.host, bus}
		if first := n.slots[at]; first != nil {
			line, _ := position(n.file.text, first.offset)
			n.wrong(e, "a second <pci> with busid %s; the first is in line %d", quote(e.get("busid")), line)
		}
		n.slots[at] = e
		for _, g := range e.inside {
			if g.name == "gpu" {
				n.gpu(&gpu{element: g, bus: bus, cpu: c, dev: n.integer(g, "dev", -1, 1<<16, -2),
					sm: n.integer(g, "sm", 10, 999, 0)})
			}
		}
		// Files for NCCL to complete have no <gpu>.
		if len(e.inside) == 0 && pciClass(e) == gpuClass {
			n.gpu(&gpu{element: e, bus: bus, cpu: c, dev: -2})
		}
		n.find(c, e)
	}
}

func (n *nccl) gpu(g *gpu) {
	if g.dev == -1 { // not visible
		return
	}
	n.gpus = append(n.gpus, g)
	n.at[g.element] = g
}

var busDigits = strings.NewReplacer(":", "", ".", "")

// bus returns a bus id as a number: systems differ in how many digits they write.
func (n *nccl) bus(e *element, attribute string) uint64 {
	text := e.get(attribute)
	v, err := strconv.ParseUint(busDigits.Replace(text), 16, 64)
	if err != nil || len(text) > len("00000000:00:00.0") {
		n.wrong(e, "%s=%s: want a bus id, such as 0000:3b:00.0", attribute, quote(text))
	}
	return v
}

// Base classes of PCI devices.
const (
	networkClass = "02"
	gpuClass     = "03"
	infiniBand   = "0207" // with the subclass
	npuBridge    = "068001"
)

func pciClass(e *element) string {
	class := strings.TrimPrefix(e.get("class"), "0x")
	return class[:min(2, len(class))]
}

// host returns what the names of the nodes of a host begin with.
func (n *nccl) host(host int) string {
	if len(n.hosts) == 1 {
		return ""
	}
	return fmt.Sprintf("host%d/", host)
}

// ranks makes the nodes of the GPUs, in the order of dev, and of the memory near each CPU; and of
// the CPUs, where there is no GPU.
func (n *nccl) ranks() {
	type key struct {
		host int
		dev  int64
	}
	seen, free := map[key]bool{}, map[int]int64{}
	for _, g := range n.gpus {
		if g.dev >= 0 && seen[key{g.cpu.host, g.dev}] {
			n.wrong(g.element, "a second <gpu> with dev %d", g.dev)
		}
		seen[key{g.cpu.host, g.dev}] = true
	}
	for _, g := range n.gpus {
		for g.dev < 0 {
			if dev := free[g.cpu.host]; !seen[key{g.cpu.host, dev}] {
				g.dev = dev
			}
			free[g.cpu.host]++
		}
	}
	slices.SortStableFunc(n.gpus, func(a, b *gpu) int {
		return (a.cpu.host-b.cpu.host)<<32 + int(a.dev-b.dev)
	})
	for _, g := range n.gpus {
		name := n.host(g.cpu.host) + "gpu" + strconv.FormatInt(g.dev, 10)
		g.node = n.add(g.element, Node{Name: name, Rank: true, Part: GPU})
		n.rank[g.node] = g.element
	}
	for _, c := range n.cpus {
		numa := strconv.FormatInt(c.numa, 10)
		c.memory = n.add(c.element, Node{Name: n.host(c.host) + "memory" + numa, Part: Memory})
		if len(n.gpus) == 0 {
			at := n.add(c.element, Node{Name: n.host(c.host) + "cpu" + numa, Rank: true, Part: Package})
			n.rank[at] = c.element
			memory := n.rated("memory", 0, unknownRate)
			n.join(at, c.memory, memory, memory)
		}
	}
}

// NVLinkRate is what a link of NVLink carries in bytes a second, by compute capability (90 for
// 9.0), as NCCL has measured it; 0 if that has none.
func NVLinkRate(sm int64) float64 {
	switch {
	case sm >= 100:
		return 40.1e9
	case sm >= 90:
		return 20.6e9
	case sm == 86:
		return 12e9
	case sm >= 70:
		return 20e9
	case sm >= 60:
		return 18e9
	}
	return 0
}

// unknownLink is what a link of NVLink is taken to carry if the file does not tell which GPU it is.
const unknownLink = 20e9

// nvlinks connects the GPUs with each other, with the switches and, where they are on one board,
// with a CPU. It comes before the bus, which such links are preferred to.
func (n *nccl) nvlinks() {
	near := map[slotOf]*gpu{}
	for _, g := range slices.Backward(n.gpus) {
		near[slotOf{g.cpu.host, g.bus}] = g
	}
	for _, g := range n.gpus {
		for _, e := range g.inside {
			switch e.name {
			case "nvlink":
				n.nvlink(g, e, near)
			case "c2c":
				count := n.integer(e, "count", 1, maxLanes, 0)
				each := n.integer(e, "bw", 1, 1e7, 0)
				n.lane(g.node, g.cpu.memory, lane{"c2c", count, float64(count*each) * 1e6})
			}
		}
	}
	for _, ends := range n.order {
		there, back := n.lanes[ends], n.lanes[[2]int{ends[1], ends[0]}]
		if back.rate == 0 { // told at one end only
			back = there
		} else if there.rate == 0 {
			there = back
		}
		n.join(ends[0], ends[1], n.laneClass(there), n.laneClass(back))
	}
}

func (n *nccl) nvlink(g *gpu, e *element, near map[slotOf]*gpu) {
	count := n.integer(e, "count", 1, maxLanes, 1)
	l := lane{"nvlink", count, float64(count) * NVLinkRate(g.sm)}
	target := strings.ToLower(e.get("target"))
	class := strings.TrimPrefix(e.get("tclass"), "0x")
	isGPU := strings.HasPrefix(class, gpuClass)
	if target == "" && class == "" {
		n.wrong(e, "an <nvlink> without target")
		return
	}
	bus := uint64(0)
	if target != "" {
		bus = n.bus(e, "target")
	}
	other := near[slotOf{g.cpu.host, bus}]
	switch {
	case other != nil && (isGPU || class == ""):
		if other.bus == g.bus {
			n.wrong(e, "an <nvlink> from %s to itself", quote(e.get("target")))
			return
		}
		n.lane(g.node, other.node, l)
	case isGPU: // one that this process does not use
	case class == npuBridge:
		n.lane(g.node, g.cpu.memory, l)
	case class == "" && target != hiddenSwitch:
		n.wrong(e, "an <nvlink> to %s, which no <pci> with a GPU has", quote(e.get("target")))
	default:
		if n.nvswitch < 0 {
			n.nvswitch = n.add(e, Node{Name: nvSwitch})
		}
		n.lane(g.node, n.nvswitch, l)
	}
}

// lane adds up what leads from one node to another.
func (n *nccl) lane(from, to int, l lane) {
	ends := [2]int{from, to}
	before, again := n.lanes[ends]
	if !again {
		if _, reverse := n.lanes[[2]int{to, from}]; !reverse {
			n.order = append(n.order, ends)
		}
	}
	if again && l.kind == before.kind {
		l.count += before.count
		l.rate += before.rate
	}
	n.lanes[ends] = l
}

func (n *nccl) laneClass(l lane) int {
	if l.rate == 0 {
		count := max(l.count, 1)
		return n.rated(fmt.Sprintf("%s-x%d", l.kind, count), 0, float64(count)*unknownLink)
	}
	return n.rated(l.kind, l.rate, 0)
}

// buses connects everything with the memory that it is near to.
func (n *nccl) buses() {
	n.mark(n.root)
	for _, c := range n.cpus {
		for _, e := range c.inside {
			switch e.name {
			case "pci":
				n.slot(c, e, c.memory)
			case "nic":
				bus := n.rated("bus", 0, unknownRate)
				for _, each := range n.nets(c, e) {
					n.plug(e, c.memory, bus, "", []slotted{each})
				}
			}
		}
	}
}

// mark finds what leads to devices.
func (n *nccl) mark(e *element) bool {
	leads := n.at[e] != nil || isController(e) || e.name == "net" && isNet(e)
	for _, inside := range e.inside {
		leads = n.mark(inside) || leads
	}
	if leads {
		n.leads[e] = true
	}
	return leads
}

// isController reports whether a <pci> is for the network, and NCCL is to find out what it is.
func isController(e *element) bool {
	return e.name == "pci" && len(e.inside) == 0 && pciClass(e) == networkClass
}

// isNet reports whether NCCL sends over a <net>: without dev it is a part of another.
func isNet(e *element) bool { return e.get("dev") != "" && e.get("net") != "0" }

// slot makes what is in a slot: a device, or a bridge and what is below it.
func (n *nccl) slot(c *cpu, e *element, at int) {
	if !n.leads[e] || n.err != nil {
		return
	}
	name := n.host(c.host) + strings.ToLower(e.get("busid"))
	class := n.rated("bus", n.slotRate(e), unknownRate)
	var devices []slotted
	if g := n.at[e]; g != nil {
		devices = append(devices, slotted{node: g.node})
	}
	deeper := false
	for _, inside := range e.inside {
		switch g := n.at[inside]; {
		case g != nil:
			devices = append(devices, slotted{node: g.node})
		case inside.name == "nic":
			devices = append(devices, n.nets(c, inside)...)
		case inside.name == "pci":
			deeper = true
		}
	}
	if isController(e) {
		part := Interface
		if strings.HasPrefix(strings.TrimPrefix(e.get("class"), "0x"), infiniBand) {
			part = Adapter
		}
		devices = append(devices, slotted{node: n.add(e, Node{Name: name, Part: part})})
	}
	if !deeper {
		n.plug(e, at, class, name, devices)
		return
	}
	bridge := n.add(e, Node{Name: name, Part: Bridge})
	n.join(at, bridge, class, class)
	for _, each := range devices {
		n.plug(e, bridge, class, "", []slotted{each})
	}
	for _, inside := range e.inside {
		if inside.name == "pci" {
			n.slot(c, inside, bridge)
		}
	}
}

// What the system says where it does not know the width of a slot.
var unknownWidths = []int64{0, 63, 255}

// slotRate returns what a slot carries in bytes a second, 0 if that is not known.
func (n *nccl) slotRate(e *element) float64 {
	text, _, _ := strings.Cut(e.get("link_speed"), "GT/s")
	if strings.HasPrefix(text, "Unknown") {
		text = ""
	}
	speed := n.number(e, "link_speed", strings.TrimSpace(text), 256)
	width := n.integer(e, "link_width", 0, 255, 0)
	if slices.Contains(unknownWidths, width) {
		return 0
	}
	if width > 32 {
		n.wrong(e, "link_width=%q: want 1 to 32 lanes", e.get("link_width"))
	}
	return topo.PCIRate(speed*1e9, int(width))
}

// adapters are what the names of RDMA adapters begin with.
var adapters = []string{"mlx", "bnxt_re", "irdma", "hfi", "efa", "rdma", "roce", "qedr", "hns_", "cxgb", "ionic",
	"mana", "cxi"}

// nets makes the nodes of the ports of a <nic>.
func (n *nccl) nets(c *cpu, nic *element) (devices []slotted) {
	for _, e := range nic.inside {
		if !isNet(e) {
			continue
		}
		name, part := e.get("name"), Interface
		if name == "" {
			name = "net" + e.get("dev")
		}
		if slices.ContainsFunc(adapters, func(s string) bool { return strings.HasPrefix(name, s) }) {
			part = Adapter
			if port := n.integer(e, "port", 0, 255, 0); port > 0 {
				name += ":" + strconv.FormatInt(port, 10)
			}
		}
		n.integer(e, "dev", 0, 1<<16, 0)
		speed := n.integer(e, "speed", -1, 1e8, 0) // -1 of some that do not tell it
		devices = append(devices, slotted{
			n.add(e, Node{Name: n.host(c.host) + name, Part: part}), float64(max(speed, 0)) * 1e6 / 8})
	}
	return devices
}

// between connects the memory of the CPUs of each host.
func (n *nccl) between() {
	rates := make([]float64, len(n.cpus))
	for i, c := range n.cpus {
		rates[i] = n.socketRate(c.element)
	}
	for i, a := range n.cpus {
		for j, b := range n.cpus[:i] {
			if a.host != b.host {
				continue
			}
			class := 0
			if rate := min(rates[i], rates[j]); rate > 0 {
				class = n.rated("smp", rate, 0)
			} else {
				class = n.rated("between-nodes", 0, unknownRate)
			}
			n.join(b.memory, a.memory, class, class)
		}
	}
}

// socketRate returns what CPUs of a model carry between each other in bytes a second, as NCCL has
// measured it; 0 if that is not known.
func (n *nccl) socketRate(e *element) float64 {
	family := n.integer(e, "familyid", 0, 1<<16, 0)
	model := n.integer(e, "modelid", 0, 1<<16, 0)
	switch arch := e.get("arch"); {
	case arch == "ppc64":
		return 32e9
	case arch == "arm64":
		return 6e9
	case arch != "x86_64":
		return 0
	}
	switch e.get("vendor") {
	case "GenuineIntel":
		switch {
		case family == 6 && model >= 0xcf: // Emerald Rapids
			return 40e9
		case family == 6 && model >= 0x8f: // Sapphire Rapids
			return 22e9
		case family == 6 && model >= 0x55: // Skylake
			return 10e9
		}
		return 6e9
	case "AuthenticAMD":
		return 16e9
	case "CentaurHauls", "Shanghai":
		if family == 7 && model == 0x5b {
			return 9e9
		}
		return 6e9
	}
	return 0
}

// reached checks that all ranks reach each other: within a host they always do, and hosts may
// have switches or the network in common.
func (n *nccl) reached() {
	if n.err != nil || len(n.hosts) < 2 {
		return
	}
	out := make([][]int, len(n.Nodes))
	for _, l := range n.Links {
		out[l.From] = append(out[l.From], l.To)
	}
	part, parts := make([]int, len(n.Nodes)), 0 // which nodes reach each other without ranks, from 1
	best := map[int]bool{}                      // the ranks at the part that has most
	for at := range n.Nodes {
		if part[at] > 0 || n.Nodes[at].Rank {
			continue
		}
		parts++
		part[at] = parts
		ranks := map[int]bool{}
		for queue := []int{at}; len(queue) > 0; queue = queue[1:] {
			for _, to := range out[queue[0]] {
				if n.Nodes[to].Rank {
					ranks[to] = true
				} else if part[to] == 0 {
					part[to] = parts
					queue = append(queue, to)
				}
			}
		}
		if len(ranks) > len(best) {
			best = ranks
		}
	}
	for at := range n.Nodes {
		if n.Nodes[at].Rank && !best[at] {
			n.wrong(n.rank[at], "%s has no path to other hosts; add a <nic> with a <net> there, or <nvlink> to switches",
				n.Nodes[at].Name)
			return
		}
	}
}

package network

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// hwlocForm is what lstopo and hwloc_topology_export_xml write.
var hwlocForm = form{
	"topology": {[]string{""}, []string{"version"}},
	"object": {[]string{"topology", "object"}, []string{"type", "os_index", "name", "depth", "cache_type", "cache_size",
		"local_memory", "pci_busid", "bridge_pci", "pci_link_speed", "osdev_type"}},
	"info": {[]string{"topology", "object"}, []string{"name", "value"}},
}

// What the objects of hwloc are here. Those of other types are passed through to what they have
// inside.
const (
	through = iota
	machineObject
	packageObject
	memoryObject
	cacheObject
	coreObject
	threadObject
	bridgeObject
	pciObject
	deviceObject
)

// objects maps the types of hwloc, those of version 1 too, to what they are here.
var objects = map[string]int{
	"Machine": machineObject, "Package": packageObject, "Socket": packageObject,
	"NUMANode": memoryObject, "Node": memoryObject,
	"Cache": cacheObject, "L1Cache": cacheObject, "L2Cache": cacheObject, "L3Cache": cacheObject,
	"L4Cache": cacheObject, "L5Cache": cacheObject,
	"L1iCache": through, "L2iCache": through, "L3iCache": through, "MemCache": through,
	"Core": coreObject, "PU": threadObject,
	"Bridge": bridgeObject, "PCIDev": pciObject, "OSDev": deviceObject,
	"Group": through, "Die": through, "Misc": through, "System": through,
	"Tile": through, "Module": through, "Cluster": through,
}

const (
	instructions = 2         // cache_type
	noIndex      = 1<<32 - 1 // os_index, where the system has none
)

// object is one of hwloc.
type object struct {
	*element
	is      int
	index   int64 // the number that the system has for it, -1 if it has none
	first   int64 // its first processor, -1 without
	level   int64 // of a cache
	cores   int   // inside
	devices int   // inside
	memory  bool  // it is, or has inside, a NUMA node
	onBus   bool  // it is on the bus
	objects []*object
}

// hwloc is the network of one of hwloc's files.
type hwloc struct {
	drawing
	version  int
	levels   int64 // of caches
	memories int   // how many there are
	packages int   // without os_index
	gpus     int
}

func readHWLOC(f *xmlFile, root *element) (*Topology, error) {
	h := &hwloc{drawing: newDrawing(f, root, hostName(root))}
	switch major, _, _ := strings.Cut(root.get("version"), "."); major {
	case "": // written since version 2
		h.version = 1
	case "1", "2", "3":
		h.version = int(major[0] - '0')
	default:
		return nil, f.wrong(root.offset, "version %s of hwloc's form; this version reads 1, 2 and 3",
			quote(root.get("version")))
	}
	var machine *object
	for _, e := range root.inside {
		if e.name != "object" {
			continue
		}
		if machine != nil {
			return nil, f.wrong(e.offset, "a second <object> outside of the first")
		}
		machine = h.object(e, nil)
	}
	if machine == nil {
		return nil, f.wrong(root.offset, "no <object>; want one of type Machine")
	}
	if machine.is != machineObject { // version 1 leaves out what has one object inside
		within := &object{element: machine.element, is: machineObject, first: -1}
		within.contain(machine)
		machine = within
	}
	if h.err == nil {
		h.ranks(machine)
		h.draw(machine, -1)
	}
	return h.finish()
}

// hostName returns what the file says the machine is called.
func hostName(root *element) string {
	where := [][]*element{root.inside}
	for _, e := range root.inside {
		where = append(where, e.inside)
	}
	for _, elements := range where {
		for _, e := range elements {
			if e.name == "info" && e.get("name") == "HostName" {
				return e.get("value")
			}
		}
	}
	return ""
}

// object reads an object and those inside.
func (h *hwloc) object(e *element, above *object) *object {
	is, known := objects[e.get("type")]
	o := &object{element: e, is: is, first: -1, index: h.integer(e, "os_index", -1, noIndex, -1)}
	o.onBus = is >= bridgeObject || above != nil && above.onBus
	if o.index == noIndex {
		o.index = -1
	}
	switch {
	case !known:
		h.wrong(e, "<object> of type %s, which this version does not know", quote(e.get("type")))
	case o.onBus && is != through && is < bridgeObject:
		h.wrong(e, "a %s inside of a device or a bridge", e.get("type"))
	case is == machineObject && above != nil:
		h.wrong(e, "a Machine inside of another object; a file describes one machine")
	case is == cacheObject:
		o.level = h.level(e)
		if h.integer(e, "cache_type", -1, 8, 0) == instructions {
			o.is = through
		} else {
			h.levels = max(h.levels, o.level)
		}
	case is == memoryObject:
		o.memory = true
		if h.memories++; h.memories > maxMemories {
			h.wrong(e, "more than %d NUMA nodes", maxMemories)
		}
	case is == threadObject:
		if o.cores, o.first = 1, o.index; o.first < 0 {
			h.wrong(e, "a PU without os_index")
		}
	case is == deviceObject && h.kind(e) != "":
		o.devices = 1
	}
	for _, inside := range e.inside {
		if inside.name == "object" {
			o.contain(h.object(inside, o))
		}
	}
	if o.is == coreObject {
		if o.cores = 1; o.first < 0 {
			h.wrong(e, "a Core without a PU")
		}
	}
	return o
}

func (o *object) contain(inside *object) {
	o.objects = append(o.objects, inside)
	o.cores += inside.cores
	o.devices += inside.devices
	o.memory = o.memory || inside.memory
	if o.first < 0 || inside.first >= 0 && inside.first < o.first {
		o.first = inside.first
	}
}

// level returns which level of caches a cache is of; version 1 has a type for all.
func (h *hwloc) level(e *element) int64 {
	if name := e.get("type"); name != "Cache" {
		return int64(name[1] - '0')
	}
	return h.integer(e, "depth", 1, 9, 1)
}

// kind returns what an OSDev is, "" if nothing that messages pass. Version 3 has a bit for each
// kind.
func (h *hwloc) kind(e *element) Part {
	value := h.integer(e, "osdev_type", 0, 1<<32, 0)
	if h.version < 3 {
		return map[int64]Part{1: GPU, 2: Interface, 3: Adapter, 5: GPU}[value]
	}
	switch {
	case value&(1<<5) != 0:
		return Adapter
	case value&(1<<4) != 0:
		return Interface
	case value&(1<<2|1<<3) != 0:
		return GPU
	}
	return ""
}

// ranks makes the cores, in the order of their first processors, as Found does; a processor that
// is in no core is one.
func (h *hwloc) ranks(machine *object) {
	var cores []*object
	var find func(o *object)
	find = func(o *object) {
		if o.is == coreObject || o.is == threadObject {
			cores = append(cores, o)
			return
		}
		for _, inside := range o.objects {
			find(inside)
		}
	}
	find(machine)
	slices.SortStableFunc(cores, func(a, b *object) int { return int(a.first - b.first) })
	for _, o := range cores {
		h.add(o.element, Node{Name: coreName(o), Rank: true, Part: Core})
	}
}

func coreName(o *object) string { return "core" + strconv.FormatInt(o.first, 10) }

// draw connects what an object is, and all inside, with the node above.
//
// In version 1 a NUMA node has inside what is near to it, in later ones both are beside each other.
// Either way it comes between what is near to it and the rest.
func (h *hwloc) draw(o *object, above int) {
	switch o.is {
	case coreObject, threadObject:
		h.under(h.nodes[coreName(o)], above)
		return
	case bridgeObject, pciObject, deviceObject:
		h.bus(o, above)
		return
	case machineObject:
		above = h.add(o.element, Node{Name: "machine", Part: Host})
	case packageObject:
		number := o.index
		if number < 0 {
			number = int64(h.packages)
			h.packages++
		}
		above = h.under(h.add(o.element, Node{Name: "package" + strconv.FormatInt(number, 10), Part: Package}), above)
	case memoryObject:
		above = h.memory(o, above)
	}
	above = h.near(o, above)
	core := above
	if o.is == cacheObject && (o.level == h.levels || o.cores > 1) {
		core = h.under(h.add(o.element, Node{Name: fmt.Sprintf("L%d.%d", o.level, o.first), Part: Cache,
			Bytes: h.bytes(o.element, "cache_size")}), above)
	}
	for _, inside := range o.objects {
		switch {
		case h.err != nil:
			return
		case inside.cores > 0:
			h.draw(inside, core)
		case !inside.memory:
			h.draw(inside, above)
		}
	}
}

// near makes the NUMA nodes beside what is in an object. The first is for the cores that have none
// of their own; it returns what is above these.
func (h *hwloc) near(o *object, above int) int {
	own := o.is == memoryObject
	for _, inside := range o.objects {
		own = own || inside.memory && inside.cores > 0
	}
	if o.is == machineObject && !o.memory {
		memory := h.add(o.element, Node{Name: "memory0", Part: Memory, Bytes: h.bytes(o.element, "local_memory")})
		return h.under(memory, above)
	}
	var place func(o *object)
	place = func(o *object) {
		if o.is != memoryObject {
			for _, inside := range o.objects {
				place(inside)
			}
			return
		}
		at := h.memory(o, above)
		for _, inside := range o.objects {
			h.draw(inside, at)
		}
		if !own {
			own, above = true, at
		}
	}
	for _, inside := range o.objects {
		if inside.memory && inside.cores == 0 {
			place(inside)
		}
	}
	return above
}

// memory makes the memory of a NUMA node.
func (h *hwloc) memory(o *object, above int) int {
	if o.index < 0 {
		h.wrong(o.element, "a NUMANode without os_index")
	}
	return h.under(h.add(o.element, Node{Name: "memory" + strconv.FormatInt(o.index, 10), Part: Memory,
		Bytes: h.bytes(o.element, "local_memory")}), above)
}

func (h *hwloc) bytes(e *element, name string) int64 {
	return min(h.integer(e, name, 0, math.MaxInt64, 0), MaxBytes)
}

// under connects a node with the one above, and returns it.
func (h *hwloc) under(node, above int) int {
	if above < 0 {
		return node
	}
	kind := "between-nodes"
	switch part := h.Nodes[node].Part; {
	case part != Memory && h.Nodes[above].Part == Memory:
		kind = "memory"
	case part == Core:
		kind = "core"
	case part == Cache:
		kind = "cache"
	}
	class := h.rated(kind, 0, unknownRate)
	h.join(node, above, class, class)
	return node
}

// bus connects the devices that an object is or has inside, over the bridges between.
func (h *hwloc) bus(o *object, at int) {
	if o.devices == 0 || h.err != nil {
		return
	}
	speed := h.number(o.element, "pci_link_speed", o.get("pci_link_speed"), 1e5) * 1e9
	class := h.rated("bus", speed, unknownRate)
	switch o.is {
	case pciObject:
		h.plug(o.element, at, class, busName(o), h.deviceNodes(o))
		return
	case deviceObject:
		if part := h.kind(o.element); part != GPU { // of a GPU, several may be the same
			h.plug(o.element, at, class, "", []slotted{{node: h.add(o.element, Node{Name: o.get("name"), Part: part})}})
		}
		return
	case bridgeObject:
		bridge := h.add(o.element, Node{Name: busName(o), Part: Bridge})
		h.join(at, bridge, class, class)
		at = bridge
	}
	for _, inside := range o.objects {
		h.bus(inside, at)
	}
}

// busName returns the name of a bridge or a slot; those of the roots are as Linux names them.
func busName(o *object) string {
	if id := o.get("pci_busid"); id != "" {
		return id
	}
	domain, buses, _ := strings.Cut(o.get("bridge_pci"), ":[")
	bus, _, _ := strings.Cut(buses, "-")
	return "pci" + domain + ":" + bus
}

// deviceNodes makes what a PCI device is to the system: a GPU once, by however many names it is
// known, and each port of an adapter, and each interface.
func (h *hwloc) deviceNodes(o *object) (devices []slotted) {
	gpu := false
	var find func(o *object)
	find = func(o *object) {
		if o.is == deviceObject && o.devices > 0 {
			n := Node{Name: o.get("name"), Part: h.kind(o.element)}
			if n.Part == GPU {
				if gpu {
					return
				}
				gpu, n.Name = true, "gpu"+strconv.Itoa(h.gpus)
				h.gpus++
			}
			devices = append(devices, slotted{node: h.add(o.element, n)})
		}
		for _, inside := range o.objects {
			find(inside)
		}
	}
	find(o)
	return devices
}

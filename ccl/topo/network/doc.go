// Package network describes what connects ranks: nodes, switches, and directed links with a latency
// and a bandwidth.
//
// A Topology is built by a generator (Uniform, NVLink, PCIe, Ring, Torus, FatTree, Dragonfly,
// Rail), read from a file (Read) or from a short text (Parse: "torus:8x8,alpha=1us,bw=25GB"). A
// Router finds the path that a message takes. Package sim simulates plans over it. Nothing here
// reads the machine.
//
// # Paths
//
// A message takes a path with the fewest links. Switches forward messages, and so do ranks with
// Forwards set (those of a ring or a torus, which have their own routers). Where several shortest
// paths exist, Routing decides: First takes at every node the link that was added first, which
// gives dimension order in a torus; ECMP chooses a path by a hash of the two ranks, always the same
// path for the same pair, as switches do. Two parallel links are two paths for ECMP. With First the
// second would never be used, so Validate refuses them.
//
// # Time
//
// A message takes Topology.Startup, and the Alpha of each link of its path, before its bytes flow.
// Then it has the bandwidth that the links of its path give it.
//
// # XML
//
// Read also takes two forms of XML that other programs write for a machine. Names of classes that
// end with -of-unknown-rate have a rate that the file does not tell: 10 GB a second, 20 for a link
// of NVLink, 1.25 for a wire.
//
// NCCL's, which NCCL_TOPO_DUMP_FILE names (<system version="1">): the GPUs are the ranks, in the
// order of dev. Each is connected with what its <nvlink> lead to, all switches being one, with the
// memory of its CPU where there is <c2c>, and over <pci> with the memory of the CPU that it is
// near to; what NVLinks carry, and the CPUs between each other, is what NCCL takes it to be. A
// <pci> of a GPU or an adapter that NCCL is to complete counts as one; a <net> without dev, which
// is a part of another, does not. Without GPUs the CPUs are the ranks. Hosts are told apart by
// host_hash.
//
// hwloc's, which lstopo writes (<topology>, versions 1 to 3): the cores are the ranks, as in Found,
// or the PUs that are in none. Above them are the caches that several share, the memory of their
// NUMA node, their package and the machine; other NUMA nodes of the same cores are beside the
// first. Groups, dies and the like are left out, and so are the devices of the bus that are no GPU,
// adapter or interface, and bridges to these. hwloc tells the rates of slots, and no others.
package network

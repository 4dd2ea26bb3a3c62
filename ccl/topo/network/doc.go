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
package network

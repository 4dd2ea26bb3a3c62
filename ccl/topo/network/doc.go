// Package network describes what connects ranks: nodes, switches, and directed links with a latency
// and a bandwidth.
//
// A Topology is built by a generator (Uniform, NVLink, PCIe, Ring, Torus, FatTree, Dragonfly,
// Rail), read from a file (Read) or from a short text (Parse: "torus:8x8,alpha=1us,bw=25GB"). A
// Router finds the path that a message takes. Package sim simulates plans over it. Nothing here
// looks at the machine.
//
// # Paths
//
// A message takes a path with the fewest links. Switches forward, and so do ranks that say so
// (those of a ring or a torus, which have their own routers). Where several shortest paths exist,
// Routing decides: First takes the link that was added first, at every node, which is dimension
// order in a torus; ECMP takes one by a hash of the two ranks, always the same one for the same
// pair, as switches do. Two links side by side are two ways for ECMP; with First, where the second
// would never be used, they are a mistake.
//
// # Time
//
// A message costs Topology.Startup, and the Alpha of each link of its path, before its bytes flow;
// then it has the bandwidth that the links of its path give it.
package network

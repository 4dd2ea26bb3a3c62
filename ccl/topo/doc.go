// Package topo describes what the ranks of a job run on: hosts, cores, memory, network interfaces,
// GPUs. Package topo/probe reads it from the system.
//
// # What a group runs on
//
// Before a group meets, each rank says what it knows of itself (Rank): where it runs, which cores
// it may use, which transports it has, how much memory it can give. Agree makes a Group of what all
// have said. It is a pure function that does not depend on the order, so all ranks have the same
// Group, or the same error, and whatever follows from the Group alone is the same on all ranks too:
// the algorithm that is chosen, the levels of a plan, whether windows are read. Such facts are
// asked for (Even, HostOf, Rails and so on), and not copied into the structs of those who use them.
//
// What the ranks settle or measure together later is added to the Group (WithSlot, WithDevices),
// and not passed beside it.
package topo

// Package netlab makes networks of hosts on one machine, for tests and benchmarks.
//
// A host is a network namespace. A wire joins all hosts; it is an interface of each of them. Wires
// without a delay are bridges of veth pairs; those with a delay, loss or a limit of each connection
// are tun devices, and the process that makes the network carries their packets. A rate is kept by
// tc's token bucket, in both directions of each host. Hosts have the machine's congestion control
// for TCP: where that is BBR, goccl does not keep it on short wires, and other programs do.
//
// The process that calls Network.Make is started with Attributes, in namespaces of its own, so no
// other process sees the names it assigns. When it ends in any way, the kernel ends the processes
// that it started and removes the network: nothing is left after a crash, and concurrent runs
// cannot collide.
//
// The program internal/netlab/with makes a network and runs a command in it. The command may change
// the network with ip and ss: take an interface down (ip -n host0 link set eth0 down), reset
// connections (ip netns exec host0 ss -K …), or make a bridged wire silent (ip link set port0.1
// down, of wire 0 and host 1).
package netlab

// Package share makes the memory of a rank of a device group that the devices of all ranks reach: a
// page, windows of which the ranks choose one kind, and an arena that the rank may lend. It says
// what is where in it, and passes descriptors of memory to peers.
package share

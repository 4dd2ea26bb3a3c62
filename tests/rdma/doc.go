// Package rdma has ranks, each a process, in the virtual machines of ci/rdma-vm.sh, whose kernel
// emulates RDMA adapters: what they calculate, what they say when one of them is killed or may lock
// no memory, and what happens while the packets of RDMA, but not those of TCP, are lost between two
// machines.
//
// make test-rdma runs the tests; elsewhere they are skipped.
package rdma

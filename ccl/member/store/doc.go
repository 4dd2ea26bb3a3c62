// Package store is a store of records in which the ranks of a job meet (package member): values
// under keys, which one process serves by TCP, rank 0 as a rule.
//
// It speaks the protocol of torch's TCPStore, as much of it as a meeting needs. So ranks that
// torchrun has started meet in the store that its agent serves, at the port that it has told them.
//
// Like that store it trusts whoever reaches its port: a stranger can spoil a meeting. What it can
// not do is to use up this process's memory, to make it wait, or to read anything but records.
package store

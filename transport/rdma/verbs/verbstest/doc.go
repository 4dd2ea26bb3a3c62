// Package verbstest is adapters in plain Go, on memory of this process: they keep the contract of
// package verbs, and tell where a program does not. Run is a suite that tests any implementation of
// that contract.
//
// A Network has hosts; each stands for a process on a machine of its own, with adapters. One
// goroutine executes the writes of all pairs, in an order that a seed chooses and that the contract
// allows. It copies in parts, the last bytes sometimes first, and reads the source at any time
// between Post and the completion: memory tells nothing, only completions do. It copies without a
// lock, and posting takes none of its locks, so the race detector finds who reads a slot, or writes
// to a source, before the completion.
//
// Limits are strict: a completion queue has room for as many as were asked for, and a write keeps
// its place until a completion of it, or of a later one of the pair, was polled. So does an entry
// of a receive queue.
//
// # What is reported
//
// Use after Close and Close in the wrong order, a source that changes before its write completes, a
// region that is closed while a posted write reads it or whose memory is gone, a completion queue
// that overflows, and two threads where the contract allows one. Check fails a test that has any
// report. Leaks tells what was not closed.
//
// Memory of devices comes from functions of the test (Options.DMABuf, Options.PeerMemory), such as
// those of package cudatest. A write that reads it after its end is a report, too.
//
// # What a test can do
//
// Cut and CutPort lose packets: who has sent tries again, and then gives up; the other side notices
// nothing. Refuse makes calls fail, Complete lets writes and arrivals end with any status, Notices
// makes notices late, lost or double, SetPort, Renumber, Fatal and Raise are events of an adapter,
// and Kill ends a host as the death of its process does. Carried says how much has gone by a port.
package verbstest

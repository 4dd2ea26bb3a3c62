// Package inproc joins ranks that are threads of one process.
//
// The ranks share one Fabric. Both ends of a session meet in it by session and pair of ranks; their
// rings are those of package ring, in plain memory of the process.
package inproc

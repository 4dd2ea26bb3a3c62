// Package inproc joins ranks that are threads of one process.
//
// The ranks share one Fabric. The two ends of a session find each other in it by session and pair
// of ranks; they communicate through the rings of package ring, in ordinary memory of the process.
package inproc

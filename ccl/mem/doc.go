// Package mem is memory outside the Go heap: anonymous blocks, and on Linux segments that other
// processes map.
//
// The garbage collector neither scans nor counts it; InUse does. Nothing here is freed by itself.
// Memory that was freed must not be touched: it is no longer mapped. The API is not stable.
//
// Segments lie in huge pages and on the NUMA node of their maker where a trial has shown that the
// kernel does that (ProbeHugePages, ProbeHome); elsewhere they work the same, a little slower.
//
// An Arena is a segment of another kind: sparse, for buffers that are given out and back
// (arena.go).
package mem

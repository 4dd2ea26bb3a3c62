// Package mem provides memory outside the Go heap: anonymous blocks and, on Linux, segments that
// other processes map.
//
// The garbage collector neither scans nor counts this memory; InUse counts it. Nothing is freed
// automatically. Freed memory is no longer mapped and must not be touched. The API is not stable.
//
// Segments use huge pages and the NUMA node of the process that makes them where a trial has shown
// that the kernel grants these (ProbeHugePages, ProbeHome). Elsewhere they work the same, a little
// slower.
//
// An Arena is another kind of segment: sparse, for buffers that are allocated and freed (arena.go).
package mem

// Package mem is memory outside the Go heap: anonymous blocks, and on Linux segments that other processes map.
//
// The garbage collector neither scans nor counts it; InUse does. Nothing here is freed by itself. Memory that was freed must not
// be touched: it is no longer mapped. The API is not stable.
package mem

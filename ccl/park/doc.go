// Package park waits: spin, then yield, then sleep in the kernel until somebody rings.
//
// Its API is not stable.
package park

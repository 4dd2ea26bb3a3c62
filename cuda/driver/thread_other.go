//go:build !linux

package driver

// threadID is not called: there is no driver to open.
func threadID() int { return 0 }

//go:build !linux

package park

// Affinity returns an empty set: this system does not report where a process may run.
func Affinity() CPUSet { return nil }

// OnOneCore calls nothing on this system, and returns nil.
func OnOneCore(func() error) error { return nil }

//go:build !linux

package park

// Affinity is empty where the system does not say on which processors a process may run.
func Affinity() CPUSet { return nil }

//go:build amd64 || arm64

package park

// Pause executes the processor's spin-wait hint n times (at least once). n is small: assembly
// cannot be preempted.
//
//go:noescape
func Pause(n int)

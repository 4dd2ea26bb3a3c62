package cudatest

import "syscall"

// threadID identifies a goroutine that is tied to its thread.
func threadID() int { return syscall.Gettid() }

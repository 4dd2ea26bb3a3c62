package driver

import "syscall"

// threadID returns a number that no other thread has now.
func threadID() int { return syscall.Gettid() }

package main

import "syscall"

// ownGroup returns the attributes of a process whose children are to be ended with it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

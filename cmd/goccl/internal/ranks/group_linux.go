package ranks

import "syscall"

// OwnGroup returns the attributes of a process whose children are to be ended with it.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

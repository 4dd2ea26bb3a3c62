//go:build !linux

package ranks

import "syscall"

func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

//go:build !linux

package netlab

import (
	"errors"
	"syscall"
)

// Hint says what to do where Attributes or starting a process with them fails.
const Hint = ""

var errNoNamespaces = errors.New("networks of hosts need network namespaces, which only Linux has")

// Attributes fails on this system.
func Attributes() (*syscall.SysProcAttr, error) { return nil, errNoNamespaces }

// Make fails on this system.
func (n *Network) Make() error { return errNoNamespaces }

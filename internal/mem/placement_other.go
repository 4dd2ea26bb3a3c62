//go:build !linux

package mem

import "errors"

var errLinux = errors.New("it needs Linux")

func tryHugePage(string, HugeWay) (int, error) { return 0, errLinux }

func tryReserved() error { return errLinux }

func tryNode(int) error { return errLinux }

//go:build !linux

package share

import "github.com/goccl/goccl/ccl/fault"

func newChannel() (own, theirs int, err error) { return -1, -1, errChannel() }

func Pass(int, uint64, int) error { return errChannel() }

func Passed(int, uint64) (int, error) { return -1, errChannel() }

func errChannel() error {
	return fault.New(fault.NotSupported, "descriptors cannot be passed on on this system")
}

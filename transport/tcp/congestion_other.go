//go:build !linux

package tcp

import (
	"errors"

	"github.com/goccl/goccl/ccl/fault"
)

// congestionOf returns "": this system does not say.
func congestionOf(int) string { return "" }

func setCongestion(int, string) error { return errors.ErrUnsupported }

// Congestion returns an error if a congestion control was chosen: connections have that of the
// system here.
func Congestion(choice string) (system, short string, err error) {
	if choice != "" && choice != SystemCongestion {
		err = fault.New(fault.Invalid, "GOCCL_SOCKET_CONGESTION=%s: only Linux has that choice", choice)
	}
	return "", "", err
}

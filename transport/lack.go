package transport

import (
	"errors"
	"slices"
	"syscall"
)

// Lacks reports whether an error of the system says that this process, or its host, has no
// descriptors or no memory left: the peer is not to blame.
func Lacks(err error) bool {
	lacking := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS}
	return slices.ContainsFunc(lacking, func(e error) bool { return errors.Is(err, e) })
}

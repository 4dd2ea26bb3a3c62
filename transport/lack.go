package transport

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// Lacks reports whether an error of the system says that this process, or its host, has no
// descriptors or no memory left: the peer is not to blame.
func Lacks(err error) bool {
	lacking := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS}
	return slices.ContainsFunc(lacking, func(e error) bool { return errors.Is(err, e) })
}

const (
	lackSpan  = 300 * time.Millisecond // for so long something may be short before a Connect that needs it fails
	lackPause = 2 * time.Second        // attempts are not further apart
)

// Lack is a shortage of descriptors or memory, nil if there is none. It lasts while errors come
// again and again, also if something succeeds between them: what one connection gives back, the
// next one takes.
type Lack struct {
	first, last time.Time
	err         error
}

// Again returns the shortage after one more error, which may have another reason.
func (l *Lack) Again(err error) *Lack {
	now := time.Now()
	switch {
	case !Lacks(err):
		return l
	case l == nil || now.Sub(l.last) > lackPause:
		return &Lack{now, now, err}
	}
	return &Lack{l.first, now, err}
}

// Fault returns an error if the shortage lasts. It names no peer.
func (l *Lack) Fault(what string) error {
	if l == nil || l.last.Sub(l.first) < lackSpan || time.Since(l.last) > lackPause {
		return nil
	}
	return fault.Wrap(fault.System, l.err, "%s", what)
}

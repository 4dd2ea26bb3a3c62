//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"sync"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
)

var openOnce = sync.OnceValues(func() (Library, error) { return open("libibverbs.so.1") })

// Open returns the system's libibverbs. The first call opens it; later ones return the same result.
func Open() (Library, error) { return openOnce() }

func open(path string) (Library, error) {
	l, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	if err := l.prepareForks(); err != nil {
		return nil, err
	}
	return l, nil
}

// prepareForks has pages that are registered stay this process's when it forks, as programs do that
// start workers. Without it, kernels before 5.12 give the parent a copy with its next write, and
// the adapter goes on with the page that only the child has. Where the kernel sees to that, it does
// nothing.
func (l *library) prepareForks() error {
	switch errno := l.forkInit(); errno {
	case 0:
		return nil
	case syscall.EINVAL:
		return fault.New(fault.NotSupported, "rdma: another library of this process registered memory before, which a "+
			"fork would take away from it: set RDMAV_FORK_SAFE=1 for the process")
	default:
		return refused(errno, "ibv_fork_init")
	}
}

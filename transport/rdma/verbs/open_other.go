//go:build (!linux || !(amd64 || arm64)) && !nordma

package verbs

import (
	"runtime"

	"github.com/goccl/goccl/ccl/fault"
)

// Open fails: adapters are used on Linux, on amd64 and arm64.
func Open() (Library, error) {
	return nil, fault.New(fault.NotSupported, "rdma: not on %s/%s", runtime.GOOS, runtime.GOARCH)
}

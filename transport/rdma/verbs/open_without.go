//go:build nordma

package verbs

import "github.com/goccl/goccl/ccl/fault"

// Open fails: this program is built without RDMA, and so without a dynamic loader.
func Open() (Library, error) {
	return nil, fault.New(fault.NotSupported, "rdma: this program was built without it (-tags nordma)")
}

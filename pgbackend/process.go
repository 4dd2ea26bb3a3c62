package pgbackend

import (
	"sync"

	"github.com/goccl/goccl/ccl"
)

// process is the Node of this process. The first group, or the first allocation of registered
// memory, makes it with the process-wide part of its options; it is never replaced or closed.
var process struct {
	sync.Mutex
	node *ccl.Node
}

func node(opts ccl.Options) (*ccl.Node, error) {
	process.Lock()
	defer process.Unlock()
	if process.node == nil {
		n, err := ccl.NewNode(opts)
		if err != nil {
			return nil, err
		}
		process.node = n
	}
	return process.node, nil
}

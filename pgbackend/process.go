package pgbackend

import (
	"sync"

	"github.com/goccl/goccl/ccl"
)

// process is the Node of this process. It is made by the first group, or by the first allocation of registered
// memory, with what their options say of the process as a whole, and stays.
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

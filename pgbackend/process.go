package pgbackend

import (
	"sync"

	"github.com/goccl/goccl/ccl"
)

// process is the Node of this process. It is made by the first group, with that group's interfaces and room for registered memory, or by the first
// allocation of such memory, and stays.
var process struct {
	sync.Mutex
	node *ccl.Node
}

func node(opts ccl.Options) (*ccl.Node, error) {
	process.Lock()
	defer process.Unlock()
	if process.node == nil {
		n, err := ccl.NewNode(ccl.Options{SocketIfname: opts.SocketIfname, Registered: opts.Registered})
		if err != nil {
			return nil, err
		}
		process.node = n
	}
	return process.node, nil
}

package pgbackend

import (
	"sync"

	"github.com/goccl/goccl/ccl"
)

// process is the Node of this process. The first group, or the first allocation of registered
// memory, makes it with its options; it is never replaced or closed.
var process struct {
	sync.Mutex
	node  *ccl.Node
	track func(fd int, open bool)
}

// TrackSockets sets what ccl.Node.Track gets of the Node of this process. It must be called before
// the first group is made.
func TrackSockets(track func(fd int, open bool)) {
	process.Lock()
	defer process.Unlock()
	process.track = track
}

// node returns the Node of this process, and makes it with the options, if it is the first to ask.
func node(opts ccl.NodeOptions) (*ccl.Node, error) {
	process.Lock()
	defer process.Unlock()
	if process.node == nil {
		n, err := ccl.NewNode(opts)
		if err != nil {
			return nil, err
		}
		n.Track(process.track)
		process.node = n
	}
	return process.node, nil
}

// Warn writes a warning that concerns the process, as its Node does.
func Warn(format string, args ...any) {
	n, err := node(ccl.NodeOptions{})
	if err == nil {
		n.Warn(format, args...)
	}
}

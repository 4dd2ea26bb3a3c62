package pgbackend

import (
	"fmt"
	"sync"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// arenas has the registered memory of devices, by their index.
var arenas = struct {
	sync.Mutex
	of map[int]*ccl.DeviceArena
}{of: map[int]*ccl.DeviceArena{}}

// OpenArena makes the registered memory of a device ("cuda:0"), if the process has none yet, and
// returns how many bytes it has. It may wait until all streams of the process have ended.
func OpenArena(options, device string) (bytes int, err error) {
	opts, err := ccl.ParseOptions(options)
	if err != nil {
		return 0, err
	}
	arena, err := openArena(&opts.NodeOptions, device)
	if err != nil {
		return 0, err
	}
	return arena.Bytes(), nil
}

// openArena is OpenArena for options that have been parsed; nil is for those of the Node.
func openArena(opts *ccl.NodeOptions, device string) (*ccl.DeviceArena, error) {
	where, err := placeOf(device)
	if err != nil {
		return nil, err
	}
	if where == nil {
		return nil, fault.New(fault.Invalid, "a device has no name")
	}
	var ofNode ccl.NodeOptions
	if opts != nil {
		ofNode = *opts
	}
	n, err := node(ofNode)
	if err != nil {
		return nil, err
	}
	arena, err := where.openArena(n, opts)
	if err == nil && arena == nil {
		err = fault.New(fault.NotSupported, "there is no registered memory on %s: GOCCL_CUDA_REGISTERED=0; set it to a size, "+
			"like 4G", device)
	}
	return arena, err
}

// openArena returns the registered memory of the device, or nil if the options ask for none.
func (p *place) openArena(n *ccl.Node, opts *ccl.NodeOptions) (*ccl.DeviceArena, error) {
	arena, err := n.DeviceArena(p.driver, p.index, opts)
	if err != nil || arena == nil {
		return nil, err
	}
	arenas.Lock()
	defer arenas.Unlock()
	arenas.of[p.index] = arena
	return arena, nil
}

func arenaOf(device int) *ccl.DeviceArena {
	arenas.Lock()
	defer arenas.Unlock()
	return arenas.of[device]
}

// AllocOn allocates registered memory of a device. If the device has none yet, the options of the
// first group of the process count.
func AllocOn(device, bytes int) (cuda.Ptr, error) {
	arena := arenaOf(device)
	if arena == nil {
		var err error
		if arena, err = openArena(nil, fmt.Sprint("cuda:", device)); err != nil {
			return 0, err
		}
	}
	return arena.Alloc(bytes)
}

// FreeOn gives memory of AllocOn back, when a stream (CUstream) has ended that may use it.
func FreeOn(device int, memory cuda.Ptr, stream uintptr) error {
	arena := arenaOf(device)
	if arena == nil {
		return fault.New(fault.Invalid, "there is no registered memory on cuda:%d", device)
	}
	return arena.FreeAfter(memory, stream)
}

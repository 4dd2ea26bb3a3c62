package cudatest

import (
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// Faults is what the machine lacks and what goes wrong.
type Faults struct {
	NoPeers bool // no device reaches another
	// Apart has pairs of devices of which the first does not reach the second.
	Apart         [][2]int
	NoWords       bool // no memory operations of streams
	NoRegister    bool // no memory of the host can be registered
	NoDescriptors bool // memory has no descriptors
	NoDMABuf      bool // memory has no dma-bufs
	Lost          bool // every device is lost
	Fail          []Failure
}

// Failure makes one call fail.
type Failure struct {
	Call string // CUDA's name of it: "cuMemcpyAsync"
	Nth  int    // of the calls of that name since the faults were set, from 1
	Code int    // CUresult
	In   string // "emitter.go": only the calls of this file count
}

// Results of calls.
const (
	invalidValue      = 1
	outOfMemory       = 2
	deinitialized     = 4
	invalidDevice     = 101
	invalidImage      = 200
	invalidContext    = 201
	invalidHandle     = 400
	notFound          = 500
	illegalAddress    = 700
	alreadyRegistered = 712
	misalignedAddress = 716
	launchFailed      = 719
	notSupported      = 801
	captureForbids    = 900
	captureInvalid    = 901
	captureUnmatched  = 903
	captureUnjoined   = 904
	captureIsolation  = 905
	captureImplicit   = 906
	capturedEvent     = 907
)

var resultNames = map[int]string{
	invalidValue:      "CUDA_ERROR_INVALID_VALUE",
	outOfMemory:       "CUDA_ERROR_OUT_OF_MEMORY",
	deinitialized:     "CUDA_ERROR_DEINITIALIZED",
	invalidDevice:     "CUDA_ERROR_INVALID_DEVICE",
	invalidImage:      "CUDA_ERROR_INVALID_IMAGE",
	invalidContext:    "CUDA_ERROR_INVALID_CONTEXT",
	invalidHandle:     "CUDA_ERROR_INVALID_HANDLE",
	notFound:          "CUDA_ERROR_NOT_FOUND",
	illegalAddress:    "CUDA_ERROR_ILLEGAL_ADDRESS",
	alreadyRegistered: "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	misalignedAddress: "CUDA_ERROR_MISALIGNED_ADDRESS",
	launchFailed:      "CUDA_ERROR_LAUNCH_FAILED",
	notSupported:      "CUDA_ERROR_NOT_SUPPORTED",
	captureForbids:    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	captureInvalid:    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	captureUnmatched:  "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
	captureUnjoined:   "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
	captureIsolation:  "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	captureImplicit:   "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	capturedEvent:     "CUDA_ERROR_CAPTURED_EVENT",
}

// failure returns the error of a call.
func failure(call string, code int) error {
	name := resultNames[code]
	if name == "" {
		name = "CUDA_ERROR_UNKNOWN"
	}
	return cuda.Failed(call, code, name)
}

// invalid returns the error of a call with a mistake in its arguments.
func invalid(call string) error {
	return fault.Wrap(fault.Invalid, &cuda.Error{Call: call, Code: invalidValue, Name: resultNames[invalidValue]},
		"the GPU driver refused")
}

// gone returns the error of a call with something that was given back.
func gone(call string) error {
	return fault.Wrap(fault.Closed, &cuda.Error{Call: call, Code: invalidHandle, Name: resultNames[invalidHandle]},
		"it was given back before")
}

// SetFaults replaces the faults. A lost device stays lost.
func (d *Driver) SetFaults(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.Fail, f.Apart = slices.Clone(f.Fail), slices.Clone(f.Apart)
	d.o.Faults = f
	clear(d.counts)
	if f.Lost {
		d.loseAll()
	}
}

// Lose loses a device: nothing more is executed, and all calls fail.
func (d *Driver) Lose(device int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lose(d.devices[device], launchFailed)
}

func (d *Driver) loseAll() {
	for _, dev := range d.devices {
		d.lose(dev, launchFailed)
	}
}

// lose makes all calls of a device return code, and drops what was enqueued.
func (d *Driver) lose(dev *device, code int) {
	if dev.lost != 0 {
		return
	}
	dev.lost = code
	for _, q := range dev.queues {
		for _, op := range append(q.started, q.pending...) {
			if w, ok := op.work.(recordWork); ok {
				w.place.done = true
			}
			op.dropped = true
			op.stream.pending--
			op.stream.running = nil
		}
		q.started, q.pending = nil, nil
	}
	d.noteProgress()
}

// fails counts a call, and returns the error that the faults have for it.
func (d *Driver) fails(call string) error {
	if d.closed {
		return failure(call, deinitialized)
	}
	d.counts[call]++
	for _, f := range d.o.Faults.Fail {
		nth := d.counts[call]
		if f.Call == call && f.In != "" {
			if !strings.Contains(here().String(), f.In) {
				continue
			}
			d.counts[call+" in "+f.In]++
			nth = d.counts[call+" in "+f.In]
		}
		if f.Call == call && f.Nth == nth {
			return failure(call, f.Code)
		}
	}
	return nil
}

// Calls returns how often a call was made since the faults were set.
func (d *Driver) Calls(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[call]
}

package driver

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// stream implements cuda.Stream.
type stream struct {
	*library
	handle    uintptr
	adopted   bool
	destroyed atomic.Bool
	mu        sync.Mutex // of what C reads and writes:
	ops       []memOp
	status    int32
	id        uint64  // of its capture
	graph     uintptr // that it captures
	config    launchConfig
	args      []byte
	parameter *byte // the first of args
}

var errDestroyed error = fault.New(fault.Closed, "the stream or event was destroyed before")

func (s *stream) Native() uintptr { return s.handle }

func (s *stream) Copy(to, from cuda.Ptr, bytes int) error {
	switch {
	case s.destroyed.Load():
		return errDestroyed
	case bytes < 0:
		return fault.New(fault.Invalid, "a copy of %d bytes", bytes)
	case bytes == 0:
		return nil
	}
	return s.cuMemcpyAsync(to, from, uintptr(bytes), s.handle)
}

func (s *stream) Words(ops []cuda.WordOp) error {
	if s.destroyed.Load() {
		return errDestroyed
	}
	for _, op := range ops {
		if op.At%8 != 0 {
			return fault.New(fault.Invalid, "a word at %#x, which is not aligned to 8 bytes", uint64(op.At))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(ops) > 0 {
		batch := min(len(ops), mostOps)
		s.ops = s.ops[:0]
		for _, op := range ops[:batch] {
			into := memOp{operation: opWrite64, address: uint64(op.At), value: op.Value, flags: writeFenced}
			if op.Wait {
				into.operation, into.flags = opWait64, waitNotBefore
			}
			s.ops = append(s.ops, into)
		}
		if err := s.cuStreamBatchMemOp(s.handle, uint32(batch), &s.ops[0], 0); err != nil {
			return err
		}
		ops = ops[batch:]
	}
	return nil
}

// Launch copies args twice: they must be where C may read them, and so not on the stack of the
// caller. The driver reads as many bytes as the kernel's parameter has, and has copied them when it
// returns.
func (s *stream) Launch(what cuda.Function, blocks, threads int, args []byte) error {
	f, ok := what.(*function)
	switch {
	case !ok || f.of.library != s.library:
		return fault.New(fault.Invalid, "a function of another driver: %T", what)
	case s.destroyed.Load():
		return errDestroyed
	case f.of.unloaded.Load():
		return errUnloaded
	case blocks < 1 || blocks > math.MaxInt32 || threads < 1 || threads > int(f.threads):
		return fault.New(fault.Invalid, "a launch of %d blocks of %d threads each: %s has at most %d in a block",
			blocks, threads, f.name, f.threads)
	case len(args) == 0:
		return fault.New(fault.Invalid, "a launch of %s without arguments", f.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.args = append(s.args[:0], args...)
	s.parameter = &s.args[0]
	s.config = launchConfig{
		blocks: [3]uint32{uint32(blocks), 1, 1}, threads: [3]uint32{uint32(threads), 1, 1}, stream: s.handle,
	}
	return s.cuLaunchKernelEx(&s.config, f.handle, &s.parameter, 0)
}

func (s *stream) Wait(what cuda.Event) error {
	e, ok := what.(*event)
	switch {
	case !ok || e.library != s.library:
		return fault.New(fault.Invalid, "an event of another driver: %T", what)
	case s.destroyed.Load() || e.destroyed.Load():
		return errDestroyed
	case !e.recorded.Load(): // to CUDA, such a wait has ended
		return errNeverRecorded
	}
	return s.cuStreamWaitEvent(s.handle, e.handle, 0)
}

func (s *stream) Done() (bool, error) {
	if s.destroyed.Load() {
		return false, errDestroyed
	}
	return answer(s.cuStreamQuery(s.handle))
}

// answer returns what a query says.
func answer(err error) (bool, error) {
	if err == errNotReady {
		return false, nil
	}
	return err == nil, err
}

func (s *stream) Synchronize() error {
	if s.destroyed.Load() {
		return errDestroyed
	}
	return s.cuStreamSynchronize(s.handle)
}

func (s *stream) Capture() (uint64, error) {
	if s.destroyed.Load() {
		return 0, errDestroyed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capturing()
}

// capturing asks for the stream's capture, of which it also notes the graph. The caller holds mu.
func (s *stream) capturing() (uint64, error) {
	s.status, s.id, s.graph = 0, 0, 0
	if err := s.cuStreamGetCaptureInfo(s.handle, &s.status, &s.id, &s.graph, 0, 0); err != nil {
		return 0, err
	}
	switch s.status {
	case captureActive:
		return s.id, nil
	case captureInvalidated: // until its thread ends it; it has neither number nor graph
		s.graph = 0
		return math.MaxUint64, nil
	}
	return 0, nil
}

func (s *stream) Retain(release func()) error {
	if s.destroyed.Load() {
		return errDestroyed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := s.capturing()
	switch {
	case err != nil:
		return err
	case id == 0:
		return fault.New(fault.Invalid, "a stream that is not in capture has nothing that could be retained")
	case s.graph == 0:
		return fault.New(fault.Invalid, "the stream is in a capture that has failed")
	}
	return s.retain(s.graph, release)
}

func (s *stream) Destroy() error {
	if s.adopted || s.destroyed.Swap(true) {
		return nil
	}
	return s.cuStreamDestroy(s.handle)
}

package rdma

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// leastSpan is the shortest memory that is registered for senders: shorter messages are copied,
// which takes less time than waiting for the peer.
const leastSpan = 64 << 10

// memory is what the adapters of a fabric may send from in place. An adapter that is opened later
// gets all of it.
type memory struct {
	mu      sync.Mutex
	all     [][]byte // that Pin was given and Unpin was not
	refused bool     // a line has said that there is no access to some of it
	closed  bool
}

// span is memory of others that an adapter reads.
type span struct {
	at, end uint64
	region  verbs.Region
	uses    atomic.Int32 // fragments that are sent from it and have not ended; far below 0 when it has ended
}

const spanEnded = math.MinInt32 / 2

// Pin implements transport.Registrar.
func (f *Fabric) Pin(b []byte) error {
	if len(b) < leastSpan {
		return nil
	}
	f.memory.mu.Lock()
	defer f.memory.mu.Unlock()
	if f.memory.closed {
		return fault.New(fault.Closed, "rdma: the fabric is closed")
	}
	f.memory.all = append(f.memory.all, b)
	var errs []error
	for _, a := range f.adapters() {
		errs = append(errs, a.pin(b))
	}
	return errors.Join(errs...)
}

// Unpin implements transport.Registrar.
func (f *Fabric) Unpin(b []byte) error {
	f.memory.mu.Lock()
	defer f.memory.mu.Unlock()
	for _, a := range f.adapters() {
		if err := a.unpin(address(b)); err != nil {
			return err
		}
	}
	f.memory.all = slices.DeleteFunc(f.memory.all, func(other []byte) bool { return address(other) == address(b) })
	return nil
}

// adopt has a new adapter used, which gets access to the memory that there is.
func (f *Fabric) adopt(a *adapter) {
	f.memory.mu.Lock()
	defer f.memory.mu.Unlock()
	for _, b := range f.memory.all {
		_ = a.pin(b) // what is refused is copied, and a line has said so
	}
	open := append(slices.Clone(f.adapters()), a)
	f.used.Store(&open)
}

// forget ends the access to all memory. No connection is left.
func (f *Fabric) forget() {
	f.memory.mu.Lock()
	defer f.memory.mu.Unlock()
	f.memory.closed, f.memory.all = true, nil
	for _, a := range f.adapters() {
		for _, s := range *a.spans.Load() {
			if err := s.region.Close(); err != nil {
				f.opts.Warn("rdma: %s does not let memory go: %v", a.place, err)
			}
		}
		a.spans.Store(&[]*span{})
	}
}

// pin registers memory for reading. The caller holds Fabric.memory.
func (a *adapter) pin(b []byte) error {
	region, err := a.context.Register(b, false)
	if err != nil {
		if !a.f.memory.refused {
			a.f.memory.refused = true
			a.f.opts.Warn("rdma: registered memory, from %s on, is copied before it is sent: %v",
				humanize.FormatSize(int64(len(b))), err)
		}
		return err
	}
	s := &span{at: address(b), end: address(b) + uint64(len(b)), region: region}
	spans := *a.spans.Load()
	i, _ := slices.BinarySearchFunc(spans, s.at, (*span).compare)
	spans = slices.Insert(slices.Clone(spans), i, s)
	a.spans.Store(&spans)
	return nil
}

// unpin ends the registration that begins at an address, if there is one. After an error it stays.
func (a *adapter) unpin(at uint64) error {
	spans := *a.spans.Load()
	i, ok := slices.BinarySearchFunc(spans, at, (*span).compare)
	if !ok {
		return nil
	}
	s := spans[i]
	if !s.uses.CompareAndSwap(0, spanEnded) {
		return fault.New(fault.System, "rdma: %s may still read memory that is to be freed; it stays as it is", a.place)
	}
	if err := s.region.Close(); err != nil {
		s.uses.Store(0)
		return err
	}
	spans = slices.Delete(slices.Clone(spans), i, i+1)
	a.spans.Store(&spans)
	return nil
}

func (s *span) compare(at uint64) int {
	switch {
	case s.at < at:
		return -1
	case s.at > at:
		return 1
	}
	return 0
}

// use returns the registered memory that b lies in, which counts as used until done; nil if there
// is none. It takes no lock.
func (a *adapter) use(b []byte) *span {
	at := address(b)
	for spans := *a.spans.Load(); len(spans) > 0; {
		half := len(spans) / 2
		switch s := spans[half]; {
		case at < s.at:
			spans = spans[:half]
		case at >= s.end:
			spans = spans[half+1:]
		case uint64(len(b)) > s.end-at:
			return nil
		case s.uses.Add(1) < 0: // it ends
			s.uses.Add(-1)
			return nil
		default:
			return s
		}
	}
	return nil
}

// done is the end of one use.
func (s *span) done() { s.uses.Add(-1) }

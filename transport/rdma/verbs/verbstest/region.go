package verbstest

import (
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// region is registered memory.
type region struct {
	c             *context
	memory        []byte
	at            uint64
	local, remote uint32
	writable      bool        // by peers
	there         func() bool // of memory of a device: whether it was not freed
	closed        bool
}

func (r *region) String() string {
	return fmt.Sprintf("%s: region %x, %d bytes at %x", r.c, r.local, len(r.memory), r.at)
}

func (c *context) Register(memory []byte, remote bool) (verbs.Region, error) {
	defer c.end()
	if err := c.begin("Register"); err != nil {
		return nil, err
	}
	h, o := c.a.h, &c.a.h.n.o
	switch {
	case len(memory) == 0:
		return nil, fault.Wrap(fault.System, unix.EINVAL, "Register of no memory")
	case h.locked+int64(len(memory)) > o.Locked:
		return nil, full("Register", unix.ENOMEM, int(o.Locked), "bytes that may be locked (ulimit -l)")
	}
	return c.add("Register", &region{c: c, memory: memory, at: addressOf(memory), writable: remote})
}

// add gives a region its keys.
func (c *context) add(call string, r *region) (verbs.Region, error) {
	if o := &c.a.h.n.o; len(c.regions) >= o.Regions {
		return nil, full(call, unix.ENOMEM, o.Regions, "regions")
	}
	r.local, r.remote = c.newKey(), c.newKey()
	if r.there == nil {
		c.a.h.locked += int64(len(r.memory))
	}
	c.keys.Lock()
	defer c.keys.Unlock()
	c.regions[r.remote], c.local[r.local] = r, r
	return r, nil
}

// newKey returns one that neither peers nor this host can take for another.
func (c *context) newKey() uint32 {
	for {
		key := c.a.h.n.random.Uint32()
		if key != 0 && c.regions[key] == nil && c.local[key] == nil {
			return key
		}
	}
}

func (r *region) Local() uint32  { return r.local }
func (r *region) Remote() uint32 { return r.remote }

// Close ends the registration once nobody copies from or to it.
func (r *region) Close() error {
	defer r.c.end()
	if err := r.c.enter("Region.Close"); err != nil {
		return err
	}
	if r.closed {
		return r.c.misuse("a second Close of %s", r)
	}
	r.c.a.h.n.settle()
	for _, p := range r.c.pairs() {
		if p.reads(r) {
			r.c.a.h.n.reports.mistake("Close of %s, which a posted write of %s reads", r, p)
		}
	}
	r.closed = true
	if r.there == nil {
		r.c.a.h.locked -= int64(len(r.memory))
	}
	r.c.keys.Lock()
	defer r.c.keys.Unlock()
	delete(r.c.regions, r.remote)
	delete(r.c.local, r.local)
	return nil
}

// freed reports whether the memory was, of a device.
func (r *region) freed() bool { return r.there != nil && !r.there() }

// find returns memory by a key of peers, or by an own one, if all of it is there.
func (c *context) find(keys map[uint32]*region, key uint32, at uint64, bytes uint32) (memory []byte, r *region) {
	c.keys.RLock()
	defer c.keys.RUnlock()
	if r = keys[key]; r == nil {
		return nil, nil
	}
	memory, ok := r.part(at, bytes)
	if !ok {
		return nil, nil
	}
	return memory, r
}

// part returns a part of the memory, if all of it is there.
func (r *region) part(at uint64, bytes uint32) ([]byte, bool) {
	if at < r.at || at-r.at > uint64(len(r.memory)) || uint64(len(r.memory))-(at-r.at) < uint64(bytes) {
		return nil, false
	}
	return r.memory[at-r.at:][:bytes], true
}

// mapped runs f, and reports whether the memory that it accesses is there. (The race detector does
// not let it find out.)
func mapped(f func()) (there bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { there = recover() == nil }()
	f()
	return
}

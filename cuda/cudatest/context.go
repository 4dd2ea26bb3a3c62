package cudatest

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccl/goccl/cuda"
)

// context is what one Retain has returned.
type context struct {
	d        *Driver
	device   *device
	index    int // among all contexts of the machine
	agent    *agent
	released bool
	events   map[*event]bool  // that are not destroyed
	modules  map[*module]bool // that are not unloaded
	shares   channels         // with Options.Apart
	process  process          // with Options.Apart
	legacy   *stream          // with Options.Apart: the default stream
	elapsed  time.Duration    // with Options.Cost
	made     site
}

var _ cuda.Observer = (*context)(nil)

// release tells another agent everything that the host of c has done.
func (c *context) release(to *agent) { to.clock.join(c.agent.publish()) }

func (c *context) Info() cuda.Info {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.d.info(c.device)
}

// NewStream makes a stream in the next hardware queue, whatever its urgency.
func (c *context) NewStream(int) (cuda.Stream, error) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin("cuStreamCreateWithPriority", false); err != nil {
		return nil, err
	}
	s := d.newStream(c)
	d.noteProgress()
	return &handle{c: c, native: s.native, s: s}, nil
}

// Adopt finds the stream with the handle. All calls of one that does not exist fail.
func (c *context) Adopt(native uintptr) cuda.Stream {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &handle{c: c, native: native, adopted: true}
	if native == 0 {
		legacy := &c.device.legacy
		if d.o.Apart {
			legacy = &c.legacy
		}
		if *legacy == nil {
			*legacy = d.newStream(c)
			(*legacy).native = 0
			(*legacy).agent.name = fmt.Sprintf("the default stream of device %d", c.device.index)
		}
		h.s = *legacy
	}
	for _, s := range d.streams {
		if native != 0 && s.native == native && s.device == c.device {
			h.s = s
		}
	}
	return h
}

func (c *context) NewEvent() (cuda.Event, error) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin("cuEventCreate", false); err != nil {
		return nil, err
	}
	d.events++
	d.noteProgress()
	e := &event{c: c, index: d.events, made: here()}
	c.events[e] = true
	return e, nil
}

// Reaches reports true for every other device, unless the faults say otherwise.
func (c *context) Reaches(device int) (bool, error) {
	const call = "cuDeviceCanAccessPeer"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin(call, false); err != nil {
		return false, err
	}
	if device < 0 || device >= len(d.devices) {
		return false, failure(call, invalidDevice)
	}
	return d.reaches(c.device, d.devices[device]), nil
}

func (d *Driver) reaches(from, to *device) bool {
	f := &d.o.Faults
	return from == to || !f.NoPeers && !slices.Contains(f.Apart, [2]int{from.index, to.index})
}

// Release gives the context back. What its host has done comes before what the hosts of the other
// contexts do from now on.
func (c *context) Release() error {
	const call = "cuDevicePrimaryCtxRelease"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.released {
		d.misuse("a second Release of context %d", c.index)
		return gone(call)
	}
	if err := d.fails(call); err != nil {
		return err
	}
	for _, left := range d.leaksOf(c) {
		d.misuse("Release of context %d before its %s is given back", c.index, left)
	}
	c.released = true
	for _, other := range d.contexts {
		if other != c {
			c.release(other.agent)
		}
	}
	d.noteProgress()
	if c.device.lost != 0 {
		return failure(call, c.device.lost)
	}
	return nil
}

// HostAccess notes that the host of c accesses registered memory, until ended is called. Until then
// nothing else comes after the access.
func (c *context) HostAccess(p cuda.Ptr, bytes int, write bool) (ended func()) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noteProgress()
	if bytes == 0 {
		return func() {}
	}
	a, why := d.find(p, bytes)
	if why != "" {
		d.report(Address, here().String(), "the host of context %d accesses %s, at %s", c.index, why, here())
		return func() {}
	}
	verb := "reads"
	if write {
		verb = "writes"
	}
	access := &access{
		by: c.agent, time: never, verb: verb, write: write,
		of: a, at: int(p - a.ptr), bytes: bytes, site: here(),
	}
	d.touch(access, c.agent.clock)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		access.time = c.agent.now()
		d.noteProgress()
	}
}

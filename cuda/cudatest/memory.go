package cudatest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/internal/mem"
)

// registeredAt is added to an address of the host to make the one that the device has for it, so
// that whoever confuses the two is told.
const registeredAt = 1 << 60

// allocation is memory that a device can access.
type allocation struct {
	c          *context // whose device has access; nil if somebody else has allocated it (Expose)
	index      int      // among all of the machine, from 1
	what       string   // "device memory"
	ptr        cuda.Ptr
	memory     []byte
	space      *space // who has accessed the bytes last
	at         uint64 // the address of the first byte in space
	descriptor int    // -1 if there is none
	freed      bool
	segment    *mem.Segment
	block      *mem.Block
	imported   bool
	made       site
}

// file identifies the shared memory behind a descriptor.
type file struct{ device, inode uint64 }

func (a *allocation) String() string {
	return fmt.Sprintf("allocation %d (%s, %d bytes)", a.index, a.what, len(a.memory))
}

// Alloc allocates memory of the device. Its bytes have any values.
func (c *context) Alloc(bytes int) (cuda.Memory, error) {
	const call = "cuMemCreate"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin(call, true); err != nil {
		return nil, err
	}
	c.mayWait(call)
	if bytes <= 0 {
		return nil, invalid(call)
	}
	bytes = d.rounded(bytes)
	if c.device.bytes+int64(bytes) > d.o.Bytes {
		return nil, failure(call, outOfMemory)
	}
	a := &allocation{c: c, what: fmt.Sprintf("memory of device %d", c.device.index), space: newSpace(), descriptor: -1}
	segment, err := mem.NewSegment(fmt.Sprint(segmentName, c.device.index), bytes)
	switch {
	case err == nil:
		a.segment, a.memory = segment, segment.Bytes()
		if a.descriptor, err = duplicate(segment.FD()); err == nil {
			segment.CloseFD()
			d.shared[fileOf(a.descriptor)] = a.space
		}
	case errors.Is(err, fault.NotSupported):
		if a.block, err = mem.Alloc(bytes); err == nil {
			a.memory = a.block.Bytes()
		}
	}
	if err != nil {
		a.unmap()
		return nil, failure(call, outOfMemory)
	}
	a.memory[0] = 0xa5
	for filled := 1; filled < len(a.memory); filled *= 2 {
		copy(a.memory[filled:], a.memory[:filled])
	}
	c.device.bytes += int64(bytes)
	a.ptr = addressOf(a.memory)
	d.add(a)
	return a, nil
}

func (d *Driver) rounded(bytes int) int {
	return (bytes + d.o.Granularity - 1) / d.o.Granularity * d.o.Granularity
}

// segmentName is followed by the device to which the memory belongs, so that another process knows
// it, too.
const segmentName = "goccl-cudatest-"

// ownerOf returns the device whose memory is behind a descriptor. Of what is no such memory, it is
// the first one.
func (d *Driver) ownerOf(descriptor int) *device {
	link, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", descriptor))
	_, name, _ := strings.Cut(link, segmentName)
	number, _, _ := strings.Cut(name, " ")
	if index, err := strconv.Atoi(number); err == nil && index < len(d.devices) {
		return d.devices[index]
	}
	return d.devices[0]
}

// Import maps memory of another process, or a second time memory of this one.
func (c *context) Import(descriptor, bytes int) (cuda.Memory, error) {
	const call = "cuMemImportFromShareableHandle"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin(call, true); err != nil {
		return nil, err
	}
	c.mayWait(call)
	if d.o.Faults.NoDescriptors {
		return nil, failure(call, notSupported)
	}
	if bytes <= 0 {
		return nil, invalid(call)
	}
	if owner := d.ownerOf(descriptor); !d.reaches(c.device, owner) {
		return nil, fault.New(fault.NotSupported, "device %d does not reach the memory of device %d",
			c.device.index, owner.index)
	}
	segment, err := mem.MapSegment(descriptor, d.rounded(bytes))
	if err != nil {
		return nil, failure(call, invalidValue)
	}
	a := &allocation{c: c, what: "imported memory", segment: segment, memory: segment.Bytes(), imported: true}
	if a.descriptor, err = duplicate(descriptor); err != nil {
		a.unmap()
		return nil, invalid(call)
	}
	if a.space = d.shared[fileOf(a.descriptor)]; a.space == nil {
		a.space = newSpace()
		d.shared[fileOf(a.descriptor)] = a.space
	}
	a.ptr = addressOf(a.memory)
	d.add(a)
	return a, nil
}

// Expose makes memory of the host look like memory of a device that somebody else has allocated, in
// place: as if torch had. It has no descriptor. Hide ends it.
func (d *Driver) Expose(memory []byte) cuda.Ptr {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &allocation{what: "exposed memory", memory: memory, space: newSpace(), descriptor: -1}
	a.ptr = addressOf(memory)
	d.add(a)
	return a.ptr
}

// Hide undoes an Expose.
func (d *Driver) Hide(p cuda.Ptr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, why := d.find(p, 1); why == "" && a.c == nil && a.ptr == p {
		d.remove(a)
	}
}

func (d *Driver) add(a *allocation) {
	d.made++
	a.index, a.made = d.made, here()
	at, _ := slices.BinarySearchFunc(d.allocations, a.ptr, byAddress)
	d.allocations = slices.Insert(d.allocations, at, a)
	d.noteProgress()
}

// addressOf returns the address of memory in this process.
func addressOf(memory []byte) cuda.Ptr {
	return cuda.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}

func byAddress(a *allocation, p cuda.Ptr) int { return cmp.Compare(a.ptr, p) }

// find returns the allocation that has all of the bytes, or says why there is none.
func (d *Driver) find(p cuda.Ptr, bytes int) (a *allocation, why string) {
	at, same := slices.BinarySearchFunc(d.allocations, p, byAddress)
	if !same {
		at--
	}
	if at < 0 || p-d.allocations[at].ptr >= cuda.Ptr(len(d.allocations[at].memory)) {
		return nil, fmt.Sprintf("%d bytes at %#x, where there is no memory of a device", bytes, uint64(p))
	}
	a = d.allocations[at]
	if from := int(p - a.ptr); bytes > len(a.memory)-from {
		return nil, fmt.Sprintf("bytes %d..%d of %v, past its end", from, from+bytes, a)
	}
	return a, ""
}

// place describes bytes for texts.
func (d *Driver) place(p cuda.Ptr, bytes int) string {
	a, why := d.find(p, bytes)
	if why != "" {
		return why
	}
	return fmt.Sprintf("allocation %d bytes %d..%d", a.index, p-a.ptr, int(p-a.ptr)+bytes)
}

// part returns bytes that are known to be there.
func (a *allocation) part(p cuda.Ptr, bytes int) []byte {
	at := int(p - a.ptr)
	return a.memory[at : at+bytes]
}

// unmapped says what mapped has found.
const unmapped = "this memory of the host was unmapped before its Free"

// mapped runs f, and reports whether the memory that it accesses is there. (The race detector does
// not let it find out.)
func mapped(f func()) (there bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { there = recover() == nil }()
	f()
	return
}

// peek returns a word, if it is there.
func (a *allocation) peek(at int) (value uint64, there bool) {
	there = mapped(func() { value = atomic.LoadUint64(a.value(at)) })
	return value, there
}

func (a *allocation) Ptr() cuda.Ptr { return a.ptr }

func (a *allocation) Bytes() int { return len(a.memory) }

func (a *allocation) Descriptor() (int, error) {
	const call = "cuMemExportToShareableHandle"
	d := a.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := a.c.begin(call, false); err != nil {
		return -1, err
	}
	if a.freed {
		d.misuse("Descriptor of %v after its Free", a)
		return -1, gone(call)
	}
	if a.descriptor < 0 || d.o.Faults.NoDescriptors {
		return -1, failure(call, notSupported)
	}
	fd, err := duplicate(a.descriptor)
	if err != nil {
		return -1, invalid(call)
	}
	return fd, nil
}

func (a *allocation) Free() error { return a.free("cuMemRelease") }

func (a *allocation) free(call string) error {
	d := a.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	err := a.c.begin(call, true)
	if err != nil && !cuda.Lost(err) {
		return err
	}
	if a.freed {
		d.misuse("a second Free of %v", a)
		return gone(call)
	}
	for op := range d.pending() {
		if op.work.uses(a) {
			d.misuse("Free of %v, which %s uses: %s", a, op, op.work.text(d))
		}
	}
	a.c.mayWait(call)
	for d.running != nil {
		d.moved.Wait()
	}
	d.remove(a)
	a.unmap()
	return err
}

func (d *Driver) remove(a *allocation) {
	a.freed = true
	d.allocations = slices.DeleteFunc(d.allocations, func(b *allocation) bool { return a == b })
	if a.space == d.host {
		d.host.clear(a.at, a.at+uint64(len(a.memory)))
	} else if !slices.ContainsFunc(d.allocations, func(b *allocation) bool { return a.space == b.space }) {
		maps.DeleteFunc(d.shared, func(_ file, s *space) bool { return s == a.space })
	}
	if a.c != nil && a.segment != nil && !a.imported {
		a.c.device.bytes -= int64(len(a.memory))
	}
	d.noteProgress()
}

// unmap gives the memory back to the system.
func (a *allocation) unmap() {
	if a.descriptor >= 0 {
		syscall.Close(a.descriptor)
		a.descriptor = -1
	}
	if a.segment != nil {
		a.segment.Free()
	}
	if a.block != nil {
		a.block.Free()
	}
}

// duplicate returns another descriptor of the same file.
func duplicate(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	other, err := syscall.Dup(fd)
	if err != nil {
		return -1, os.NewSyscallError("dup", err)
	}
	syscall.CloseOnExec(other)
	return other, nil
}

func fileOf(fd int) file {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return file{}
	}
	return file{uint64(st.Dev), uint64(st.Ino)}
}

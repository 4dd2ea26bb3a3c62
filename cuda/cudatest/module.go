package cudatest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// module is what one Load has returned.
type module struct {
	c        *context
	index    int // among all of the machine, from 1
	unloaded bool
	made     site
}

type function struct {
	m    *module
	name string
}

// Load makes a module, whose functions are those of package kernel.
func (c *context) Load(code []byte) (cuda.Module, error) {
	const call = "cuModuleLoadData"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin(call, true); err != nil {
		return nil, err
	}
	c.mayWait(call)
	switch {
	case len(code) == 0:
		return nil, invalid(call)
	case !bytes.HasPrefix(code, []byte("\x7fELF")) && !bytes.HasPrefix(code, []byte("//")): // nor PTX
		return nil, failure(call, invalidImage)
	}
	d.modules++
	m := &module{c: c, index: d.modules, made: here()}
	c.modules[m] = true
	d.noteProgress()
	return m, nil
}

func (m *module) Function(name string) (cuda.Function, error) {
	const call = "cuModuleGetFunction"
	d := m.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := m.c.begin(call, true); err != nil {
		return nil, err
	}
	if m.unloaded {
		d.misuse("%s of module %d after its Unload", call, m.index)
		return nil, gone(call)
	}
	m.c.mayWait(call)
	if !slices.ContainsFunc(kernel.Functions(), func(f *kernel.Function) bool { return f.Name == name }) {
		return nil, failure(call, notFound)
	}
	return &function{m, name}, nil
}

func (m *module) Unload() error {
	const call = "cuModuleUnload"
	d := m.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	err := m.c.begin(call, true)
	if err != nil && !cuda.Lost(err) {
		return err
	}
	if m.unloaded {
		d.misuse("a second Unload of module %d", m.index)
		return gone(call)
	}
	for op := range d.pending() {
		if moduleOf(op.work) == m {
			d.misuse("Unload of module %d, which %s uses: %s", m.index, op, op.work.text(d))
		}
	}
	m.c.mayWait(call)
	for d.running != nil {
		d.moved.Wait()
	}
	m.unloaded = true
	delete(m.c.modules, m)
	d.noteProgress()
	return err
}

func (f *function) Name() string { return f.name }

func (h *handle) Launch(what cuda.Function, blocks, threads int, args []byte) error {
	const call = "cuLaunchKernelEx"
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin(call, false); err != nil {
		return err
	}
	f, ok := what.(*function)
	switch {
	case !ok || f.m.c.d != d:
		d.misuse("%s of a function of another driver", call)
		return invalid(call)
	case f.m.unloaded:
		d.misuse("%s of %s after Unload of module %d", call, f.name, f.m.index)
		return gone(call)
	case f.m.c.device != h.c.device:
		d.misuse("%s of %s in a stream of another device", call, f.name)
		return failure(call, invalidHandle)
	case blocks < 1 || blocks > math.MaxInt32 || threads < 1 || threads > kernel.BlockSize || len(args) == 0:
		return invalid(call)
	}
	if kernel.TakesTable(f.name) {
		return d.launchTable(h, f, blocks, args)
	}
	w, err := newLaunch(f, bytes.Clone(args))
	if err != nil { // which a GPU does not find
		d.misuse("%s: %v", call, err)
		return invalid(call)
	}
	if f.name == kernel.Tick().Name {
		d.enqueueTick(h, &tickWork{launchWork: w})
		return nil
	}
	d.enqueue(h, w)
	return nil
}

// resolved returns the launch with the sources that the places lead to, which it reads now.
func (w *launchWork) resolved(d *Driver, op *operation) (*launchWork, bool) {
	places, err := kernel.Places(w.f.name, w.args)
	if err != nil || len(places) == 0 {
		return w, true // check and Execute report the error
	}
	read := kernelWork{name: w.name}
	for _, at := range places {
		read.accesses = append(read.accesses, Access{At: cuda.Ptr(at), Bytes: 8})
	}
	made, ok := read.check(d, op)
	if !ok {
		return nil, false
	}
	for i, place := range made {
		if places[i]%8 != 0 {
			d.wrong(op, misalignedAddress, fmt.Sprintf("%#x is not aligned to 8 bytes", places[i]))
			return nil, false
		}
		d.touch(place, op.stream.agent.clock)
	}
	args, err := kernel.Resolve(w.f.name, w.args, func(at uint64) uint64 {
		i := slices.Index(places, at)
		return atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(made[i].of.part(cuda.Ptr(at), 8)))))
	})
	if err == nil {
		w, err = newLaunch(w.f, args)
	}
	if err != nil { // a place leads to what the destination covers
		d.report(Misuse, op.site.String(), "%s, enqueued at %s: %v", op, op.site, err)
	}
	return w, err == nil
}

// moduleOf returns the module that work uses, or nil.
func moduleOf(w work) *module {
	switch w := w.(type) {
	case *launchWork:
		return w.f.m
	case *tickWork:
		return w.f.m
	case *runWork:
		return w.f.m
	}
	return nil
}

// launchWork is a kernel of a module.
type launchWork struct {
	kernelWork
	f        *function
	args     []byte
	operands []kernel.Operand // as accesses
}

// newLaunch makes the work of a launch. Indirect sources count as if they were not lent.
func newLaunch(f *function, args []byte) (*launchWork, error) {
	operands, err := kernel.Operands(f.name, args)
	if err != nil {
		return nil, err
	}
	w := &launchWork{f: f, args: args, operands: operands}
	w.name = f.name
	for _, o := range operands {
		w.accesses = append(w.accesses, Access{At: cuda.Ptr(o.Ptr), Bytes: o.Bytes, Write: o.Write})
	}
	return w, nil
}

func (w *launchWork) run(d *Driver, op *operation) {
	w, ok := w.resolved(d, op)
	if !ok {
		return
	}
	made, ok := w.check(d, op)
	if !ok || len(made) == 0 { // for no elements
		return
	}
	for _, o := range w.operands {
		if o.Ptr%uint64(o.Align) != 0 {
			d.wrong(op, misalignedAddress, fmt.Sprintf("%#x is not aligned to %d bytes", o.Ptr, o.Align))
			return
		}
	}
	for _, from := range made {
		if from.write {
			continue
		}
		for _, to := range made {
			if to.write && from.cover(to) { // by other addresses
				d.report(Misuse, op.site.String(), "%s, enqueued at %s: the destination covers a part of a source: %s",
					op, op.site, w.text(d))
			}
		}
		d.touch(from, op.stream.agent.clock)
	}
	for _, to := range made {
		if to.write {
			d.touch(to, op.stream.agent.clock)
		}
	}
	memory := func(ptr uint64, bytes int) []byte {
		for i, o := range w.operands {
			if o.Ptr == ptr && o.Bytes == bytes {
				return made[i].of.part(cuda.Ptr(ptr), bytes)
			}
		}
		return nil
	}
	d.moveBytes(op, func() error { return kernel.Execute(w.f.name, w.args, memory) })
}

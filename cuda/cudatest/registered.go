package cudatest

import (
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/cuda"
)

// registered is memory of the host. Its bytes stay where they are; the device has other addresses
// for them.
type registered struct{ allocation }

// Register gives the device memory of the host. As on a GPU, a process registers it once.
func (c *context) Register(host []byte) (cuda.Registered, error) {
	const call = "cuMemHostRegister"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin(call, true); err != nil {
		return nil, err
	}
	c.mayWait(call)
	if d.o.Faults.NoRegister {
		return nil, failure(call, notSupported)
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(host)))
	page := os.Getpagesize()
	if len(host) == 0 || at%uintptr(page) != 0 || len(host)%page != 0 {
		return nil, invalid(call)
	}
	for _, other := range d.allocations {
		if other.space == d.host && uint64(at) < other.at+uint64(len(other.memory)) &&
			other.at < uint64(at)+uint64(len(host)) {
			return nil, failure(call, alreadyRegistered)
		}
	}
	r := &registered{allocation{
		c: c, what: "registered memory", memory: host, space: d.host, at: uint64(at),
		ptr: cuda.Ptr(at) + registeredAt, descriptor: -1,
	}}
	d.add(&r.allocation)
	return r, nil
}

func (r *registered) Host() []byte { return r.memory }

func (r *registered) Free() error { return r.free("cuMemHostUnregister") }

// wordAt returns the word at an offset, which it checks.
func (r *registered) wordAt(at int) *word {
	if r.freed || at < 0 || at%8 != 0 || at+8 > len(r.memory) {
		r.c.d.misuse("there is no word at byte %d of %v", at, &r.allocation)
		return nil
	}
	return r.space.word(&r.allocation, at)
}

// value returns the bytes of a word.
func (a *allocation) value(at int) *uint64 { return (*uint64)(unsafe.Pointer(&a.memory[at])) }

func (r *registered) Load(at int) uint64 {
	d := r.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	w := r.wordAt(at)
	if w == nil {
		return 0
	}
	if early, left := d.loadsEarly(r, w); left {
		return early
	}
	value := r.look(w, at)
	if by := w.wrote(value); by != nil {
		r.c.agent.clock.join(by.known)
	}
	return value
}

// look loads a word, which orders nothing yet.
func (r *registered) look(w *word, at int) uint64 {
	value, host := atomic.LoadUint64(r.value(at)), r.c.agent
	r.c.d.touch(&access{
		by: host, time: host.now(), verb: "loads the word", word: true,
		of: &r.allocation, at: at, bytes: 8, site: here(),
	}, host.clock)
	if last, known := w.loaded[host]; !known || last != value {
		w.loaded[host] = value
		r.c.d.noteProgress()
	}
	return value
}

// Reached orders the host behind the first write that ends a wait for the value: with another
// schedule it would have seen that one.
func (r *registered) Reached(at int, value uint64) bool {
	d := r.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	w := r.wordAt(at)
	if w == nil {
		return false
	}
	host := r.c.agent
	if first, asked := w.awaited[host]; !asked || !reached(first, value) {
		w.awaited[host] = value
		if d.leaveOut(Load, "a wait for %d in allocation %d byte %d, by %s", value, r.index, at, host.name) {
			return true
		}
	}
	if !reached(r.look(w, at), value) {
		return false
	}
	if by := w.freed(value); by != nil {
		host.clock.join(by.known)
	}
	return true
}

func (r *registered) Store(at int, value uint64) {
	d := r.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	w := r.wordAt(at)
	if w == nil {
		return
	}
	host := r.c.agent
	if d.leaveOut(Store, "a store of %d to allocation %d byte %d by the host of context %d",
		value, r.index, at, r.c.index) {
		return
	}
	acc := &access{
		by: host, time: host.now(), verb: "stores the word", write: true, word: true,
		of: &r.allocation, at: at, bytes: 8, site: here(),
	}
	d.touch(acc, host.clock)
	if value>>62 == 1 {
		w.unblocked = true
	}
	d.wrote(w, &wordWrite{n: w.number(), value: value}, acc, host.publish())
	atomic.StoreUint64(r.value(at), value)
	d.noteProgress()
}

package group

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// Sharing says how the ranks of a Group reach each other's memory.
type Sharing struct {
	// Group names the group, alike for all ranks and unlike any other.
	Group string
	// Place returns where memory from Options.Alloc is in what the peers see of this process. ok is
	// false if they see nothing.
	Place func(memory []byte) (at int, ok bool)
	// Lent returns what this process sees of a peer's memory, nil for nothing.
	Lent func(rank int) []byte
	// Descriptor returns the descriptor of a peer's Window, which the caller closes.
	Descriptor func(rank int) (int, error)
	// Dead reports whether a peer is known to have died.
	Dead func(rank int) bool
}

// note is what the ranks tell each other when they join.
type note struct {
	Works    bool // as far as this rank knows
	Shares   bool // its window can be in the memory of its device
	Device   [16]byte
	Slot     uint64 // bytes
	Page, At uint64 // of its page and its window, in what the peers see of its memory
}

const noteBytes = 48

func (n *note) encode(b []byte) {
	b[0], b[1] = 0, 0
	if n.Works {
		b[0] = 1
	}
	if n.Shares {
		b[1] = 1
	}
	for i, v := range []uint64{n.Slot, n.Page, n.At} {
		binary.LittleEndian.PutUint64(b[8*(i+1):], v)
	}
	copy(b[32:], n.Device[:])
}

func decodeNote(b []byte) note {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return note{Works: b[0] == 1, Shares: b[1] == 1, Device: [16]byte(b[32:]),
		Slot: word(1), Page: word(2), At: word(3)}
}

// Window is memory of a device for the window of a rank. Whoever makes it before the ranks meet has
// its descriptor passed to the peers.
type Window struct{ memory cuda.Memory }

// NewWindow allocates the window of a rank in a group of so many ranks, for Options.Staging. The
// context is entered. A Group takes it over.
func NewWindow(ctx cuda.Context, staging, ranks int) (*Window, error) {
	memory, err := ctx.Alloc((plan.WindowSlots + scratches(ranks)) * slotOf(staging))
	if err != nil {
		return nil, err
	}
	return &Window{memory}, nil
}

// Descriptor returns a new descriptor of the memory.
func (w *Window) Descriptor() (int, error) { return w.memory.Descriptor() }

// Free gives the memory back, if no Group has taken it over.
func (w *Window) Free() error { return w.memory.Free() }

// slotOf returns the bytes of a slot.
func slotOf(staging int) int { return staging / plan.WindowSlots &^ (pageBytes - 1) }

// scratches returns the number of slots that the scratch takes.
func scratches(ranks int) int {
	if ranks > kernel.MostSources {
		return 1
	}
	return 0
}

// openWindows makes the windows of a group. All ranks call it at the same time. Either all have
// windows then, or none, with an error that says what this rank lacks, or that others lack
// something.
func openWindows(g *Group) (*windows, error) {
	w := &windows{g: g, layout: layout{g.size}, lows: map[choice]*program.Lowered{},
		functions: map[*kernel.Function]cuda.Function{}, places: make([]place, g.size), pages: make([]place, g.size),
		compared: make([]uint64, g.size), heard: make([]uint64, g.size), gone: make([]bool, g.size)}
	w.room = program.Room{Rank: g.rank, Ranks: g.size, Channels: exec.PlanChannels, Enqueued: true,
		Slot: slotOf(g.opts.Staging), Windows: make([]program.Window, g.size)}
	if g.opts.Window != nil {
		w.giving = append(w.giving, g.opts.Window.Free)
	}
	own := note{Works: true, Shares: g.opts.Window != nil, Device: g.ctx.Info().UUID, Slot: uint64(w.room.Slot)}
	// A rank that lacks something goes on to the next exchange, so that the others do not wait.
	var lack error
	for _, step := range []func(own *note, notes []note) error{w.choose, w.openOwn, w.openPeers, nil} {
		notes, err := g.exchange(&own)
		if err != nil {
			return nil, errors.Join(err, w.giveBack())
		}
		if lack == nil {
			lack = w.agreed(notes)
		}
		if lack == nil && step != nil {
			lack = step(&own, notes)
		}
		own.Works = lack == nil
	}
	if lack != nil {
		return nil, errors.Join(lack, w.giveBack())
	}
	return w, nil
}

// choose decides where the windows are: on the device if all ranks have the same one, else in
// memory of the host.
func (w *windows) choose(_ *note, notes []note) error {
	w.onDevice = true
	for _, n := range notes {
		w.onDevice = w.onDevice && n.Shares && n.Device == notes[0].Device
	}
	if !w.onDevice {
		return w.give(0)
	}
	return nil
}

// exchange gives this rank's note to all, and returns theirs.
func (g *Group) exchange(own *note) ([]note, error) {
	mine, all := make([]byte, noteBytes), make([]byte, noteBytes*g.size)
	own.encode(mine)
	call := exec.Call{Coll: dtype.AllGather, Type: dtype.U8,
		In: []exec.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(mine)), Count: noteBytes}}}
	for rank := range g.size {
		call.Out = append(call.Out, exec.Block{Ptr: unsafe.Pointer(&all[rank*noteBytes]), Count: noteBytes})
	}
	if err := g.comm.Run(&call); err != nil {
		return nil, err
	}
	notes := make([]note, g.size)
	for rank := range notes {
		notes[rank] = decodeNote(all[rank*noteBytes:])
	}
	return notes, nil
}

// agreed checks that all ranks have what windows need, and the same slots.
func (w *windows) agreed(notes []note) error {
	for rank, n := range notes {
		switch {
		case !n.Works:
			return fault.Peer(fault.NotSupported, rank, "it cannot share memory for the windows of device groups")
		case n.Slot != uint64(w.room.Slot):
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_BUFFSIZE gives slots of %d bytes, that of rank %d %d",
				n.Slot, w.g.rank, w.room.Slot)
		}
	}
	return nil
}

// openOwn makes what this rank has of its own.
func (w *windows) openOwn(own *note, _ []note) (err error) {
	g := w.g
	info := g.ctx.Info()
	w.processors = info.Processors
	code, err := kernel.Code(info.Major, info.Minor)
	if err != nil {
		return err
	}
	if w.module, err = g.ctx.Load(code); err != nil {
		return err
	}
	w.giving = append(w.giving, w.module.Unload)
	for _, f := range kernel.Functions() {
		if w.functions[f], err = w.module.Function(f.Name); err != nil {
			return err
		}
	}
	if w.stream, err = g.ctx.NewStream(urgencyToDevice); err != nil {
		return err
	}
	w.giving = append(w.giving, w.stream.Destroy)
	page, at, err := w.allocate(w.layout.bytes())
	if err != nil {
		return err
	}
	w.page, own.Page = page, at
	w.pages[g.rank] = place{page.Host(), page.Ptr()}
	if w.onDevice {
		w.places[g.rank].device = g.opts.Window.memory.Ptr()
	} else {
		window, at, err := w.allocate(w.bytes())
		if err != nil {
			return err
		}
		own.At = at
		w.places[g.rank] = place{window.Host(), window.Ptr()}
	}
	w.owned = len(w.giving)
	w.show()
	return nil
}

// bytes returns the size of a window with its scratch.
func (w *windows) bytes() int { return (plan.WindowSlots + scratches(w.g.size)) * w.room.Slot }

// allocate returns memory of the host to which the device has access, zeroed, and where the peers
// find it.
func (w *windows) allocate(bytes int) (cuda.Registered, uint64, error) {
	r := &registering{ctx: w.g.ctx}
	memory, free, err := w.g.opts.Alloc(bytes, r)
	if err != nil {
		return nil, 0, err
	}
	w.giving = append(w.giving, free)
	clear(memory)
	at, ok := w.g.opts.Sharing.Place(memory)
	if !ok {
		return nil, 0, fault.New(fault.NotSupported, "this process has no registered memory that peers could read "+
			"(GOCCL_REGISTERED)")
	}
	return r.memory, uint64(at), nil
}

// registering registers memory with a device (mem.Pinner).
type registering struct {
	ctx    cuda.Context
	memory cuda.Registered
}

func (r *registering) Pin(memory []byte) (err error) {
	r.memory, err = r.ctx.Register(memory)
	return err
}

func (r *registering) Unpin([]byte) error { return r.memory.Free() }

// openPeers finds the memory of the peers. Ranks of one process have registered theirs already.
func (w *windows) openPeers(_ *note, notes []note) error {
	for rank, n := range notes {
		if rank == w.g.rank {
			continue
		}
		if peer := w.find(rank); peer != nil {
			w.pages[rank], w.places[rank] = peer.pages[rank], peer.places[rank]
			continue
		}
		var err error
		if w.pages[rank], err = w.reach(rank, n.Page, w.layout.bytes()); err != nil {
			return err
		}
		if w.onDevice {
			w.places[rank], err = w.imported(rank)
		} else {
			w.places[rank], err = w.reach(rank, n.At, w.bytes())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// imported maps the window of another process, which is on the same device.
func (w *windows) imported(rank int) (place, error) {
	descriptor, err := w.g.opts.Sharing.Descriptor(rank)
	if err != nil {
		return place{}, err
	}
	memory, err := w.g.ctx.Import(descriptor, w.bytes())
	syscall.Close(descriptor)
	if err != nil {
		return place{}, err
	}
	w.giving = append(w.giving, memory.Free)
	return place{device: memory.Ptr()}, nil
}

// reach gives the device access to memory of another process.
func (w *windows) reach(rank int, at uint64, bytes int) (place, error) {
	lent := w.g.opts.Sharing.Lent(rank)
	if at > uint64(len(lent)) || uint64(bytes) > uint64(len(lent))-at {
		return place{}, fault.Peer(fault.NotSupported, rank, "its memory cannot be reached from rank %d", w.g.rank)
	}
	memory := lent[at:][:bytes:bytes]
	r, err := w.g.ctx.Register(memory)
	if err != nil {
		return place{}, err
	}
	w.giving = append(w.giving, r.Free)
	return place{memory, r.Ptr()}, nil
}

// giveBack undoes what was opened.
func (w *windows) giveBack() error {
	t := w.g.opts.Thread
	t.sharing.Lock()
	if key := w.member(); t.present[key] == w {
		delete(t.present, key)
	}
	t.sharing.Unlock()
	return w.give(0)
}

// give calls what gives things back, last first, and keeps the first n of them.
func (w *windows) give(n int) error {
	var errs []error
	for _, give := range slices.Backward(w.giving[n:]) {
		errs = append(errs, give())
	}
	w.giving = w.giving[:n]
	return errors.Join(errs...)
}

func (w *windows) member() member { return member{w.g.opts.Sharing.Group, w.g.rank} }

// show lets the other ranks in this process find the windows.
func (w *windows) show() {
	t := w.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	t.present[w.member()] = w
}

// find returns the windows of a rank of the group in this process, or nil.
func (w *windows) find(rank int) *windows {
	t := w.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	return t.present[member{w.g.opts.Sharing.Group, rank}]
}

// leave gives back what this rank has of the peers, and tells them. The stream has ended. What the
// peers have of this rank stays until they leave, too; the Thread gives it back then, and with it
// the context.
func (w *windows) leave() error {
	err := w.give(w.owned)
	for peer := range w.pages {
		if peer != w.g.rank {
			atomic.StoreUint64(wordAt(w.pages[peer].host, w.layout.of(w.g.rank, wordGone)), 1)
			w.gone[peer] = w.g.opts.Sharing.Dead(peer)
		}
	}
	return err
}

// unused reports whether no peer uses anything of this rank any more.
func (w *windows) unused() bool {
	for peer := range w.pages {
		if peer != w.g.rank && !w.gone[peer] &&
			atomic.LoadUint64(wordAt(w.page.Host(), w.layout.of(peer, wordGone))) == 0 {
			return false
		}
	}
	return true
}

// giveBack gives back windows of groups that were closed, unless peers still use them. With all set
// it does not ask: the process leaves its peers alone.
func (t *Thread) giveBack(all bool) error {
	t.sharing.Lock()
	defer t.sharing.Unlock()
	var errs []error
	t.left = slices.DeleteFunc(t.left, func(w *windows) bool {
		if !all && !w.unused() {
			return false
		}
		delete(t.present, w.member())
		err := w.g.ctx.Enter(false)
		if err == nil {
			err = w.give(0)
			w.g.ctx.Leave()
		}
		errs = append(errs, err, w.g.ctx.Release())
		return true
	})
	return errors.Join(errs...)
}

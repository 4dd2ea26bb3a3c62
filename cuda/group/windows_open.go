package group

import (
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// Sharing says how the ranks of a Group reach each other's Window.
type Sharing struct {
	// Group names the group, alike for all ranks and unlike any other.
	Group string
	// Descriptors returns those of a peer's Window, which the caller closes. It is not asked about
	// ranks of this process.
	Descriptors func(rank int) []int
}

// Window is the memory of a rank that the devices of all ranks use: the rank's page, and its window
// behind that or in the memory of its device. It is made before the ranks meet, so that its
// descriptors can be passed to the peers.
type Window struct {
	ctx     cuda.Context
	segment *mem.Segment
	memory  cuda.Memory // nil if the window is in memory of the host
	bytes   int         // of the window
	shared  []int
}

// NewWindow makes the Window of a rank in a group of so many ranks, for Options.Staging and
// Options.Graphs. A Group takes it over.
func NewWindow(ctx cuda.Context, staging, graphs, ranks int, onDevice bool) (w *Window, err error) {
	slot := slotOf(staging)
	w = &Window{ctx: ctx, bytes: (plan.WindowSlots+scratches(ranks))*slot + graphs*regionBytes(slot, ranks)}
	defer func() {
		if err != nil {
			w, err = nil, errors.Join(err, w.Free())
		}
	}()
	host := layout{ranks, graphs}.bytes()
	if !onDevice {
		host += w.bytes
	}
	if w.segment, err = mem.NewSegment("goccl-device", host); err != nil {
		return w, err
	}
	if w.shared = []int{w.segment.FD()}; !onDevice {
		return w, nil
	}
	err = in(ctx, func() error {
		if w.memory, err = ctx.Alloc(w.bytes); err != nil {
			return err
		}
		descriptor, err := w.memory.Descriptor()
		w.shared = append(w.shared, descriptor)
		return err
	})
	return w, err
}

// Descriptors returns what the peers need. They stay open until Shared.
func (w *Window) Descriptors() []int { return w.shared }

// Shared closes the descriptors: the peers have them.
func (w *Window) Shared() {
	if len(w.shared) == 0 {
		return
	}
	w.segment.CloseFD()
	for _, descriptor := range w.shared[1:] {
		syscall.Close(descriptor)
	}
	w.shared = nil
}

// Free gives the memory back, if no Group has taken it over.
func (w *Window) Free() error {
	var errs []error
	w.Shared()
	if w.memory != nil {
		errs = append(errs, in(w.ctx, w.memory.Free))
	}
	if w.segment != nil {
		errs = append(errs, w.segment.Free())
	}
	return errors.Join(errs...)
}

// in calls f in a context.
func in(ctx cuda.Context, f func() error) error {
	if err := ctx.Enter(false); err != nil {
		return err
	}
	defer ctx.Leave()
	return f()
}

// note is what the ranks tell each other when they join.
type note struct {
	Works  bool // as far as this rank knows
	Has    bool // it has a Window
	Device [16]byte
	Slot   uint64 // bytes
	Graphs uint64
}

const noteBytes = 40

func (n *note) encode(b []byte) {
	b[0], b[1] = 0, 0
	if n.Works {
		b[0] = 1
	}
	if n.Has {
		b[1] = 1
	}
	binary.LittleEndian.PutUint64(b[8:], n.Slot)
	copy(b[16:], n.Device[:])
	binary.LittleEndian.PutUint64(b[32:], n.Graphs)
}

func decodeNote(b []byte) note {
	return note{Works: b[0] == 1, Has: b[1] == 1, Device: [16]byte(b[16:]), Slot: binary.LittleEndian.Uint64(b[8:]),
		Graphs: binary.LittleEndian.Uint64(b[32:])}
}

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
// windows then, or none: without an error if a rank has no Window, else with one that says what
// this rank lacks, or which other one lacks something.
func openWindows(g *Group) (*windows, error) {
	w := &windows{g: g, layout: layout{g.size, g.opts.Graphs}, lows: map[choice]*program.Lowered{},
		emitter: emitter{functions: map[*kernel.Function]cuda.Function{}, places: make([]cuda.Ptr, g.size)},
		pages:   make([]page, g.size), compared: make([]uint64, g.size), heard: make([]uint64, g.size)}
	w.room = program.Room{Rank: g.rank, Ranks: g.size, Channels: exec.PlanChannels, Enqueued: true,
		Slot: slotOf(g.opts.Staging), Windows: make([]program.Window, g.size)}
	own := note{Works: true, Has: g.opts.Window != nil, Slot: uint64(w.room.Slot),
		Graphs: uint64(g.opts.Graphs)}
	if own.Has {
		w.giving = append(w.giving, g.opts.Window.Free)
		if w.onDevice = g.opts.Window.memory != nil; w.onDevice {
			own.Device = g.ctx.Info().UUID
		}
	}
	// A rank that lacks something goes on to the next exchange, so that the others do not wait.
	var lack error
	for _, step := range []func(notes []note) error{w.openOwn, w.openPeers, nil} {
		notes, err := g.exchange(&own)
		if err != nil {
			return nil, errors.Join(err, w.giveBack())
		}
		if slices.ContainsFunc(notes, func(n note) bool { return !n.Has }) {
			return nil, w.giveBack()
		}
		if lack == nil {
			lack = w.agreed(notes)
		}
		if lack == nil && step != nil {
			lack = step(notes)
		}
		own.Works = lack == nil
	}
	if lack != nil {
		return nil, errors.Join(lack, w.giveBack())
	}
	return w, nil
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

// agreed checks that all ranks have what windows need, and the same slots and device.
func (w *windows) agreed(notes []note) error {
	own := notes[w.g.rank]
	for rank, n := range notes {
		switch {
		case !n.Works && rank != w.g.rank:
			return fault.Peer(fault.NotSupported, rank, "it cannot share memory for the windows of device groups")
		case n.Slot != own.Slot:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_BUFFSIZE gives slots of %d bytes, that of rank %d %d",
				n.Slot, w.g.rank, own.Slot)
		case n.Graphs != own.Graphs:
			return fault.Peer(fault.Invalid, rank, "its GOCCL_CUDA_GRAPHS is %d, that of rank %d is %d", n.Graphs, w.g.rank,
				own.Graphs)
		case n.Device != own.Device:
			return fault.Peer(fault.NotSupported, rank, "it is on another device than rank %d: windows in the memory of a "+
				"device are for ranks that share it; GOCCL_CUDA_ROUTE=host-windows is for others", w.g.rank)
		}
	}
	return nil
}

// openOwn makes what this rank has of its own.
func (w *windows) openOwn([]note) (err error) {
	g := w.g
	info := g.ctx.Info()
	w.processors = info.Processors
	code, err := kernel.Code(info.Major, info.Minor)
	if err != nil {
		return err
	}
	module, err := g.ctx.Load(code)
	if err != nil {
		return err
	}
	w.giving = append(w.giving, module.Unload)
	for _, f := range kernel.Functions() {
		if w.functions[f], err = module.Function(f.Name); err != nil {
			return err
		}
	}
	if w.stream, err = g.ctx.NewStream(urgencyToDevice); err != nil {
		return err
	}
	w.giving = append(w.giving, w.stream.Destroy)
	if w.page, err = w.register(g.rank, g.opts.Window.segment); err != nil {
		return err
	}
	if w.onDevice {
		w.places[g.rank] = g.opts.Window.memory.Ptr()
	}
	w.scratch = w.places[g.rank] + cuda.Ptr(plan.WindowSlots*w.room.Slot)
	if w.graphs, err = openGraphs(w); err != nil {
		return err
	}
	if w.graphs != nil {
		w.giving = append(w.giving, w.graphs.stream.Destroy)
	}
	w.owned = len(w.giving)
	w.show()
	return nil
}

// register gives the device access to the segment of a rank.
func (w *windows) register(rank int, segment *mem.Segment) (cuda.Registered, error) {
	r, err := w.g.ctx.Register(segment.Bytes())
	if err != nil {
		return nil, err
	}
	w.giving = append(w.giving, r.Free)
	w.pages[rank] = page{r.Host(), r.Ptr()}
	w.places[rank] = r.Ptr() + cuda.Ptr(w.layout.bytes())
	return r, nil
}

// openPeers finds the memory of the peers. Ranks of one process have registered theirs already.
func (w *windows) openPeers([]note) error {
	for rank := range w.pages {
		if rank == w.g.rank {
			continue
		}
		if peer := w.find(rank); peer != nil {
			w.pages[rank], w.places[rank] = peer.pages[rank], peer.places[rank]
			continue
		}
		if err := w.openPeer(rank); err != nil {
			return err
		}
	}
	if w.graphs != nil {
		w.graphs.locate()
	}
	return nil
}

// openPeer maps the memory of another process.
func (w *windows) openPeer(rank int) error {
	descriptors := w.g.opts.Sharing.Descriptors(rank)
	defer func() {
		for _, descriptor := range descriptors {
			syscall.Close(descriptor)
		}
	}()
	want := 1
	if w.onDevice {
		want = 2
	}
	if len(descriptors) != want {
		return fault.Peer(fault.NotSupported, rank, "%d descriptors of its memory have come, and not %d: "+
			"ranks with windows share memory, so they are on one host and not linked by TCP", len(descriptors), want)
	}
	segment, err := mem.MapSegment(descriptors[0], len(w.g.opts.Window.segment.Bytes()))
	if err != nil {
		return err
	}
	w.giving = append(w.giving, segment.Free)
	if _, err := w.register(rank, segment); err != nil || !w.onDevice {
		return err
	}
	memory, err := w.g.ctx.Import(descriptors[1], w.g.opts.Window.bytes)
	if err != nil {
		return err
	}
	w.giving = append(w.giving, memory.Free)
	w.places[rank] = memory.Ptr()
	return nil
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

// leave gives back what this rank has of other processes, whose peers have mappings of their own,
// unless there are graphs. The stream has ended. Those of this process may still use what this rank
// has made: the Thread gives it back, with the context, when they have left, too.
func (w *windows) leave() error {
	t := w.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	if w.left || !w.graphs.close() {
		return nil
	}
	w.left = true
	return w.give(w.owned)
}

// unused reports whether no rank of this process uses the windows any more. The caller holds
// t.sharing.
func (t *Thread) unused(w *windows) bool {
	for rank := range w.pages {
		if peer := t.present[member{w.g.opts.Sharing.Group, rank}]; peer != nil && !peer.left {
			return false
		}
	}
	return true
}

// giveBack gives back the windows of groups that were closed, if nobody uses them any more. A graph
// that was destroyed later than its group has let them stay until then.
func (t *Thread) giveBack() error {
	t.giving.Lock()
	defer t.giving.Unlock()
	t.sharing.Lock()
	closed := slices.Clone(t.left)
	t.sharing.Unlock()
	var errs []error
	for _, w := range closed {
		errs = append(errs, in(w.g.ctx, w.leave))
	}
	t.sharing.Lock()
	defer t.sharing.Unlock()
	var unused []*windows
	t.left = slices.DeleteFunc(t.left, func(w *windows) bool {
		if t.unused(w) {
			unused = append(unused, w)
			return true
		}
		return false
	})
	for _, w := range unused {
		delete(t.present, w.member())
		errs = append(errs, in(w.g.ctx, func() error { return w.give(0) }), w.g.ctx.Release())
	}
	return errors.Join(errs...)
}

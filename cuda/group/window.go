package group

import (
	"errors"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/kernel"
	"github.com/goccl/goccl/internal/mem"
)

// Sharing says how the ranks of a Group reach each other's Window.
type Sharing struct {
	// Group names the group, alike for all ranks and unlike any other.
	Group string
	// On is what it runs on: the ranks of a host share memory.
	On *topo.Group
	// Descriptors returns those of a peer's Window, which the caller closes. It is not asked about
	// ranks of this process.
	Descriptors func(rank int) []int
}

// Window is the memory of a rank that the devices of all ranks use: the rank's page, and its
// windows in memory of the host, of its device, or of both until the ranks have chosen. It is made
// before the ranks meet, so that its descriptors can be passed to the peers.
type Window struct {
	ctx     cuda.Context
	page    *mem.Segment
	host    *mem.Segment       // nil for none
	memory  cuda.Memory        // nil for none
	room    windowRoom         // of the one in memory of the host
	slot    int                // of the one in memory of the device
	arena   *Arena             // that it lends; nil for none
	lacks   [route.Kinds]error // why there is none of a kind
	channel int                // of this rank, for memory that it makes later (graphs_grow.go); -1 for none
	shared  []int              // of the page, of the channel, of each kind that there is, and of the arena
}

// windowRoom says what is where in a window.
type windowRoom struct{ slot, graphs, ranks int }

// bytes returns the bytes of a window whose slots have a size of their own: those slots come first.
func (r windowRoom) bytes(slot int) int {
	if r.ranks == 1 {
		return page.Align // nobody reads it
	}
	return r.runsAt(slot) + runsBytes(r.ranks)
}

// graphsAt returns where the regions of graphs are, and runsAt where that for short calls begins:
// the flags, and then the slots and the packets.
func (r windowRoom) graphsAt(slot int) int { return (plan.WindowSlots + scratches(r.ranks)) * slot }

func (r windowRoom) runsAt(slot int) int {
	return r.graphsAt(slot) + min(r.graphs, regionsOfChunk)*regionBytes(r.slot, r.ranks)
}

// In the memory of a device, slots grow with it, unless the user has said how large they are: a
// long call then has fewer pieces, each of which costs the processor the same. They have one
// thousandth of the memory each, and up to mostSlot.
const mostSlot = 32 << 20

func slotOn(info cuda.Info, staging int, grows bool) int {
	if !grows {
		return slotOf(staging)
	}
	return max(slotOf(staging), int(min(mostSlot, info.Bytes/1024))&^(page.Align-1))
}

// NewWindow makes the Window of a rank in a group of so many ranks, for Options.Staging,
// Options.Graphs and Options.Route. A Group takes it over. In the memory of the device it may be
// larger than Staging says if it grows. With route.Auto it may lack anything: then the Group says
// why the ranks do without.
func NewWindow(ctx cuda.Context, staging, graphs, ranks int, wanted string, grows bool) (*Window, error) {
	w := &Window{ctx: ctx, room: windowRoom{slotOf(staging), graphs, ranks}, slot: slotOn(ctx.Info(), staging, grows),
		channel: -1}
	segment, err := mem.NewSegment("goccl-device", page.Layout{Ranks: ranks, Graphs: graphs}.Bytes())
	if err == nil {
		w.page = segment
		w.shared = append(w.shared, segment.FD())
		if hasChannel(graphs, ranks) {
			theirs := -1
			if w.channel, theirs, err = newChannel(); err == nil {
				w.shared = append(w.shared, theirs)
			}
		}
	}
	for k := range route.Kinds {
		switch {
		case !k.Wanted(wanted):
			w.lacks[k] = fault.New(fault.NotSupported, "GOCCL_CUDA_ROUTE=%s was set", wanted)
			continue
		case err != nil:
			w.lacks[k] = err
		case k == route.InHost:
			w.lacks[k] = w.makeHost()
		default:
			w.lacks[k] = w.makeMemory()
		}
		if wanted != route.Auto && w.lacks[k] != nil {
			return nil, errors.Join(w.lacks[k], w.Free())
		}
	}
	return w, nil
}

func (w *Window) makeHost() (err error) {
	if w.host, err = mem.NewSegment("goccl-window", w.room.bytes(w.room.slot)); err == nil {
		w.shared = append(w.shared, w.host.FD())
	}
	return err
}

func (w *Window) makeMemory() error {
	if info := w.ctx.Info(); !info.Shares {
		return fault.New(fault.NotSupported, "device %d (%s) cannot share its memory with other processes; "+
			"GOCCL_CUDA_ROUTE=%s does without", info.Index, info.Name, route.HostWindows)
	}
	return in(w.ctx, func() error {
		memory, err := w.ctx.Alloc(w.room.bytes(w.slot))
		if err != nil && w.slot > w.room.slot && !cuda.Lost(err) { // memory is short
			w.slot = w.room.slot
			memory, err = w.ctx.Alloc(w.room.bytes(w.slot))
		}
		if err != nil {
			return err
		}
		descriptor, err := memory.Descriptor()
		if err != nil {
			return errors.Join(err, memory.Free())
		}
		w.memory, w.shared = memory, append(w.shared, descriptor)
		return nil
	})
}

// Lend has the Group use an arena of this process, which must be on the same device and outlive the
// Group: peers read tensors in it in place. Only windows in the memory of a device do that.
func (w *Window) Lend(a *Arena) error {
	if a == nil || w.memory == nil {
		return nil
	}
	return in(a.ctx, func() error {
		descriptor, err := a.memory.Descriptor()
		if err == nil {
			w.arena, w.shared = a, append(w.shared, descriptor)
		}
		return err
	})
}

// Descriptors returns what the peers need. They stay open until Shared.
func (w *Window) Descriptors() []int { return w.shared }

// Shared closes the descriptors: the peers have them.
func (w *Window) Shared() {
	for _, descriptor := range w.shared {
		switch {
		case w.page != nil && descriptor == w.page.FD():
			w.page.CloseFD()
		case w.host != nil && descriptor == w.host.FD():
			w.host.CloseFD()
		default:
			syscall.Close(descriptor)
		}
	}
	w.shared = nil
}

// Free gives the memory back, if no Group has taken it over.
func (w *Window) Free() error {
	w.Shared()
	err := errors.Join(w.free(route.OnDevice), w.free(route.InHost))
	if w.channel >= 0 {
		syscall.Close(w.channel)
		w.channel = -1
	}
	if w.page != nil {
		err = errors.Join(err, w.page.Free())
		w.page = nil
	}
	return err
}

// free gives the window of a kind back.
func (w *Window) free(k route.Kind) (err error) {
	switch {
	case k == route.OnDevice && w.memory != nil:
		err = in(w.ctx, w.memory.Free)
		w.memory = nil
	case k == route.InHost && w.host != nil:
		err = w.host.Free()
		w.host = nil
	}
	return err
}

// in calls f in a context, whether or not other threads capture.
func in(ctx cuda.Context, f func() error) error {
	if err := ctx.Enter(true); err != nil {
		return err
	}
	defer ctx.Leave()
	return f()
}

// slotOf returns the bytes of a slot.
func slotOf(staging int) int { return staging / plan.WindowSlots &^ (page.Align - 1) }

// scratches returns the number of slots that the scratch takes.
func scratches(ranks int) int {
	if ranks > kernel.MostSources {
		return 1
	}
	return 0
}

// Package share makes the memory of a rank of a device group that the devices of all ranks reach: a
// page, windows of which the ranks choose one kind, and an arena that the rank may lend. It says
// what is where in it, and passes descriptors of memory to peers.
package share

import (
	"errors"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/internal/mem"
)

// Window is the memory of a rank that the devices of all ranks use: the rank's page, and its
// windows in memory of the host, of its device, or of both until the ranks have chosen. It is made
// before the ranks meet, so that its descriptors can be passed to the peers.
type Window struct {
	ctx     cuda.Context
	Page    *mem.Segment
	Host    *mem.Segment       // nil for none
	Memory  cuda.Memory        // nil for none
	room    Room               // of the one in memory of the host
	Slot    int                // of the one in memory of the device
	Arena   *Arena             // that it lends; nil for none
	Lacks   [route.Kinds]error // why there is none of a kind
	Channel int                // of this rank, for memory that it makes later; -1 for none
	shared  []int              // of the page, of the channel, of each kind that there is, and of the arena
}

// NewWindow makes the Window of a rank in a group of so many ranks, for Options.Staging,
// Options.Graphs and Options.Route. A Group takes it over. In the memory of the device it may be
// larger than Staging says if it grows. With route.Auto it may lack anything: then the Group says
// why the ranks do without.
func NewWindow(ctx cuda.Context, staging, graphs, ranks int, wanted string, grows bool) (*Window, error) {
	w := &Window{ctx: ctx, room: Room{SlotOf(staging), graphs, ranks}, Slot: SlotOn(ctx.Info(), staging, grows),
		Channel: -1}
	segment, err := mem.NewSegment("goccl-device", page.Layout{Ranks: ranks, Graphs: graphs}.Bytes())
	if err == nil {
		w.Page = segment
		w.shared = append(w.shared, segment.FD())
		if HasChannel(graphs, ranks) {
			theirs := -1
			if w.Channel, theirs, err = newChannel(); err == nil {
				w.shared = append(w.shared, theirs)
			}
		}
	}
	for k := range route.Kinds {
		switch {
		case !k.Wanted(wanted):
			w.Lacks[k] = fault.New(fault.NotSupported, "GOCCL_CUDA_ROUTE=%s was set", wanted)
			continue
		case err != nil:
			w.Lacks[k] = err
		case k == route.InHost:
			w.Lacks[k] = w.makeHost()
		default:
			w.Lacks[k] = w.makeMemory()
		}
		if wanted != route.Auto && w.Lacks[k] != nil {
			return nil, errors.Join(w.Lacks[k], w.Free())
		}
	}
	return w, nil
}

func (w *Window) makeHost() (err error) {
	if w.Host, err = mem.NewSegment("goccl-window", w.room.Bytes(w.room.Slot)); err == nil {
		w.shared = append(w.shared, w.Host.FD())
	}
	return err
}

func (w *Window) makeMemory() error {
	if info := w.ctx.Info(); !info.Shares {
		return fault.New(fault.NotSupported, "device %d (%s) cannot share its memory with other processes; "+
			"GOCCL_CUDA_ROUTE=%s does without", info.Index, info.Name, route.HostWindows)
	}
	return cuda.WithContext(w.ctx, func() error {
		memory, err := w.ctx.Alloc(w.room.Bytes(w.Slot))
		if err != nil && w.Slot > w.room.Slot && !cuda.Lost(err) { // memory is short
			w.Slot = w.room.Slot
			memory, err = w.ctx.Alloc(w.room.Bytes(w.Slot))
		}
		if err != nil {
			return err
		}
		descriptor, err := memory.Descriptor()
		if err != nil {
			return errors.Join(err, memory.Free())
		}
		w.Memory, w.shared = memory, append(w.shared, descriptor)
		return nil
	})
}

// Lend has the Group use an arena of this process, which must be on the same device and outlive the
// Group: peers read tensors in it in place. Only windows in the memory of a device do that.
func (w *Window) Lend(a *Arena) error {
	if a == nil || w.Memory == nil {
		return nil
	}
	return cuda.WithContext(a.ctx, func() error {
		descriptor, err := a.memory.Descriptor()
		if err == nil {
			w.Arena, w.shared = a, append(w.shared, descriptor)
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
		case w.Page != nil && descriptor == w.Page.FD():
			w.Page.CloseFD()
		case w.Host != nil && descriptor == w.Host.FD():
			w.Host.CloseFD()
		default:
			syscall.Close(descriptor)
		}
	}
	w.shared = nil
}

// Free gives the memory back, if no Group has taken it over.
func (w *Window) Free() error {
	w.Shared()
	err := errors.Join(w.FreeKind(route.OnDevice), w.FreeKind(route.InHost))
	if w.Channel >= 0 {
		syscall.Close(w.Channel)
		w.Channel = -1
	}
	if w.Page != nil {
		err = errors.Join(err, w.Page.Free())
		w.Page = nil
	}
	return err
}

// FreeKind gives the window of a kind back.
func (w *Window) FreeKind(k route.Kind) (err error) {
	switch {
	case k == route.OnDevice && w.Memory != nil:
		err = cuda.WithContext(w.ctx, w.Memory.Free)
		w.Memory = nil
	case k == route.InHost && w.Host != nil:
		err = w.Host.Free()
		w.Host = nil
	}
	return err
}

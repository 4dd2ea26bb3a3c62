package group

import (
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/cuda/kernel"
	"github.com/goccl/goccl/internal/mem"
)

// openCommon makes what windows of all kinds need.
func (o *setup) openCommon() error {
	w, g := o.w, o.w.g
	info := g.ctx.Info()
	w.Processors, w.Gathers = info.Processors, true
	code, err := kernel.Code(info.Major, info.Minor)
	if err != nil {
		return err
	}
	module, err := g.ctx.Load(code)
	if err != nil {
		return err
	}
	o.own[common] = append(o.own[common], module.Unload)
	for _, f := range kernel.Functions() {
		if kernel.TakesTable(f.Name) && !o.interprets {
			continue
		}
		if w.Functions[f], err = module.Function(f.Name); err != nil {
			return err
		}
	}
	if w.Stream, err = g.queues.newWaiter(urgencyToDevice); err != nil {
		return err
	}
	o.own[common] = append(o.own[common], w.Stream.Destroy)
	if w.ahead, err = g.queues.newWaiter(urgencyToDevice); err != nil {
		return err
	}
	o.own[common] = append(o.own[common], w.ahead.Destroy)
	if w.offers, err = g.ctx.NewEvent(); err != nil {
		return err
	}
	o.own[common] = append(o.own[common], w.offers.Destroy)
	registered, err := g.ctx.Register(g.opts.Window.Page.Bytes())
	if err != nil {
		return err
	}
	o.own[common] = append(o.own[common], registered.Free)
	if o.hosts > 1 {
		if o.rails, err = newRails(w); err != nil {
			return err
		}
		o.own[common] = append(o.own[common], o.rails.close)
	}
	w.page, w.pages[g.rank] = registered, page.Page{Host: registered.Host(), Device: registered.Ptr()}
	if w.layout.Graphs > 0 {
		if o.graphs, err = openGraphs(w); err == nil {
			o.own[common] = append(o.own[common], o.graphs.Stream.Destroy)
		}
	}
	return err
}

func (o *setup) openOwnWindow(k route.Kind) error {
	g := o.w.g
	if k == route.OnDevice {
		o.places[k][g.rank] = g.opts.Window.Memory.Ptr()
		if !o.interprets {
			return nil
		}
		return o.clearFlags()
	}
	return o.register(&o.own[k], g.rank, g.opts.Window.Host)
}

// register gives the device access to a rank's window in memory of the host.
func (o *setup) register(frees *[]func() error, rank int, segment *mem.Segment) error {
	registered, err := o.w.g.ctx.Register(segment.Bytes())
	if err != nil {
		return err
	}
	*frees = append(*frees, registered.Free)
	o.places[route.InHost][rank] = registered.Ptr()
	return nil
}

// openPeers finds the memory of the peers.
func (o *setup) openPeers(open []route.Kind, offers []route.Offer) {
	w := o.w
	for _, rank := range w.peers {
		if o.openInProcess(rank, open, offers) {
			continue
		}
		if err := o.openPage(rank); err != nil {
			o.lackAll(open, err)
			return
		}
		for _, k := range open {
			if err := o.openPeer(rank, k); err != nil {
				o.lackAll([]route.Kind{k}, err)
			}
		}
	}
	if !o.announces() {
		return
	}
	if err := o.withPeers(o.announce); err != nil {
		o.lackAll(open, err)
	}
}

// withPeers calls f while the memory of ranks of this process stays, which may fail and give it
// back.
func (o *setup) withPeers(f func() error) error {
	t := o.w.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	for rank, here := range o.inProcess {
		if here && t.present[member{o.w.g.opts.Sharing.Group, rank}] == nil {
			return fault.Peer(fault.PeerLeft, rank, "it has left while the ranks were joining")
		}
	}
	return f()
}

// openInProcess finds the memory of a rank of this process, which has registered it already. A
// device has no access to what a context of another one has, so it imports that.
func (o *setup) openInProcess(rank int, open []route.Kind, offers []route.Offer) bool {
	w, t := o.w, o.w.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	peer := t.present[member{w.g.opts.Sharing.Group, rank}]
	if peer == nil {
		return false
	}
	o.inProcess[rank], w.pages[rank] = true, peer.pages[rank]
	for _, k := range open {
		if k == route.InHost || offers[rank].Device == offers[w.g.rank].Device {
			o.places[k][rank] = peer.setup.places[k][rank]
			if arena := peer.g.opts.Window.Arena; k == route.OnDevice && arena != nil {
				o.arenas[rank].Base = arena.Memory().Ptr()
			}
			continue
		}
		if err := o.importInProcess(rank, peer.g); err != nil {
			o.lackAll([]route.Kind{k}, err)
		}
	}
	return true
}

// importInProcess maps the memory of a rank of this process on another device.
func (o *setup) importInProcess(rank int, peer *Group) error {
	w := peer.opts.Window
	memories, descriptors := []cuda.Memory{w.Memory}, []int(nil)
	if w.Arena != nil {
		memories = append(memories, w.Arena.Memory())
	}
	defer func() {
		for _, descriptor := range descriptors {
			syscall.Close(descriptor)
		}
	}()
	err := cuda.WithContext(peer.ctx, func() error {
		for _, m := range memories {
			descriptor, err := m.Descriptor()
			if err != nil {
				return err
			}
			descriptors = append(descriptors, descriptor)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return o.importMemory(rank, descriptors)
}

// openPage maps the page of a rank in another process.
func (o *setup) openPage(rank int) error {
	if o.opened[rank] {
		return nil
	}
	w := o.w
	if o.passed[rank] == nil { // not in an attempt before
		o.passed[rank] = w.g.opts.Sharing.Descriptors(rank)
	}
	want := o.firstPassed()
	for k := range route.Kinds {
		if o.offers[rank][k] {
			want++
		}
	}
	if o.arenas[rank].Bytes > 0 {
		want++
	}
	if got := len(o.passed[rank]); got != want {
		return fault.Peer(fault.NotSupported, rank, "%d descriptors of its memory have come, and not %d: "+
			"ranks with windows share memory, so they are on one host and not linked by TCP", got, want)
	}
	segment, err := mem.MapSegment(o.passed[rank][0], w.layout.Bytes())
	if err != nil {
		return err
	}
	o.peers[common] = append(o.peers[common], segment.Free)
	registered, err := w.g.ctx.Register(segment.Bytes())
	if err != nil {
		return err
	}
	o.peers[common] = append(o.peers[common], registered.Free)
	w.pages[rank] = page.Page{Host: registered.Host(), Device: registered.Ptr()}
	o.opened[rank] = true
	return nil
}

// firstPassed returns the number of descriptors that come before those of windows.
func (o *setup) firstPassed() int {
	if share.HasChannel(o.w.layout.Graphs, o.w.g.size) {
		return 2
	}
	return 1
}

// openPeer maps the window of a rank in another process.
func (o *setup) openPeer(rank int, k route.Kind) error {
	if k == route.OnDevice {
		first := len(o.passed[rank]) - 1
		if o.arenas[rank].Bytes > 0 {
			first--
		}
		if first < o.firstPassed() { // its offers contradict each other
			return fault.Peer(fault.NotSupported, rank, "no descriptor of its window in the memory of its device has come")
		}
		return o.importMemory(rank, o.passed[rank][first:])
	}
	if len(o.passed[rank]) <= o.firstPassed() { // its offers contradict each other
		return fault.Peer(fault.NotSupported, rank, "no descriptor of its window in memory of the host has come")
	}
	segment, err := mem.MapSegment(o.passed[rank][o.firstPassed()], o.w.windowRoom().Bytes(o.w.Room.Slot))
	if err != nil {
		return err
	}
	o.peers[k] = append(o.peers[k], segment.Free)
	return o.register(&o.peers[k], rank, segment)
}

// importMemory maps a rank's window in the memory of its device, and its arena if it has one.
func (o *setup) importMemory(rank int, descriptors []int) error {
	for i, descriptor := range descriptors {
		at, bytes := &o.places[route.OnDevice][rank], o.w.windowRoom().Bytes(o.slots[rank])
		if i > 0 {
			at, bytes = &o.arenas[rank].Base, o.arenas[rank].Bytes
		}
		memory, err := o.w.g.ctx.Import(descriptor, bytes)
		if err != nil {
			return err
		}
		o.peers[route.OnDevice] = append(o.peers[route.OnDevice], memory.Free)
		*at = memory.Ptr()
	}
	return nil
}

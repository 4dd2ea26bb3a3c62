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
	g := o.g
	info := g.ctx.Info()
	o.Processors, o.Gathers = info.Processors, true
	code, err := kernel.Code(info.Major, info.Minor)
	if err != nil {
		return err
	}
	module, err := g.ctx.Load(code)
	if err != nil {
		return err
	}
	o.ownFrees[common] = append(o.ownFrees[common], module.Unload)
	for _, f := range kernel.Functions() {
		if kernel.TakesTable(f.Name) && !o.interprets {
			continue
		}
		if o.Functions[f], err = module.Function(f.Name); err != nil {
			return err
		}
	}
	for _, stream := range [2]*cuda.Stream{&o.Stream, &o.ahead} {
		if *stream, err = g.queues.newWaiter(urgencyToDevice); err != nil {
			return err
		}
		o.ownFrees[common] = append(o.ownFrees[common], (*stream).Destroy)
	}
	if o.offers, err = g.ctx.NewEvent(); err != nil {
		return err
	}
	o.ownFrees[common] = append(o.ownFrees[common], o.offers.Destroy)
	registered, err := o.register(&o.ownFrees[common], g.opts.Window.Page)
	if err != nil {
		return err
	}
	if o.hosts > 1 {
		if o.rails, err = newRails(o.windows); err != nil {
			return err
		}
		o.ownFrees[common] = append(o.ownFrees[common], o.rails.close)
	}
	o.page, o.pages[g.rank] = registered, page.Page{Host: registered.Host(), Device: registered.Ptr()}
	if o.layout.Graphs > 0 {
		if o.graphs, err = openGraphs(o.windows); err == nil {
			o.ownFrees[common] = append(o.ownFrees[common], o.graphs.Stream.Destroy)
		}
	}
	return err
}

func (o *setup) openOwnWindow(k route.Kind) error {
	g := o.g
	if k == route.OnDevice {
		o.places[k][g.rank] = g.opts.Window.Memory.Ptr()
		if !o.interprets {
			return nil
		}
		return o.clearFlags()
	}
	registered, err := o.register(&o.ownFrees[k], g.opts.Window.Host)
	if err == nil {
		o.places[k][g.rank] = registered.Ptr()
	}
	return err
}

// register gives the device access to memory of the host.
func (o *setup) register(frees *[]func() error, segment *mem.Segment) (cuda.Registered, error) {
	registered, err := o.g.ctx.Register(segment.Bytes())
	if err == nil {
		*frees = append(*frees, registered.Free)
	}
	return registered, err
}

// mapSegment maps memory of the host of a peer.
func (o *setup) mapSegment(frees *[]func() error, descriptor, bytes int) (cuda.Registered, error) {
	segment, err := mem.MapSegment(descriptor, bytes)
	if err != nil {
		return nil, err
	}
	*frees = append(*frees, segment.Free)
	return o.register(frees, segment)
}

// openPeers finds the memory of the peers.
func (o *setup) openPeers(open []route.Kind, offers []route.Offer) {
	for _, rank := range o.peers {
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
	t := o.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	for rank, here := range o.inProcess {
		if here && t.present[member{o.g.opts.Peers.Group, rank}] == nil {
			return fault.Peer(fault.PeerLeft, rank, "it has left while the ranks were joining")
		}
	}
	return f()
}

// openInProcess finds the memory of a rank of this process, which has registered it already. A
// device has no access to what a context of another one has, so it imports that.
func (o *setup) openInProcess(rank int, open []route.Kind, offers []route.Offer) bool {
	t := o.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	peer := t.present[member{o.g.opts.Peers.Group, rank}]
	if peer == nil {
		return false
	}
	o.inProcess[rank], o.pages[rank] = true, peer.pages[rank]
	for _, k := range open {
		if k == route.InHost || offers[rank].Device == offers[o.g.rank].Device {
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
	memories := []cuda.Memory{peer.opts.Window.Memory}
	if arena := peer.opts.Window.Arena; arena != nil {
		memories = append(memories, arena.Memory())
	}
	for i, m := range memories {
		descriptor := -1
		err := cuda.WithContext(peer.ctx, func() (err error) { descriptor, err = m.Descriptor(); return err })
		if err == nil {
			err = o.importMemory(rank, i, descriptor)
			syscall.Close(descriptor)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openPage maps the page of a rank in another process.
func (o *setup) openPage(rank int) error {
	if o.opened[rank] {
		return nil
	}
	if o.passed[rank] == nil { // not in an attempt before
		o.passed[rank] = o.g.opts.Peers.Descriptors(rank)
	}
	want := o.firstPassed()
	for k := range route.Kinds {
		if o.brought[rank][k] {
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
	registered, err := o.mapSegment(&o.peerFrees[common], o.passed[rank][0], o.layout.Bytes())
	if err != nil {
		return err
	}
	o.pages[rank] = page.Page{Host: registered.Host(), Device: registered.Ptr()}
	o.opened[rank] = true
	return nil
}

// firstPassed returns the number of descriptors that come before those of windows.
func (o *setup) firstPassed() int {
	if share.HasChannel(o.layout.Graphs, o.g.size) {
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
		for i, descriptor := range o.passed[rank][first:] {
			if err := o.importMemory(rank, i, descriptor); err != nil {
				return err
			}
		}
		return nil
	}
	if len(o.passed[rank]) <= o.firstPassed() { // its offers contradict each other
		return fault.Peer(fault.NotSupported, rank, "no descriptor of its window in memory of the host has come")
	}
	registered, err := o.mapSegment(&o.peerFrees[k], o.passed[rank][o.firstPassed()], o.windowRoom().Bytes(o.Room.Slot))
	if err == nil {
		o.places[k][rank] = registered.Ptr()
	}
	return err
}

// importMemory maps a rank's window in the memory of its device, or what comes next, its arena.
func (o *setup) importMemory(rank, which, descriptor int) error {
	at, bytes := &o.places[route.OnDevice][rank], o.windowRoom().Bytes(o.slots[rank])
	if which > 0 {
		at, bytes = &o.arenas[rank].Base, o.arenas[rank].Bytes
	}
	memory, err := o.g.ctx.Import(descriptor, bytes)
	if err != nil {
		return err
	}
	o.peerFrees[route.OnDevice] = append(o.peerFrees[route.OnDevice], memory.Free)
	*at = memory.Ptr()
	return nil
}

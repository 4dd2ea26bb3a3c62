package group

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/cuda/kernel"
)

// Peers says how the ranks of a Group reach each other's Window.
type Peers struct {
	// Group names the group, alike for all ranks and unlike any other.
	Group string
	// On is what it runs on: the ranks of a host share memory.
	On *topo.Group
	// Descriptors returns those of a peer's Window, which the caller closes. It is not asked about
	// ranks of this process.
	Descriptors func(rank int) []int
}

// setup is what a group has of windows until the ranks have agreed on their route.
type setup struct {
	*windows
	graphs     *graphs // nil for none
	rails      *rails  // nil if all ranks are on this host
	hosts      int
	attempt    int                      // from 1
	interprets bool                     // short calls, if windows are in the memory of devices
	lacks      [route.Kinds]error       // why windows of a kind do not work for this rank
	slots      []int                    // by rank: of its window in the memory of its device
	slot       int                      // that all use of these
	reads      [route.Kinds]route.Reads // of the slowest peer
	word       float64                  // seconds, of a word of the stream; 0 if not measured
	brought    [][route.Kinds]bool      // by rank: of which kinds it has shared a window
	inProcess  []bool                   // by rank
	opened     []bool                   // by rank: its page
	passed     [][]int                  // by rank: its descriptors
	places     [route.Kinds][]cuda.Ptr  // of the windows, by rank
	arenas     []emit.Lent              // by rank

	// What gives things back, last first: what belongs to all kinds comes last in these lists.
	ownFrees, peerFrees [route.Kinds + 1][]func() error
}

const common = route.Kinds

// setUp finds out what ranks reach of each other, and makes the ways of a group that follow. All
// ranks call it at the same time, and come to the same ways. With route.Auto the ranks choose, and
// what a rank lacks is the reason for another route. Otherwise it is an error, which says what this
// rank lacks, or which other one lacks something. A rank without a Window has all do without, which
// is no error.
func setUp(g *Group) error {
	s, on := g.shared, g.opts.Peers.On
	s.layout, s.pages = page.Layout{Ranks: g.size, Graphs: g.opts.Graphs}, make([]page.Page, g.size)
	s.compared, s.goneAt = make([]uint64, g.size), make([]atomic.Int64, g.size)
	s.peers = on.Neighbours(g.rank)
	w := &windows{shared: s, lows: map[choice]*program.Lowered{},
		Emitter: emit.Emitter{Program: new(program.Program), Functions: map[*kernel.Function]cuda.Function{}},
		seenAt:  make([]uint64, g.size), released: make([][3]uint64, g.size)}
	w.Room = program.Room{Rank: g.rank, Ranks: g.size, Channels: exec.PlanChannels, Enqueued: true,
		Slot: share.SlotOf(g.opts.Staging), Windows: make([]program.Window, g.size)}
	o := &setup{windows: w, hosts: len(on.Hosts()), inProcess: make([]bool, g.size), opened: make([]bool, g.size),
		passed: make([][]int, g.size)}
	s.setup = o
	defer o.close()
	o.places = [route.Kinds][]cuda.Ptr{make([]cuda.Ptr, g.size), make([]cuda.Ptr, g.size)}
	if g.opts.Window != nil {
		o.lacks = g.opts.Window.Lacks
		o.ownFrees[common] = []func() error{g.opts.Window.Free}
	}
	if why := route.Unfit(on); why != "" {
		o.lackAll([]route.Kind{route.InHost, route.OnDevice}, fault.New(fault.NotSupported, "%s", why))
	}
	err := o.agree()
	if err != nil || g.route.Name == route.Staged {
		s.cleanups = slices.Concat(o.ownFrees[common], o.ownFrees[route.InHost], o.ownFrees[route.OnDevice],
			o.peerFrees[common], o.peerFrees[route.InHost], o.peerFrees[route.OnDevice])
		g.opts.Thread.sharing.Lock()
		if key := s.member(); g.opts.Thread.present[key] == s {
			delete(g.opts.Thread.present, key)
		}
		g.opts.Thread.sharing.Unlock()
		return errors.Join(err, s.free(0))
	}
	chosen := route.OnDevice
	if g.route.Name == route.InHost.Route() {
		chosen = route.InHost
	}
	o.settle(chosen)
	return nil
}

// agree opens windows until the ranks have a route that works on all of them.
func (o *setup) agree() error {
	g := o.g
	offers, err := o.exchange()
	if err != nil {
		return err
	}
	if without := slices.IndexFunc(offers, func(n route.Offer) bool { return !n.Has }); without >= 0 {
		g.route.Why = fmt.Sprintf("rank %d has not brought a window, as in groups that others were made of", without)
		return nil
	}
	if err := route.SameSlots(offers, g.rank); err != nil {
		return err
	}
	o.slot = share.MostSlot + int(offers[g.rank].Slot)
	for rank, n := range offers {
		o.brought = append(o.brought, n.Works)
		if n.Works[route.OnDevice] {
			if n.DeviceSlot < n.Slot || n.DeviceSlot > n.Slot+share.MostSlot || n.DeviceSlot%page.Align != 0 {
				return fault.Peer(fault.Internal, rank, "says that slots of its window have %d bytes", n.DeviceSlot)
			}
			o.slot = min(o.slot, int(n.DeviceSlot))
		}
		o.slots = append(o.slots, int(n.DeviceSlot))
		if n.Arena > share.MostArena {
			return fault.Peer(fault.Internal, rank, "says that it has %d bytes of registered memory", n.Arena)
		}
		o.arenas = append(o.arenas, emit.Lent{Bytes: int(n.Arena)})
	}
	var tried [route.Kinds]bool
	on := g.opts.Peers.On
	o.interprets = route.Interprets(offers, on)
	for open := route.Next(offers, on, tried); len(open) > 0; open = route.Next(offers, on, tried) {
		for _, k := range open {
			tried[k] = true
		}
		if offers, err = o.try(open, offers); err != nil {
			return err
		}
		if slices.ContainsFunc(open, func(k route.Kind) bool { return route.Works(offers, k) }) {
			break
		}
	}
	for k := range route.Kinds {
		if tried[k] || !route.Works(offers, k) {
			continue
		}
		for rank := range offers { // what was not needed was not opened
			offers[rank].Works[k] = false
		}
	}
	if g.route = route.Choose(g.opts.Route, offers, on); g.opts.Route == route.Auto {
		return nil
	}
	return o.refused(offers)
}

// refused returns the error of a route that the user has chosen and that does not work, or nil.
func (o *setup) refused(offers []route.Offer) error {
	k := route.OnDevice
	if o.g.opts.Route == route.HostWindows {
		k = route.InHost
	}
	if route.Works(offers, k) {
		return nil
	}
	if o.lacks[k] != nil {
		return o.lacks[k]
	}
	rank := slices.IndexFunc(offers, func(n route.Offer) bool { return !n.Works[k] })
	return fault.Peer(fault.NotSupported, rank, "it cannot share memory for the windows of device groups: %s",
		offers[rank].Why[k])
}

// try opens windows of some kinds. A rank that lacks something goes on to the next exchange, so
// that the others do not wait.
func (o *setup) try(open []route.Kind, offers []route.Offer) ([]route.Offer, error) {
	o.attempt++
	steps := []func([]route.Kind, []route.Offer){o.openOwn, o.openPeers}
	if o.announces() {
		steps = append(steps, func(open []route.Kind, _ []route.Offer) {
			if err := o.withPeers(func() error { return o.meet(open) }); err != nil {
				o.lackAll(open, err)
			}
		})
	}
	for _, step := range steps {
		open = slices.DeleteFunc(slices.Clone(open), func(k route.Kind) bool { return !route.Works(offers, k) })
		if len(open) == 0 {
			break
		}
		step(open, offers)
		var err error
		if offers, err = o.exchange(); err != nil {
			return nil, err
		}
	}
	return offers, nil
}

// lackAll notes that windows of some kinds do not work.
func (o *setup) lackAll(open []route.Kind, err error) {
	for _, k := range open {
		if o.lacks[k] == nil {
			o.lacks[k] = err
		}
	}
}

// exchange gives this rank's offer to all, and returns theirs.
func (o *setup) exchange() ([]route.Offer, error) {
	g := o.g
	own := route.Offer{Facts: route.Facts{Has: g.opts.Window != nil, Slot: uint64(o.Room.Slot),
		Graphs: uint64(g.opts.Graphs), Interprets: byte(g.opts.Interpret), Device: g.ctx.Info().UUID,
		Reads: o.reads, Word: o.word}}
	if own.Has {
		own.DeviceSlot = uint64(g.opts.Window.Slot)
		if g.opts.Window.Arena != nil {
			own.Arena = uint64(g.opts.Window.Arena.Bytes())
		}
	}
	for k := range route.Kinds {
		if own.Works[k] = o.lacks[k] == nil; !own.Works[k] {
			own.Why[k] = fault.Text(o.lacks[k])
		}
	}
	mine, all := make([]byte, route.OfferBytes), make([]byte, route.OfferBytes*g.size)
	own.Encode(mine)
	call := exec.Call{Coll: dtype.AllGather, Type: dtype.U8,
		In: []exec.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(mine)), Count: route.OfferBytes}}}
	for rank := range g.size {
		out := exec.Block{Ptr: unsafe.Pointer(&all[rank*route.OfferBytes]), Count: route.OfferBytes}
		call.Out = append(call.Out, out)
	}
	if err := g.comm.Run(&call); err != nil {
		return nil, err
	}
	offers := make([]route.Offer, g.size)
	for rank := range offers {
		offers[rank] = route.Decode(all[rank*route.OfferBytes:])
	}
	return offers, nil
}

// openOwn makes what this rank has of its own.
func (o *setup) openOwn(open []route.Kind, _ []route.Offer) {
	if o.page == nil {
		if err := o.openCommon(); err != nil {
			o.lackAll([]route.Kind{route.InHost, route.OnDevice}, err)
			return
		}
	}
	for _, k := range open {
		if o.lacks[k] = o.openOwnWindow(k); o.lacks[k] == nil && o.g.opts.Route == route.Auto && len(o.peers) > 0 {
			o.lacks[k] = o.fill(k)
		}
	}
	t := o.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	t.present[o.member()] = o.shared // where the other ranks of this process find it
}

// keepChannels keeps those of the peers in other processes.
func (o *setup) keepChannels() {
	if o.firstPassed() < 2 {
		return
	}
	for _, rank := range o.peers {
		if channel := o.passed[rank]; channel != nil {
			descriptor := channel[1]
			o.graphs.channels[rank] = descriptor
			o.cleanups = append(o.cleanups, func() error { return syscall.Close(descriptor) })
			o.passed[rank] = slices.Delete(channel, 1, 2)
		}
	}
}

// slotOf returns the bytes of the slots that the ranks use in windows of a kind. Between hosts what
// travels has slots, too, as long as those of windows are by the user.
func (o *setup) slotOf(k route.Kind) int {
	if k == route.OnDevice && o.hosts == 1 {
		return o.slot
	}
	return o.windowRoom().Slot
}

// settle keeps windows of the kind that the ranks have chosen, and makes the ways over them. Nobody
// uses other windows any more. The peers have joined by then, so an error is none of joining: it is
// told in the end.
func (o *setup) settle(chosen route.Kind) {
	g := o.g
	loser := 1 - chosen
	g.opts.Window.Shared() // the numbers of descriptors that are closed may be those of others soon
	o.cleanups = slices.Concat(o.ownFrees[loser], o.peerFrees[loser])
	if err := errors.Join(o.shared.free(0), g.opts.Window.FreeKind(loser)); err != nil {
		o.ownFrees[common] = append(o.ownFrees[common], func() error { return err })
	}
	o.cleanups = slices.Concat(o.ownFrees[common], o.ownFrees[chosen])
	o.owned = len(o.cleanups)
	o.cleanups = slices.Concat(o.cleanups, o.peerFrees[common], o.peerFrees[chosen])
	o.Places = o.places[chosen]
	o.Room.Slot, o.Room.Piece = o.slotOf(chosen), o.Room.Slot
	o.Scratch = o.Places[g.rank] + cuda.Ptr(plan.WindowSlots*o.Room.Slot)
	o.kind = chosen
	if chosen == route.OnDevice {
		o.lend(o.arenas)
	}
	if o.interprets && chosen == route.OnDevice && len(o.peers) > 0 {
		o.forms = []form{newInterpreter(o.windows)}
		g.route.Interpreted = tune.MostInterpreted
	}
	if o.hosts > 1 {
		o.forms = []form{o.rails}
	}
	g.queries.askStreams = o.askStreams
	g.ways = []way{o.windows, g.staged}
	if o.graphs != nil {
		o.graphs.locate(o.windows)
		o.keepChannels()
		g.ways = []way{o.windows, o.graphs, g.staged}
	}
	if g.opts.Route == route.Auto {
		o.freeAt[0] = o.mark() // the peers have read it
	}
}

// close ends it.
func (o *setup) close() {
	for _, descriptors := range o.passed {
		for _, descriptor := range descriptors {
			syscall.Close(descriptor)
		}
	}
	t := o.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	o.setup = nil
}

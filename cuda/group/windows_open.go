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
		return pageBytes // nobody reads it
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
	return max(slotOf(staging), int(min(mostSlot, info.Bytes/1024))&^(pageBytes-1))
}

// NewWindow makes the Window of a rank in a group of so many ranks, for Options.Staging,
// Options.Graphs and Options.Route. A Group takes it over. In the memory of the device it may be
// larger than Staging says if it grows. With route.Auto it may lack anything: then the Group says
// why the ranks do without.
func NewWindow(ctx cuda.Context, staging, graphs, ranks int, wanted string, grows bool) (*Window, error) {
	w := &Window{ctx: ctx, room: windowRoom{slotOf(staging), graphs, ranks}, slot: slotOn(ctx.Info(), staging, grows),
		channel: -1}
	page, err := mem.NewSegment("goccl-device", layout{ranks, graphs}.bytes())
	if err == nil {
		w.page = page
		w.shared = append(w.shared, page.FD())
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
func slotOf(staging int) int { return staging / plan.WindowSlots &^ (pageBytes - 1) }

// scratches returns the number of slots that the scratch takes.
func scratches(ranks int) int {
	if ranks > kernel.MostSources {
		return 1
	}
	return 0
}

// opening is what a group has of windows until the ranks have agreed on their route.
type opening struct {
	w          *windows
	attempt    int                      // from 1
	interprets bool                     // short calls, if windows are in the memory of devices
	lacks      [route.Kinds]error       // why windows of a kind do not work for this rank
	slots      []int                    // by rank: of its window in the memory of its device
	slot       int                      // that all use of these
	reads      [route.Kinds]route.Reads // of the slowest peer
	word       float64                  // seconds, of a word of the stream; 0 if not measured
	offers     [][route.Kinds]bool      // by rank: of which kinds it has shared a window
	inProcess  []bool                   // by rank
	opened     []bool                   // by rank: its page
	passed     [][]int                  // by rank: its descriptors
	places     [route.Kinds][]cuda.Ptr  // of the windows, by rank
	arenas     []lent                   // by rank

	// What gives things back, last first: what belongs to all kinds comes last in these lists.
	own, peers [route.Kinds + 1][]func() error
}

const common = route.Kinds

// openWindows makes the windows of a group. All ranks call it at the same time, and either all have
// windows then, or none. With route.Auto the ranks choose, and what a rank lacks is the reason for
// another route. Otherwise it is an error, which says what this rank lacks, or which other one
// lacks something. A rank without a Window has all do without, which is no error.
func openWindows(g *Group) (*windows, error) {
	w := &windows{g: g, layout: layout{g.size, g.opts.Graphs}, lows: map[choice]*program.Lowered{},
		emitter: emitter{functions: map[*kernel.Function]cuda.Function{}},
		pages:   make([]page, g.size), compared: make([]uint64, g.size), seenAt: make([]uint64, g.size),
		let: make([][3]let, g.size), goneAt: make([]atomic.Int64, g.size)}
	on := g.opts.Sharing.On
	w.peers = on.Neighbours(g.rank)
	w.room = program.Room{Rank: g.rank, Ranks: g.size, Channels: exec.PlanChannels, Enqueued: true,
		Slot: slotOf(g.opts.Staging), Windows: make([]program.Window, g.size)}
	o := &opening{w: w, inProcess: make([]bool, g.size), opened: make([]bool, g.size), passed: make([][]int, g.size)}
	w.opening = o
	defer o.close()
	for k := range route.Kinds {
		o.places[k] = make([]cuda.Ptr, g.size)
	}
	if g.opts.Window != nil {
		o.lacks = g.opts.Window.lacks
		o.own[common] = []func() error{g.opts.Window.Free}
	}
	if why := route.Unfit(on); why != "" {
		o.lackAll([]route.Kind{route.InHost, route.OnDevice}, fault.New(fault.NotSupported, "%s", why))
	} else if len(on.Hosts()) > 1 {
		w.rails = &rails{w: w, to: g.to, from: g.from, orders: map[*program.Lowered]*order{}}
	}
	err := o.agree()
	if err != nil || g.route.Name == route.Staged {
		return nil, errors.Join(err, o.giveBack())
	}
	chosen := route.OnDevice
	if g.route.Name == route.InHost.Route() {
		chosen = route.InHost
	}
	o.settle(chosen)
	return w, nil
}

// agree opens windows until the ranks have a route that works on all of them.
func (o *opening) agree() error {
	g := o.w.g
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
	o.slot = mostSlot + int(offers[g.rank].Slot)
	for rank, n := range offers {
		o.offers = append(o.offers, n.Works)
		if n.Works[route.OnDevice] {
			if n.DeviceSlot < n.Slot || n.DeviceSlot > n.Slot+mostSlot || n.DeviceSlot%pageBytes != 0 {
				return fault.Peer(fault.Internal, rank, "says that slots of its window have %d bytes", n.DeviceSlot)
			}
			o.slot = min(o.slot, int(n.DeviceSlot))
		}
		o.slots = append(o.slots, int(n.DeviceSlot))
		if n.Arena > MostArena {
			return fault.Peer(fault.Internal, rank, "says that it has %d bytes of registered memory", n.Arena)
		}
		o.arenas = append(o.arenas, lent{bytes: int(n.Arena)})
	}
	var tried [route.Kinds]bool
	on := g.opts.Sharing.On
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
func (o *opening) refused(offers []route.Offer) error {
	k := route.OnDevice
	if o.w.g.opts.Route == route.HostWindows {
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
func (o *opening) try(open []route.Kind, offers []route.Offer) ([]route.Offer, error) {
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
func (o *opening) lackAll(open []route.Kind, err error) {
	for _, k := range open {
		if o.lacks[k] == nil {
			o.lacks[k] = err
		}
	}
}

// exchange gives this rank's note to all, and returns theirs.
func (o *opening) exchange() ([]route.Offer, error) {
	g := o.w.g
	own := route.Offer{Has: g.opts.Window != nil, Slot: uint64(o.w.room.Slot), Graphs: uint64(g.opts.Graphs),
		Interprets: byte(g.opts.Interpret), Device: g.ctx.Info().UUID, Reads: o.reads,
		Word: o.word}
	if own.Has {
		own.DeviceSlot = uint64(g.opts.Window.slot)
		if g.opts.Window.arena != nil {
			own.Arena = uint64(g.opts.Window.arena.bytes)
		}
	}
	for k := range route.Kinds {
		if own.Works[k] = o.lacks[k] == nil; !own.Works[k] {
			own.Why[k] = fault.Text(o.lacks[k])
		}
	}
	return g.exchange(&own)
}

// exchange gives this rank's note to all, and returns theirs.
func (g *Group) exchange(own *route.Offer) ([]route.Offer, error) {
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
func (o *opening) openOwn(open []route.Kind, _ []route.Offer) {
	w := o.w
	if w.page == nil {
		if err := o.openCommon(); err != nil {
			o.lackAll([]route.Kind{route.InHost, route.OnDevice}, err)
			return
		}
	}
	for _, k := range open {
		if o.lacks[k] = o.openOwnWindow(k); o.lacks[k] == nil && w.g.opts.Route == route.Auto && len(w.peers) > 0 {
			o.lacks[k] = o.fill(k)
		}
	}
	w.show()
}

// openCommon makes what windows of all kinds need.
func (o *opening) openCommon() error {
	w, g := o.w, o.w.g
	info := g.ctx.Info()
	w.processors, w.gathers = info.Processors, true
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
		if w.functions[f], err = module.Function(f.Name); err != nil {
			return err
		}
	}
	if w.stream, err = g.newWaiter(urgencyToDevice); err != nil {
		return err
	}
	o.own[common] = append(o.own[common], w.stream.Destroy)
	if w.ahead, err = g.newWaiter(urgencyToDevice); err != nil {
		return err
	}
	o.own[common] = append(o.own[common], w.ahead.Destroy)
	if w.offers, err = g.ctx.NewEvent(); err != nil {
		return err
	}
	o.own[common] = append(o.own[common], w.offers.Destroy)
	registered, err := g.ctx.Register(g.opts.Window.page.Bytes())
	if err != nil {
		return err
	}
	o.own[common] = append(o.own[common], registered.Free)
	if w.rails != nil {
		if err = w.rails.open(); err != nil {
			return err
		}
		o.own[common] = append(o.own[common], w.rails.close)
	}
	w.page, w.pages[g.rank] = registered, page{registered.Host(), registered.Ptr()}
	if w.graphs, err = openGraphs(w); err == nil && w.graphs != nil {
		o.own[common] = append(o.own[common], w.graphs.stream.Destroy)
	}
	return err
}

func (o *opening) openOwnWindow(k route.Kind) error {
	g := o.w.g
	if k == route.OnDevice {
		o.places[k][g.rank] = g.opts.Window.memory.Ptr()
		if !o.interprets {
			return nil
		}
		return o.clearFlags()
	}
	return o.register(&o.own[k], g.rank, g.opts.Window.host)
}

// register gives the device access to a rank's window in memory of the host.
func (o *opening) register(giving *[]func() error, rank int, segment *mem.Segment) error {
	registered, err := o.w.g.ctx.Register(segment.Bytes())
	if err != nil {
		return err
	}
	*giving = append(*giving, registered.Free)
	o.places[route.InHost][rank] = registered.Ptr()
	return nil
}

// openPeers finds the memory of the peers.
func (o *opening) openPeers(open []route.Kind, offers []route.Offer) {
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
func (o *opening) withPeers(f func() error) error {
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
func (o *opening) openInProcess(rank int, open []route.Kind, offers []route.Offer) bool {
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
			o.places[k][rank] = peer.opening.places[k][rank]
			if arena := peer.g.opts.Window.arena; k == route.OnDevice && arena != nil {
				o.arenas[rank].base = arena.memory.Ptr()
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
func (o *opening) importInProcess(rank int, peer *Group) error {
	window := peer.opts.Window
	memories, descriptors := []cuda.Memory{window.memory}, []int(nil)
	if window.arena != nil {
		memories = append(memories, window.arena.memory)
	}
	defer func() {
		for _, descriptor := range descriptors {
			syscall.Close(descriptor)
		}
	}()
	err := in(peer.ctx, func() error {
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
func (o *opening) openPage(rank int) error {
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
	if o.arenas[rank].bytes > 0 {
		want++
	}
	if got := len(o.passed[rank]); got != want {
		return fault.Peer(fault.NotSupported, rank, "%d descriptors of its memory have come, and not %d: "+
			"ranks with windows share memory, so they are on one host and not linked by TCP", got, want)
	}
	segment, err := mem.MapSegment(o.passed[rank][0], w.layout.bytes())
	if err != nil {
		return err
	}
	o.peers[common] = append(o.peers[common], segment.Free)
	registered, err := w.g.ctx.Register(segment.Bytes())
	if err != nil {
		return err
	}
	o.peers[common] = append(o.peers[common], registered.Free)
	w.pages[rank] = page{registered.Host(), registered.Ptr()}
	o.opened[rank] = true
	return nil
}

// firstPassed returns the number of descriptors that come before those of windows.
func (o *opening) firstPassed() int {
	if hasChannel(o.w.layout.graphs, o.w.g.size) {
		return 2
	}
	return 1
}

// openPeer maps the window of a rank in another process.
func (o *opening) openPeer(rank int, k route.Kind) error {
	if k == route.OnDevice {
		first := len(o.passed[rank]) - 1
		if o.arenas[rank].bytes > 0 {
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
	segment, err := mem.MapSegment(o.passed[rank][o.firstPassed()], o.windowRoom().bytes(o.w.room.Slot))
	if err != nil {
		return err
	}
	o.peers[k] = append(o.peers[k], segment.Free)
	return o.register(&o.peers[k], rank, segment)
}

// importMemory maps a rank's window in the memory of its device, and its arena if it has one.
func (o *opening) importMemory(rank int, descriptors []int) error {
	for i, descriptor := range descriptors {
		at, bytes := &o.places[route.OnDevice][rank], o.windowRoom().bytes(o.slots[rank])
		if i > 0 {
			at, bytes = &o.arenas[rank].base, o.arenas[rank].bytes
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

// keepChannels keeps those of the peers in other processes.
func (o *opening) keepChannels() {
	w := o.w
	if o.firstPassed() < 2 {
		return
	}
	for _, rank := range w.peers {
		if channel := o.passed[rank]; channel != nil {
			descriptor := channel[1]
			w.graphs.channels[rank] = descriptor
			w.giving = append(w.giving, func() error { return syscall.Close(descriptor) })
			o.passed[rank] = slices.Delete(channel, 1, 2)
		}
	}
}

// slotOf returns the bytes of the slots that the ranks use in windows of a kind. Between hosts what
// travels has slots, too, as long as those of windows are by the user.
func (o *opening) slotOf(k route.Kind) int {
	if k == route.OnDevice && o.w.rails == nil {
		return o.slot
	}
	return o.windowRoom().slot
}

func (o *opening) windowRoom() windowRoom { return o.w.windowRoom() }

// windowRoom says what is where in the windows of all ranks.
func (w *windows) windowRoom() windowRoom {
	return windowRoom{slotOf(w.g.opts.Staging), w.layout.graphs, len(w.pages)}
}

// settle keeps windows of the kind that the ranks have chosen. Nobody uses others any more. The
// peers have joined by then, so an error is none of joining: it is told in the end.
func (o *opening) settle(chosen route.Kind) {
	w := o.w
	loser := 1 - chosen
	w.g.opts.Window.Shared() // the numbers of descriptors that are closed may be those of others soon
	w.giving = slices.Concat(o.own[loser], o.peers[loser])
	if err := errors.Join(w.give(0), w.g.opts.Window.free(loser)); err != nil {
		o.own[common] = append(o.own[common], func() error { return err })
	}
	w.giving = slices.Concat(o.own[common], o.own[chosen])
	w.owned = len(w.giving)
	w.giving = slices.Concat(w.giving, o.peers[common], o.peers[chosen])
	w.places = o.places[chosen]
	w.room.Slot, w.room.Piece = o.slotOf(chosen), w.room.Slot
	w.scratch = w.places[w.g.rank] + cuda.Ptr(plan.WindowSlots*w.room.Slot)
	w.kind = chosen
	w.graphs.locate()
	o.keepChannels()
	if chosen == route.OnDevice {
		w.lend(o.arenas)
	}
	if o.interprets && chosen == route.OnDevice && w.rails == nil && len(w.peers) > 0 {
		w.runs = newInterpreter(w)
		w.g.route.Interpreted = tune.MostInterpreted
	}
	if w.g.opts.Route == route.Auto {
		w.freeAt[0] = o.mark() // the peers have read it
	}
}

// giveBack undoes everything.
func (o *opening) giveBack() error {
	w := o.w
	w.giving = slices.Concat(o.own[common], o.own[route.InHost], o.own[route.OnDevice],
		o.peers[common], o.peers[route.InHost], o.peers[route.OnDevice])
	return w.giveBack()
}

// close ends the opening.
func (o *opening) close() {
	for _, descriptors := range o.passed {
		for _, descriptor := range descriptors {
			syscall.Close(descriptor)
		}
	}
	t := o.w.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	o.w.opening = nil
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

// leavePeers gives back what this rank has of other processes, whose peers have mappings of their
// own, unless there are graphs. The stream has ended. Those of this process may still use what this
// rank has made: the Thread gives it back, with the context, when they have left, too.
func (w *windows) leavePeers() error {
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
		errs = append(errs, in(w.g.ctx, w.leavePeers))
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

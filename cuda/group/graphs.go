package group

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/cuda/kernel"
)

// graphs are the calls over windows in streams that are in capture: they become part of CUDA
// graphs, and are executed at each replay. The host does nothing then, and all values that streams
// write and wait for are those of the capture.
//
// So each graph has a region of each rank's window, with slots of its own, until it is destroyed,
// and flags in place of positions. A flag is 1 when what it tells has happened, and the stream that
// has waited for it sets it to 0. In each piece of a call, a rank
//
//   - before it writes its slot, waits until all peers have left it
//   - signals as its plan says, but at the end of a row of signals; a rank that signals anybody
//     signals everybody
//   - waits for every signal to it, at the end of the piece if not before
//   - and then tells the peers that have signalled that it has left their slots.
//
// So each flag is set and waited for once in each piece: nobody sets it again before it is 0, and
// between two replays all flags have the same values, whatever a replay of another graph does.
// Slots are used in turn by the pieces of all calls of a graph. When a graph is captured, the hosts
// tell each other which regions they use, and how many pieces each call has.
//
// The stream tells its host what it waits for ("waits") and how often the graph has begun
// ("ticks"), so that a replay that does not go on is noticed, and its peer named.
type graphs struct {
	passive
	*shared
	emit.Emitter
	memory    [][]cuda.Ptr // by rank: where its regions are, each share.RegionsOfChunk of them
	id        uint64       // of the capture that the stream is or was in
	mine      int          // the region of this rank in it; -1 for none
	turn      int          // pieces of it so far
	calls     uint64       // captured so far, in all captures
	theirs    []int        // by rank: its region
	entered   bool         // this piece has
	nth       int          // signal of it that comes next
	seen      []int        // by peer: its signals of this piece that the stream waits for so far
	signalled []int        // by peer: the signals of this piece to it so far
	next      []flag       // what the stream waits for next

	channels []int // by rank: by which its chunks come; 0 for none

	using   sync.Mutex
	regions []region // of this rank, as far as they are made
	cut     bool     // a replay was let go
}

// region is a part of the window of this rank.
type region struct {
	used     bool
	captured []captured // in the graph that uses it

	// Used only by the device thread: what the stream waited for, and since when.
	ticks, waits uint64
	since        time.Time
}

// captured is a call in a graph.
type captured struct {
	what    string
	timeout time.Duration
	waits   [][]flag
}

// flag is a word that a peer sets in the page of this rank.
type flag struct{ peer, at int }

// agreement is what a rank tells the others of a call that it captures: its number among all such
// calls, the region, the number of pieces, and how many the graph has before it. Regions count from
// 1; 0 is none, and a number beyond the last says that the rank refuses the call.
const (
	agreedNth = 8 * iota
	agreedRegion
	agreedPieces
	agreedTurn
)

// openGraphs makes the regions. All slots have been left.
func openGraphs(w *windows) (*graphs, error) {
	n := len(w.pages)
	c := &graphs{shared: w.shared, mine: -1, memory: make([][]cuda.Ptr, n), channels: make([]int, n),
		theirs: make([]int, n), seen: make([]int, n), signalled: make([]int, n),
		Emitter: emit.Emitter{Program: new(program.Program), Room: w.Room, Functions: w.Functions,
			Processors: w.Processors, Gathers: true, Places: make([]cuda.Ptr, n)}}
	c.Room.Slot = share.GraphSlot(w.Room.Slot)
	c.add(min(c.layout.Graphs, share.RegionsOfChunk))
	var err error
	c.Stream, err = c.g.ctx.NewStream(urgencyToDevice)
	return c, err
}

// locate finds the regions, once the windows of all ranks are known.
func (c *graphs) locate(w *windows) {
	for rank, at := range w.Places {
		c.memory[rank] = []cuda.Ptr{at + cuda.Ptr(c.windowRoom().GraphsAt(w.Room.Slot))}
	}
}

func (c *graphs) suits(o *Op) (bool, error) {
	return o.capture != 0 && o.low != nil && c.g.route.Hosts == 0, nil
}

// enqueue makes a call part of the graph that the caller's stream captures.
func (c *graphs) enqueue(o *Op, on cuda.Stream) error {
	g := c.g
	if err := g.callers.at.Record(on); err != nil {
		return err
	}
	if err := c.Stream.Wait(g.callers.at); err != nil {
		return err
	}
	c.using.Lock()
	own := &c.regions[c.mine]
	own.captured = append(own.captured, captured{what: o.describe(), timeout: o.timeout()})
	c.using.Unlock()
	if c.turn == 0 {
		tick := kernel.Tick()
		at := c.pages[g.rank].Device + cuda.Ptr(c.layout.Ticks(c.mine))
		if err := c.Launch(tick, at, 1, 1, nil); err != nil {
			return err
		}
	}
	for piece := range o.cut.pieces {
		if err := c.Compile(&o.call, o.low, piece); err != nil {
			return err
		}
		if err := c.part(piece); err != nil {
			return err
		}
		c.turn++
	}
	if err := c.Flush(); err != nil {
		return err
	}
	if err := o.end.Record(c.Stream); err != nil {
		return err
	}
	o.finish(nil)
	g.opts.Thread.bell.Ring() // the thread compares what the ranks have called
	return nil
}

func (c *graphs) abandon(o *Op, _ cuda.Stream) { o.finish(c.g.Failure()) }

// prepare finds a region for the graph, and agrees with all ranks on the number of pieces of the
// call: it waits until they have come to it.
func (c *graphs) prepare(o *Op, on cuda.Stream) error {
	low, id := o.low, o.capture
	if low.MostTold > page.MostTold {
		return fault.New(fault.NotSupported, "plan %s signals too often to be part of a CUDA graph", low.Name)
	}
	other, err := c.Stream.Capture()
	if err != nil {
		return err
	}
	if other != 0 && other != id {
		return fault.New(fault.NotSupported, "the group has calls in another capture that has not ended")
	}
	if c.id != id {
		c.id, c.turn, c.mine = id, 0, -1
	}
	if c.mine < 0 {
		err = c.take(on)
	}
	if err == nil {
		err = c.Compile(&o.call, low, 0)
	}
	o.cut.pieces, err = c.agree(&o.call, c.Program.Last+1, err)
	return err
}

// unused takes a region that no graph uses, and returns -1 if there is none.
func (c *graphs) unused() int {
	c.using.Lock()
	defer c.using.Unlock()
	free := slices.IndexFunc(c.regions, func(r region) bool { return !r.used })
	if free >= 0 {
		c.regions[free] = region{used: true}
	}
	return free
}

// take takes a region for the graph that a stream captures, if one is left or can be made.
func (c *graphs) take(on cuda.Stream) error {
	free := c.unused()
	if free < 0 && len(c.regions) < c.layout.Graphs {
		if err := c.grow(); err != nil {
			return err
		}
		free = c.unused()
	}
	if free < 0 {
		return nil // agree tells all ranks
	}
	if err := on.Retain(func() { c.free(free) }); err != nil {
		c.free(free)
		return err
	}
	c.mine = free
	return nil
}

// free gives a region back when its graph is gone. A thread of the driver calls it, on which
// the driver must not be called.
func (c *graphs) free(at int) {
	c.using.Lock()
	defer c.using.Unlock()
	c.regions[at].used = false
	if c.g.ending.leaving.Load() {
		go c.g.opts.Thread.release()
	}
}

// inUse yields the regions that graphs use, while it holds their lock.
func (c *graphs) inUse(yield func(int, *region) bool) {
	c.using.Lock()
	defer c.using.Unlock()
	for i := range c.regions {
		if r := &c.regions[i]; r.used && !yield(i, r) {
			return
		}
	}
}

// outlives reports whether there are graphs.
func (c *graphs) outlives() bool {
	for range c.inUse {
		return true
	}
	return false
}

// agree exchanges regions and numbers of pieces with all ranks, and returns the largest number. If
// this rank refuses the call, all do.
func (c *graphs) agree(call *exec.Call, pieces int, refusal error) (int, error) {
	c.calls++
	own, at := c.page.Host(), c.layout.Agreed(c.calls)
	most := c.layout.Graphs
	region, refused := c.mine+1, most+1
	if refusal != nil {
		region = refused
	}
	atomic.StoreUint64(page.Word(own, at+agreedRegion), uint64(region))
	atomic.StoreUint64(page.Word(own, at+agreedPieces), uint64(pieces))
	atomic.StoreUint64(page.Word(own, at+agreedTurn), uint64(c.turn))
	atomic.StoreUint64(page.Word(own, at+agreedNth), c.calls)
	timeout := cmp.Or(call.Timeout, c.g.comm.Timeout())
	begin, lacks := time.Now(), -1
	for peer := range c.pages {
		if err := c.await(peer, at, begin, timeout); err != nil {
			return 0, c.g.fail(err)
		}
		theirs := c.pages[peer].Host
		if atomic.LoadUint64(page.Word(theirs, at+agreedTurn)) != uint64(c.turn) { // one has captured anew
			return 0, c.g.fail(fault.Peer(fault.Mismatch, peer, "the CUDA graph of rank %d has other calls before this one "+
				"than that of rank %d: all ranks capture the same calls", peer, c.g.rank))
		}
		region := int(min(atomic.LoadUint64(page.Word(theirs, at+agreedRegion)), uint64(refused)))
		switch {
		case region == refused && refusal == nil:
			refusal = fault.Peer(fault.NotSupported, peer, "rank %d cannot make the call a part of a CUDA graph", peer)
		case region == 0 && lacks < 0:
			lacks = peer
		}
		if region > 0 && region < refused {
			if err := c.reach(peer, region-1); err != nil {
				return 0, c.g.fail(err)
			}
			c.theirs[peer], c.Places[peer] = region-1, c.regionAt(peer, region-1)
		}
		pieces = max(pieces, int(min(atomic.LoadUint64(page.Word(theirs, at+agreedPieces)), page.MostPieces)))
	}
	if refusal != nil {
		return 0, refusal
	}
	if lacks >= 0 {
		return 0, fault.Peer(fault.NotSupported, lacks, "rank %d has no window left for a CUDA graph: there are %d graphs "+
			"already; a larger GOCCL_CUDA_GRAPHS would help, or to destroy graphs that are not needed", lacks, most)
	}
	c.Scratch = c.Places[c.g.rank] + cuda.Ptr(plan.WindowSlots*c.Room.Slot)
	return pieces, nil
}

// await waits until a peer has captured as many calls as this rank.
func (c *graphs) await(peer, at int, begin time.Time, timeout time.Duration) error {
	g := c.g
	for atomic.LoadUint64(page.Word(c.pages[peer].Host, at+agreedNth)) != c.calls {
		waited := time.Since(begin)
		switch failure, ended, gone := g.Failure(), g.comm.Check(), c.gone(peer); {
		case failure != nil:
			return failure
		case ended != nil:
			return ended
		case gone != nil:
			return gone
		case g.ending.leaving.Load():
			return fault.New(fault.Closed, "the device group was closed")
		case timeout > 0 && waited > timeout:
			return fault.Peer(fault.Timeout, peer, "rank %d has captured %d calls, and rank %d %d: all ranks capture the "+
				"same calls", peer, atomic.LoadUint64(page.Word(c.pages[peer].Host, at+agreedNth)), g.rank, c.calls)
		}
		time.Sleep(nap(waited))
	}
	return nil
}

// part makes a piece of a call part of the graph.
func (c *graphs) part(piece int) error {
	c.Slot = c.turn % plan.WindowSlots
	clear(c.seen)
	clear(c.signalled)
	c.entered, c.nth = !c.Signals(), 0
	if err := c.Emit(c.Program.Lanes[0], c); err != nil {
		return err
	}
	for peer, counts := range c.Program.Low.Heard {
		c.hear(peer, len(counts))
	}
	c.awaitFlags()
	for peer, counts := range c.Program.Low.Heard {
		if len(counts) > 0 {
			c.set(peer, c.layout.Gone(c.Room.Rank, c.theirs[peer], c.Slot))
		}
	}
	return nil
}

// Enter has the stream wait until all peers have left the slot, once in a piece.
func (c *graphs) Enter() {
	if !c.entered {
		c.entered = true
		for _, peer := range c.peers {
			c.next = append(c.next, flag{peer, c.layout.Gone(peer, c.mine, c.Slot)})
		}
	}
	c.awaitFlags()
}

func (c *graphs) Signal(int) {
	c.Enter()
	for _, peer := range c.Program.Low.Told[c.nth] {
		c.set(peer, c.layout.Signal(c.Room.Rank, c.mine, c.Slot)+8*c.signalled[peer])
		c.signalled[peer]++
	}
	c.nth++
}

func (c *graphs) Wait(peer, nth int) {
	n, _ := slices.BinarySearch(c.Program.Low.Heard[peer], nth)
	c.hear(peer, n+1)
}

// hear has the stream wait for the first signals of a peer in a piece, as far as it has not yet.
func (c *graphs) hear(peer, signals int) {
	for ; c.seen[peer] < signals; c.seen[peer]++ {
		at := c.layout.Signal(peer, c.theirs[peer], c.Slot) + 8*c.seen[peer]
		c.next = append(c.next, flag{peer, at})
	}
}

func (c *graphs) Leave() { c.awaitFlags() }

func (c *graphs) Copies(lane []program.Instruction) (int, error) {
	c.awaitFlags()
	return c.Emitter.Copies(lane)
}

func (c *graphs) Reduce(b *program.Instruction) error {
	c.awaitFlags()
	return c.Emitter.Reduce(b)
}

// set has the stream set a flag in the page of a peer.
func (c *graphs) set(peer, at int) {
	c.Words = append(c.Words, cuda.WordOp{At: c.pages[peer].Device + cuda.Ptr(at), Value: 1})
}

// awaitFlags has the stream wait for the flags that have come together, and set them back.
func (c *graphs) awaitFlags() {
	if len(c.next) == 0 {
		return
	}
	c.using.Lock()
	calls := c.regions[c.mine].captured
	last := &calls[len(calls)-1]
	last.waits = append(last.waits, slices.Clone(c.next))
	position := page.At(uint64(len(calls)), 0, 0) + uint64(len(last.waits))
	c.using.Unlock()
	own := c.pages[c.Room.Rank].Device
	waits := own + cuda.Ptr(c.layout.Ticks(c.mine)+8)
	c.Words = append(c.Words, cuda.WordOp{At: waits, Value: position})
	for _, f := range c.next {
		c.Words = append(c.Words, cuda.WordOp{At: own + cuda.Ptr(f.at), Value: 1, Wait: true})
	}
	c.Words = append(c.Words, cuda.WordOp{At: waits}) // before a flag is 0 again: see stopped
	for _, f := range c.next {
		c.Words = append(c.Words, cuda.WordOp{At: own + cuda.Ptr(f.at)})
	}
	c.next = c.next[:0]
}

// look returns why a replay cannot go on.
func (c *graphs) look(now time.Time) (pending bool, err error) {
	if !c.outlives() {
		return false, nil
	}
	if err := c.g.comm.Check(); err != nil { // which nobody else asks while there are no calls
		return false, err
	}
	for i, r := range c.inUse {
		if err := c.stopped(i, r, now); err != nil {
			return false, err
		}
	}
	return false, nil
}

// stopped returns why the replay of a graph does not go on: it waits for a peer that has gone, or
// has waited for the same flag for the time that the call has.
func (c *graphs) stopped(index int, r *region, now time.Time) error {
	at := c.layout.Ticks(index)
	waits, ticks := c.page.Load(at+8), c.page.Load(at)
	if waits != r.waits || ticks != r.ticks || r.since.IsZero() {
		r.waits, r.ticks, r.since = waits, ticks, now
	}
	if waits == 0 {
		return nil
	}
	call, flags := r.where(waits)
	if call == nil {
		return nil
	}
	in := func(f *fault.Error) error { return f.In(c.g.label(), call.what+", in a replay of a CUDA graph") }
	late := call.timeout > 0 && now.Sub(r.since) > call.timeout
	for _, f := range flags {
		gone := c.gone(f.peer) // what it has set is there if so
		missing := c.page.Load(f.at) == 0
		switch {
		case c.page.Load(at+8) != waits || c.page.Load(at) != ticks: // the flag was set back
			return nil
		case missing && gone != nil:
			return in(gone)
		case missing && late:
			return in(fault.Peer(fault.Timeout, f.peer, "rank %d has not come as far", f.peer))
		}
	}
	return nil
}

// where returns the call in which the stream waits, and for which flags.
func (r *region) where(waits uint64) (*captured, []flag) {
	call, nth := page.OpOf(waits), waits-page.At(page.OpOf(waits), 0, 0)
	if call == 0 || call > uint64(len(r.captured)) {
		return nil, nil
	}
	in := &r.captured[call-1]
	if nth == 0 || nth > uint64(len(in.waits)) {
		return nil, nil
	}
	return in, in.waits[nth-1]
}

// waiting reports whether a replay waits for a peer.
func (c *graphs) waiting() bool {
	for i := range c.inUse {
		if c.page.Load(c.layout.Ticks(i)+8) != 0 {
			return true
		}
	}
	return false
}

// release lets a replay go on. The stream sets the flags back, so this is repeated for as long as
// it waits for more. The caller holds the lock of words.
func (c *graphs) release() {
	for i, r := range c.inUse {
		_, flags := r.where(c.page.Load(c.layout.Ticks(i) + 8))
		for _, f := range flags {
			if c.page.Load(f.at) == 0 {
				c.page.Store(f.at, out)
				c.cut = true
			}
		}
	}
}

func (c *graphs) stop() bool {
	if !c.waiting() {
		return true
	}
	c.g.ending.storing.Lock()
	defer c.g.ending.storing.Unlock()
	c.warn()
	c.release()
	return false
}

// resume lets a replay go on that waits after the group was closed, if nobody comes for it: the
// group had failed, or a replay was let go before. It reports whether one waits.
func (c *graphs) resume() bool {
	c.using.Lock()
	cut := c.cut
	c.using.Unlock()
	failure := c.g.Failure()
	if !cut && (failure == nil || failure.Code == fault.Closed) || !c.waiting() {
		return false
	}
	c.g.ending.storing.Lock()
	defer c.g.ending.storing.Unlock()
	c.release()
	return true
}

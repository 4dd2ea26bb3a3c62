package group

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/record"
)

// Options configures a Group.
type Options struct {
	Name    string       // of the group, for errors
	Comm    *exec.Comm   // of the group alone; the Group closes it
	Planner exec.Planner // chooses as that of Comm does; used by this Group alone
	Context cuda.Context // which the Group releases
	Thread  *Thread
	Staging int          // bytes of host memory for collectives; as many for messages
	Record  *record.Ring // of calls; nil to record nothing. Comm must not write it

	// WindowPlanner chooses among plans that read windows, for calls that all ranks make over
	// windows (Sharing), and is used by this Group alone; nil for none, on all ranks.
	WindowPlanner exec.Planner
	Sharing       Sharing
	Graphs        int     // how many CUDA graphs can have calls of the group
	Window        *Window // of this rank; without one, all ranks stage. New takes it over, even if it fails
	Interpret     route.Interpret
	Route         string // route.Auto, or that which all ranks are to take; alike on all
	Why           string // why there is no WindowPlanner, for Group.Route

	// Alloc returns whole pages to which the device has access, and what gives them back. Peers on
	// this host should be able to read them in place.
	Alloc func(bytes int, device mem.Pinner) (memory []byte, free func() error, err error)
}

// Collectives have collSlots slots, and each peer has messageSlots in both directions, of
// leastMessage to mostMessage bytes.
const (
	collSlots    = 4
	messageSlots = 2
	leastMessage = 64 << 10
	mostMessage  = 1 << 20

	pageBytes = 4096

	// LeastStaging is the least memory for collectives.
	LeastStaging = collSlots * 64 << 10
)

// Group is one rank of a device group. Any goroutine may call its methods; the order of the calls
// must be the same on every rank.
type Group struct {
	opts Options
	comm *exec.Comm
	ctx  cuda.Context
	rank int
	size int
	// Of collectives; of sends to each rank; of receives from each rank; of receives from any; of
	// messages of programs.
	pipelines []*pipeline
	inUse     atomic.Pointer[[]*pipeline] // those that have had calls
	to, from  []*pipeline                 // the last of these, by rank; nil for ranks that have none (rails)
	windows   *windows                    // nil for none
	route     route.Route
	memory    cuda.Registered
	free      func() error  // gives memory back; nil before it was allocated
	hold      int           // offset of a word for tries (queues.go), and
	come      int           // of another
	tries     uint64        // so far
	crowded   bool          // streams that wait hold up the default stream
	busy      bool          // the device has too much to do for tries
	caller    cuda.Event    // where the caller's stream was at the last call
	watch     cuda.Observer // nil for none

	adopting sync.Mutex
	callers  map[uintptr]cuda.Stream // streams of callers, by handle

	leaving  atomic.Bool // Close was called, and may wait for Enqueue
	mu       sync.Mutex  // held by Enqueue, which so decides the order
	closed   bool
	batch    batch // guarded by mu
	splits   map[split]int
	colls    atomic.Uint64
	messages atomic.Uint64
	exposed  atomic.Uint64

	pool sync.Mutex // not mu: the device thread must not wait for a caller whose stream is full
	ops  []*Op      // all that were ever made
	idle []*Op      // those of them that nobody holds

	queries  queries
	watching sync.Mutex
	watched  []watched // that the queries do not know of yet

	receives atomic.Int32 // that have not ended
	others   atomic.Int32 // calls that have not ended, but for receives
	failure  atomic.Pointer[fault.Error]
	storing  sync.Mutex // of words
	released bool
	using    sync.RWMutex // held for writing while streams and events are given back
	drained  bool         // they are
}

// New makes a Group. It allocates and registers the memory, and so may wait for streams of the
// process.
func New(opts Options) (*Group, error) {
	g := &Group{opts: opts, comm: opts.Comm, ctx: opts.Context, rank: opts.Comm.Rank(), size: opts.Comm.Size(),
		splits: map[split]int{}, callers: map[uintptr]cuda.Stream{}}
	g.queries.init(g)
	g.watch, _ = opts.Context.(cuda.Observer)
	g.route = route.Route{Name: route.Staged, Why: opts.Why}
	err := Check(g.ctx.Info())
	if err == nil {
		err = g.ctx.Enter(false)
	}
	if err != nil {
		if opts.Window != nil {
			opts.Window.Free()
		}
		return nil, err
	}
	defer g.ctx.Leave()
	err = g.open()
	switch {
	case err == nil && opts.WindowPlanner != nil:
		g.windows, err = openWindows(g)
	case opts.Window != nil:
		opts.Window.Free()
	}
	if err != nil {
		g.giveBack()
		return nil, err
	}
	opts.Thread.add(g)
	return g, nil
}

// Check returns an error that says what a device lacks that a Group needs, or nil.
func Check(info cuda.Info) error {
	lacking := ""
	switch {
	case !info.Words:
		lacking = "its streams cannot wait for memory (stream memory operations of 64 bits)"
	case !info.Registers:
		lacking = "memory of the host cannot be registered"
	default:
		return nil
	}
	return fault.New(fault.NotSupported, "device %d (%s): %s", info.Index, info.Name, lacking)
}

// open makes the pipelines and their memory.
func (g *Group) open() (err error) {
	collSlot := g.opts.Staging / collSlots &^ (pageBytes - 1)
	message := g.opts.Staging / max(1, 2*messageSlots*g.size) &^ (pageBytes - 1)
	message = max(leastMessage, min(message, mostMessage))
	at := 0
	add := func(count, bytes int, toHost, toDevice bool) *pipeline {
		p := &pipeline{g: g, there: at, done: at + wordBytes, slots: make([]slot, count), bytes: bytes,
			toHost: direction{used: toHost}, toDevice: direction{used: toDevice}, flights: make([]flight, count+1)}
		at += 2 * wordBytes
		g.pipelines = append(g.pipelines, p)
		return p
	}
	add(collSlots, collSlot, true, true)
	for range g.size {
		add(messageSlots, message, true, false)
	}
	for range g.size + 1 {
		add(messageSlots, message, false, true)
	}
	if g.opts.WindowPlanner != nil && route.Unfit(g.opts.Sharing.On) == "" {
		g.to, g.from = make([]*pipeline, g.size), make([]*pipeline, g.size)
		rail := max(message, railSlot(slotOf(g.opts.Staging)))
		for _, peer := range g.opts.Sharing.On.Rails(g.rank) {
			g.to[peer] = add(messageSlots, rail, true, false)
			g.from[peer] = add(messageSlots, rail, false, true)
		}
	}
	g.hold, g.come = at, at+wordBytes
	words := at + 2*wordBytes
	at = (words + pageBytes - 1) &^ (pageBytes - 1)
	for _, p := range g.pipelines {
		for i := range p.slots {
			p.slots[i].at = at
			at += p.bytes
		}
	}
	memory, free, err := g.opts.Alloc(at, (*pinner)(g))
	if err != nil {
		return err
	}
	g.free = free
	clear(memory[:words])
	if g.caller, err = g.ctx.NewEvent(); err != nil {
		return err
	}
	return g.pipelines[0].open()
}

// used returns the pipelines that have had calls, and that of collectives.
func (g *Group) used() []*pipeline {
	if used := g.inUse.Load(); used != nil {
		return *used
	}
	return nil
}

// giveBack undoes open, as far as it came.
func (g *Group) giveBack() {
	for _, p := range g.pipelines {
		p.close()
	}
	for _, o := range g.ops {
		o.end.Destroy()
	}
	if g.caller != nil {
		g.caller.Destroy()
	}
	if g.free != nil && g.tried() { // or it stays allocated
		g.free()
	}
}

// pinner registers the memory of a Group.
type pinner Group

func (g *pinner) Pin(memory []byte) (err error) {
	g.memory, err = g.ctx.Register(memory)
	return err
}

func (g *pinner) Unpin([]byte) error { return g.memory.Free() }

// Rank returns this rank's number in the group.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks of the group.
func (g *Group) Size() int { return g.size }

// Route says how the group moves its collectives, and why. Barriers and messages are staged, and on
// several hosts all collectives but all_reduce, all_gather and reduce_scatter.
func (g *Group) Route() route.Route { return g.route }

// Context returns the context of the device.
func (g *Group) Context() cuda.Context { return g.ctx }

// Enqueue puts a call behind what is in the caller's stream. The addresses of its blocks are the
// device's. It returns before anything has been done; the memory must stay valid until the Op has
// ended, or until what has joined it has. If the stream is in capture, the call becomes part of the
// graph, and its memory must stay valid until the last replay has ended; then Enqueue returns when
// all ranks have made the call.
//
// Messages with a Call.Batch are held back until EndBatch, another call, or Join or Wait of one of
// them.
func (g *Group) Enqueue(call *exec.Call, on cuda.Stream) (*Op, error) {
	if err := call.Check(g.rank, g.size); err != nil {
		return nil, err
	}
	if _, err := call.Overlap(g.rank); err != nil {
		return nil, err
	}
	if !call.Coll.Valid() && call.Tag&ownTag != 0 {
		return nil, fault.New(fault.Invalid, "%v: tags of a device group are below %d", call, ownTag)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.failure.Load(); f != nil {
		return nil, g.ended(call, f)
	}
	if g.closed {
		return nil, fault.New(fault.Closed, "%s: the device group is closed", g.label())
	}
	way, err := g.wayOf(call)
	if err != nil {
		return nil, err
	}
	if err := g.ctx.Enter(false); err != nil {
		return nil, g.refused(call, err)
	}
	defer g.ctx.Leave()
	if !g.batch.takes(call) {
		if err := g.endBatch(); err != nil {
			return nil, faultOf(err).In(g.label(), call.String())
		}
	}
	id, err := on.Capture()
	if err != nil {
		return nil, g.refused(call, err)
	}
	if id != 0 {
		return g.capture(call, way, on, id)
	}
	if way.pipeline != nil {
		if err := way.pipeline.open(); err != nil {
			return nil, g.refused(call, err)
		}
	}
	o, err := g.take(call, way.cut)
	if err != nil {
		return nil, g.refused(call, err)
	}
	o.note(call)
	g.windows.announce(o)
	g.unended(o).Add(1)
	way.hand(o) // before its pieces: a call of more than a stream can hold goes on while it is enqueued
	g.opts.Thread.bell.Ring()
	if err = way.enqueue(o, on); err != nil { // the streams have a part of the call
		f := g.fail(err)
		way.abandon(o, on)
		o.letGo()
		return nil, g.ended(call, f)
	}
	return o, nil
}

// capture makes a call part of the graph that the caller's stream captures.
func (g *Group) capture(call *exec.Call, way way, on cuda.Stream, id uint64) (*Op, error) {
	if way.windows != nil && way.windows.rails.has(way.low) {
		return nil, fault.New(fault.NotSupported, "%v in a stream that is in capture: the ranks are on %d hosts, and what "+
			"the processor moves between them cannot be part of a CUDA graph. Make the call outside of the graph", call.Coll,
			len(g.opts.Sharing.On.Hosts()))
	}
	if way.windows == nil || way.windows.graphs == nil {
		return nil, fault.New(fault.NotSupported, "%v in a stream that is in capture: only collectives over windows "+
			"can be part of a CUDA graph, up to GOCCL_CUDA_GRAPHS=%d; the route of this group is %v. Make other calls "+
			"outside of the graph", call.Coll, g.opts.Graphs, g.route)
	}
	pieces, err := way.windows.graphs.prepare(call, way.low, on, id)
	if err != nil {
		return nil, g.refused(call, err)
	}
	o, err := g.take(call, cut{pieces: pieces})
	if err != nil { // the others capture the call
		return nil, g.ended(call, g.fail(err))
	}
	o.captured = true
	o.note(call)
	g.windows.announce(o)
	g.unended(o).Add(1)
	if err := way.windows.graphs.capture(o, way.low, on, pieces); err != nil {
		f := g.fail(err)
		o.finish(f)
		o.letGo()
		return nil, g.ended(call, f)
	}
	o.finish(nil)
	g.opts.Thread.bell.Ring() // the thread compares what the ranks have called
	return o, nil
}

// way is how a call is moved: through a pipeline, or over windows by a plan.
type way struct {
	pipeline *pipeline
	cut      cut
	windows  *windows
	low      *program.Lowered
}

// wayOf chooses the way of a call. All ranks choose alike.
func (g *Group) wayOf(call *exec.Call) (way, error) {
	if low, err := g.windows.lowered(call); low != nil || err != nil {
		return way{windows: g.windows, low: low}, err
	}
	p := g.pipelineOf(call)
	c, err := g.cut(call, p)
	return way{pipeline: p, cut: c}, err
}

func (w *way) hand(o *Op) {
	if w.windows != nil {
		w.windows.hand(o)
	} else {
		w.pipeline.hand(o)
	}
}

func (w *way) enqueue(o *Op, on cuda.Stream) error {
	if w.windows != nil {
		return w.windows.enqueue(o, w.low, on)
	}
	return w.pipeline.enqueue(o, on)
}

// abandon makes the caller's stream wait for what has been enqueued of a call before an error, as
// far as the driver still does anything. The memory of the call is safe from then on.
func (w *way) abandon(o *Op, on cuda.Stream) {
	if w.windows == nil {
		w.pipeline.abandon(o, on)
	} else if w.windows.follow(w.windows.stream, w.windows.ahead) == nil && w.windows.rails.join() == nil &&
		o.end.Record(w.windows.stream) == nil {
		on.Wait(o.end)
	}
}

// refused returns the error of a call before which the driver has refused something. A device that
// is lost ends the group.
func (g *Group) refused(call *exec.Call, err error) error {
	if cuda.Lost(err) {
		err = g.fail(err)
	}
	return faultOf(err).In(g.label(), call.String())
}

// pipelineOf returns the pipeline of a call.
func (g *Group) pipelineOf(call *exec.Call) *pipeline {
	switch {
	case call.Coll == dtype.Send:
		return g.pipelines[1+call.Root]
	case call.Coll == dtype.Recv && call.Root < 0:
		return g.pipelines[1+2*g.size]
	case call.Coll == dtype.Recv:
		return g.pipelines[1+g.size+call.Root]
	}
	return g.pipelines[0]
}

// split identifies a choice of the planner.
type split struct {
	coll      dtype.Collective
	algorithm int
}

// cut cuts a call into pieces.
func (g *Group) cut(call *exec.Call, p *pipeline) (cut, error) {
	chunks := 1
	if call.Coll.Reduces() {
		key := split{call.Coll, g.opts.Planner.Choose(call.Coll, call.Bytes())}
		if g.splits[key] == 0 {
			spec := plan.Spec{Coll: call.Coll, Ranks: g.size}
			if call.Coll.Rooted() {
				spec.Root = call.Root
			}
			p, err := g.opts.Planner.Make(key.algorithm, spec)
			if err != nil {
				return cut{}, fault.Wrap(fault.Internal, err, "no plan for %v", call.Coll)
			}
			g.splits[key] = p.Split
		}
		chunks = g.splits[key]
	}
	return newCut(call, g.size, chunks, p.bytes)
}

// take returns an Op for a call.
func (g *Group) take(call *exec.Call, c cut) (*Op, error) {
	o, err := g.prepare(call, c)
	if err != nil {
		return nil, err
	}
	if call.Coll.Valid() {
		o.seq = g.colls.Add(1)
	} else {
		o.seq = g.messages.Add(1)
	}
	o.deadline = time.Time{}
	if timeout := o.timeout(); timeout > 0 {
		o.deadline = time.Now().Add(timeout)
	}
	return o, nil
}

// nested returns an Op for a message of a call.
func (g *Group) nested(of *Op, call *exec.Call, c cut) (*Op, error) {
	o, err := g.prepare(call, c)
	if err != nil {
		return nil, err
	}
	o.of, o.seq, o.deadline = of, of.seq, time.Time{}
	of.holders.Add(1)
	of.messages.Add(1)
	return o, nil
}

// prepare returns an Op that nobody holds, for a call.
func (g *Group) prepare(call *exec.Call, c cut) (*Op, error) {
	o := g.unused()
	if o == nil {
		end, err := g.ctx.NewEvent()
		if err != nil {
			return nil, err
		}
		o = &Op{g: g, end: end}
		g.pool.Lock()
		g.ops = append(g.ops, o)
		g.pool.Unlock()
	}
	o.in, o.out = append(o.in[:0], call.In...), append(o.out[:0], call.Out...)
	o.call, o.cut = *call, c
	o.call.In, o.call.Out = o.in, o.out
	o.posted, o.ended, o.pieces, o.next, o.err, o.captured = 0, 0, c.pieces, nil, nil, false
	if c.agree {
		o.pieces = -1
	}
	o.of = nil
	o.messages.Store(0)
	o.joined.Store(false)
	o.source.Store(-1)
	o.state.Store(opPending)
	o.holders.Store(2)
	return o, nil
}

// unused returns an Op that nobody holds, or nil.
func (g *Group) unused() (o *Op) {
	g.pool.Lock()
	defer g.pool.Unlock()
	if n := len(g.idle); n > 0 {
		o, g.idle = g.idle[n-1], g.idle[:n-1]
	}
	return o
}

// keep takes back an Op that nobody holds any more.
func (g *Group) keep(o *Op) {
	clear(o.in)
	clear(o.out)
	o.call = exec.Call{}
	g.pool.Lock()
	defer g.pool.Unlock()
	g.idle = append(g.idle, o)
}

// unended returns the counter of calls like this one that have not ended.
func (g *Group) unended(o *Op) *atomic.Int32 {
	if o.call.Coll == dtype.Recv {
		return &g.receives
	}
	return &g.others
}

// Pending returns how many calls the processor has not finished yet: receives, and others.
func (g *Group) Pending() (receives, others int) { return int(g.receives.Load()), int(g.others.Load()) }

// Counts returns how many collectives and how many messages were enqueued so far.
func (g *Group) Counts() (collectives, messages uint64) {
	return g.colls.Load(), g.messages.Load()
}

// Exposed returns in how many collectives this rank has lent tensors in its Arena to its peers.
func (g *Group) Exposed() uint64 { return g.exposed.Load() }

func (g *Group) label() string { return fault.Label(g.opts.Name, g.rank, g.size) }

package group

import (
	"sync"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
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
	// windows (Peers), and is used by this Group alone; nil for none, on all ranks.
	WindowPlanner exec.Planner
	Peers         Peers
	Graphs        int           // how many CUDA graphs can have calls of the group
	Window        *share.Window // of this rank; without one, all ranks stage. New takes it over, even if it fails
	Interpret     route.Interpret
	Route         string // route.Auto, or that which all ranks are to take; alike on all
	Why           string // why there is no WindowPlanner, for Group.Route

	// Alloc returns whole pages to which the device has access, and what gives them back. Peers on
	// this host should be able to read them in place.
	Alloc func(bytes int, device mem.Pinner) (memory []byte, free func() error, err error)
}

// Group is one rank of a device group. Any goroutine may call its methods; the order of the calls
// must be the same on every rank.
type Group struct {
	opts       Options
	comm       *exec.Comm
	ctx        cuda.Context
	rank, size int
	route      route.Route
	ways       []way // of which a call goes the first that it suits
	staged     *staged
	shared     *shared
	callers    callers
	queues     queues
	mu         sync.Mutex // held by Enqueue, which so decides the order
	ops        ops
	queries    queries
	ending     ending
}

// New makes a Group. It allocates and registers the memory, and so may wait for streams of the
// process.
func New(opts Options) (*Group, error) {
	g := &Group{opts: opts, comm: opts.Comm, ctx: opts.Context, rank: opts.Comm.Rank(), size: opts.Comm.Size(),
		callers: callers{known: map[uintptr]cuda.Stream{}}}
	g.queries.init(g)
	g.queues.g = g
	g.staged = newStaged(g)
	g.ways, g.shared = []way{g.staged}, &shared{g: g}
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
	err = g.staged.open()
	switch {
	case err == nil && opts.WindowPlanner != nil:
		err = setUp(g)
	case opts.Window != nil:
		opts.Window.Free()
	}
	if err != nil {
		g.free()
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

// Rank returns this rank's number in the group.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks of the group.
func (g *Group) Size() int { return g.size }

// Route says how the group moves its collectives, and why. Barriers and messages are staged, and on
// several hosts all collectives but all_reduce, all_gather and reduce_scatter.
func (g *Group) Route() route.Route { return g.route }

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
	if f := g.Failure(); f != nil {
		return nil, g.ended(call, f)
	}
	if g.ending.closed {
		return nil, fault.New(fault.Closed, "%s: the device group is closed", g.label())
	}
	if err := g.ctx.Enter(false); err != nil {
		return nil, g.refused(call, err)
	}
	defer g.ctx.Leave()
	capture, err := on.Capture()
	if err != nil {
		return nil, g.refused(call, err)
	}
	o, err := g.prepared(call)
	if err != nil {
		if capture != 0 { // the others wait for this rank
			return nil, g.ended(call, g.fail(err))
		}
		return nil, g.refused(call, err)
	}
	o.capture = capture
	w, err := g.ready(o, on)
	if err != nil {
		o.drop()
		o.drop()
		return nil, err
	}
	g.number(o)
	o.note()
	for _, each := range g.ways {
		each.announce(o)
	}
	g.ops.unended(o).Add(1)
	w.hand(o) // before its pieces: a call of more than a stream can hold goes on while it is enqueued
	g.opts.Thread.bell.Ring()
	if err := w.enqueue(o, on); err != nil { // the streams have a part of the call
		f := g.fail(err)
		w.abandon(o, on)
		o.drop()
		return nil, g.ended(call, f)
	}
	return o, nil
}

// ready returns the way of a call that has no number yet, and makes what it needs there.
func (g *Group) ready(o *Op, on cuda.Stream) (way, error) {
	w, err := g.wayOf(o)
	if err != nil {
		return nil, err
	}
	if !g.staged.batch.takes(&o.call) {
		if err := g.endBatch(); err != nil {
			return nil, faultOf(err).In(g.label(), o.call.String())
		}
	}
	if err := w.prepare(o, on); err != nil {
		return nil, g.refused(&o.call, err)
	}
	return w, nil
}

// wayOf returns the first way that a call suits. All ranks choose alike.
func (g *Group) wayOf(o *Op) (way, error) {
	for _, w := range g.ways {
		if suits, err := w.suits(o); suits || err != nil {
			return w, err
		}
	}
	coll := o.call.Coll
	if o.low != nil && g.route.Hosts > 1 {
		return nil, fault.New(fault.NotSupported, "%v in a stream that is in capture: the ranks are on %d hosts, and what "+
			"the processor moves between them cannot be part of a CUDA graph. Make the call outside of the graph", coll,
			g.route.Hosts)
	}
	return nil, fault.New(fault.NotSupported, "%v in a stream that is in capture: only collectives over windows "+
		"can be part of a CUDA graph, up to GOCCL_CUDA_GRAPHS=%d; the route of this group is %v. Make other calls "+
		"outside of the graph", coll, g.opts.Graphs, g.route)
}

// refused returns the error of a call before which the driver has refused something. A device that
// is lost ends the group.
func (g *Group) refused(call *exec.Call, err error) error {
	if cuda.Lost(err) {
		err = g.fail(err)
	}
	return faultOf(err).In(g.label(), call.String())
}

func (g *Group) label() string { return fault.Label(g.opts.Name, g.rank, g.size) }

// mostCallers bounds how many streams of callers a Group remembers.
const mostCallers = 256

// callers are the streams of the callers of a Group.
type callers struct {
	mu    sync.Mutex
	known map[uintptr]cuda.Stream // by handle
	at    cuda.Event              // where the caller's stream was at the last call
}

// Stream returns the caller's stream with a handle of the driver; 0 is the default stream. It
// allocates nothing for streams that were asked for before.
func (g *Group) Stream(native uintptr) cuda.Stream {
	c := &g.callers
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.known[native]; s != nil {
		return s
	}
	if len(c.known) >= mostCallers {
		clear(c.known)
	}
	s := g.ctx.Adopt(native)
	c.known[native] = s
	return s
}

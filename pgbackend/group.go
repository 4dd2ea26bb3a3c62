package pgbackend

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// Config is what torch knows about a group.
type Config struct {
	Name    string
	Rank    int
	Size    int           // 0: the group has no members until Become, ShrinkFrom or GrowFrom
	Timeout time.Duration // of joining and of operations; more than zero
	Options string        // the text form of ccl.Options
	Shim    string        // the shim's version
	Device  string        // where the tensors are: "cuda:0", or "" for the memory of the host
}

// Group is one rank of a torch process group. It is opened, joined and closed; Become gives it
// other members, any number of times. It holds all known state of the group; the shim keeps none
// and queries it here.
type Group struct {
	name      string
	timeout   time.Duration
	opened    time.Time                        // the timeout of joining counts from here
	comm      atomic.Pointer[ccl.Communicator] // nil before Join and after Close
	about     atomic.Pointer[about]
	options   kept
	place     *place                 // of the tensors; nil for the host
	file      atomic.Pointer[string] // where records are left
	draining  atomic.Pointer[still]  // what the last Drain has seen
	monitored atomic.Uint64          // monitored barriers of this generation so far
	sparse    atomic.Int32           // Sparses that have not ended
	summed    chan struct{}          // has an element after a Sparse has ended

	mu         sync.Mutex
	rank, size int           // size is 0 while the group has no members
	members    []int         // after ShrinkFrom
	endpoint   *ccl.Endpoint // of the first generation; nil if it began without members
	coming     *coming       // of a newcomer; nil for others
	device     device
	joining    func(why *fault.Error) // ends Join, ShrinkFrom, GrowFrom or Come; nil unless one runs, and after that
	state      State
}

// State describes how far a Group has come.
type State struct {
	Seq        uint64 // collectives called in this generation; kept after Close
	Generation uint64 // how many times Become has replaced the members
	Joined     bool
	Closed     bool
	Rank, Size int // 0 while the group has no members
}

// Open checks the configuration and makes a group that has not joined yet.
func Open(cfg Config) (*Group, error) {
	g, err := open(cfg)
	if f := (&fault.Error{}); errors.As(err, &f) {
		return nil, f.In(fault.Label(cfg.Name, cfg.Rank, cfg.Size), "open")
	}
	return g, err
}

func open(cfg Config) (*Group, error) {
	opts, err := ccl.ParseOptions(cfg.Options)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout <= 0 {
		return nil, fault.New(fault.Invalid, "timeout %v is not longer than zero", cfg.Timeout)
	}
	where, err := placeOf(cfg.Device)
	if err != nil {
		return nil, err
	}
	opts.RecordFile = "" // whoever calls RecordTo has it, and writes the files of failures
	n, err := node(opts.NodeOptions)
	if err != nil {
		return nil, err
	}
	timeout := cfg.Timeout
	if opts.Timeout > 0 && cfg.Size > 0 {
		timeout = opts.Timeout
	}
	g := empty(cfg.Name, timeout, keptOf(opts), where)
	if cfg.Size == 0 {
		return g, nil
	}
	config := ccl.Config{Name: cfg.Name, Rank: cfg.Rank, Size: cfg.Size,
		Timeout: cfg.Timeout, Options: opts.GroupOptions, Node: &opts.NodeOptions,
		Client: cfg.Shim, Device: where != nil}
	if where != nil {
		if g.device, err = where.retain(n, &opts, cfg.Size); err != nil {
			return nil, err
		}
		config.Bus = g.device.context.Info().Bus
		if g.device.window != nil {
			config.Share = g.device.window.Descriptors()
		}
	}
	endpoint, err := n.Open(config)
	if err != nil {
		return nil, errors.Join(err, g.taken().release())
	}
	g.rank, g.size, g.endpoint = cfg.Rank, cfg.Size, endpoint
	return g, nil
}

func empty(name string, timeout time.Duration, options kept, where *place) *Group {
	return &Group{name: name, timeout: timeout, opened: time.Now(), options: options, place: where,
		summed: make(chan struct{}, 1)}
}

// Empty returns a group with the name, the options and the device of this one, and without members.
func (g *Group) Empty(timeout time.Duration) *Group {
	return empty(g.name, timeout, g.options, g.place)
}

// Address returns the address that the other ranks need of this rank before they join. It is empty
// while the group has no members.
func (g *Group) Address() []byte {
	if g.endpoint == nil {
		return nil
	}
	return g.endpoint.Address()
}

// Join connects to the other ranks within the group's timeout, which counts from Open on: one
// deadline covers the store and the connecting. addresses is indexed by rank. Abort and Close end
// it.
func (g *Group) Join(addresses [][]byte) error {
	if g.endpoint == nil {
		return g.absent("join")
	}
	by := g.opened.Add(g.timeout)
	return g.enter("join", g.member(), by, func(ctx context.Context) (*ccl.Communicator, []int, error) {
		comm, err := g.endpoint.Join(ctx, addresses)
		return comm, nil, err
	})
}

// ShrinkFrom gives the group, which has no members yet, those ranks of another group that are left:
// all but those listed, and those that have died, if they are a quorum. See
// ccl.Communicator.ShrinkWith. Abort and Close end it.
func (g *Group) ShrinkFrom(from *Group, quorum ccl.Quorum, without []int) error {
	comm := from.comm.Load()
	if comm == nil {
		return from.absent("shrink")
	}
	by := time.Now().Add(g.timeout)
	return g.enter("shrink", from.member(), by, func(ctx context.Context) (*ccl.Communicator, []int, error) {
		next, members, err := comm.ShrinkWith(ctx, quorum, without...)
		if err == nil {
			next.SetTimeout(g.timeout)
		}
		return next, members, err
	})
}

// Members returns the ranks that the members had in the group of ShrinkFrom.
func (g *Group) Members() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members
}

// enter makes the Communicator of a group before a deadline; there may be none. Abort and Close end
// it, with an error that names the operation and the member.
func (g *Group) enter(op, member string, by time.Time,
	build func(context.Context) (*ccl.Communicator, []int, error)) error {
	limited, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	ctx, end := context.WithCancelCause(limited)
	defer end(nil)
	g.mu.Lock()
	if g.joining != nil || g.state.Joined || g.state.Closed {
		g.mu.Unlock()
		return fault.New(fault.Invalid, "the group is joining or has joined already, or was closed").In(member, op)
	}
	g.joining = func(why *fault.Error) { end(why.In(member, op)) }
	g.mu.Unlock()
	comm, members, err := build(ctx)
	if err == nil && comm != nil && g.place != nil {
		stop := context.AfterFunc(ctx, func() { comm.Abort(context.Cause(ctx).Error()) }) // it waits for the others
		err = g.onDevice(comm)
		stop()
	}
	g.mu.Lock()
	if g.joining == nil {
		g.mu.Unlock()
		g.taken().release()
		if err == nil && comm != nil {
			comm.Close()
		}
		return context.Cause(ctx)
	}
	defer g.mu.Unlock()
	g.joining = nil
	if err != nil || comm == nil {
		return err
	}
	g.state.Joined = true
	g.rank, g.size, g.members = comm.Rank(), comm.Size(), members
	g.comm.Store(comm)
	g.tell(comm)
	return nil
}

// Become gives the group the members of next, which has joined and must not be used afterwards. The
// operations of the former members fail.
func (g *Group) Become(next *Group) error {
	next.mu.Lock()
	comm, rank, size := next.comm.Swap(nil), next.rank, next.size
	next.state.Joined, next.state.Closed = false, true
	next.mu.Unlock()
	if comm == nil {
		return fault.New(fault.Invalid, "the new members have not joined yet")
	}
	if g.Device() != next.Device() {
		comm.Close()
		return fault.New(fault.Invalid, "the group has its tensors on %s, and the new members theirs on %s",
			orHost(g.place), orHost(next.place)).In(g.member(), "reconfigure")
	}
	g.mu.Lock()
	if g.state.Closed {
		g.mu.Unlock()
		comm.Close()
		return g.absent("reconfigure")
	}
	defer g.mu.Unlock()
	g.rank, g.size = rank, size
	g.state.Joined = true
	g.state.Generation++
	g.monitored.Store(0)
	former := g.comm.Swap(comm)
	g.tell(comm)
	if former != nil {
		return former.Close()
	}
	return nil
}

// State returns the current state of the group.
func (g *Group) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := g.state
	state.Rank, state.Size = g.rank, g.size
	if comm := g.comm.Load(); comm != nil {
		state.Seq = comm.Seq()
	}
	return state
}

// member names the group and this rank in messages.
func (g *Group) member() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fault.Label(g.name, g.rank, g.size)
}

func (g *Group) joined() (*ccl.Communicator, error) {
	if comm := g.comm.Load(); comm != nil {
		return comm, nil
	}
	return nil, g.absent("")
}

// absent returns the error that explains why the group cannot run an operation.
func (g *Group) absent(op string) error {
	state, member := g.State(), g.member()
	g.mu.Lock()
	vacant := g.size == 0
	g.mu.Unlock()
	switch {
	case state.Closed:
		return fault.New(fault.Closed,
			"the process group was shut down (destroy_process_group) after seq %d and cannot be used any more",
			state.Seq).In(member, op)
	case vacant:
		return fault.New(fault.Closed,
			"the process group was made with enable_reconfigure=True and has no members yet; call reconfigure first").
			In(member, op)
	}
	return fault.New(fault.Invalid, "the group has not joined yet").In(member, op)
}

// Run runs an operation on the calling thread.
func (g *Group) Run(call *ccl.Call) error {
	_, err := g.RunSlice(call, 0)
	return err
}

// RunSlice is Run, but for about d at most unless d is 0: it then returns the operation, which goes
// on.
func (g *Group) RunSlice(call *ccl.Call, d time.Duration) (*ccl.Work, error) {
	if g.place != nil {
		return nil, g.elsewhere(title(call))
	}
	comm := g.comm.Load()
	if comm == nil {
		return nil, g.absent(title(call))
	}
	return comm.DoSlice(call, d)
}

// Start starts an operation.
func (g *Group) Start(call *ccl.Call) (*ccl.Work, error) {
	if g.place != nil {
		return nil, g.elsewhere(title(call))
	}
	comm := g.comm.Load()
	if comm == nil {
		return nil, g.absent(title(call))
	}
	return comm.Start(call)
}

// StartKeyed is Start for a collective that is matched by its key. See ccl.Communicator.StartKeyed.
func (g *Group) StartKeyed(call *ccl.Call, key ccl.Key) (*ccl.Work, error) {
	comm, err := g.forKeyed(call)
	if err != nil {
		return nil, err
	}
	return comm.StartKeyed(call, key)
}

// RunKeyedSlice is StartKeyed as RunSlice is Start.
func (g *Group) RunKeyedSlice(call *ccl.Call, key ccl.Key, d time.Duration) (*ccl.Work, error) {
	comm, err := g.forKeyed(call)
	if err != nil {
		return nil, err
	}
	return comm.DoKeyedSlice(call, key, d)
}

func (g *Group) forKeyed(call *ccl.Call) (*ccl.Communicator, error) {
	if g.place != nil {
		return nil, g.elsewhere(title(call))
	}
	if comm := g.comm.Load(); comm != nil {
		return comm, nil
	}
	return nil, g.absent(title(call))
}

// title describes a call, valid or not, in messages.
func title(call *ccl.Call) string {
	if call.Coll.Valid() {
		return call.String()
	}
	return call.Coll.String()
}

// SetTimeout changes the timeout of later operations.
func (g *Group) SetTimeout(d time.Duration) error {
	if d <= 0 {
		return fault.New(fault.Invalid, "timeout %v is not longer than zero", d).In(g.member(), "set_timeout")
	}
	comm, err := g.joined()
	if err != nil {
		return err
	}
	comm.SetTimeout(d)
	return nil
}

// Abort ends all operations of the group.
func (g *Group) Abort(reason string) error {
	g.mu.Lock()
	joining := g.endJoin(fault.New(fault.Aborted, "%s", reason))
	g.mu.Unlock()
	if joining {
		return nil
	}
	comm, err := g.joined()
	if err != nil {
		return err
	}
	comm.Abort(reason)
	return nil
}

// Lost returns the ranks of the group that are known to have died, or cannot be reached any more;
// see ccl.Communicator.Lost. It returns none before Join and after Close.
func (g *Group) Lost() []*fault.Error {
	if comm := g.comm.Load(); comm != nil {
		return comm.Lost()
	}
	return nil
}

// Locate returns the IP addresses at which this process may reach that of a rank, nearest first.
func (g *Group) Locate(rank int) ([]netip.Addr, error) {
	comm, err := g.joined()
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= comm.Size() {
		return nil, fault.New(fault.Invalid, "rank %d of a group of %d", rank, comm.Size()).In(g.member(), "locate")
	}
	return comm.Locate(rank), nil
}

// endJoin makes Join, ShrinkFrom, GrowFrom or Come return an error, and reports whether one was
// running. The caller holds mu.
func (g *Group) endJoin(err *fault.Error) bool {
	end := g.joining
	if end == nil {
		return false
	}
	g.joining = nil
	end(err)
	return true
}

// still is since when no operation has ended while a group is drained.
type still struct {
	ended uint64
	since time.Time
}

// patience is how long Drain waits for receives, because their senders may never send: it is meant
// for ranks that leave at the same time, not for peers that still have to compute their messages.
// Drain waits for all other operations until patience after the group's timeout; by then they have
// ended at their own timeouts and reported an error. Both count from the last end of an operation.
const patience = time.Second

// doubt is after how long Drain asks whether those that it waits for are there.
const doubt = 200 * time.Millisecond

// Drain lets the operations in flight end before the group is closed, on this rank and so on its
// peers: collectives and sends within the group's timeout, receives within a second. It gives up
// what waits for a process that is stopped, or a host that is silent. One call waits for at most d.
// It returns true when there is nothing more to wait for; otherwise call it again.
func (g *Group) Drain(d time.Duration) bool {
	comm := g.comm.Load()
	if comm == nil {
		return true
	}
	last, ended := g.draining.Load(), comm.Ended()
	if last == nil || last.ended != ended {
		last = &still{ended, time.Now()}
		g.draining.Store(last)
	}
	so := time.Since(last.since)
	left := comm.Timeout() + patience - so
	drained := comm.Drain(min(d, left), patience-so, doubt-so)
	if drained && g.sparse.Load() > 0 { // it adds up between its phases, or is about to end
		select {
		case <-g.summed:
		case <-time.After(min(d, left)):
		}
		drained = false
	}
	return drained || left <= d
}

// Close leaves the group. Operations in flight fail, and so do later calls, with an error that says
// that the group was closed. Closing it again has no effect.
func (g *Group) Close() error {
	g.mu.Lock()
	joining := g.endJoin(fault.New(fault.Closed, "the process group was shut down"))
	comm := g.comm.Swap(nil)
	g.state.Joined, g.state.Closed = false, true
	if comm != nil {
		g.state.Seq = comm.Seq()
	}
	g.mu.Unlock()
	if comm == nil && joining {
		return nil // Join gives the device back, when it does not use it any more
	}
	if comm == nil {
		return g.taken().release()
	}
	return comm.Close()
}

// blockOf returns Go memory as the one block of a call. The operation keeps the memory alive for as
// long as it needs it.
func blockOf(data []byte) []ccl.Block {
	return []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(data)), Count: len(data)}}
}

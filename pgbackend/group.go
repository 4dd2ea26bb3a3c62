package pgbackend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// Config is what torch knows of a group.
type Config struct {
	Name    string
	Rank    int
	Size    int           // 0: the group has no members until Become
	Timeout time.Duration // of joining and of operations; more than zero
	Options string        // the text form of ccl.Options
	Shim    string        // version of the shim
}

// Group is one rank of a torch process group. It is opened, joined, and closed; Become gives it
// other members, as often as its owner likes. Everything that is known of its state is here: the
// shim asks.
type Group struct {
	name      string
	timeout   time.Duration
	comm      atomic.Pointer[ccl.Communicator] // nil before Join and after Close
	about     atomic.Pointer[about]
	draining  atomic.Pointer[time.Time] // since when
	monitored atomic.Uint64             // monitored barriers of this generation so far
	sparse    atomic.Int32              // Sparses that have not ended

	mu         sync.Mutex
	rank, size int
	endpoint   *ccl.Endpoint // of the last generation; nil if there are no members yet
	state      State
}

// State is what a Group has come to.
type State struct {
	Seq        uint64 // collectives called so far in this generation, also once it is closed
	Generation uint64 // how often it got other members
	Joined     bool
	Closed     bool
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
	n, err := node(opts)
	if err != nil {
		return nil, err
	}
	if cfg.Size == 0 {
		return &Group{name: cfg.Name, timeout: cfg.Timeout}, nil
	}
	endpoint, err := n.Open(ccl.Config{Name: cfg.Name, Rank: cfg.Rank, Size: cfg.Size, Timeout: cfg.Timeout, Options: opts, Client: cfg.Shim})
	if err != nil {
		return nil, err
	}
	timeout := cfg.Timeout
	if opts.Timeout > 0 {
		timeout = opts.Timeout
	}
	return &Group{name: cfg.Name, rank: cfg.Rank, size: cfg.Size, endpoint: endpoint, timeout: timeout}, nil
}

// Address is what the other ranks must get of this one before they join; empty if there are no
// members yet.
func (g *Group) Address() []byte {
	if g.endpoint == nil {
		return nil
	}
	return g.endpoint.Address()
}

// Join connects to the other ranks, whose addresses are given by rank, within the group's timeout.
func (g *Group) Join(addresses [][]byte) error {
	if g.endpoint == nil {
		return g.absent("join")
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	comm, err := g.endpoint.Join(ctx, addresses)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Joined || g.state.Closed {
		comm.Close()
		return fault.New(fault.Invalid, "the group has joined already, or was closed")
	}
	g.state.Joined = true
	g.comm.Store(comm)
	remember(g)
	return nil
}

// Become gives the group the members of next, which has joined and is not to be used afterwards.
// The former members' operations fail.
func (g *Group) Become(next *Group) error {
	next.mu.Lock()
	comm, rank, size, endpoint := next.comm.Swap(nil), next.rank, next.size, next.endpoint
	next.state.Joined, next.state.Closed = false, true
	next.mu.Unlock()
	forget(next)
	if comm == nil {
		return fault.New(fault.Invalid, "the new members have not joined yet")
	}
	g.mu.Lock()
	if g.state.Closed {
		g.mu.Unlock()
		comm.Close()
		return g.absent("reconfigure")
	}
	defer g.mu.Unlock()
	g.rank, g.size, g.endpoint = rank, size, endpoint
	g.state.Joined = true
	g.state.Generation++
	g.monitored.Store(0)
	former := g.comm.Swap(comm)
	forget(g)
	remember(g)
	if former != nil {
		return former.Close()
	}
	return nil
}

// State tells what the group has come to.
func (g *Group) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := g.state
	if comm := g.comm.Load(); comm != nil {
		state.Seq = comm.Seq()
	}
	return state
}

// member is the group and this rank of it, for messages.
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

// absent says why an operation cannot be done.
func (g *Group) absent(op string) error {
	state, member := g.State(), g.member()
	g.mu.Lock()
	vacant := g.endpoint == nil
	g.mu.Unlock()
	switch {
	case state.Closed:
		return fault.New(fault.Closed, "the process group was shut down (destroy_process_group) after seq %d and cannot be used any more",
			state.Seq).In(member, op)
	case vacant:
		return fault.New(fault.Closed, "the process group was made with enable_reconfigure=True and has no members yet; call reconfigure first").
			In(member, op)
	}
	return fault.New(fault.Invalid, "the group has not joined yet").In(member, op)
}

// Run does an operation on the calling thread.
func (g *Group) Run(call *ccl.Call) error {
	comm := g.comm.Load()
	if comm == nil {
		return g.absent(title(call))
	}
	return comm.Do(context.Background(), call)
}

// Start starts an operation.
func (g *Group) Start(call *ccl.Call) (*ccl.Work, error) {
	comm := g.comm.Load()
	if comm == nil {
		return nil, g.absent(title(call))
	}
	return comm.Start(call)
}

// title is a call for messages, whatever it is.
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
	comm, err := g.joined()
	if err != nil {
		return err
	}
	comm.Abort(reason)
	return nil
}

// patience is how long Drain waits for receives, since nobody may ever send what they wait for: it
// is for ranks that leave at the same time, not for peers that have yet to compute what they send.
// And so much longer than the group's timeout it waits for the rest, which ends at its own timeouts
// by then, and says so.
const patience = time.Second

// Drain lets what was started end before the group is closed, on this rank and so on its peers:
// collectives and sends within the group's timeout, receives within a second. A call waits for d at
// most, and reports whether there is nothing more to wait for; if not, call it again.
func (g *Group) Drain(d time.Duration) bool {
	comm := g.comm.Load()
	if comm == nil {
		return true
	}
	begin := time.Now()
	if !g.draining.CompareAndSwap(nil, &begin) {
		begin = *g.draining.Load()
	}
	so := time.Since(begin)
	left := comm.Timeout() + patience - so
	drained := comm.Drain(min(d, left), patience-so)
	if drained && g.sparse.Load() > 0 { // between two phases
		time.Sleep(min(d, time.Millisecond))
		drained = false
	}
	return drained || left <= d
}

// Close leaves the group. What has not ended fails; later calls fail too, and say that it was
// closed. To close it again changes nothing.
func (g *Group) Close() error {
	g.mu.Lock()
	comm := g.comm.Swap(nil)
	g.state.Joined, g.state.Closed = false, true
	if comm != nil {
		g.state.Seq = comm.Seq()
	}
	g.mu.Unlock()
	if comm == nil {
		return nil
	}
	forget(g)
	return comm.Close()
}

// remember and forget keep the list of groups that Trace tells of.
func remember(g *Group) {
	joinedGroups.Lock()
	defer joinedGroups.Unlock()
	joinedGroups.list = append(joinedGroups.list, g)
}

func forget(g *Group) {
	joinedGroups.Lock()
	defer joinedGroups.Unlock()
	joinedGroups.list = slices.DeleteFunc(joinedGroups.list, func(other *Group) bool { return other == g })
}

// blockOf is memory of Go as one block of a call. The operation keeps it for as long as it needs
// it.
func blockOf(data []byte) []ccl.Block {
	return []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(data)), Count: len(data)}}
}

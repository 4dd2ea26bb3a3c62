package pgbackend

import (
	"context"
	"errors"
	"slices"
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
	Size    int
	Timeout time.Duration // of joining and of operations; more than zero
	Options string        // the text form of ccl.Options
	Shim    string        // version of the shim
}

// Group is one rank of a torch process group.
type Group struct {
	name       string
	rank, size int
	endpoint   *ccl.Endpoint
	timeout    time.Duration
	comm       atomic.Pointer[ccl.Communicator]
	closed     atomic.Bool
	about      atomic.Pointer[about]
	draining   atomic.Pointer[time.Time] // since when
	monitored  atomic.Uint64             // monitored barriers so far
	sparse     atomic.Int32              // Sparses that have not ended
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
		return nil, fault.New(fault.Invalid, "timeout %v is not more than zero", cfg.Timeout)
	}
	n, err := node(opts)
	if err != nil {
		return nil, err
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

// Address is what the other ranks must get of this one before they join.
func (g *Group) Address() []byte { return g.endpoint.Address() }

// Join connects to the other ranks, whose addresses are given by rank, within the group's timeout.
func (g *Group) Join(addresses [][]byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	comm, err := g.endpoint.Join(ctx, addresses)
	if err != nil {
		return err
	}
	if !g.comm.CompareAndSwap(nil, comm) {
		comm.Close()
		return fault.New(fault.Invalid, "the group has joined already")
	}
	joinedGroups.Lock()
	joinedGroups.list = append(joinedGroups.list, g)
	joinedGroups.Unlock()
	return nil
}

func (g *Group) joined() (*ccl.Communicator, error) {
	if comm := g.comm.Load(); comm != nil {
		return comm, nil
	}
	return nil, fault.New(fault.Invalid, "the group has not joined yet")
}

// Run does an operation on the calling thread.
func (g *Group) Run(call *ccl.Call) error {
	comm, err := g.joined()
	if err != nil {
		return err
	}
	return comm.Do(context.Background(), call)
}

// Start starts an operation.
func (g *Group) Start(call *ccl.Call) (*ccl.Work, error) {
	comm, err := g.joined()
	if err != nil {
		return nil, err
	}
	return comm.Start(call)
}

// Seq is the number of collectives called so far.
func (g *Group) Seq() uint64 {
	if comm := g.comm.Load(); comm != nil {
		return comm.Seq()
	}
	return 0
}

// SetTimeout changes the timeout of later operations.
func (g *Group) SetTimeout(d time.Duration) error {
	if d <= 0 {
		return fault.New(fault.Invalid, "timeout %v is not more than zero", d)
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

// patience is how long Drain waits for receives, since nobody may ever send what they wait for: it is for ranks that leave at the same time, not for
// peers that have yet to compute what they send. And so much longer than the group's timeout it waits for the rest, which ends at its own timeouts by then,
// and says so.
const patience = time.Second

// Drain lets what was started end before the group is closed, on this rank and so on its peers: collectives and sends within the group's
// timeout, receives within a second. A call waits for d at most, and reports whether there is nothing more to wait for; if not, call it again.
func (g *Group) Drain(d time.Duration) bool {
	comm := g.comm.Load()
	if comm == nil || g.closed.Load() {
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

// Close leaves the group. What has not ended fails.
func (g *Group) Close() error {
	comm := g.comm.Load()
	if comm == nil || !g.closed.CompareAndSwap(false, true) {
		return nil
	}
	joinedGroups.Lock()
	joinedGroups.list = slices.DeleteFunc(joinedGroups.list, func(other *Group) bool { return other == g })
	joinedGroups.Unlock()
	return comm.Close()
}

// blockOf is memory of Go as one block of a call. The operation keeps it for as long as it needs it.
func blockOf(data []byte) []ccl.Block {
	return []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(data)), Count: len(data)}}
}

package rdma

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// The sizes of queues, as far as the adapter has them.
const (
	mostEntries   = 64 << 10
	mostReceives  = mostEntries / 4 // the rest is for connections
	firstReceives = 4096            // before there are channels that need more
	eachReceives  = 32              // of a channel: fragments, credit and grants that may come at once
	repost        = mostReceives / 64
	posted        = 128 // writes of one connection that have not completed
	completeEach  = 32  // one write in this number completes at least
	pollBatch     = 32
)

// inlines is how many bytes writes may carry inline: adapters are asked for the most first, and
// refuse what they cannot. What is longer is read from registered memory, so 0 will do.
var inlines = [...]int{220, 96, 64, 0}

// adapter is a port of an RDMA adapter that this process uses. All connections by it share one
// queue of completions and one of receives.
type adapter struct {
	f        *Fabric
	number   int // among those of the fabric
	place    Choice
	context  verbs.Context
	device   verbs.Device
	queue    verbs.Completions
	receives verbs.Receives
	in, out  *pool // long slots: where peers write, and from where this side does
	watch    *watcher
	armed    atomic.Bool

	spans       atomic.Pointer[[]*span]                // memory of others, by address
	connections atomic.Pointer[map[uint32]*connection] // by the number of their queue pair
	stale       atomic.Bool                            // the port is to be looked at before the next connection
	bound       atomic.Int32                           // channels that may have long slots
	failed      atomic.Bool                            // nothing works any more
	why         error                                  // of failed, from then on

	// What follows is the manager's.
	entries int // of the queue of completions
	ring    int // of the queue of receives
	inline  int // index into inlines of what the adapter grants
	port    verbs.Port
	gid     verbs.GID
	looked  time.Time // at port
	warned  bool      // a line has said that no pair can be made

	mu    sync.Mutex // of what only one thread at a time may use
	found [pollBatch]verbs.Completion
	taken int // receives that are to be posted again
	goal  int // receives that there are, with those; only the manager changes it
	short int // times that all of them were taken
}

// open opens a port, with the given number of long slots in each direction.
func open(f *Fabric, at Choice, number, slots int) (a *adapter, err error) {
	a = &adapter{f: f, place: at, number: number}
	a.connections.Store(&map[uint32]*connection{})
	a.spans.Store(&[]*span{})
	defer func() {
		if err != nil {
			a.close()
			a = nil
		}
	}()
	if a.context, err = f.opts.Library.Open(at.Device); err != nil {
		return a, err
	}
	if err = a.look(); err != nil {
		return a, err
	}
	a.entries = min(mostEntries, a.device.Entries)
	a.ring = min(mostReceives, a.device.Receive, a.entries/4)
	a.goal = min(firstReceives, a.ring)
	if a.goal < 1 || a.room() < 1 || a.device.Posted < posted {
		return a, fault.New(fault.NotSupported, "%s has room for %d completions, %d receives, and %d writes of a queue pair, "+
			"which is too little", at, a.device.Entries, a.device.Receive, a.device.Posted)
	}
	if a.queue, err = a.context.NewCompletions(a.entries); err != nil {
		return a, err
	}
	if a.receives, err = a.context.NewReceives(a.ring); err != nil {
		return a, err
	}
	if err = a.receives.Post(a.goal); err != nil {
		return a, err
	}
	if a.in, err = newPool(a, slots, true); err != nil {
		return a, err
	}
	if a.out, err = newPool(a, slots, false); err != nil {
		return a, err
	}
	if a.watch, err = watch(a); err == nil {
		a.track(true)
	}
	return a, err
}

// track tells of the descriptors by which the adapter is open.
func (a *adapter) track(open bool) {
	a.f.opts.Track(a.queue.Descriptor(), open)
	if h, ok := a.context.(verbs.Holder); ok {
		for _, fd := range h.Descriptors() {
			a.f.opts.Track(fd, open)
		}
	}
}

// lookEvery is how long a port counts as known if nothing says that it has changed.
const lookEvery = time.Second

// refresh looks at the port if it may have changed, or not worked, since it was looked at.
func (a *adapter) refresh() error {
	if !a.stale.Swap(false) && time.Since(a.looked) < lookEvery {
		return nil
	}
	was := a.gid
	err := a.look()
	switch {
	case err != nil:
		a.stale.Store(true)
	case a.gid != was:
		a.f.opts.Info("rdma: %s has GID %d (%v, %v) now; it had GID %d (%v)", a.place, a.gid.Index, a.gid.Kind,
			a.gid.Addr(), was.Index, was.Addr())
	}
	return err
}

// look asks for the state and the addresses of the port: both change while a process runs. The GID
// is the one that Select would take.
func (a *adapter) look() (err error) {
	if a.device, err = a.context.Device(); err != nil {
		return err
	}
	a.looked = time.Now()
	for _, p := range a.device.Ports {
		if p.Number != a.place.Port.Number {
			continue
		}
		gid, why := a.f.opts.Wishes.gidOf(a.place.Device, p)
		if why != "" {
			return fault.New(fault.NotSupported, "%s %s", a.place, why)
		}
		a.port, a.gid = p, gid
		return nil
	}
	return fault.New(fault.NotSupported, "there is no %s", a.place)
}

// poll takes what has completed, and reports whether that was anything. While another thread does
// so, it does nothing unless it has to wait for that.
func (a *adapter) poll(wait bool) bool {
	if wait {
		a.mu.Lock()
	} else if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	if a.failed.Load() {
		return false
	}
	moved := false
	for {
		n, err := a.queue.Poll(a.found[:])
		if err != nil {
			a.fail(err)
			return true
		}
		for i := range n {
			a.ended(&a.found[i])
		}
		moved = moved || n > 0
		if n < len(a.found) {
			break
		}
	}
	if a.taken >= repost || !moved && a.taken > 0 {
		if err := a.receives.Post(a.taken); err != nil {
			a.fail(err)
			return true
		}
		a.taken = 0
	}
	return moved
}

// ended handles a completion. a.mu is held.
func (a *adapter) ended(c *verbs.Completion) {
	arrival := c.Status == verbs.Success && c.Arrival
	if arrival || c.Cookie == verbs.NoCookie { // also of a pair that is gone
		if a.taken++; a.taken == a.goal {
			a.exhausted()
		}
	}
	way := (*a.connections.Load())[c.Pair]
	switch {
	case way == nil: // it was closed
	case arrival:
		if err := a.arrived(way, c); err != nil {
			way.fail(err)
		}
	case c.Status == verbs.Success:
		way.complete(c.Cookie)
	default:
		way.fail(fault.New(fault.System, "%s, queue pair %d: %v (vendor %#x)", a.place, c.Pair, c.Status, c.Vendor))
	}
}

// exhausted counts that all receives were taken, so that writes may have found none: adapters try
// these again after 0.64 ms, for ever. a.mu is held.
func (a *adapter) exhausted() {
	a.short++
	if n, goal := a.short, a.goal; n&(n-1) == 0 { // the first time, the second, the fourth …
		a.f.manager.do(func() {
			a.f.opts.Warn("rdma: %s: all %d entries of its shared receive queue were in use, %d times so far; peers that "+
				"write meanwhile try again after 0.64 ms (the adapter allows %d entries)", a.place, goal, n, a.device.Receive)
		})
	}
}

// room returns for how many connections the queue has entries. The manager calls it.
func (a *adapter) room() int { return (a.entries - a.goal) / posted }

// provide posts as many receives as the channels need that are bound to the adapter, as far as it
// has room for them. They stay when channels end. The manager calls it.
func (a *adapter) provide() {
	most := min(a.ring, a.entries-len(*a.connections.Load())*posted)
	goal := min(int(a.bound.Load())*eachReceives, most)
	if goal <= a.goal || a.failed.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed.Load() {
		return
	}
	more := goal - a.goal
	a.goal = goal
	if err := a.receives.Post(more); err != nil {
		a.fail(err)
	}
}

// arrived handles an immediate. What it names is checked: a peer reaches its own channels only.
func (a *adapter) arrived(way *connection, c *verbs.Completion) error {
	k, channel, value := parts(c.Immediate)
	if k == kindProbe {
		if c.Bytes != headBytes {
			return protocolErrorf("tries with %d bytes", c.Bytes)
		}
		way.probed.Store(true)
		way.path.pair.schedule()
		return nil
	}
	ch := a.f.channel(channel)
	if ch == nil { // its link has ended
		return nil
	}
	if ch.link.pair != way.path.pair {
		return protocolErrorf("names channel %d, which is not its own", channel)
	}
	switch k {
	case kindShort, kindLong:
		q := ch.in.Load()
		if q == nil || q.way != way {
			return protocolErrorf("writes to channel %d, which was not offered", channel)
		}
		credit, err := q.take(k, value, c.Bytes)
		if err != nil {
			return err
		}
		return ch.out.credit(way, credit)
	case kindCredit:
		return ch.out.credit(way, value)
	case kindGrant:
		return ch.out.grant(way, value)
	}
	return protocolErrorf("sends an immediate of kind %d", k)
}

func protocolErrorf(format string, args ...any) error {
	return fault.New(fault.Internal, "rdma: the peer breaks the protocol: it %s", fmt.Sprintf(format, args...))
}

// setConnection notes which connection a queue pair is of; nil for none.
func (a *adapter) setConnection(number uint32, way *connection) {
	table := maps.Clone(*a.connections.Load())
	if way == nil {
		delete(table, number)
	} else {
		table[number] = way
	}
	a.connections.Store(&table)
}

// fail ends all connections, of an adapter that does not work any more. a.mu is held.
func (a *adapter) fail(err error) {
	if a.failed.Load() {
		return
	}
	a.why = err
	a.failed.Store(true)
	a.f.manager.do(func() { a.f.opts.Warn("rdma: %s has failed, and is left: %v", a.place, err) })
	for _, way := range *a.connections.Load() {
		way.fail(err)
	}
}

// arm has the next completion ring the doorbell.
func (a *adapter) arm() {
	if a.armed.Load() || a.failed.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed.Load() || a.armed.Swap(true) {
		return
	}
	if err := a.queue.Arm(); err != nil {
		a.armed.Store(false)
		a.fail(err)
	}
}

// notice takes notices that have come, and wakes who sleeps.
func (a *adapter) notice() {
	a.mu.Lock()
	if !a.failed.Load() {
		if err := a.queue.Take(); err != nil {
			a.fail(err)
		}
	}
	a.armed.Store(false)
	a.mu.Unlock()
	a.f.opts.Doorbell.Ring()
	if a.f.manager.pending.Load() > 0 {
		a.f.manager.wake()
	}
}

// renew looks for what no notice has told of, which may have been lost.
func (a *adapter) renew() {
	if a.poll(false) {
		a.f.opts.Doorbell.Ring()
	}
	if a.armed.Swap(false) {
		a.arm()
	}
}

// close gives everything back. No connection is left.
func (a *adapter) close() {
	if a.watch != nil {
		a.watch.close()
		a.track(false)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed.Store(true) // who polls by now finds nothing
	var errs []error
	if a.receives != nil {
		errs = append(errs, a.receives.Close())
	}
	if a.queue != nil {
		errs = append(errs, a.queue.Close())
	}
	for _, p := range []*pool{a.in, a.out} {
		if p != nil {
			errs = append(errs, p.memory.close())
		}
	}
	if a.context != nil {
		errs = append(errs, a.context.Close())
	}
	for _, err := range errs {
		if err != nil {
			a.f.opts.Warn("rdma: %s could not be closed: %v", a.place, err)
		}
	}
}

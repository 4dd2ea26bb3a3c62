package exec

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/record"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport"
)

// Channels of a link: the one of send and recv, the one of puts and signals, and behind them those
// of the messages of plans.
const (
	p2pChannel = iota
	windowChannel
	ownChannels
)

// PlanChannels is how many channels plans have, unless Options ask for more.
const PlanChannels = 2

// LinkChannels is how many channels a link needs in whose group plans have so many.
func LinkChannels(plan int) int { return ownChannels + plan }

// Planner chooses and makes the plans of a Comm. It is a pure function of values that all ranks
// agree on.
type Planner interface {
	// Choose names the algorithm for a vector of so many bytes (0 where ranks may not know alike),
	// as a small number.
	Choose(coll dtype.Collective, ranks int, bytes int64) int
	// Make makes the plan of an algorithm that Choose named.
	Make(algorithm int, spec plan.Spec) (*plan.Plan, error)
}

// Options of a Comm.
type Options struct {
	Name     string // of the group, for messages
	Rank     int
	Links    []transport.Link // by peer rank; nil at the own one
	Channels int              // of plans; 0 is PlanChannels. The links have LinkChannels of it
	Window   *mem.Window      // of this rank, which all links have lent to the peers; nil for none. The Comm releases it
	Pollers  []transport.Poller
	Bell     *park.Bell
	Planner  Planner
	Progress *Progress
	Timeout  time.Duration // of operations that bring none; 0 for none
	FastBF16 bool          // kernels of kernel.Fast
	Arena    *mem.Arena    // registered memory of this process, which links lend to the peers; nil for none
	Cache    topo.Cache    // the last one of this machine before the memory; zero where nobody knows
	Record   *record.Ring  // remembers the operations; nil for none
}

// Comm is one rank of one group. All methods may be called by any thread.
type Comm struct {
	opts       Options
	rank, size int
	width      int                 // channels of a link
	chans      []transport.Channel // peer*width + channel
	windows    window.Set
	lastLevel  int // bytes of the last-level cache that this rank can count on; 0: not known
	timeout    atomic.Int64

	// Shared by posters, waiters and the driver.
	lock     atomic.Uint32 // 1 while a thread drives
	posted   atomic.Pointer[Op]
	pending  atomic.Int32 // posted and not ended
	urgent   atomic.Int32 // of pending: those that were urged
	waiting  atomic.Int32 // threads that wait, and are no longer young
	turns    *park.Bell   // for those of waiting that sleep while another thread drives
	stop     atomic.Pointer[fault.Error]
	colls    atomic.Uint64 // collectives so far
	messages atomic.Uint64 // sends and receives so far
	exposed  atomic.Uint64 // operations that exposed memory of the caller
	receives atomic.Uint64 // of pending: receives that the engine has; only who holds the lock counts them

	// The driver's own.
	frame      frame
	exchange   exchange
	head, tail *Op // collectives in order; head is under way when frame.prog is set
	p2p        *p2p.Engine
	p2pOps     []*Op // posted to the engine and not ended
	lost       []bool
	lows       map[planKey]*lowered
	recent     planKey // the one that was asked for last
	recentLow  *lowered
	alone      Op // of Run
	cache      cache
	fence      park.Fence
	young      bool // the driver's wait is: it rings when it gives that up
	broken     *fault.Error
	idle       int
	history    history

	glimpsed uint64 // the progress thread's own: how many operations had ended when it looked
}

type planKey struct {
	coll      dtype.Collective
	algorithm int
	root      int
}

// New makes a Comm over links that are open.
func New(opts Options) (*Comm, error) {
	size := len(opts.Links)
	if opts.Rank < 0 || opts.Rank >= size {
		return nil, fault.New(fault.Invalid, "rank %d of a group of %d", opts.Rank, size)
	}
	if opts.Channels == 0 {
		opts.Channels = PlanChannels
	}
	width := LinkChannels(opts.Channels)
	c := &Comm{opts: opts, rank: opts.Rank, size: size, lows: map[planKey]*lowered{}, width: width,
		chans: make([]transport.Channel, size*width), lost: make([]bool, size), lastLevel: cacheShare(&opts)}
	c.timeout.Store(int64(opts.Timeout))
	between := make([]transport.Channel, size)
	for peer, link := range opts.Links {
		if (link == nil) != (peer == opts.Rank) {
			return nil, fault.New(fault.Invalid, "link to rank %d of rank %d is missing or too many", peer, opts.Rank)
		}
		if link == nil {
			continue
		}
		for i := range width {
			c.chans[peer*width+i] = link.Channel(i)
		}
		between[peer] = link.Channel(p2pChannel)
	}
	c.frame.lanes, c.turns = make([]laneState, 1), park.NewBell()
	if err := c.windows.Open(opts.Rank, opts.Window, opts.Links, opts.Arena); err != nil {
		return nil, err
	}
	c.p2p = p2p.New(c.rank, between, c.messageDone)
	c.p2p.SetCache(opts.Cache.Bytes)
	return c, nil
}

// Rank is this process's rank in the group.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// Seq is the number of collectives posted so far.
func (c *Comm) Seq() uint64 { return c.colls.Load() }

// SetTimeout changes the timeout of operations posted from now on; 0 for none.
func (c *Comm) SetTimeout(d time.Duration) { c.timeout.Store(int64(d)) }

// Timeout is that of operations that bring none; 0 for none.
func (c *Comm) Timeout() time.Duration { return time.Duration(c.timeout.Load()) }

func (c *Comm) channel(peer, i int) transport.Channel { return c.chans[peer*c.width+i] }

// planChannel is the channel of a step's messages.
func (c *Comm) planChannel(s *step) transport.Channel {
	return c.channel(s.peer, ownChannels+s.channel)
}

// Post starts an operation. It fails at once, and nothing moves, if the call cannot be right.
func (c *Comm) Post(call *Call) (*Op, error) {
	if c.opts.Record == nil {
		return c.post(call)
	}
	noted := c.note(call)
	op, err := c.post(&noted)
	if err != nil {
		c.noteEnd(&noted, err, false)
	}
	return op, err
}

func (c *Comm) post(call *Call) (*Op, error) {
	if c.stop.Load() == nil && c.lock.CompareAndSwap(0, 1) { // model: postStop, postLock
		if call.Coll.Valid() {
			if op := c.postKnown(call); op != nil {
				return op, nil
			}
		} else if c.broken == nil && call.plainMessage(c.size) {
			return c.postDirect(call), nil
		}
		c.unlock()
		c.handOver()
	}
	if err := c.allowed(call); err != nil {
		return nil, err
	}
	op := newOp(c, call)
	op.notify = true
	c.push(op)
	// A first turn of work on this thread: what fits the channels is on its way before the caller
	// computes on.
	if c.lock.CompareAndSwap(0, 1) { // model: postAgain
		c.advance()
		c.unlock()
	} else {
		c.opts.Bell.Ring()
	}
	c.handOver()
	return op, nil
}

// Run does an operation on the calling thread, from posting to its end.
func (c *Comm) Run(call *Call) error {
	if c.opts.Record == nil {
		return c.do(call)
	}
	noted := c.note(call)
	err := c.do(&noted)
	c.noteEnd(&noted, err, false)
	return err
}

func (c *Comm) do(call *Call) error {
	alone := c.pending.Load() == 0 && c.stop.Load() == nil && c.lock.CompareAndSwap(0, 1) // model: runPending, runStop, runLock
	if alone {
		alone = c.pending.Load() == 0 && c.broken == nil // model: runAgain
		if alone && call.Coll.Valid() {
			if p := c.known(call); p != nil {
				seq := c.colls.Add(1)
				var w waiter
				if ended, err := c.try(p, call, seq, &w); !ended {
					return c.goOn(call, seq, err, &w)
				}
				w.leave(c)
				c.unlock()
				if c.pending.Load() != 0 { // model: runAfter
					c.handOver()
				}
				return nil
			}
		} else if alone && call.plainMessage(c.size) {
			return c.runMessage(call)
		}
		if !alone {
			c.unlock()
			c.handOver()
		}
	}
	if err := c.allowed(call); err != nil {
		if alone {
			c.unlock()
			c.handOver()
		}
		return err
	}
	if alone && !call.Coll.Valid() {
		return c.runMessage(call)
	}
	if alone {
		return c.runAlone(call)
	}
	op := newOp(c, call)
	c.push(op)
	if c.lock.Load() != 0 { // model: runRing
		c.opts.Bell.Ring() // the driver may sleep, and not for this operation
	}
	err := op.Wait(nil)
	op.Free()
	return err
}

// try begins an operation before it has an Op, and reports whether it has ended: most of the simple
// ones do. If not, it is to be queued.
func (c *Comm) try(p *program, call *Call, seq uint64, w *waiter) (ended bool, err error) {
	f := &c.frame
	f.begin(p, seq, c.history, c.windows.Begun)
	if !p.simple {
		return false, c.prepare(p, call)
	}
	s, err := c.runLane(f, p, p.lanes[0], &f.lanes[0], 0, call, w)
	if s != finished || f.last > 0 {
		return false, err
	}
	c.history.add(p.digest)
	f.prog = nil
	return true, nil
}

// goOn is the rest of Run after try. The lock is let go.
func (c *Comm) goOn(call *Call, seq uint64, err error, w *waiter) error {
	op := &c.alone
	op.set(c, call, seq)
	c.queueInFlight(op, err)
	return c.driveAlone(op, w)
}

// postKnown is Post for a call whose program the Comm has. It returns nil if there is none; only
// then the lock, which the caller has taken, is still held. Where nothing else is queued the
// operation runs before it has an Op to wait in, and most end here at the rank that comes last.
func (c *Comm) postKnown(call *Call) *Op {
	if c.broken != nil {
		return nil
	}
	p := c.known(call)
	if p == nil {
		return nil
	}
	c.take() // what was posted before
	seq := c.number(call)
	op := ops.Get().(*Op)
	alone := c.head == nil
	var err error
	if alone {
		var ended bool
		if ended, err = c.try(p, call, seq, nil); ended {
			op.over(c, seq)
			c.noteEnd(call, nil, false)
			c.unlock()
			c.handOver()
			Completions.add()
			return op
		}
	}
	op.set(c, call, seq)
	op.notify = true
	simple := p.simple
	if alone {
		c.queueInFlight(op, err)
	} else {
		c.tail.next = op
		c.tail = op
	}
	if !alone || !simple {
		c.advance()
	}
	c.flush()
	c.unlock()
	c.handOver()
	return op
}

// queueInFlight makes op, the only one, the head of the queue after its operation was begun.
func (c *Comm) queueInFlight(op *Op, err error) {
	c.head, c.tail, c.frame.op = op, op, op
	if err != nil {
		c.fail(op, err)
	}
}

// runAlone is Run where nothing else is posted: the thread holds the lock and goes on holding it.
// The operation needs no queue, and no waiter but this thread ever knows of it.
func (c *Comm) runAlone(call *Call) error {
	op := &c.alone
	op.set(c, call, c.number(call))
	c.head, c.tail = op, op
	return c.driveAlone(op, new(waiter))
}

// driveAlone is the rest of runAlone. The lock is let go.
func (c *Comm) driveAlone(op *Op, w *waiter) error {
	w.op = op
	c.drive(w)
	w.leave(c)
	err := op.err
	op.forget()
	c.unlock()
	c.handOver()
	return err
}

// allowed refuses a call that cannot be right, before anything moves.
func (c *Comm) allowed(call *Call) error {
	wrong := call.check(c.rank, c.size)
	if why := c.stop.Load(); why != nil { // model: allowed
		op := call.Coll.String()
		if wrong == nil {
			op = fmt.Sprintf("%s, not begun, after seq %d", call.String(), c.last(call)) // not %v, with which every call would escape
		}
		return why.In(c.label(), op)
	}
	if wrong != nil {
		return wrong.(*fault.Error).In(c.label(), "") // the text begins with the operation
	}
	return nil
}

// last is the number of the last collective, or message, that was called before.
func (c *Comm) last(call *Call) uint64 {
	if call.Coll.Valid() {
		return c.Seq()
	}
	return c.messages.Load()
}

func (c *Comm) label() string { return fault.Label(c.opts.Name, c.rank, c.size) }

func (c *Comm) push(op *Op) {
	for {
		op.next = c.posted.Load()                 // model: none: push compares it
		if c.posted.CompareAndSwap(op.next, op) { // model: push
			return
		}
	}
}

// take moves what was posted to the driver's queues, in the order of posting.
func (c *Comm) take() {
	if c.posted.Load() == nil { // model: none: what is pushed now is as if it had been pushed after take
		return
	}
	var first *Op
	for op := c.posted.Swap(nil); op != nil; { // model: take
		next := op.next
		op.next = first
		first, op = op, next
	}
	for op := first; op != nil; {
		next := op.next
		op.next = nil
		switch {
		case c.broken != nil:
			c.end(op, c.broken)
		case !op.call.Coll.Valid():
			c.postMessage(op)
		case c.head == nil:
			c.head, c.tail = op, op
		default:
			c.tail.next = op
			c.tail = op
		}
		op = next
	}
}

// end completes an operation: whoever waits for it is woken. op must not be touched afterwards.
func (c *Comm) end(op *Op, err error) {
	notify := op.notify
	if notify {
		op.calm()
	}
	c.noteEnd(&op.call, err, op.deadline.Load() != 0) // with a deadline it has waited for so long that the clock was read already
	if err != nil {
		op.err = op.explain(err)
		op.state.Store(opFailed) // model: none: as endState
	} else {
		op.state.Store(opDone) // model: endState
	}
	op.release()
	c.pending.Add(-1) // model: endPending
	c.turns.Ring()
	if notify {
		Completions.add()
	}
}

// lowered finds or makes the program for a collective.
func (c *Comm) lowered(coll dtype.Collective, root int, bytes int64) (*lowered, error) {
	key := planKey{coll: coll, algorithm: c.opts.Planner.Choose(coll, c.size, bytes)}
	if coll.Rooted() {
		key.root = root
	}
	if key == c.recent && c.recentLow != nil {
		return c.recentLow, nil
	}
	if low := c.lows[key]; low != nil {
		c.recent, c.recentLow = key, low
		return low, nil
	}
	p, err := c.opts.Planner.Make(key.algorithm, plan.Spec{Coll: coll, Ranks: c.size, Root: key.root})
	if err != nil {
		return nil, err
	}
	low, err := lower(p, c.rank, c.opts.Channels, &c.windows)
	if err == nil {
		c.lows[key] = low
	}
	return low, err
}

// begin starts the head of the queue. It may refuse the operation alone: before anything has moved,
// and for reasons that every rank finds in its own call.
func (c *Comm) begin(op *Op) error {
	f, call := &c.frame, &op.call
	if op != &c.alone { // Run has looked for it
		if p := c.known(call); p != nil {
			f.op = op
			return c.start(p, call, op.seq)
		}
	}
	low, err := c.lowered(call.Coll, call.Root, call.bytes())
	if err != nil {
		if f, ok := err.(*fault.Error); ok {
			return f
		}
		return fault.Wrap(fault.Internal, err, "no plan")
	}
	inPlace, err := call.overlap(c.rank)
	if err == nil && inPlace && low.alias&plan.InPlace == 0 {
		err = f.separate(op)
	}
	if err != nil {
		return err
	}
	if low.counts {
		return c.beginCounts(op, low)
	}
	p, err := c.program(low, call)
	if err != nil {
		return err
	}
	f.op = op
	return c.start(p, call, op.seq)
}

// separate gives an operation a copy of its In, for a plan that needs In and Out apart.
func (f *frame) separate(op *Op) error {
	size, total := op.call.Type.Size(), 0
	for _, b := range op.in {
		total += aligned(b.Count * size)
	}
	var err error
	if f.copied, err = mem.Alloc(total); err != nil {
		return fault.Wrap(fault.System, err, "no memory for a copy of the input")
	}
	at := addressOf(f.copied.Bytes())
	for i := range op.in {
		b := &op.in[i]
		bytes := b.Count * size
		if bytes == 0 {
			continue
		}
		copy(bytesAt(at, bytes), bytesAt(b.Ptr, bytes))
		b.Ptr = at
		at = plus(at, aligned(bytes))
	}
	return nil
}

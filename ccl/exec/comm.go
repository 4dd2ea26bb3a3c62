package exec

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/blame"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/internal/record"
	"github.com/goccl/goccl/transport"
)

// The channels of a link: one for send and recv, one for puts and signals, and after them the
// channels for the messages of plans.
const (
	p2pChannel = iota
	windowChannel
	ownChannels
)

// PlanChannels is the number of channels for plans if Options do not set it.
const PlanChannels = 2

// LinkChannels returns the number of channels that a link needs in a group that has the given
// number of channels for plans.
func LinkChannels(plan int) int { return ownChannels + plan }

// Planner chooses and makes the plans of a Comm. Its results are a pure function of values that all
// ranks agree on.
type Planner interface {
	// Choose returns the algorithm for a vector of the given number of bytes in the planner's
	// group, as a small number. bytes is 0 if the ranks may know different lengths.
	Choose(coll dtype.Collective, bytes int64) int
	// Make makes the plan of an algorithm that Choose returned.
	Make(algorithm int, spec plan.Spec) (*plan.Plan, error)
}

// Trials has calls try algorithms (package tune/online). What it says must be a pure function of
// the calls of the group, and of what Agree was told.
type Trials interface {
	// Turn says how the collective with a number runs.
	Turn(coll dtype.Collective, bytes int64, number uint64) Turn
	// Took says how long the trial of the last Turn took.
	Took(nanoseconds uint64)
	// Drop says that no rank can run the algorithm of the last Turn, and reports whether another
	// one may take its place.
	Drop() bool
	// Times returns what this rank tells the others where Turn.Agree is set. Agree takes the
	// largest value of all ranks for each, and how long the exchange took.
	Times() []uint64
	Agree(largest []uint64, nanoseconds uint64)
}

// Turn says how a call runs.
type Turn struct {
	Algorithm int
	Agree     bool   // not before the ranks have exchanged Times; then Turn is asked again
	Trial     bool   // Took is called when it has ended
	Until     uint64 // the number of the call before which all calls like this one run alike
}

// Options configures a Comm.
type Options struct {
	Name     string // of the group, for errors
	Rank     int
	Links    []transport.Link // by peer rank; nil for this rank itself
	Channels int              // for plans; 0 means PlanChannels. Links have LinkChannels(Channels) channels
	Window   *mem.Window      // of this rank, lent to the peers by all links; nil for none. The Comm releases it
	Pollers  []transport.Poller
	Doorbell *park.Doorbell
	Planner  Planner
	Keyed    Planner // of keyed calls, whose plans are made of messages; nil for none
	Trials   Trials  // nil for none
	Progress *Progress
	Timeout  time.Duration // of calls that set none; 0 for none
	FastBF16 bool          // use the kernels of kernel.Fast
	Rotates  bool          // program.Room.Rotates
	Pinner   mem.Pinner    // gets access to intermediate memory, which links then send in place; nil for none
	Arena    *mem.Arena    // registered memory of this process, which links lend to the peers; nil for none
	Cache    topo.Cache    // the last-level cache of this machine; zero if unknown
	Record   *record.Ring  // records the operations; nil for none
	// CallerRecords means that the caller writes Record: an operation is only a part of what it
	// records.
	CallerRecords bool
	Group         *topo.Group // what the group runs on; nil if that is unknown
	Control       *Control    // takes the control messages of the links; nil for none

	// WarnAfter is how long an operation may take before Warn is told whom it waits for; 0 for
	// ever.
	WarnAfter time.Duration
	Warn      func(format string, args ...any)
}

// Comm is one rank of one group. All methods may be called by any thread.
type Comm struct {
	opts       Options
	rank, size int
	run        runner
	timeout    atomic.Int64

	// Shared by posters, waiters and the driver.
	lock    atomic.Uint32 // 1 while a thread drives
	posted  atomic.Pointer[Op]
	pending atomic.Int32   // posted and not ended
	urgent  atomic.Int32   // pending operations that were expedited
	waiting atomic.Int32   // threads that wait and are no longer young
	turns   *park.Doorbell // wakes waiting threads that sleep while another thread drives
	stop    atomic.Pointer[fault.Error]
	told    atomic.Bool   // an operation, or a call that was refused, has had the error in stop
	colls   atomic.Uint64 // collectives so far
	mourned atomic.Bool   // somebody waits for a dead peer by other means than operations

	// Used only by the driver.
	head, tail *Op    // collectives in the order of posting; head is in flight when frame.prog is set
	taken      uint64 // the number of the last collective that a driver has had; later ones are not posted yet
	deadlines  deadlines
	keyed      keyedOps
	messages   messages
	alone      *Op  // the operation of Run
	young      bool // the driver's wait is young: the driver wakes no peers until that part of the wait ends
	broken     *fault.Error
	idle       int

	glimpsed uint64 // used only by the progress thread: the number of operations that had ended at its last glance
}

// farAway is the round trip from which on messages of up to p2p.FarLimit do not wait for an answer.
const farAway = 300 * time.Microsecond

// New makes a Comm over open links.
func New(opts Options) (*Comm, error) {
	size := len(opts.Links)
	if opts.Rank < 0 || opts.Rank >= size {
		return nil, fault.New(fault.Invalid, "rank %d of a group of %d", opts.Rank, size)
	}
	if opts.Channels == 0 {
		opts.Channels = PlanChannels
	}
	c := &Comm{opts: opts, rank: opts.Rank, size: size,
		alone: new(Op), turns: park.NewDoorbell(), keyed: keyedOps{planner: opts.Keyed}}
	c.timeout.Store(int64(opts.Timeout))
	if err := c.run.links.Open(opts.Rank, opts.Links, LinkChannels(opts.Channels)); err != nil {
		return nil, err
	}
	c.run.frame.pinner, c.run.frame.lanes = opts.Pinner, make([]laneState, 1)
	if err := c.run.windows.Open(opts.Rank, opts.Window, opts.Links, opts.Arena); err != nil {
		return nil, err
	}
	c.run.programs = programs{planner: opts.Planner, fastBF16: opts.FastBF16, lastLevel: cacheShare(&opts),
		room: c.run.windows.Room(), lows: map[planKey]*program.Lowered{}}
	c.run.trials = opts.Trials
	room := &c.run.programs.room
	room.Rank, room.Ranks, room.Channels, room.Rotates = c.rank, c.size, opts.Channels, opts.Rotates
	between := make([]transport.Channel, size)
	for peer, link := range opts.Links {
		if link != nil {
			between[peer] = c.run.links.Channel(peer, p2pChannel)
		}
	}
	c.messages.with = make([]int, size+1)
	c.messages.engine = p2p.New(c.rank, between, c.messageDone)
	c.messages.engine.SetCache(opts.Cache.Bytes)
	for peer, link := range opts.Links {
		if link == nil {
			continue
		}
		if c.run.links.Network[peer] {
			c.messages.engine.SetNetwork(peer)
		}
		c.measure(peer)
	}
	c.run.blame.Open(blame.Options{
		Links: &c.run.links, Lanes: view{c}, Calls: &c.run.calls, Control: opts.Control, Group: opts.Group,
		Doorbell: opts.Doorbell, Drive: c.Check, Failure: c.Failure, Barred: c.run.programs.kept.close,
		WarnAfter: opts.WarnAfter, Warn: opts.Warn,
	})
	return c, nil
}

// measure looks how far away a peer is.
func (c *Comm) measure(peer int) {
	if state := c.run.links.All[peer].State(); state.RoundTrip >= farAway {
		c.messages.engine.SetFar(peer)
	}
}

// Rank returns this process's rank in the group.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Seq returns the number of collectives posted so far.
func (c *Comm) Seq() uint64 { return c.colls.Load() }

// SetTimeout changes the timeout of operations posted from now on; 0 for none.
func (c *Comm) SetTimeout(d time.Duration) { c.timeout.Store(int64(d)) }

// Timeout returns the timeout of operations that set none; 0 for none.
func (c *Comm) Timeout() time.Duration { return time.Duration(c.timeout.Load()) }

// Post starts an operation. An invalid call fails immediately, before any data moves.
func (c *Comm) Post(call *Call) (*Op, error) {
	note := c.note(call)
	op, err := c.post(call, note)
	if err != nil {
		c.noteEnd(note, err, false)
	}
	return op, err
}

func (c *Comm) post(call *Call, note uint64) (*Op, error) {
	if c.stop.Load() == nil && c.lock.CompareAndSwap(0, 1) { // model: postStop, postLock
		if call.Coll.Valid() {
			if op := c.postKnown(call, note); op != nil {
				return op, nil
			}
		} else if c.broken == nil && plainMessage(call, c.size) {
			return c.postDirect(call, note), nil
		}
		c.unlock()
		c.handOver()
	}
	if err := c.allowedNext(call); err != nil {
		return nil, err
	}
	op := newOp(c, call, note)
	c.launch(op)
	return op, nil
}

// launch posts an operation for which its caller does not wait.
func (c *Comm) launch(op *Op) {
	op.notify = true
	c.push(op)
	// Advance once on this thread, so that data that fits the channels is on its way before the
	// caller continues with its own work.
	if c.lock.CompareAndSwap(0, 1) { // model: postAgain
		c.advance()
		c.unlock()
	} else {
		c.opts.Doorbell.Ring()
	}
	c.handOver()
}

// Run executes an operation on the calling thread, from posting to its end.
func (c *Comm) Run(call *Call) error {
	_, err := c.RunSlice(call, 0)
	return err
}

// RunSlice is Run for a part of the time: it returns after about d at the latest, unless d is 0. If
// the operation has not ended by then, RunSlice returns its Op, and it goes on as if it had been
// posted. Otherwise the Op is nil.
func (c *Comm) RunSlice(call *Call, d time.Duration) (*Op, error) {
	alone := c.pending.Load() == 0 && // model: runPending
		c.stop.Load() == nil && // model: runStop
		c.lock.CompareAndSwap(0, 1) // model: runLock
	if alone {
		alone = c.pending.Load() == 0 && c.broken == nil // model: runAgain
		if alone && call.Coll.Valid() {
			if p := c.run.programs.known(call); p != nil {
				seq, w := c.colls.Add(1), waiter{} // filled field by field: otherwise it is copied
				if seq >= p.until {
					return c.runAgain(call, seq, d)
				}
				w.comm, w.limit, w.note, w.unnoted, w.seq = c, d, c.reserve(), true, seq
				if !p.short {
					w.noteNow(call)
				}
				ended, err := c.run.try(p, call, seq, &w)
				w.noteNow(call)
				if !ended {
					return c.goOn(call, seq, err, &w)
				}
				c.taken = seq
				c.noteEnd(w.note, nil, false)
				w.leave()
				c.unlock()
				if c.pending.Load() != 0 { // model: runAfter
					c.handOver()
				}
				return nil, nil
			}
		} else if alone && plainMessage(call, c.size) {
			return c.runMessage(call, 0, d)
		}
		if !alone {
			c.unlock()
			c.handOver()
		}
	}
	note := c.note(call)
	op, err := c.runOther(call, note, d, alone)
	if op == nil {
		c.noteEnd(note, err, false)
	}
	return op, err
}

// runOther is Run for a call that is invalid, or new, or not alone.
func (c *Comm) runOther(call *Call, note uint64, d time.Duration, alone bool) (*Op, error) {
	if err := c.allowedNext(call); err != nil {
		if alone {
			c.unlock()
			c.handOver()
		}
		return nil, err
	}
	if alone && !call.Coll.Valid() {
		return c.runMessage(call, note, d)
	}
	if alone {
		return c.runAlone(call, note, c.number(call), d)
	}
	op := newOp(c, call, note)
	op.notify = d > 0 // the caller may get the Op
	c.push(op)
	if c.lock.Load() != 0 { // model: runRing
		c.opts.Doorbell.Ring() // the driver may be asleep, and not know of this operation
	}
	done, err := op.WaitSlice(d)
	if !done {
		return op, nil
	}
	op.Free()
	return nil, err
}

// runAgain is Run for a call whose program is kept but not to be used without asking (Trials).
func (c *Comm) runAgain(call *Call, seq uint64, d time.Duration) (*Op, error) {
	note := c.reserve()
	c.fill(note, call, seq)
	return c.runAlone(call, note, seq, d)
}

// goOn is the rest of Run after try. It releases the lock.
func (c *Comm) goOn(call *Call, seq uint64, err error, w *waiter) (*Op, error) {
	op := c.alone
	op.set(c, call, w.note, seq)
	c.queueInFlight(op, err)
	return c.driveAlone(op, w)
}

// postKnown is Post for a call whose program is kept. It returns nil if there is none; only then is
// the lock, which the caller has taken, still held. If nothing else is queued, the operation runs
// before its Op is set up for waiting; on the rank that comes last, most operations end here.
func (c *Comm) postKnown(call *Call, note uint64) *Op {
	if c.broken != nil {
		return nil
	}
	p := c.run.programs.known(call)
	if p == nil {
		return nil
	}
	c.take() // operations posted earlier
	seq := c.number(call)
	op := ops.Get().(*Op)
	alone := c.head == nil && seq < p.until
	var err error
	if alone {
		var ended bool
		if ended, err = c.run.try(p, call, seq, nil); ended {
			c.taken = seq
			op.over(c, seq)
			c.noteEnd(note, nil, false)
			c.unlock()
			c.handOver()
			Completions.add()
			return op
		}
	}
	op.set(c, call, note, seq)
	op.notify = true
	simple := p.simple
	if alone {
		c.queueInFlight(op, err)
	} else {
		c.queue(op)
	}
	if !alone || !simple {
		c.advance()
	}
	c.run.flush()
	c.unlock()
	c.handOver()
	return op
}

// queueInFlight makes op, an operation that has begun, the head of the empty queue. If err is set,
// op fails.
func (c *Comm) queueInFlight(op *Op, err error) {
	c.queue(op)
	c.run.frame.op = op
	if err != nil {
		c.fail(op, err)
	}
}

// runAlone is Run if nothing else is posted. The thread holds the lock and keeps it until the
// operation has ended or d is over, so the operation is never in the list of posted operations, and
// until then no other thread waits for it.
func (c *Comm) runAlone(call *Call, note, seq uint64, d time.Duration) (*Op, error) {
	op := c.alone
	op.set(c, call, note, seq)
	c.queue(op)
	return c.driveAlone(op, &waiter{comm: c, limit: d})
}

// driveAlone is the rest of runAlone. It releases the lock. The engine and the queue hold op, so an
// operation that has not ended keeps it, and the next Run gets another one.
func (c *Comm) driveAlone(op *Op, w *waiter) (left *Op, err error) {
	w.op = op
	c.drive(w)
	w.leave()
	if pending(op.state.Load()) { // model: none: only the lock's holder ends operations
		op.notify = true
		left, c.alone = op, ops.Get().(*Op)
	} else {
		if err = op.err; err != nil {
			err = op.explain(err)
		}
		op.forget()
	}
	c.unlock()
	c.handOver()
	return left, err
}

// allowed refuses an invalid call before any data moves, and every call after the Comm has stopped.
func (c *Comm) allowed(call *Call) error {
	wrong := call.Check(c.rank, c.size)
	if why := c.stop.Load(); why != nil { // model: allowed
		c.told.Store(true) // model: none: it only tells
		op := call.Coll.String()
		if wrong == nil {
			// call.String() and not %v, with which every call would escape.
			op = fmt.Sprintf("%s, not begun, after seq %d", call.String(), c.last(call))
		}
		return c.run.blame.Losses.Meanwhile(why.In(c.label(), op))
	}
	if wrong != nil {
		return wrong.(*fault.Error).In(c.label(), "") // the error's text begins with the operation
	}
	return nil
}

// allowedNext is allowed for a call that has no key.
func (c *Comm) allowedNext(call *Call) error {
	if why := c.run.blame.Ending.Barred(); why != nil && call.Coll.Valid() && c.Seq()+1 >= why.Seq {
		c.stop.CompareAndSwap(nil, why.In(c.label(), "")) // model: none: as an Abort, which a driver follows
	}
	return c.allowed(call)
}

// last returns the number of the collective, or message, that was called last before this call.
func (c *Comm) last(call *Call) uint64 {
	if call.Coll.Valid() {
		return c.Seq()
	}
	return c.messages.called.Load()
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

// take moves posted operations to the driver's queues, in the order of posting.
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
		case op.keyed != nil:
			c.beginKeyed(op)
		case !op.call.Coll.Valid():
			c.postMessage(op)
		default:
			c.queue(op)
		}
		op = next
	}
}

// queue adds a collective to the driver's queue.
func (c *Comm) queue(op *Op) {
	op.looked = c.deadlines.looks
	c.taken = op.seq
	if c.head == nil {
		c.head = op
	} else {
		c.tail.next = op
	}
	c.tail = op
}

// end completes an operation and wakes the threads that wait for it. op must not be touched
// afterwards.
func (c *Comm) end(op *Op, err error) {
	notify := op.notify
	if notify {
		op.calm()
	}
	// If a driver has looked at the clock since it was queued, it has waited long.
	c.noteEnd(op.note, err, op.looked != c.deadlines.looks)
	outcome := opDone
	if err != nil {
		if c.stop.Load() != nil { // model: none: it only tells
			c.told.Store(true) // model: none: as above
		}
		op.err, outcome = err, opFailed
	}
	if op.state.Swap(outcome) == opWatched { // model: endState
		op.tell()
	}
	op.release()
	c.pending.Add(-1) // model: endPending
	c.turns.Ring()
	if notify {
		Completions.add()
	}
}

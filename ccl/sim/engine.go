package sim

import (
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo/network"
)

// simultaneous is the largest relative difference of two times that count as one moment: the
// rounding error of a few additions.
const simultaneous = 2e-15

// longest is the time, in seconds, after which a simulation is abandoned: beyond any use, and far
// below the point where numbers overflow.
const longest = 1e100

// maxPaths bounds the number of cached paths.
const maxPaths = 1 << 25

// cursor is the position of a lane.
type cursor struct {
	prog    *program
	ops     *lane
	start   float64 // of the current step
	rank    int32   // one of the simulated ranks
	lane    int32
	by      int32 // rank minus the rank that its program was compiled for
	port    int32 // index in engine.joints of port 0
	segment int32
	pos     int32 // in the segment
	iter    int32
	done    int32 // steps that have ended, loops unrolled
	pending int32 // flows that a getreduce waits for
	state   state

	// Of a message, with Options.Costs:
	total, moved int64 // its bytes, and those that are sent or taken
	joint        joint
	from         int32 // the path of the fragment that is being taken
	tasked       bool  // the thread has a task of the lane
	starved      bool  // it waits for credit
}

// op returns the current step.
func (c *cursor) op() *op { return &c.ops.ops[c.ops.segments[c.segment].first+c.pos] }

// peer returns the peer of the current step.
func (e *engine) peer(c *cursor, o *op, m *more) int32 {
	peer := o.peer
	if m != nil && m.moves {
		peer = int32(m.peer.At(int(peer), int(c.iter)))
	}
	return e.shifted(c, peer)
}

// shifted translates a rank from the numbering of c's program to that of c itself.
func (e *engine) shifted(c *cursor, rank int32) int32 {
	if rank >= 0 && c.by > 0 {
		rank = (rank + c.by) % int32(e.p.Spec.Ranks)
	}
	return rank
}

type state uint8

const (
	waiting  state = iota // for the steps in After
	underway              // an event will end the step
	finished
)

// mailbox is where messages of one (receiver, sender, channel or flag) arrive.
type mailbox struct {
	sent, arrived, taken int32
	waiters              []int32 // lanes, in the order of their recvs
	early                []int32 // messages that overtook others

	// With Options.Costs:
	fragments []landedPart // that were not taken yet
	flying    int          // fragments that the sender has no credit for yet
	starved   []int32      // lanes that wait for credit
}

// landedPart is a fragment that has arrived over a path.
type landedPart struct {
	bytes int64
	path  int32
}

// engine is one simulation.
type engine struct {
	p      *plan.Plan
	o      *Options
	router *network.Router
	sizes  sizes

	shift    int        // ranks r and r+shift behave alike; the number of ranks if none do
	orbit    []int32    // of each link, its pipe; nil if each link has its own
	size     []int32    // of each pipe, the number of links it stands for
	programs []*program // of the first ranks; the other ranks have them too, shifted
	joints   []joint    // of the ports of all simulated ranks
	first    []int32    // lane number of the first lane of each rank
	lanes    []cursor
	boxes    []mailbox
	boxOf    map[uint64]int32
	pathOf   map[uint64]int32
	net      links
	queue    *queue
	ready    []int32
	now      float64
	finish   []float64
	sent     []int64
	taken    []int64
	messages int64
	timeline []Span
	scratch  []int32
	failed   error

	// With Options.Costs:
	threads []thread // by rank
	cores   []core
	miss    float64    // the part of a call that is in no core's cache
	resting []int32    // ranks whose threads may have nothing to do
	costs   []pathCost // by path
}

// prepare compiles the programs and sets the lanes to their first steps.
func (e *engine) prepare() error {
	n := e.p.Spec.Ranks
	e.boxOf, e.pathOf, e.queue = map[uint64]int32{}, map[uint64]int32{}, newQueue()
	e.net.queue = e.queue
	if err := e.findShift(); err != nil {
		return err
	}
	for _, prog := range e.programs {
		prog.connect()
	}
	e.finish, e.sent, e.taken = make([]float64, e.shift), make([]int64, e.shift), make([]int64, e.shift)
	ports := 0
	for rank := range e.shift {
		at := rank % len(e.programs)
		prog := e.programs[at]
		e.first = append(e.first, int32(len(e.lanes)))
		for l := range prog.lanes {
			c := cursor{prog: prog, ops: &prog.lanes[l], rank: int32(rank), lane: int32(l),
				by: int32(rank - at), port: int32(ports)}
			if len(c.ops.segments) == 0 {
				c.state = finished
			} else {
				e.ready = append(e.ready, int32(len(e.lanes)))
			}
			e.lanes = append(e.lanes, c)
		}
		ports += len(prog.ports)
	}
	e.joints = make([]joint, ports)
	for i := range e.joints {
		e.joints[i] = joint{-1, -1}
	}
	e.first = append(e.first, int32(len(e.lanes)))
	t := e.router.Topology()
	if e.shift == n {
		e.net.pipes = make([]pipe, len(t.Links))
		for i := range t.Links {
			class := &t.Classes[t.Links[i].Class]
			e.net.pipes[i] = pipe{bandwidth: class.Bandwidth, burst: float64(class.Burst)}
		}
	}
	e.net.parts = make([]share, len(e.net.pipes))
	if e.o.Costs != nil {
		e.shareCores()
		e.miss = e.missing()
		for i := range e.net.pipes {
			if p := &e.net.pipes[i]; e.o.Rests {
				p.tokens = p.burst
			}
		}
		for rank := range e.shift {
			e.enter(int32(rank))
		}
		return nil
	}
	e.claim()
	return nil
}

// run handles events until there are none left.
func (e *engine) run() error {
	e.advance()
	e.net.share(0)
	var batch []event
	happened := 0
	for e.failed == nil {
		t, ok := e.queue.next()
		if !ok {
			break
		}
		if !(t <= longest) {
			return wrong(e.p,
				"it takes longer than %g s; check the latencies and bandwidths of topology %s, gamma and copy",
				longest, e.router.Topology().Name)
		}
		e.now = max(e.now, t)
		for ok && t <= e.now*(1+simultaneous) {
			batch = e.queue.pop(batch[:0])
			if happened += len(batch); e.o.Most > 0 && happened > e.o.Most {
				return ErrLong
			}
			for _, each := range batch {
				e.happen(each)
			}
			e.advance()
			e.rest()
			t, ok = e.queue.next()
		}
		e.net.share(e.now)
	}
	if e.failed != nil {
		return e.failed
	}
	for i := range e.lanes {
		if e.lanes[i].state != finished {
			return e.stuck(&e.lanes[i])
		}
	}
	return nil
}

func (e *engine) stuck(c *cursor) error {
	prog := e.p.Program(int(c.rank))
	step := plan.StepAt(prog.Lanes[c.lane], int(c.done))
	what := fmt.Sprintf("%v waits for something of rank %d that never comes", step.Kind, step.Peer)
	if c.state == waiting {
		what = fmt.Sprintf("%v waits for steps of other lanes, %v, that never end", step.Kind, step.After)
	}
	return wrong(e.p, "it never ends: rank %d, lane %d, step %d: %s; see goccl verify", c.rank, c.lane, c.done, what)
}

func (e *engine) happen(each event) {
	switch each.kind {
	case begins:
		f := &e.net.flows[each.id]
		if f.left == 0 || len(e.net.paths[f.path].hops) == 0 {
			e.arrived(each.id)
			return
		}
		e.net.begin(each.id, 0, e.now)
	case ends:
		f := &e.net.flows[each.id]
		if f.version != each.version {
			return
		}
		if way := &e.net.paths[f.path]; way.private {
			e.passed(each.id, way)
			return
		}
		e.net.end(each.id, e.now)
		if e.o.Costs != nil {
			e.transmitted(each.id)
			return
		}
		e.arrived(each.id)
	case worked:
		if e.o.Costs != nil {
			e.taskDone(each.id)
			return
		}
		e.done(each.id)
	case lands:
		e.landed(each.id)
	case credits:
		e.credited(each.id)
	}
}

// advance runs lanes until all of them wait for time to pass.
func (e *engine) advance() {
	for i := 0; i < len(e.ready) && e.failed == nil; i++ { // e.ready grows in this loop
		if id := e.ready[i]; e.lanes[id].state == waiting {
			e.try(id)
		}
	}
	e.ready = e.ready[:0]
}

// try starts the current step of a lane, if the steps before it have ended.
func (e *engine) try(id int32) {
	c := &e.lanes[id]
	o := c.op()
	var m *more
	if o.more >= 0 {
		m = &c.prog.more[o.more]
	}
	if o.lane >= 0 && !e.after(c, o, m) {
		if !o.pipelined {
			return
		}
		if bytes, _ := e.received(c, o); bytes == 0 {
			return
		}
	}
	c.state, c.start = underway, e.now
	bytes := o.bytes
	if m != nil && m.varies {
		bytes = e.bytes(c, o)
	}
	if e.o.Costs != nil {
		e.perform(id, o, m, bytes)
		return
	}
	switch o.kind {
	case plan.Copy:
		e.work(id, e.o.Copy*float64(bytes))
	case plan.Reduce:
		e.work(id, e.arithmetic(o, bytes))
	case plan.Send, plan.Put, plan.Signal, plan.Packet, plan.Get:
		peer := e.peer(c, o, m)
		if !o.kind.Traits().Reads {
			bytes = 0
		}
		j := e.joint(c, peer, o)
		e.flow(id, j.path, bytes, j.box)
		if o.kind.Traits().Gets {
			e.account(peer, c.rank, bytes)
		} else {
			e.account(c.rank, peer, bytes)
		}
	case plan.Recv, plan.RecvReduce, plan.Wait:
		b := &e.boxes[e.joint(c, e.peer(c, o, m), o).box]
		b.taken++
		if b.taken > b.arrived {
			b.waiters = append(b.waiters, id)
			return
		}
		e.got(id, o, bytes)
	case plan.GetReduce:
		e.getReduce(id, o, m, bytes)
	}
}

// after reports whether the steps that the current one comes after have ended.
func (e *engine) after(c *cursor, o *op, m *more) bool {
	step := o.after
	if m != nil && m.afterBy != nil {
		step += c.iter * int32(m.afterBy[0])
	}
	if !e.past(c, int32(o.lane), step) {
		return false
	}
	if m != nil {
		for i, a := range m.after {
			if m.afterBy != nil {
				a.Step += int(c.iter) * m.afterBy[i+1]
			}
			if !e.past(c, int32(a.Lane), int32(a.Step)) {
				return false
			}
		}
	}
	return true
}

func (e *engine) past(c *cursor, lane, step int32) bool {
	return e.lanes[e.first[c.rank]+lane].done > step
}

func (e *engine) arithmetic(o *op, bytes int64) float64 {
	return e.o.Gamma * float64(bytes) * float64(o.operands-1)
}

// work ends the step of a lane after the given time.
func (e *engine) work(id int32, seconds float64) {
	if seconds == 0 {
		e.done(id)
		return
	}
	e.queue.push(e.now+seconds, event{kind: worked, id: id})
}

// got handles a recv or a wait whose message has arrived.
func (e *engine) got(id int32, o *op, bytes int64) {
	if o.kind.Traits().Reduces {
		e.work(id, e.arithmetic(o, bytes))
		return
	}
	e.done(id)
}

func (e *engine) getReduce(id int32, o *op, m *more, bytes int64) {
	c := &e.lanes[id]
	remote := int32(0)
	for i, from := range m.from {
		if m.fromBy != nil {
			from = m.fromBy[i].At(from, int(c.iter))
		}
		source := e.shifted(c, int32(from))
		if source == c.rank {
			continue
		}
		remote++
		e.flow(id, e.path(source, c.rank), bytes, -1)
		e.account(source, c.rank, bytes)
	}
	c.pending = remote
	if remote == 0 {
		e.work(id, e.arithmetic(o, bytes))
	}
}

// flow sends bytes along a path.
func (e *engine) flow(id, path int32, bytes int64, box int32) {
	if e.failed != nil {
		return
	}
	k := e.net.newFlow()
	f := &e.net.flows[k]
	f.path, f.left, f.lane, f.box = path, bytes, id, box
	if box >= 0 {
		f.number = e.boxes[box].sent
		e.boxes[box].sent++
	}
	way := &e.net.paths[path]
	if way.private {
		e.pass(k, way)
		return
	}
	e.queue.push(e.now+way.alpha, event{kind: begins, id: k})
}

// account counts a message. With a shift, every simulated rank stands for the same number of ranks.
func (e *engine) account(from, to int32, bytes int64) {
	e.messages++
	e.sent[int(from)%e.shift] += bytes
	e.taken[int(to)%e.shift] += bytes
}

// arrived handles the end of a flow.
func (e *engine) arrived(k int32) {
	f := &e.net.flows[k]
	id, box, number, bytes := f.lane, f.box, f.number, f.left
	f.version++
	e.net.free = append(e.net.free, k)
	if box >= 0 {
		e.deliver(box, number)
	}
	c := &e.lanes[id]
	if c.pending > 0 { // a getreduce
		if c.pending--; c.pending > 0 {
			return
		}
		e.work(id, e.arithmetic(c.op(), bytes))
		return
	}
	e.done(id)
}

// deliver counts messages as arrived, in the order in which they were sent, and wakes the lanes
// that wait for them.
func (e *engine) deliver(box, number int32) {
	b := &e.boxes[box]
	if number != b.arrived {
		b.early = append(b.early, number)
		return
	}
	for again := true; again; {
		b.arrived++
		if len(b.waiters) > 0 {
			id := b.waiters[0]
			b.waiters = append(b.waiters[:0], b.waiters[1:]...)
			e.receive(id)
			b = &e.boxes[box]
		}
		again = false
		for i, k := range b.early {
			if k == b.arrived {
				b.early[i] = b.early[len(b.early)-1]
				b.early = b.early[:len(b.early)-1]
				again = true
				break
			}
		}
	}
}

// receive calls got for a lane that has waited.
func (e *engine) receive(id int32) {
	c := &e.lanes[id]
	o := c.op()
	e.got(id, o, e.bytes(c, o))
}

// bytes returns the length of an operand of the current step.
func (e *engine) bytes(c *cursor, o *op) int64 {
	if o.more < 0 || !c.prog.more[o.more].varies {
		return o.bytes
	}
	m := &c.prog.more[o.more]
	r := m.ref
	r.At = m.refBy.At(r.At, int(c.iter))
	return e.sizes.ref(int(c.rank), c.prog, r)
}

// done ends the step of a lane and enqueues the lanes of its rank that may be able to go on.
func (e *engine) done(id int32) {
	c := &e.lanes[id]
	if e.o.Timeline {
		e.record(c)
	}
	e.finish[c.rank] = e.now
	c.done++
	c.state = waiting
	seg := &c.ops.segments[c.segment]
	if c.pos++; c.pos == seg.n {
		c.pos = 0
		if c.iter++; c.iter == seg.times {
			c.iter = 0
			if c.segment++; int(c.segment) == len(c.ops.segments) {
				c.state = finished
			}
		}
	}
	for other := e.first[c.rank]; other < e.first[c.rank+1]; other++ {
		if e.lanes[other].state == waiting {
			e.ready = append(e.ready, other)
		}
	}
}

func (e *engine) record(c *cursor) {
	o := c.op()
	var m *more
	if o.more >= 0 {
		m = &c.prog.more[o.more]
	}
	if len(e.timeline) == maxSpans {
		e.failed = fault.New(fault.NotSupported,
			"simulating plan %q (%v): a timeline of more than %d steps; leave it out, or take fewer ranks",
			e.p.Name, e.p.Spec, maxSpans)
		return
	}
	slot := o.slot
	if slot >= plan.MaxChans {
		slot -= plan.MaxChans
	}
	bytes := e.bytes(c, o)
	if does := o.kind.Traits(); !does.Reads && !does.Writes {
		bytes = 0
	}
	e.timeline = append(e.timeline,
		Span{Rank: c.rank, Lane: c.lane, Step: c.done, Peer: e.peer(c, o, m), Kind: o.kind, Slot: slot,
			Bytes: bytes, Start: c.start, End: e.now})
}

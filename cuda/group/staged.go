package group

import (
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
)

// staged is the way through memory of the host. It has a pipeline for collectives, and others for
// messages to and from each rank.
type staged struct {
	passive
	g *Group
	// Of collectives; of sends to each rank; of receives from each rank; of receives from any; of
	// messages of programs.
	pipelines []*pipeline
	inUse     atomic.Pointer[[]*pipeline] // those that have had calls
	to, from  []*pipeline                 // the last of these, by rank; nil for ranks that have none (rails)
	memory    cuda.Registered
	free      func() error  // gives memory back; nil before it was allocated
	watch     cuda.Observer // nil for none
	batch     batch         // guarded by Group.mu, like splits
	splits    map[split]int
}

// Collectives have collSlots slots, and each peer has messageSlots in both directions, of
// leastMessage to mostMessage bytes.
const (
	collSlots    = 4
	messageSlots = 2
	leastMessage = 64 << 10
	mostMessage  = 1 << 20

	// LeastStaging is the least memory for collectives.
	LeastStaging = collSlots * 64 << 10
)

func newStaged(g *Group) *staged {
	st := &staged{g: g, splits: map[split]int{}}
	st.inUse.Store(new([]*pipeline))
	st.watch, _ = g.ctx.(cuda.Observer)
	return st
}

// open makes the pipelines and their memory.
func (st *staged) open() (err error) {
	g := st.g
	collSlot := g.opts.Staging / collSlots &^ (page.Align - 1)
	message := g.opts.Staging / max(1, 2*messageSlots*g.size) &^ (page.Align - 1)
	message = max(leastMessage, min(message, mostMessage))
	at := 0
	add := func(count, bytes int, toHost, toDevice bool) *pipeline {
		p := &pipeline{g: g, st: st, there: at, done: at + page.WordBytes, slots: make([]slot, count), bytes: bytes,
			toHost: direction{used: toHost}, toDevice: direction{used: toDevice}, flights: make([]flight, count+1)}
		at += 2 * page.WordBytes
		st.pipelines = append(st.pipelines, p)
		return p
	}
	add(collSlots, collSlot, true, true)
	for range g.size {
		add(messageSlots, message, true, false)
	}
	for range g.size + 1 {
		add(messageSlots, message, false, true)
	}
	if g.opts.WindowPlanner != nil && route.Unfit(g.opts.Peers.On) == "" {
		st.to, st.from = make([]*pipeline, g.size), make([]*pipeline, g.size)
		rail := max(message, railSlot(share.SlotOf(g.opts.Staging)))
		for _, peer := range g.opts.Peers.On.Rails(g.rank) {
			st.to[peer] = add(messageSlots, rail, true, false)
			st.from[peer] = add(messageSlots, rail, false, true)
		}
	}
	g.queues.hold, g.queues.come = at, at+page.WordBytes
	words := at + 2*page.WordBytes
	at = (words + page.Align - 1) &^ (page.Align - 1)
	for _, p := range st.pipelines {
		for i := range p.slots {
			p.slots[i].at = at
			at += p.bytes
		}
	}
	memory, free, err := g.opts.Alloc(at, (*pinner)(st))
	if err != nil {
		return err
	}
	st.free = free
	clear(memory[:words])
	if g.callers.at, err = g.ctx.NewEvent(); err != nil {
		return err
	}
	return st.pipelines[0].open()
}

// used returns the pipelines that have had calls, and that of collectives.
func (st *staged) used() []*pipeline { return *st.inUse.Load() }

// pinner registers the memory of the staged route.
type pinner staged

func (p *pinner) Pin(memory []byte) (err error) {
	p.memory, err = p.g.ctx.Register(memory)
	return err
}

func (p *pinner) Unpin([]byte) error { return p.memory.Free() }

func (st *staged) suits(o *Op) (ok bool, err error) {
	if o.capture != 0 {
		return false, nil
	}
	o.pipeline = st.pipelineOf(&o.call)
	o.cut, err = st.cut(&o.call, o.pipeline)
	if o.pieces = o.cut.pieces; o.cut.agree {
		o.pieces = -1
	}
	return err == nil, err
}

func (st *staged) prepare(o *Op, _ cuda.Stream) error  { return o.pipeline.open() }
func (st *staged) hand(o *Op)                          { o.pipeline.hand(o) }
func (st *staged) enqueue(o *Op, on cuda.Stream) error { return o.pipeline.enqueue(o, on) }
func (st *staged) abandon(o *Op, on cuda.Stream)       { o.pipeline.abandon(o, on) }

// pipelineOf returns the pipeline of a call.
func (st *staged) pipelineOf(call *exec.Call) *pipeline {
	switch {
	case call.Coll == dtype.Send:
		return st.pipelines[1+call.Root]
	case call.Coll == dtype.Recv && call.Root < 0:
		return st.pipelines[1+2*st.g.size]
	case call.Coll == dtype.Recv:
		return st.pipelines[1+st.g.size+call.Root]
	}
	return st.pipelines[0]
}

// split identifies a choice of the planner.
type split struct {
	coll      dtype.Collective
	algorithm int
}

// cut cuts a call into pieces.
func (st *staged) cut(call *exec.Call, p *pipeline) (cut, error) {
	g := st.g
	chunks := 1
	if call.Coll.Reduces() {
		key := split{call.Coll, g.opts.Planner.Choose(call.Coll, call.Bytes())}
		if st.splits[key] == 0 {
			spec := plan.Spec{Coll: call.Coll, Ranks: st.g.size}
			if call.Coll.Rooted() {
				spec.Root = call.Root
			}
			p, err := g.opts.Planner.Make(key.algorithm, spec)
			if err != nil {
				return cut{}, fault.Wrap(fault.Internal, err, "no plan for %v", call.Coll)
			}
			st.splits[key] = p.Split
		}
		chunks = st.splits[key]
	}
	return newCut(call, st.g.size, chunks, p.bytes)
}

// advance posts pieces, and ends those that have ended.
func (st *staged) advance() (moved, pending bool) {
	for _, p := range st.used() {
		for st.g.Failure() == nil && p.land() {
			moved = true
		}
		for st.g.Failure() == nil && p.post() {
			moved = true
		}
		pending = pending || p.queue.head() != nil || p.inFlight > 0
	}
	return moved, pending
}

// expedite has the pieces in flight driven by the progress thread while the device thread naps.
func (st *staged) expedite() {
	for _, p := range st.used() {
		for i := range p.inFlight {
			p.flights[(p.tail+i)%len(p.flights)].op.Expedite()
		}
	}
}

// look returns the error of a call whose next piece the device has not come to.
func (st *staged) look(now time.Time) (pending bool, err error) {
	for _, p := range st.used() {
		o := p.queue.head()
		if o != nil && o.past(now) && p.inFlight == 0 {
			return true, st.g.notCome(o)
		}
		pending = pending || o != nil
	}
	return pending, nil
}

// fail ends all Ops after a failure, also those that were on their way when it came.
func (st *staged) fail(failure *fault.Error) (any bool) {
	for _, p := range st.used() {
		for p.inFlight > 0 {
			any = true
			f := p.pop()
			f.op.Wait(nil) // the Comm has failed, so this does not take long
			f.over()
			if !f.agrees {
				f.of.ended++
			}
			if f.of != p.queue.head() && f.of.ended == f.of.posted {
				f.of.finish(failure)
			}
		}
		for o := p.queue.head(); o != nil; o = p.queue.head() {
			any = true
			p.queue.pop()
			o.finish(failure)
		}
	}
	return any
}

package group

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
)

// ops are the Ops of a group: they are used again.
type ops struct {
	mu   sync.Mutex // not Group.mu: the device thread must not wait for a caller whose stream is full
	all  []*Op
	idle []*Op // those that nobody holds

	collectives, messages atomic.Uint64 // so far
	exposed               atomic.Uint64 // collectives in which tensors were lent
	receives              atomic.Int32  // that have not ended
	others                atomic.Int32  // calls that have not ended, but for receives
}

// queue are Ops in the order of calls, from who enqueues them to the device thread.
type queue struct {
	mu  sync.Mutex
	ops []*Op
}

func (q *queue) push(o *Op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ops = append(q.ops, o)
}

// head returns the oldest Op, or nil. Only the device thread takes it out.
func (q *queue) head() *Op {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ops) == 0 {
		return nil
	}
	return q.ops[0]
}

func (q *queue) pop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ops = slices.Delete(q.ops, 0, 1)
}

// number gives an Op its place in the order of calls, and its deadline.
func (g *Group) number(o *Op) {
	count := &g.ops.messages
	if o.call.Coll.Valid() {
		count = &g.ops.collectives
	}
	o.seq = count.Add(1)
	if timeout := o.timeout(); timeout > 0 {
		o.deadline = time.Now().Add(timeout)
	}
}

// nested returns an Op for a message of a call.
func (g *Group) nested(of *Op, call *exec.Call, c cut) (*Op, error) {
	o, err := g.prepared(call)
	if err != nil {
		return nil, err
	}
	o.cut, o.pieces = c, c.pieces
	o.of, o.seq = of, of.seq
	of.holders.Add(1)
	of.messages.Add(1)
	return o, nil
}

// prepared returns an Op for a call, held by two.
func (g *Group) prepared(call *exec.Call) (*Op, error) {
	o := g.ops.unused()
	if o == nil {
		end, err := g.ctx.NewEvent()
		if err != nil {
			return nil, err
		}
		o = &Op{g: g, end: end}
		g.ops.mu.Lock()
		g.ops.all = append(g.ops.all, o)
		g.ops.mu.Unlock()
	}
	*o = Op{g: g, end: o.end, call: *call, in: append(o.in[:0], call.In...), out: append(o.out[:0], call.Out...)}
	o.call.In, o.call.Out = o.in, o.out
	o.source.Store(-1)
	o.holders.Store(2)
	return o, nil
}

// unused returns an Op that nobody holds, or nil.
func (p *ops) unused() (o *Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		o, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	return o
}

// keep takes back an Op that nobody holds any more.
func (p *ops) keep(o *Op) {
	clear(o.in)
	clear(o.out)
	o.call = exec.Call{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, o)
}

// unended returns the counter of calls like this one that have not ended.
func (p *ops) unended(o *Op) *atomic.Int32 {
	if o.call.Coll == dtype.Recv {
		return &p.receives
	}
	return &p.others
}

// Pending returns how many calls the processor has not finished yet: receives, and others.
func (g *Group) Pending() (receives, others int) {
	return int(g.ops.receives.Load()), int(g.ops.others.Load())
}

// Counts returns how many collectives and how many messages were enqueued so far.
func (g *Group) Counts() (collectives, messages uint64) {
	return g.ops.collectives.Load(), g.ops.messages.Load()
}

// Exposed returns in how many collectives this rank has lent tensors in its Arena to its peers.
func (g *Group) Exposed() uint64 { return g.ops.exposed.Load() }

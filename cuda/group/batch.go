package group

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/exec"
)

// batch are messages of one Call.Batch, which are held back until the batch ends, or somebody joins
// one of them. The streams of a process may share one hardware queue, where a receive holds up what
// was enqueued behind it. So the pieces of a batch go into the streams together: first those to be
// sent that surely leave, then one to be received and one to be sent of each pipeline in turn.
//
// Where both ranks have the messages between them in a batch, nobody waits in a circle: piece n is
// sent when the receiver's device has copied piece n-surely, which each rank enqueues before any
// piece n that it sends; and piece n comes when it is sent, which each rank enqueues before any
// piece n that it receives.
type batch struct {
	number    uint32
	pipelines []*pipeline // that hold messages back, each once
	open      atomic.Bool // there are some
}

// surely is how many pieces of a pipeline leave, whatever the receiver's device does: they fill the
// slots of both ranks.
const surely = 2 * messageSlots

// holds reports whether a call is held back.
func holds(call *exec.Call) bool { return call.Batch != 0 && !call.Coll.Valid() }

// takes reports whether a call can come to what is held back.
func (b *batch) takes(call *exec.Call) bool {
	return len(b.pipelines) == 0 || holds(call) && call.Batch == b.number
}

// hold holds a message back.
func (b *batch) hold(o *Op, p *pipeline) {
	b.number = o.call.Batch
	b.open.Store(true)
	if len(p.held) == 0 {
		b.pipelines = append(b.pipelines, p)
	}
	o.held.Store(true)
	o.holders.Add(1)
	p.held = append(p.held, o)
}

// issue puts all pieces into the streams.
func (b *batch) issue() error {
	for round, more := 0, true; more; round++ {
		more = false
		for _, receive := range [2]bool{true, false} {
			for _, p := range b.pipelines {
				if p.toDevice.used == receive && (round >= surely || !receive) {
					if err := p.issueHeld(); err != nil {
						return err
					}
				}
				more = more || len(p.held) > 0
			}
		}
	}
	b.pipelines = b.pipelines[:0]
	b.open.Store(false)
	return nil
}

// abandon lets go of what could not be issued. As far as the driver still does anything, the ends
// of the messages come behind what has been.
func (b *batch) abandon() {
	for _, p := range b.pipelines {
		for len(p.held) > 0 {
			p.held[p.heldFrom].end.Record(p.last())
			p.dropHeld()
		}
	}
	b.pipelines = b.pipelines[:0]
	b.open.Store(false)
}

// issueHeld enqueues the next piece of what a pipeline holds back, if there is one.
func (p *pipeline) issueHeld() error {
	if len(p.held) == 0 {
		return nil
	}
	o := p.held[p.heldFrom]
	if err := p.enqueueMessage(o, p.heldPiece); err != nil {
		return err
	}
	if p.heldPiece++; p.heldPiece < o.cut.pieces {
		return nil
	}
	if err := o.end.Record(p.last()); err != nil {
		return err
	}
	p.dropHeld()
	return nil
}

// dropHeld lets go of the first message that a pipeline holds back.
func (p *pipeline) dropHeld() {
	o := p.held[p.heldFrom]
	p.held[p.heldFrom] = nil
	p.heldFrom++
	p.heldPiece = 0
	if p.heldFrom == len(p.held) {
		p.held, p.heldFrom = p.held[:0], 0
	}
	o.held.Store(false)
	o.drop()
}

// endBatch issues what is held back. A failure ends the group. The caller has g.mu.
func (g *Group) endBatch() error {
	if len(g.staged.batch.pipelines) == 0 {
		return nil
	}
	err := g.ctx.Enter(false)
	if err == nil {
		defer g.ctx.Leave()
		if err = g.staged.batch.issue(); err == nil {
			return nil
		}
	}
	f := g.fail(err)
	g.staged.batch.abandon()
	return f
}

// EndBatch says that no more messages with this Call.Batch will come, or with 0, none with that of
// those before. They go into their streams, unless they have already.
func (g *Group) EndBatch(number uint32) error {
	if !g.staged.batch.open.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if number != 0 && number != g.staged.batch.number {
		return nil
	}
	return g.endBatch()
}

// issue has the streams get the call, if it is held back. An error has ended the group.
func (o *Op) issue() {
	if !o.held.Load() {
		return
	}
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	if o.held.Load() {
		o.g.endBatch()
	}
}

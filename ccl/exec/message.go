package exec

import (
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/park"
)

// messages is what a Comm has of sends and receives, and of the messages of keyed operations. Only
// the driver uses it, but for the atomic counters.
type messages struct {
	engine   *p2p.Engine
	called   atomic.Uint64 // sends and receives so far
	receives atomic.Uint64 // receives that the engine has
	count    int           // messages that the engine has
	with     []int         // the same by peer; those from any source are behind the last
	held     []*Op         // have failed because of a death, until it is settled who else has died
	given    *fault.Error  // of the one that has failed last
}

// plainMessage reports whether the call is a valid send or receive between two given ranks. If it
// is invalid, Call.Check reports why.
func plainMessage(c *Call, ranks int) bool {
	blocks, others := c.In, c.Out
	if c.Coll == dtype.Recv {
		blocks, others = others, blocks
	} else if c.Coll != dtype.Send {
		return false
	}
	return len(blocks) == 1 && len(others) == 0 && c.Type.Valid() && uint(c.Root) < uint(ranks) && c.Timeout >= 0 &&
		uint(blocks[0].Count) <= program.MaxBytes/uint(c.Type.Size()) && (blocks[0].Ptr != nil || blocks[0].Count == 0)
}

// runMessage is Run for a send or receive if nothing else is posted: the thread holds the lock.
// Most messages are copied directly from the caller's memory to the channel, or from the channel to
// the caller's memory, and never become a pending operation. note is the number of its record, 0 if
// it has none yet.
func (c *Comm) runMessage(call *Call, note uint64, d time.Duration) (*Op, error) {
	op := c.alone
	op.request(call)
	if note == 0 && op.req.Bytes > window.MaxKept { // copying it takes long
		note = c.note(call)
	}
	w := waiter{comm: c, limit: d}
	outcome := c.messages.engine.Direct(&op.req)
	if note == 0 { // the peer has the message now, or this rank has to wait for it
		note = c.note(call)
	}
	for outcome != p2p.Done {
		if outcome == p2p.General || op.req.Send || !c.poll() && !(w.pause() && !w.counted) {
			c.leaveToEngine(op, call, note, c.number(call), outcome, false)
			return c.driveAlone(op, &w)
		}
		outcome = c.messages.engine.Direct(&op.req)
	}
	op.req.Data = nil
	c.messages.called.Add(1)
	c.noteEnd(note, nil, false)
	c.lookAround()
	c.unlock()
	c.handOver()
	return nil, nil
}

// lookAround polls the other peers' messages now and then, for a rank that only sends, or only
// receives from one rank.
func (c *Comm) lookAround() {
	if c.idle++; c.idle%unaskedEvery == 0 {
		c.messages.engine.Advance()
	}
}

// leaveToEngine turns a request that Direct has not completed into an operation, which the engine
// continues. The operation may end here.
func (c *Comm) leaveToEngine(op *Op, call *Call, note, seq uint64, outcome p2p.Outcome, notify bool) {
	op.set(c, call, note, seq)
	op.notify = notify
	c.keepMessage(op)
	if outcome != p2p.Begun {
		c.messages.engine.Post(&op.req)
	}
}

// postDirect is Post for a send or receive. The caller has taken the lock; postDirect releases it.
// A request that Direct completes has ended when postDirect returns; only other requests become
// operations that a thread has to drive.
func (c *Comm) postDirect(call *Call, note uint64) *Op {
	c.take() // operations posted earlier
	op := ops.Get().(*Op)
	op.request(call)
	outcome := c.messages.engine.Direct(&op.req)
	seq := c.number(call)
	if outcome == p2p.Done {
		op.over(c, seq)
		if op.req.Data = nil; !op.req.Send {
			op.source = op.req.Source
		}
		c.noteEnd(note, nil, false)
		c.lookAround()
	} else {
		c.leaveToEngine(op, call, note, seq, outcome, true)
		c.advance()
	}
	c.unlock()
	c.handOver()
	if outcome == p2p.Done {
		Completions.add()
	}
	return op
}

// request fills in the engine's request for a send or receive.
func (op *Op) request(call *Call) {
	b, send := call.Out, call.Coll == dtype.Send
	if send {
		b = call.In
	}
	r := &op.req // field by field: the others belong to the engine, which leaves them idle
	r.Peer, r.Tag, r.Data, r.Bytes, r.Send = call.Root, uint64(call.Tag), b[0].Ptr, b[0].Count*call.Type.Size(), send
}

func (c *Comm) postMessage(op *Op) {
	op.request(&op.call)
	c.keepMessage(op)
	c.messages.engine.Post(&op.req)
}

// keepMessage adds op to the messages whose deadlines are checked.
func (c *Comm) keepMessage(op *Op) {
	c.deadlines.add(op)
	c.messages.add(op, 1)
}

// add counts a send or receive that the engine has, or has no more if by is -1.
func (m *messages) add(op *Op, by int) {
	m.addWith(op.req.Peer, by)
	if op.call.Coll == dtype.Recv {
		park.Publish(&m.receives, m.receives.Load()+uint64(by))
	}
}

// addWith is add for any message with a peer.
func (m *messages) addWith(peer, by int) {
	if peer < 0 || peer >= len(m.with)-1 {
		peer = len(m.with) - 1 // any source
	}
	m.count += by
	m.with[peer] += by
}

// partners returns ranks that messages wait for, at most some. Those from any source wait for
// nobody in particular.
func (m *messages) partners(most int) (ranks []int) {
	for peer, n := range m.with[:len(m.with)-1] {
		if n > 0 && len(ranks) < most {
			ranks = append(ranks, peer)
		}
	}
	return ranks
}

// messageDone is called by the engine when a send or receive has ended.
func (c *Comm) messageDone(req *p2p.Request, err error) {
	if req.Tag >= keyedTag {
		c.keyedDone(req, err)
		return
	}
	op := opOf(req)
	c.deadlines.remove(op, err == nil)
	c.messages.add(op, -1)
	if err == nil && !req.Send {
		op.source = req.Source
	}
	if err != nil && c.broken == nil {
		c.messages.given = op.explain(err)
	}
	if c.broken == nil && isDeath(err) {
		c.messages.held = append(c.messages.held, op)
	} else {
		c.end(op, err)
	}
}

func isDeath(err error) bool {
	f, ok := err.(*fault.Error)
	return ok && f.Code == fault.PeerLost
}

// endHeld ends the messages that were held.
func (c *Comm) endHeld(err error) {
	held := c.messages.held
	c.messages.held = nil
	for _, op := range held {
		c.end(op, err)
	}
}

package exec

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/blame"
	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
)

// Standing is what a rank is doing.
type Standing struct {
	Seq   uint64        // the collective in flight, or else the last one that it has called
	Op    string        // what it is in; empty: in no call, or unknown
	Waits []int         // the ranks that it waits for
	Busy  bool          // it is in a call of which nothing is known in time: its driver is at work
	Idle  time.Duration // since its last call, if it is in none; 0 if that is unknown
}

// Standing tells what this rank is doing, within about d. Any thread may ask. Operations are not
// held up: what only the driver knows, the driver tells when nothing moves.
func (c *Comm) Standing(d time.Duration) Standing {
	s := view{c}.Outside()
	if s.Busy && d > 0 {
		if told, leave := c.run.blame.Inquiry.Ask(); told != nil {
			defer leave()
			var ok bool
			if s, ok = attended(c, told, d); !ok {
				s = view{c}.Outside()
			}
		}
	}
	return Standing{Seq: s.Seq, Op: s.Op, Waits: s.Waits, Busy: s.Busy, Idle: time.Duration(s.Idle) * time.Millisecond}
}

// Messages returns the number of sends and receives posted so far.
func (c *Comm) Messages() uint64 { return c.messages.called.Load() }

// attended returns what the driver tells another thread, which waits for it for at most d, and not
// once all operations have ended. Where no thread drives, this one does.
func attended[T any](c *Comm, told <-chan T, d time.Duration) (what T, ok bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := now() + int64(d); now() < end && c.pending.Load() > 0; { // model: none: what it learns may be late
		c.run.blame.Wake()
		c.workOnce()
		select {
		case what = <-told:
			return what, true
		case <-tick.C:
		}
	}
	return what, false
}

// view is a Comm as package blame reads it.
type view struct{ c *Comm }

func (v view) Outside() blame.Standing {
	if v.c.pending.Load() > 0 { // model: none: what it says may be late
		return blame.Standing{Seq: v.c.Seq(), Busy: true}
	}
	return v.idle()
}

func (v view) idle() blame.Standing {
	s := blame.Standing{Seq: v.c.Seq()}
	if v.c.opts.Record == nil {
		return s
	}
	if last, ok := v.c.opts.Record.Last(); ok {
		end := last.Ended
		if end.IsZero() {
			end = last.Begun
		}
		s.Idle = max(time.Since(end).Milliseconds(), 1)
	}
	return s
}

func (v view) Standing() blame.Standing {
	c := v.c
	if op := c.head; op != nil {
		waits, _ := c.run.awaited()
		return blame.Standing{Seq: op.seq, Op: op.describe(), Waits: waits}
	}
	s := v.idle()
	if len(c.keyed.all) > 0 {
		op := c.keyed.all[0]
		s.Op, s.Waits = op.describe(), op.keyed.awaited()
		return s
	}
	if c.messages.count == 0 || c.waiting.Load() == 0 { // model: none: as above
		return s // receives that were posted, and for which nobody waits, hold nobody up
	}
	s.Op, s.Waits = c.deadlines.oldest().describe(), c.messages.partners(blame.MostWaits)
	return s
}

func (v view) Call() (call blame.Call, begun bool) {
	f := &v.c.run.frame
	if f.prog == nil {
		return call, false
	}
	call = blame.Call{Head: f.fingerprint[0], What: f.prog.what, After: v.c.run.calls.History, Length: f.prog.length}
	digest := f.prog.digest
	if f.counting { // the program is that of the exchange
		print := fingerprint.Of(&f.op.call, 0)
		print.Seq = uint32(f.fingerprint[0])
		digest, call.Length = print.Digest(), blockLength(&f.op.call)
		call.Head, call.What = print.Meta(0)[0], print.What()
	}
	call.After.Add(digest)
	return call, true
}

func (v view) InFlight() (blame.Operation, bool) {
	op := v.c.run.frame.op
	if op == nil {
		op = v.c.deadlines.oldest()
	}
	if op == nil {
		return blame.Operation{}, false
	}
	return op.unended(), true
}

func (v view) Awaited() []int {
	waits, _ := v.c.run.awaited()
	return append(waits, v.c.messages.partners(v.c.size)...)
}

// unended says what there is to say of an operation that has not ended, and for whom it waits. The
// caller holds the lock.
func (op *Op) unended() blame.Operation {
	f := &op.comm.run.frame
	u := blame.Operation{Name: op.describe(), Seq: op.seq, Peer: op.req.Peer, Else: "it does not end"}
	switch {
	case op.keyed != nil:
		u.Kind = blame.Keyed
		u.Waits = op.keyed.awaited()
		u.Where = slices.Repeat([]string{"nothing of this call has come"}, len(u.Waits))
	case !op.call.Coll.Valid():
		u.Kind = blame.Message
		u.Else = "no such message has come from any rank"
		if op.call.Root == p2p.AnySource {
			break
		}
		u.Waits, u.Where = []int{op.call.Root}, []string{"the message has not come"}
		if op.call.Coll == dtype.Send {
			u.Where[0] = "it has not taken the message"
		}
	case op == f.op:
		u.Waits, u.Where = op.comm.run.awaited()
		u.Exchange = op.comm.run.exchanged()
	case f.op != nil:
		u.Else = fmt.Sprintf("behind %s, which has not ended", f.op.describe())
	default:
		u.Else = "its turn did not come"
	}
	return u
}

// timedOut returns the error of an operation that is past its deadline. The caller holds the lock.
func (op *Op) timedOut() *fault.Error {
	u := op.unended()
	return op.comm.run.blame.Inquiry.TimedOut(&u)
}

package exec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// A rank whose operation is past its deadline knows only whom it waits for itself, and that rank
// mostly waits, too. So before the operation fails, the rank makes an inquiry: by control messages
// it asks the others what they are doing, which a goroutine of theirs answers even if all threads
// compute. The ranks at the ends of the chains, who wait for nobody, are to blame.

const (
	inquirySpan  = 400 * time.Millisecond // for the answers of all ranks
	inquiryFresh = time.Second            // for so long it serves other operations, too
	abortSpan    = 100 * time.Millisecond // the same, for an Abort
	drainSpan    = 700 * time.Millisecond // the same, for a Drain, which gives up what has not ended
	mostAsked    = 64                     // in larger groups only those on the chains are asked
	mostWaits    = 256                    // ranks that an answer lists
)

// The kinds of control messages, which follow from their first byte.
const (
	controlQuestion = 'q' // then the number of the inquiry, 4 bytes
	controlAnswer   = 'a' // then the same, and a standing as JSON
)

// standing is what a rank says about itself.
type standing struct {
	Seq   uint64 `json:"seq"`             // the collective in flight, or else the last one that it has called
	Op    string `json:"op,omitempty"`    // what it is in; empty: in no call
	Waits []int  `json:"waits,omitempty"` // the ranks that it waits for
	Busy  bool   `json:"busy,omitempty"`  // it is in a call; its driver will say more
	Idle  int64  `json:"idle,omitempty"`  // milliseconds since its last call; 0 if that is unknown
}

// Control takes the control messages of a group's links. It is made before the links are, and then
// given to the Comm.
type Control struct {
	comm    atomic.Pointer[Comm]
	stirred atomic.Bool // the driver has something to do
	wanted  atomic.Pointer[wanted]
	asker   atomic.Pointer[asker]

	mu        sync.Mutex
	questions []question
	inquiry   uint32 // the number of the latest one of this rank
	answers   map[int]standing
	failures  []failure
	comparison
}

// wanted is an inquiry that another thread than the driver's waits for.
type wanted struct {
	span  time.Duration
	needs bool         // whoever wants it needs all ranks, also without an operation in flight
	found chan outcome // holds one
}

// outcome is what an inquiry says about the first operation in flight.
type outcome struct {
	text   string // what it waits for; empty: there is none
	silent bool   // it, or data that has not left, waits for a rank that does not answer
}

// question is one that the driver has to answer.
type question struct {
	peer   int
	number uint32
}

// Hear handles a message of a peer. A goroutine of a transport calls it.
func (k *Control) Hear(peer int, message []byte) {
	c := k.comm.Load()
	if c != nil && len(message) > 0 && (message[0] == controlCompare || message[0] == controlCalls) {
		k.hearCalls(c, peer, message)
		return
	}
	if c == nil || len(message) < 5 {
		return
	}
	number := binary.LittleEndian.Uint32(message[1:])
	switch message[0] {
	case controlQuestion:
		s := c.outside()
		if s.Busy {
			k.mu.Lock()
			if len(k.questions) < c.size { // a peer that asks too often is answered less often
				k.questions = append(k.questions, question{peer, number})
			}
			k.mu.Unlock()
			k.stir(c)
		}
		c.tell(peer, number, &s)
	case controlAnswer:
		var s standing
		if json.Unmarshal(message[5:], &s) != nil || !s.valid(c.size) {
			return
		}
		k.mu.Lock()
		if number == k.inquiry && k.answers != nil {
			if _, known := k.answers[peer]; !known || !s.Busy {
				k.answers[peer] = s
			}
		}
		k.mu.Unlock()
		k.stir(c)
	case controlFailed:
		k.mu.Lock()
		if len(k.failures) < c.size {
			k.failures = append(k.failures, failure{peer, bytes.Clone(message[5:])})
		}
		k.mu.Unlock()
		k.stir(c)
		go c.attendSoon()
	case controlWhoIsLost, controlTheseAre:
		k.hearLosses(c, peer, message[0] == controlWhoIsLost, number, message[5:])
	}
}

// valid reports whether an answer can be right.
func (s *standing) valid(ranks int) bool {
	outside := func(rank int) bool { return rank < 0 || rank >= ranks }
	return len(s.Waits) <= mostWaits && !slices.ContainsFunc(s.Waits, outside) && s.Idle >= 0
}

// stir makes the driver look.
func (k *Control) stir(c *Comm) {
	k.stirred.Store(true)
	c.opts.Doorbell.Ring()
}

func (c *Comm) tell(peer int, number uint32, s *standing) {
	text, _ := json.Marshal(s)
	c.opts.Links[peer].Tell(append(inquiryHead(controlAnswer, number), text...))
}

func inquiryHead(kind byte, number uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{kind}, number)
}

// outside is what any thread can say about this rank.
func (c *Comm) outside() standing {
	if c.pending.Load() > 0 { // model: none: what it says may be late
		return standing{Seq: c.Seq(), Busy: true}
	}
	return c.idleSince()
}

func (c *Comm) idleSince() standing {
	s := standing{Seq: c.Seq()}
	if c.opts.Record == nil {
		return s
	}
	if last, ok := c.opts.Record.Last(); ok {
		end := last.Ended
		if end.IsZero() {
			end = last.Begun
		}
		s.Idle = max(time.Since(end).Milliseconds(), 1)
	}
	return s
}

// standing is what the driver can say about this rank.
func (c *Comm) standing() standing {
	if op := c.head; op != nil {
		waits, _ := c.awaited()
		return standing{Seq: op.seq, Op: op.describe(), Waits: waits}
	}
	s := c.idleSince()
	if len(c.keyed) > 0 {
		op := c.keyed[0]
		s.Op, s.Waits = op.describe(), op.keyed.awaited()
		return s
	}
	if c.messageCount == 0 || c.waiting.Load() == 0 { // model: none: as above
		return s // receives that were posted, and for which nobody waits, hold nobody up
	}
	s.Op, s.Waits = c.deadlines.oldest().describe(), c.partners(mostWaits)
	return s
}

// awaited returns the ranks that the operation in flight waits for, and where in it.
func (c *Comm) awaited() (ranks []int, where []string) {
	f := &c.frame
	if f.prog == nil {
		return nil, nil
	}
	if late, why := c.lateRank(); late >= 0 {
		ranks = c.windows.Behind(f.prog.Depth, mostWaits)
		if f.draining() {
			ranks = c.windows.Behind(1, mostWaits)
		}
		return ranks, slices.Repeat([]string{"which " + why}, len(ranks))
	}
	for lane := range f.lanes {
		b := f.waitsAt(lane)
		if b != nil && b.Step != nil && !slices.Contains(ranks, b.Peer) && len(ranks) < mostWaits {
			ranks, where = append(ranks, b.Peer), append(where, f.soFar(lane, b))
		}
	}
	return ranks, where
}

// inquiry is the driver's part of an inquiry of this rank.
type inquiry struct {
	begun        int64
	until, fresh int64 // when it ends at the latest, and for how long it serves; 0 before the first one
	over         bool
	asked        []int
}

func (q *inquiry) underWay() bool { return q.until != 0 && !q.over }

// inquire begins an inquiry, unless there is one already, and reports whether it is over. Answers
// have the span to come.
func (c *Comm) inquire(span time.Duration) bool {
	k, q := c.opts.Control, &c.inquiry
	if k == nil || c.size == 1 {
		return true
	}
	if t := now(); q.until == 0 || q.over && t >= q.fresh {
		*q = inquiry{begun: t, until: t + int64(span), fresh: t + int64(span+inquiryFresh)}
		k.mu.Lock()
		k.inquiry++
		k.answers = map[int]standing{}
		k.mu.Unlock()
		if c.size <= mostAsked {
			for peer := range c.size {
				c.inquireOf(peer)
			}
		}
		waits, _ := c.awaited()
		for _, peer := range waits {
			c.inquireOf(peer)
		}
		for _, peer := range c.partners(c.size) {
			c.inquireOf(peer)
		}
	}
	if q.underWay() {
		k.mu.Lock()
		q.over = now() >= q.until || c.heardAll()
		k.mu.Unlock()
	}
	return q.over
}

// heardAll reports whether all that were asked have answered, or have left and so cannot. The
// caller holds Control.mu.
func (c *Comm) heardAll() bool {
	for _, peer := range c.inquiry.asked {
		if s, known := c.opts.Control.answers[peer]; (!known || s.Busy) && !c.hasLeft(peer) {
			return false
		}
	}
	return true
}

// hasLeft reports whether a peer has left the group: it has failed in something else, say.
func (c *Comm) hasLeft(peer int) bool {
	return c.lost[peer] && !errors.Is(c.opts.Links[peer].Err(), fault.PeerLost)
}

func (c *Comm) inquireOf(peer int) {
	if q := &c.inquiry; peer != c.rank && !slices.Contains(q.asked, peer) {
		q.asked = append(q.asked, peer)
		c.opts.Links[peer].Tell(inquiryHead(controlQuestion, c.opts.Control.inquiry))
	}
}

// attend answers the questions of peers, and goes on with the inquiry of this rank. It reports
// whether there was anything to do.
func (c *Comm) attend() bool {
	k := c.opts.Control
	if k == nil || !k.stirred.Load() || !k.stirred.Swap(false) {
		return false
	}
	if found := c.compare(); found != nil {
		c.failWith(found)
		return true
	}
	k.mu.Lock()
	questions, failures := k.questions, k.failures
	k.questions, k.failures = nil, nil
	var next []int
	for _, s := range k.answers {
		next = append(next, s.Waits...)
	}
	k.mu.Unlock()
	for _, each := range failures {
		if told := c.parseReport(each.peer, each.report); told != nil {
			c.bar(told, each.report)
		}
	}
	if len(questions) > 0 {
		s := c.standing()
		for _, each := range questions {
			c.tell(each.peer, each.number, &s)
		}
	}
	if c.inquiry.underWay() {
		for _, peer := range next {
			c.inquireOf(peer)
		}
		k.mu.Lock()
		c.inquiry.over = c.heardAll()
		k.mu.Unlock()
	}
	if a := k.asker.Swap(nil); a != nil {
		a.told <- c.standing()
	}
	if w := k.wanted.Load(); w != nil && c.inquire(w.span) {
		k.wanted.Store(nil)
		w.found <- c.inFlight(w.needs)
	}
	return true
}

// want asks the driver for an inquiry. It returns nil if that cannot be, or if another is wanted
// already.
func (c *Comm) want(span time.Duration, needs bool) *wanted {
	k := c.opts.Control
	if k == nil || c.size == 1 {
		return nil
	}
	w := &wanted{span, needs, make(chan outcome, 1)}
	if !k.wanted.CompareAndSwap(nil, w) {
		return nil
	}
	return w
}

// forget ends what want has begun.
func (c *Comm) forget(w *wanted) { c.opts.Control.wanted.CompareAndSwap(w, nil) }

// withInquiry adds to the reason of an Abort what the operations in flight wait for: on the other
// ranks they end with it, too.
func (c *Comm) withInquiry(err *fault.Error) *fault.Error {
	if c.pending.Load() == 0 { // model: none: without an operation there is nothing to add
		return err
	}
	w := c.want(abortSpan, false)
	if w == nil {
		return err
	}
	defer c.forget(w)
	f, found := attended(c, w.found, 3*abortSpan) // the driver itself may be late
	if !found || f.text == "" {
		return err
	}
	more := *err
	more.Text += ", while " + f.text
	return &more
}

// attended returns what the driver tells another thread, which waits for it for at most d, and not
// once all operations have ended. Where no thread drives, this one does.
func attended[T any](c *Comm, told <-chan T, d time.Duration) (what T, ok bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := now() + int64(d); now() < end && c.pending.Load() > 0; { // model: none: what it learns may be late
		c.opts.Control.stir(c)
		c.workOnce()
		select {
		case what = <-told:
			return what, true
		case <-tick.C:
		}
	}
	return what, false
}

// inFlight says what the first operation in flight waits for, after an inquiry. With needs set, all
// ranks are waited for.
func (c *Comm) inFlight(needs bool) (f outcome) {
	op := c.frame.op
	if op == nil {
		op = c.deadlines.oldest()
	}
	if op != nil {
		f.text = fmt.Sprintf("%s had not ended: %s", op.describe(), c.timedOut(op).Text)
	}
	k := c.opts.Control
	k.mu.Lock()
	defer k.mu.Unlock()
	f.silent = slices.ContainsFunc(c.inquiry.asked, func(peer int) bool {
		if _, known := k.answers[peer]; known {
			return false
		}
		return needs || op != nil && (op.call.Coll.Valid() || op.req.Peer == peer) || !c.opts.Links[peer].Flushed()
	})
	return f
}

// warnTime returns when to warn that the operation in flight does not end.
func (c *Comm) warnTime() int64 {
	c.askTime() // begins the wait
	return c.frame.asking.warn
}

// warn says whom the operation in flight waits for, after an inquiry; the next time after twice as
// long.
func (c *Comm) warn() {
	a := &c.frame.asking
	if now() < c.warnTime() || !c.inquire(inquirySpan) {
		return
	}
	op := c.frame.op
	c.opts.Warn("%s has not ended for %v: %s", op.describe(),
		time.Duration(a.after).Round(time.Millisecond), c.timedOut(op).Text)
	a.warn += a.after
	a.after *= 2
}

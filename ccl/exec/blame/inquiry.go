package blame

import (
	"encoding/json"
	"errors"
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
	mostAsked    = 64                     // in larger groups only those on the chains are asked
)

// MostWaits is the number of ranks that an answer lists at most.
const MostWaits = 256

// Standing is what a rank says about itself.
type Standing struct {
	Seq   uint64 `json:"seq"`             // the collective in flight, or else the last one that it has called
	Op    string `json:"op,omitempty"`    // what it is in; empty: in no call
	Waits []int  `json:"waits,omitempty"` // the ranks that it waits for
	Busy  bool   `json:"busy,omitempty"`  // it is in a call; its driver will say more
	Idle  int64  `json:"idle,omitempty"`  // milliseconds since its last call; 0 if that is unknown
}

// valid reports whether an answer can be right.
func (s *Standing) valid(ranks int) bool {
	outside := func(rank int) bool { return rank < 0 || rank >= ranks }
	return len(s.Waits) <= MostWaits && !slices.ContainsFunc(s.Waits, outside) && s.Idle >= 0
}

// Inquiry asks the other ranks what they are doing, and answers them.
type Inquiry struct {
	opts   *Options
	ending *Ending
	wanted atomic.Pointer[wanted]
	asker  atomic.Pointer[chan Standing]

	mu        sync.Mutex
	questions []question
	number    uint32 // of the latest inquiry of this rank
	answers   map[int]Standing

	latest
}

// latest is the driver's part of the latest inquiry of this rank.
type latest struct {
	begun        int64
	until, fresh int64 // when it ends at the latest, and for how long it serves; 0 before the first one
	over         bool
	asked        []int
}

// question is one that the driver has to answer.
type question struct {
	peer   int
	number uint32
}

// wanted is an inquiry that another thread than the driver's waits for.
type wanted struct {
	span  time.Duration
	needs bool         // whoever wants it needs all ranks, also without an operation in flight
	found chan Outcome // holds one
}

// Outcome is what an inquiry says about the first operation in flight.
type Outcome struct {
	Text   string // what it waits for; empty: there is none
	Silent bool   // it, or data that has not left, waits for a rank that does not answer
}

func (q *Inquiry) hearQuestion(peer int, number uint32) {
	s := q.opts.Lanes.Outside()
	if s.Busy {
		q.mu.Lock()
		if len(q.questions) < q.opts.size() { // a peer that asks too often is answered less often
			q.questions = append(q.questions, question{peer, number})
		}
		q.mu.Unlock()
		q.opts.wake()
	}
	q.answer(peer, number, &s)
}

func (q *Inquiry) hearAnswer(peer int, number uint32, text []byte) {
	var s Standing
	if json.Unmarshal(text, &s) != nil || !s.valid(q.opts.size()) {
		return
	}
	q.mu.Lock()
	if number == q.number && q.answers != nil {
		if _, known := q.answers[peer]; !known || !s.Busy {
			q.answers[peer] = s
		}
	}
	q.mu.Unlock()
	q.opts.wake()
}

func (q *Inquiry) answer(peer int, number uint32, s *Standing) {
	text, _ := json.Marshal(s)
	q.opts.Links.Tell(peer, append(head(controlAnswer, number), text...))
}

// Until returns when an inquiry that is under way ends at the latest, and 0 if none is.
func (q *Inquiry) Until() int64 {
	if q.over {
		return 0
	}
	return q.until
}

// Inquire begins an inquiry for operations that are past their deadlines, unless there is one, and
// reports whether it is over.
func (q *Inquiry) Inquire(t int64) bool { return q.inquire(inquirySpan, t) }

// Outdate drops an inquiry that is over and has begun before a time.
func (q *Inquiry) Outdate(before int64) {
	if q.over && q.begun < before {
		q.latest = latest{}
	}
}

// inquire is Inquire where answers have the span to come.
func (q *Inquiry) inquire(span time.Duration, t int64) bool {
	if q.opts.alone() {
		return true
	}
	if q.until == 0 || q.over && t >= q.fresh {
		q.latest = latest{begun: t, until: t + int64(span), fresh: t + int64(span+inquiryFresh)}
		q.mu.Lock()
		q.number++
		q.answers = map[int]Standing{}
		q.mu.Unlock()
		if size := q.opts.size(); size <= mostAsked {
			for peer := range size {
				q.ask(peer)
			}
		}
		for _, peer := range q.opts.Lanes.Awaited() {
			q.ask(peer)
		}
	}
	if !q.over {
		q.mu.Lock()
		q.over = t >= q.until || q.heardAll()
		q.mu.Unlock()
	}
	return q.over
}

// heardAll reports whether all that were asked have answered, or have left and so cannot. The mutex
// is held.
func (q *Inquiry) heardAll() bool {
	for _, peer := range q.asked {
		if s, known := q.answers[peer]; (!known || s.Busy) && !q.hasLeft(peer) {
			return false
		}
	}
	return true
}

// hasLeft reports whether a peer has left the group: it has failed in something else, say.
func (q *Inquiry) hasLeft(peer int) bool {
	return q.opts.Links.Lost[peer] && !errors.Is(q.opts.Links.All[peer].Err(), fault.PeerLost)
}

func (q *Inquiry) ask(peer int) {
	if peer != q.opts.rank() && !slices.Contains(q.asked, peer) {
		q.asked = append(q.asked, peer)
		q.opts.Links.Tell(peer, head(controlQuestion, q.number))
	}
}

// attend answers the questions of peers, and goes on with the inquiry of this rank.
func (q *Inquiry) attend(t int64) {
	q.mu.Lock()
	questions := q.questions
	q.questions = nil
	var next []int
	for _, s := range q.answers {
		next = append(next, s.Waits...)
	}
	q.mu.Unlock()
	if len(questions) > 0 {
		s := q.opts.Lanes.Standing()
		for _, each := range questions {
			q.answer(each.peer, each.number, &s)
		}
	}
	if q.Until() != 0 {
		for _, peer := range next {
			q.ask(peer)
		}
		q.mu.Lock()
		q.over = q.heardAll()
		q.mu.Unlock()
	}
	if a := q.asker.Swap(nil); a != nil {
		*a <- q.opts.Lanes.Standing()
	}
	if w := q.wanted.Load(); w != nil && q.inquire(w.span, t) {
		q.wanted.Store(nil)
		w.found <- q.outcome(w.needs)
	}
}

// Ask has the driver tell once what this rank is doing. It returns nil if nobody attends to control
// messages, or another thread has asked. Any thread may call it; it calls leave in the end.
func (q *Inquiry) Ask() (told <-chan Standing, leave func()) {
	a := make(chan Standing, 1)
	if q.opts.Control == nil || !q.asker.CompareAndSwap(nil, &a) {
		return nil, nil
	}
	return a, func() { q.asker.CompareAndSwap(&a, nil) }
}

// Want has the driver make an inquiry; with needs set all ranks are waited for, also without an
// operation in flight. It returns nil if that cannot be, or if another is wanted already. Any
// thread may call it; it calls forget in the end.
func (q *Inquiry) Want(span time.Duration, needs bool) (found <-chan Outcome, forget func()) {
	w := &wanted{span, needs, make(chan Outcome, 1)}
	if q.opts.alone() || !q.wanted.CompareAndSwap(nil, w) {
		return nil, nil
	}
	return w.found, func() { q.wanted.CompareAndSwap(w, nil) }
}

// outcome says what the first operation in flight waits for, after an inquiry.
func (q *Inquiry) outcome(needs bool) (f Outcome) {
	op, any := q.opts.Lanes.InFlight()
	if any {
		f.Text = op.Name + " had not ended: " + q.TimedOut(&op).Text
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f.Silent = slices.ContainsFunc(q.asked, func(peer int) bool {
		if _, known := q.answers[peer]; known {
			return false
		}
		return needs || any && (op.Kind != Message || op.Peer == peer) || !q.opts.Links.All[peer].Flushed()
	})
	return f
}

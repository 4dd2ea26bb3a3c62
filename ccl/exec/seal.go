package exec

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// Where several ranks die at once, each of the others notices first the ones that it waits for, or
// is connected with. So a rank that is about to fail because of a death asks all others whom they
// have lost, and tells them whom it has lost itself. It fails when all that are left have named the
// same ranks: its report is sealed then, and those that hear it fail with the same ranks.
//
// Two ranks that do not count each other as lost seal the same ranks. What a rank names only grows,
// and it names nothing more once it has sealed. If p seals P and q seals Q, then q has named P to p
// before, so P is a part of Q; and the reverse. What a rank says that counts as lost itself does
// not matter. Only a rank that does not answer until sealLimit, since it is stopped, say, is not
// waited for.
//
// A rank that had been killed when the first death was noticed may still have answered before. So
// the answers to the last question count, which is asked after sealSpan.
const (
	sealSpan  = 5 * time.Millisecond
	sealLimit = 300 * time.Millisecond
	mostNamed = 256 // ranks in a message
)

// The control messages of this file. Then come the number of the question, 4 bytes, and a roll as
// JSON.
const (
	controlWhoIsLost = 'l'
	controlTheseAre  = 'L'
)

// roll is the ranks that a rank counts as lost.
type roll struct {
	Ranks   []int             `json:"ranks"`             // ascending
	Reports []json.RawMessage `json:"reports,omitempty"` // of the first of them, as many as fit
}

// losses is what this rank knows of the lost ranks of its group. The driver uses it, and a
// goroutine of a transport that handles the questions of peers: a rank that computes answers, too.
type losses struct {
	mu      sync.Mutex
	of      map[int]loss
	changes int          // counts the ranks that were added
	number  uint32       // of the latest question of this rank
	agreed  map[int]bool // the peers that have named the same ranks in answer to it
	sealed  bool         // this rank has failed: it answers no more
	later   []int        // lost, but not among those that the group has failed because of
}

// loss is how a rank was lost.
type loss struct {
	err    *fault.Error // as this rank sees it; Peer is the rank
	report []byte       // as others hear it
	own    bool         // this rank has seen it itself
}

func (l *losses) add(one loss) {
	rank := one.err.Peer
	old, known := l.of[rank]
	if known && (old.own || !one.own) {
		one, old = old, one
	}
	if l.of == nil {
		l.of = map[int]loss{}
	}
	if l.of[rank] = one.explainedBy(old); !known {
		l.changes++
	}
}

// explainedBy adds to how this rank sees a loss what another one says that has seen more: how the
// process ended, which only ranks of its host can see.
func (one loss) explainedBy(other loss) loss {
	if other.err == nil || one.err.Seen || !other.err.Seen || other.own {
		return one
	}
	e := *one.err
	if e.Cause != nil {
		e.Text = strings.TrimPrefix(e.Text+": "+fault.Text(e.Cause), ": ")
	}
	e.Text, e.Cause, e.Seen = strings.TrimPrefix(e.Text+"; "+other.err.Text, "; "), nil, true
	one.err = &e
	return one
}

func (l *losses) has(rank int) bool { return l.how(rank) != nil }

// how returns how a rank was lost, or nil.
func (l *losses) how(rank int) *fault.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[rank].err
}

// message returns a question or an answer. The lock is held.
func (l *losses) message(kind byte, number uint32) []byte {
	r := roll{Ranks: slices.Sorted(maps.Keys(l.of))}
	r.Ranks = r.Ranks[:min(len(r.Ranks), mostNamed)]
	bare, _ := json.Marshal(r)
	room := transport.MaxControl - len(inquiryHead(kind, number)) - len(bare) - len(`,"reports":[]`)
	for _, rank := range r.Ranks {
		report := l.of[rank].report
		if room -= len(report) + len(`,`); room < 0 {
			break
		}
		r.Reports = append(r.Reports, report)
	}
	text, _ := json.Marshal(r)
	return append(inquiryHead(kind, number), text...)
}

// parseRoll reads what a peer says, which is not trusted. A peer that counts this rank as lost has
// itself been lost: the path between the two is broken.
func (c *Comm) parseRoll(peer int, text []byte) (named []loss, ok bool) {
	var r roll
	if json.Unmarshal(text, &r) != nil || len(r.Ranks) > mostNamed || len(r.Reports) > len(r.Ranks) {
		return nil, false
	}
	for i, rank := range r.Ranks {
		if rank < 0 || rank >= c.size || i > 0 && rank <= r.Ranks[i-1] {
			return nil, false
		}
		said := fault.Peer(fault.PeerLost, rank, "it has lost this rank").Report(peer)
		if i < len(r.Reports) {
			said = r.Reports[i]
		}
		err, wrong := fault.ParseReport(said, c.rank, c.size)
		if wrong != nil || err.Code != fault.PeerLost || len(err.Ranks) != 1 || err.Peer != rank && rank != c.rank {
			return nil, false
		}
		if rank == c.rank {
			said = fault.Peer(fault.PeerLost, err.Peer, "it counts this rank as lost").Report(c.rank)
		}
		if err.Peer != c.rank {
			named = append(named, loss{err: err, report: said})
		}
	}
	return named, true
}

// hearLosses handles a control message of this file.
func (k *Control) hearLosses(c *Comm, peer int, question bool, number uint32, text []byte) {
	named, ok := c.parseRoll(peer, text)
	if !ok {
		return
	}
	c.findLosses()
	l := &c.losses
	var answer []byte
	l.mu.Lock()
	if _, lost := l.of[peer]; !lost {
		for _, one := range named {
			l.add(one)
		}
		if !question && number == l.number && len(named) == min(len(l.of), mostNamed) {
			l.agreed[peer] = true
		}
	}
	if question && !l.sealed {
		answer = l.message(controlTheseAre, number)
	}
	l.mu.Unlock()
	if answer != nil {
		c.opts.Links[peer].Tell(answer)
	}
	k.stir(c)
}

// findLosses adds the peers whose links have ended since they died. Any thread may call it.
func (c *Comm) findLosses() {
	for peer, link := range c.opts.Links {
		if link == nil {
			continue
		}
		if err := link.Err(); err != nil {
			c.lose(c.named(peer, err))
		}
	}
}

// lose adds a loss that this rank has seen itself, if the error of a link is one.
func (c *Comm) lose(err *fault.Error) {
	if err.Code != fault.PeerLost {
		return
	}
	c.losses.mu.Lock()
	defer c.losses.mu.Unlock()
	if !c.losses.of[err.Peer].own {
		c.losses.add(loss{err, err.Report(c.rank), true})
	}
}

// all returns one error for all losses: what this rank has seen itself comes first. The lock is
// held, and there is a loss.
func (l *losses) all() *fault.Error {
	ranks := slices.Sorted(maps.Keys(l.of))
	var errs []*fault.Error
	for _, own := range []bool{true, false} {
		for _, rank := range ranks {
			if one := l.of[rank]; one.own == own {
				errs = append(errs, one.err)
			}
		}
	}
	return fault.Lost(errs)
}

// sealing is the driver's part of it.
type sealing struct {
	begun   int64        // when a death was the reason for a failure; 0: it is not under way
	asked   []int        // the peers that were asked last
	changes int          // of losses, when they were asked
	last    bool         // sealSpan was over then
	done    *fault.Error // what was sealed last, for messages
}

// at returns when there is something to do although nobody answers.
func (s *sealing) at() int64 {
	if s.last {
		return s.begun + int64(sealLimit)
	}
	return s.begun + int64(sealSpan)
}

// seal returns the error of all lost ranks once that is settled, and nil before: the driver calls
// it again. Where the group ends, this rank has to fail then.
func (c *Comm) seal(ends bool) *fault.Error {
	s, l, t := &c.sealing, &c.losses, now()
	l.mu.Lock()
	same := l.changes == s.changes
	l.mu.Unlock()
	switch {
	case s.begun == 0 && s.done != nil && same && !ends:
		return s.done
	case s.begun == 0:
		*s = sealing{begun: t}
		c.askWhoIsLost()
	case !same || !s.last && t >= s.at():
		c.askWhoIsLost()
	}
	late := t >= s.begun+int64(sealLimit)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !late && (l.changes != s.changes || len(s.asked) > 0 && !s.last || c.opts.Control == nil && !s.last) {
		return nil
	}
	for _, peer := range s.asked {
		if !l.agreed[peer] && !c.lost[peer] && !late { // one that has left in order has nothing to say
			return nil
		}
	}
	all := l.all()
	*s, l.sealed = sealing{done: all, changes: l.changes}, ends
	return all
}

// askWhoIsLost asks all peers that are not lost. In large groups those count to which there is a
// path.
func (c *Comm) askWhoIsLost() {
	s, l := &c.sealing, &c.losses
	l.mu.Lock()
	l.number++
	l.agreed = map[int]bool{}
	s.changes, s.asked = l.changes, nil
	message := l.message(controlWhoIsLost, l.number)
	for peer := range c.size {
		if _, lost := l.of[peer]; peer != c.rank && !lost && !c.lost[peer] &&
			(c.size <= mostAsked || c.unopened[peer] == nil) {
			s.asked = append(s.asked, peer)
		}
	}
	l.mu.Unlock()
	s.last = now() >= s.begun+int64(sealSpan)
	s.asked = slices.DeleteFunc(s.asked, func(peer int) bool {
		return c.opts.Control == nil || !c.opts.Links[peer].Tell(message)
	})
}

// Mourn is Check for a caller that waits for a peer that has died (Gone): the Comm ends for that
// reason, once it is settled who else has died. The caller repeats it.
func (c *Comm) Mourn() *fault.Error {
	c.mourned.Store(true) // model: none: whoever drives sees it in time
	c.opts.Doorbell.Ring()
	return c.Check()
}

// hold keeps a message that has failed, since its peer is lost, until it is settled who else is. It
// reports whether it does.
func (c *Comm) hold(op *Op, err error) bool {
	if c.broken != nil || !isDeath(err) {
		return false
	}
	c.held = append(c.held, op)
	return true
}

func isDeath(err error) bool {
	f, ok := err.(*fault.Error)
	return ok && f.Code == fault.PeerLost
}

// endHeld ends the messages that were held.
func (c *Comm) endHeld(err error) {
	held := c.held
	c.held = nil
	for _, op := range held {
		c.end(op, err)
	}
}

// close ends this rank's part when its group ends, for a reason. Whoever else is lost by now, later
// calls tell.
func (l *losses) close(why *fault.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = true
	for rank := range l.of {
		if !slices.Contains(why.Culprits(), rank) {
			l.later = append(l.later, rank)
		}
	}
	slices.Sort(l.later)
}

// meanwhile returns what later calls add to the error with which the group has failed.
func (l *losses) meanwhile(e *fault.Error) *fault.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.later) == 0 || e.Code == fault.Closed {
		return e
	}
	more := *e
	more.Text = strings.TrimPrefix(more.Text+"; meanwhile also lost: "+fault.Ranks(l.later), "; ")
	return &more
}

// Losses returns an error for each rank that is known to be lost.
func (c *Comm) Losses() (all []*fault.Error) {
	c.losses.mu.Lock()
	defer c.losses.mu.Unlock()
	for _, rank := range slices.Sorted(maps.Keys(c.losses.of)) {
		all = append(all, c.losses.of[rank].err)
	}
	return all
}

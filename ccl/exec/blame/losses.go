package blame

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

// roll is the ranks that a rank counts as lost.
type roll struct {
	Ranks   []int             `json:"ranks"`             // ascending
	Reports []json.RawMessage `json:"reports,omitempty"` // of the first of them, as many as fit
}

// Losses is what this rank knows of the lost ranks of its group. The driver uses it, and a
// goroutine of a transport that handles the questions of peers: a rank that computes answers, too.
type Losses struct {
	opts    *Options
	mu      sync.Mutex
	of      map[int]loss
	changes int          // counts the ranks that were added
	number  uint32       // of the latest question of this rank
	agreed  map[int]bool // the peers that have named the same ranks in answer to it
	sealed  bool         // this rank has failed: it answers no more
	later   []int        // lost, but not among those that the group has failed because of
	sealing
}

// loss is how a rank was lost.
type loss struct {
	err    *fault.Error // as this rank sees it; Peer is the rank
	report []byte       // as others hear it
	own    bool         // this rank has seen it itself
}

// sealing is the driver's part of it.
type sealing struct {
	begun int64        // when a death was the reason for a failure; 0: it is not under way
	asked []int        // the peers that were asked last
	known int          // changes when they were asked
	last  bool         // sealSpan was over then
	done  *fault.Error // what was sealed last, for messages
}

func (l *Losses) add(one loss) {
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

func (l *Losses) has(rank int) bool { return l.how(rank) != nil }

// how returns how a rank was lost, or nil.
func (l *Losses) how(rank int) *fault.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[rank].err
}

// PathEnd returns why the path to a peer has ended. One that has left counts as lost where another
// rank has lost it before: it may have left since it heard of that. Any thread may call it.
func (l *Losses) PathEnd(peer int, err error) *fault.Error {
	end := l.named(peer, err)
	if lost := l.how(peer); lost != nil && end.Code == fault.PeerLeft {
		return lost
	}
	return end
}

// named returns a link's error with the peer's rank in it, unless it is this rank that lacks
// something. Where the peer has said why it left in order, that is in it, too.
func (l *Losses) named(peer int, err error) *fault.Error {
	f, ok := err.(*fault.Error)
	if !ok {
		return &fault.Error{Code: fault.PeerLost, Peer: peer, Cause: err}
	}
	parted := fault.Parted(f.Left)
	if !parted && (f.Peer == peer || f.Code == fault.System && f.Peer == fault.NoPeer) {
		return f
	}
	copied := *f
	copied.Peer = peer
	if parted {
		if said, wrong := fault.ParseReport(f.Left, l.opts.rank(), l.opts.size()); wrong == nil {
			copied.Text = strings.TrimPrefix(f.Text+": "+said.Text, ": ")
		}
	}
	return &copied
}

// message returns a question or an answer. The mutex is held.
func (l *Losses) message(kind byte, number uint32) []byte {
	r := roll{Ranks: slices.Sorted(maps.Keys(l.of))}
	r.Ranks = r.Ranks[:min(len(r.Ranks), mostNamed)]
	bare, _ := json.Marshal(r)
	room := transport.MaxControl - len(head(kind, number)) - len(bare) - len(`,"reports":[]`)
	for _, rank := range r.Ranks {
		report := l.of[rank].report
		if room -= len(report) + len(`,`); room < 0 {
			break
		}
		r.Reports = append(r.Reports, report)
	}
	text, _ := json.Marshal(r)
	return append(head(kind, number), text...)
}

// parseRoll reads what a peer says, which is not trusted. A peer that counts this rank as lost has
// itself been lost: the path between the two is broken.
func parseRoll(self, size, peer int, text []byte) (named []loss, ok bool) {
	var r roll
	if json.Unmarshal(text, &r) != nil || len(r.Ranks) > mostNamed || len(r.Reports) > len(r.Ranks) {
		return nil, false
	}
	for i, rank := range r.Ranks {
		if rank < 0 || rank >= size || i > 0 && rank <= r.Ranks[i-1] {
			return nil, false
		}
		said := fault.Peer(fault.PeerLost, rank, "it has lost this rank").Report(peer)
		if i < len(r.Reports) {
			said = r.Reports[i]
		}
		err, wrong := fault.ParseReport(said, self, size)
		if wrong != nil || err.Code != fault.PeerLost || len(err.Ranks) != 1 || err.Peer != rank && rank != self {
			return nil, false
		}
		if rank == self {
			said = fault.Peer(fault.PeerLost, err.Peer, "it counts this rank as lost").Report(self)
		}
		if err.Peer != self {
			named = append(named, loss{err: err, report: said})
		}
	}
	return named, true
}

// hear handles a control message of this file.
func (l *Losses) hear(peer int, question bool, number uint32, text []byte) {
	named, ok := parseRoll(l.opts.rank(), l.opts.size(), peer, text)
	if !ok {
		return
	}
	l.find()
	var answer []byte
	l.mu.Lock()
	if _, lost := l.of[peer]; !lost {
		for _, one := range named {
			l.add(one)
		}
		if !question && number == l.number && l.agreed != nil && len(named) == min(len(l.of), mostNamed) {
			l.agreed[peer] = true
		}
	}
	if question && !l.sealed {
		answer = l.message(controlTheseAre, number)
	}
	l.mu.Unlock()
	if answer != nil {
		l.opts.Links.Tell(peer, answer)
	}
	l.opts.wake()
}

// find adds the peers whose links have ended since they died.
func (l *Losses) find() {
	for peer, link := range l.opts.Links.All {
		if link == nil {
			continue
		}
		if err := link.Err(); err != nil {
			l.lose(l.named(peer, err))
		}
	}
}

// lose adds a loss that this rank has seen itself, if the error of a link is one.
func (l *Losses) lose(err *fault.Error) {
	if err.Code != fault.PeerLost {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.of[err.Peer].own {
		l.add(loss{err, err.Report(l.opts.rank()), true})
	}
}

// all returns one error for all losses: what this rank has seen itself comes first. The mutex is
// held, and there is a loss.
func (l *Losses) all() *fault.Error {
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

// at returns when there is something to do although nobody answers.
func (s *sealing) at() int64 {
	if s.last {
		return s.begun + int64(sealLimit)
	}
	return s.begun + int64(sealSpan)
}

// seal returns the error of all lost ranks once that is settled, and nil before: the driver calls
// it again. Where the group ends, this rank has to fail then.
func (l *Losses) seal(ends bool, t int64) *fault.Error {
	s := &l.sealing
	l.mu.Lock()
	same := l.changes == s.known
	l.mu.Unlock()
	switch {
	case s.begun == 0 && s.done != nil && same && !ends:
		return s.done
	case s.begun == 0:
		*s = sealing{begun: t}
		l.ask(t)
	case !same || !s.last && t >= s.at():
		l.ask(t)
	}
	late := t >= s.begun+int64(sealLimit)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !late && (l.changes != s.known || len(s.asked) > 0 && !s.last || l.opts.Control == nil && !s.last) {
		return nil
	}
	for _, peer := range s.asked {
		if !l.agreed[peer] && !l.opts.Links.Lost[peer] && !late { // one that has left in order has nothing to say
			return nil
		}
	}
	all := l.all()
	*s, l.sealed = sealing{done: all, known: l.changes}, ends
	return all
}

// ask asks all peers that are not lost. In large groups those count to which there is a path.
func (l *Losses) ask(t int64) {
	s, links := &l.sealing, l.opts.Links
	l.mu.Lock()
	l.number++
	l.agreed = map[int]bool{}
	s.known, s.asked = l.changes, nil
	message := l.message(controlWhoIsLost, l.number)
	for peer := range links.Size() {
		if _, lost := l.of[peer]; peer != links.Rank && !lost && !links.Lost[peer] &&
			(links.Size() <= mostAsked || !links.Unopened[peer]) {
			s.asked = append(s.asked, peer)
		}
	}
	l.mu.Unlock()
	s.last = t >= s.begun+int64(sealSpan)
	s.asked = slices.DeleteFunc(s.asked, func(peer int) bool {
		switch {
		case l.opts.Control == nil:
			return true
		case links.Tell(peer, message):
			return false
		}
		// A link that has ended just now may have a report, which counts: the driver finds it when
		// it looks at the links again.
		ended := links.All[peer].Err() != nil
		if ended {
			l.opts.wake()
		}
		return !ended
	})
}

// close ends this rank's part when its group ends, for a reason. Whoever else is lost by now, later
// calls tell.
func (l *Losses) close(why *fault.Error) {
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

// Meanwhile returns what later calls add to the error with which the group has failed. Any thread
// may call it.
func (l *Losses) Meanwhile(e *fault.Error) *fault.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.later) == 0 || e.Code == fault.Closed {
		return e
	}
	more := *e
	more.Text = strings.TrimPrefix(more.Text+"; meanwhile also lost: "+fault.Ranks(l.later), "; ")
	return &more
}

// Known returns an error for each rank that is known to be lost. Any thread may call it.
func (l *Losses) Known() (all []*fault.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rank := range slices.Sorted(maps.Keys(l.of)) {
		all = append(all, l.of[rank].err)
	}
	return all
}

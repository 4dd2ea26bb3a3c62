package ccl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/agree"
	"github.com/goccl/goccl/transport"
)

// settling is a call of Shrink, or the second half of one of Grow: the processes that take part
// settle who is lost, and make the group of all others (agree.Change).
type settling struct {
	*parley
	what   string // "shrink" or "grow"
	change *agree.Change
	quorum Quorum   // of a group that shrinks
	before *growing // there, too, ranks of the group may give up; nil at newcomers

	farewells [16]byte // of a group that shrinks: the session of those that were left out

	begun  bool
	grown  int    // see origin.former
	known  []bool // by peer: the change knows that it is lost
	stands []bool // by peer, of a group that grows: it has said that the new group stands there
	gave   error  // why this rank gives up
	silent []int  // see origin
	agreed bool   // all of this part give up
	warned bool   // of ranks that do not take part
}

// envelope is a message as it is sent.
type envelope struct {
	Number int             `json:"number"`
	Quorum Quorum          `json:"quorum,omitempty"`
	What   json.RawMessage `json:"what,omitempty"`
	Stands bool            `json:"stands,omitempty"` // the whole text; see confirm
}

// newcomerSpan is how long the others wait for a newcomer that says nothing.
const newcomerSpan = 5 * time.Second

// grows reports whether the group grows: then newcomers may be lost, and others may not.
func (s *settling) grows() bool { return s.former < len(s.peers) }

// run settles who is lost, and joins the others, again and again until nobody is lost meanwhile. If
// no newcomer is left, it returns no group.
func (s *settling) run(ctx context.Context) (next *Communicator, members []int, err error) {
	if !s.begun {
		s.begun = true
		s.send(s.change.Begin())
	}
	var wrong error
	for {
		err := s.await(ctx)
		if err == nil && s.change.Phase() == agree.Stands {
			if s.grows() {
				next.origin.former, next.origin.whole = s.former, s.confirm(ctx)
			}
			return next, members, nil
		}
		if next != nil {
			next.Close()
			next = nil
		}
		passing := errors.Is(wrong, fault.PeerLost) || errors.Is(wrong, fault.PeerLeft)
		switch {
		case err != nil:
			return nil, nil, err
		case wrong != nil && (!passing || ctx.Err() != nil):
			return nil, nil, wrong
		}
		switch s.change.Phase() {
		case agree.LeftOut:
			return nil, nil, fault.New(fault.PeerLost,
				"the others count this rank (%d) among the lost: the path to one of them is broken", s.self())
		case agree.Broken:
			return nil, nil, s.lostFormer()
		case agree.TooFew:
			s.agreed = true
			return nil, nil, s.tooFew()
		case agree.Looking:
			select {
			case <-time.After(lookSpan):
			case <-ctx.Done(): // which await reports
			}
			s.send(s.change.Look())
		case agree.Making:
			if members = s.change.Members(); s.grows() && len(members) == s.former {
				return nil, nil, nil
			}
			next, wrong = s.join(ctx, members)
			s.send(s.change.Made(wrong == nil))
		}
	}
}

// await works until the agreement under way has ended.
func (s *settling) await(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond) // no event comes of the death of a peer
	defer tick.Stop()
	late, newcomers := time.NewTimer(lateSpan), time.NewTimer(newcomerSpan)
	defer late.Stop()
	defer newcomers.Stop()
	for {
		for _, l := range s.letters() {
			s.open(l)
		}
		s.loseGatherers()
		lost, broken := s.failures()
		if broken != nil {
			return broken
		}
		for peer, failed := range lost {
			if failed && !s.known[peer] {
				s.known[peer] = true
				s.send(s.change.Gone(peer))
			}
		}
		if s.change.Phase() != agree.Settling {
			return nil
		}
		select {
		case <-s.wake:
		case <-tick.C:
		case <-newcomers.C:
			s.loseNewcomers(s.change.Awaited())
		case <-late.C:
			if !s.warned {
				s.warned = true
				s.e.log("WARN", "%s has waited for %v: %s", s.what, lateSpan, s.missing(s.change.Awaited()))
			}
		case <-ctx.Done():
			missing := s.change.Awaited()
			return &fault.Error{Code: fault.Timeout, Peer: missing[0], Ranks: missing, Cause: context.Cause(ctx),
				Text: s.missing(missing)}
		}
		s.poll()
	}
}

// loseGatherers counts as lost who has given up before it knew who comes.
func (s *settling) loseGatherers() {
	if s.before == nil {
		return
	}
	s.before.failures()
	for rank := range s.former {
		if why := s.before.why(rank); why != nil {
			s.mu.Lock()
			s.lose(rank, why)
			s.mu.Unlock()
		}
	}
}

// loseNewcomers gives up those of some ranks that are newcomers: nobody else has to wait for them.
func (s *settling) loseNewcomers(ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rank := range ranks {
		if rank >= s.former {
			s.lose(rank, fault.Peer(fault.PeerLost, rank, "it has said nothing for %v", newcomerSpan))
		}
	}
}

// send tells all what the change says.
func (s *settling) send(letters []agree.Letter) {
	for _, l := range letters {
		text, _ := json.Marshal(envelope{Number: l.Number, Quorum: s.quorum, What: l.What.Encode()})
		s.say(text)
	}
}

// open takes a letter, which is not trusted.
func (s *settling) open(l letter) {
	var e envelope
	if json.Unmarshal(l.text, &e) != nil {
		return
	}
	if e.Stands && s.stands != nil {
		s.stands[l.from] = true
		return
	}
	what, err := agree.Parse(e.What, len(s.links))
	if err != nil {
		return
	}
	s.mu.Lock()
	if e.Quorum != s.quorum && s.broken == nil && !s.without[l.from] && l.from < s.former {
		s.broken = fault.Peer(fault.Mismatch, l.from, "quorum: %v here, %v at rank %d; all ranks need the same",
			s.quorum, e.Quorum, l.from)
	}
	s.mu.Unlock()
	s.send(s.change.Hear(l.from, agree.Letter{Number: e.Number, What: what}))
}

// join makes the group of some of those that take part.
func (s *settling) join(ctx context.Context, members []int) (next *Communicator, err error) {
	addresses, err := numbered(s.peers, members, fmt.Sprint(s.change.Number()))
	if err != nil {
		return nil, err
	}
	e := *s.e
	e.cfg.Rank, e.cfg.Size = slices.Index(members, s.self()), len(members)
	e.cfg.Share, e.cfg.Note = nil, nil // the descriptors may be closed by now
	e.address = addresses[e.cfg.Rank]
	limited := ctx
	if s.grows() {
		var stop context.CancelFunc
		limited, stop = context.WithTimeout(ctx, newcomerSpan)
		defer stop()
	}
	joining, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	var watching sync.WaitGroup
	joined := make(chan struct{})
	watching.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-joined:
				return
			case <-tick.C:
				if lost := s.lostOf(members); lost != nil {
					cancel(lost)
				}
			}
		}
	})
	next, err = e.Join(joining, addresses)
	close(joined)
	watching.Wait()
	if f := (*fault.Error)(nil); err != nil && errors.As(context.Cause(joining), &f) {
		err = f
	}
	return next, s.forNewcomer(err, members)
}

// forNewcomer returns why a group was not made. Where that is a newcomer's matter, the others go on
// without it.
func (s *settling) forNewcomer(err error, members []int) error {
	f := &fault.Error{}
	if !errors.As(err, &f) || f.Peer < 0 || f.Peer >= len(members) || members[f.Peer] < s.former {
		return err
	}
	newcomer := members[f.Peer]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(newcomer, f)
	return fault.Wrap(fault.PeerLost, f, "the newcomer with rank %d does not join", newcomer)
}

// lostOf returns why one of the ranks that join is lost by now, or has given up, or nil.
func (s *settling) lostOf(members []int) *fault.Error {
	_, broken := s.failures()
	for _, rank := range members {
		if broken == nil {
			broken = s.why(rank)
		}
	}
	return broken
}

// numbered returns the addresses of some of those that take part, as members of one group, for one
// attempt to join it. All of them find the same.
func numbered(of []address, members []int, attempt string) (addresses [][]byte, err error) {
	for rank, member := range members {
		a := of[member]
		a.Number, a.Size, a.Shares = rank, len(members), false
		nonce := sha256.Sum256(fmt.Append(nil, a.Nonce, members, attempt))
		a.Nonce = hex.EncodeToString(nonce[:16])
		text, err := json.Marshal(a)
		if err != nil {
			return nil, fault.Wrap(fault.Internal, err, "address")
		}
		addresses = append(addresses, text)
	}
	return addresses, nil
}

// end closes the links. Where this rank gives up, the others are told, and go on without it. Where
// it goes on, those that were left out are told, also those that come later.
func (s *settling) end() {
	lost, _ := s.change.Lost()
	var why, toLost []byte
	switch f := (&fault.Error{}); {
	case s.gave == nil:
		toLost = farewell(len(s.links), lost)
	case errors.As(s.gave, &f):
		why = f.Report(s.self())
		toLost = why
	}
	if s.agreed { // the others know, by messages that may arrive later than this would
		why = nil
	}
	s.cancel(&transport.GivenUp{Why: toLost}) // before part, which uses the session of listenTo
	if s.gave == nil && !s.grows() {
		s.part(toLost)
	}
	s.parley.end(toLost, func(peer int) []byte {
		if slices.Contains(lost, peer) {
			return toLost
		}
		return why
	})
}

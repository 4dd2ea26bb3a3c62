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

// regroup is a call of Shrink, or the second half of one of Grow: the processes that take part
// agree on who is lost, and make the group of all others (agree.Change).
type regroup struct {
	*parley
	what   string // "shrink" or "grow"
	change *agree.Change
	quorum Quorum   // of a group that shrinks
	before *growing // there, too, ranks of the group may give up; nil at newcomers

	farewells [16]byte // of a group that shrinks: the session of those that were left out

	begun     bool
	grown     int    // see origin.former
	known     []bool // by peer: the change knows that it is lost
	confirmed []bool // by peer, of a group that grows: it has told that it has the new group
	failure   error  // why this rank gives up
	silent    []int  // see origin
	agreed    bool   // all of this part give up
	warned    bool   // of ranks that do not take part
}

// envelope is a message as it is sent.
type envelope struct {
	Number    int             `json:"number"`
	Quorum    Quorum          `json:"quorum,omitempty"`
	What      json.RawMessage `json:"what,omitempty"`
	Confirmed bool            `json:"stands,omitempty"` // the whole text; see confirm
}

// newcomerSpan is how long the others wait for a newcomer that says nothing.
const newcomerSpan = 5 * time.Second

// grows reports whether the group grows: then newcomers may be lost, and others may not.
func (r *regroup) grows() bool { return r.former < len(r.peers) }

// run agrees on who is lost, and joins the others, again and again until nobody is lost meanwhile.
// If no newcomer is left, it returns no group.
func (r *regroup) run(ctx context.Context) (next *Communicator, members []int, err error) {
	if !r.begun {
		r.begun = true
		r.send(r.change.Begin())
	}
	var wrong error
	for {
		err := r.await(ctx)
		if err == nil && r.change.Phase() == agree.Done {
			if r.grows() {
				next.origin.former, next.origin.whole = r.former, r.confirm(ctx)
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
		switch r.change.Phase() {
		case agree.LeftOut:
			return nil, nil, fault.New(fault.PeerLost,
				"the others count this rank (%d) among the lost: the path to one of them is broken", r.self())
		case agree.Broken:
			return nil, nil, r.lostFormer()
		case agree.TooFew:
			r.agreed = true
			return nil, nil, r.tooFew()
		case agree.Looking:
			select {
			case <-time.After(lookSpan):
			case <-ctx.Done(): // which await reports
			}
			r.send(r.change.Look())
		case agree.Making:
			if members = r.change.Members(); r.grows() && len(members) == r.former {
				return nil, nil, nil
			}
			next, wrong = r.join(ctx, members)
			r.send(r.change.Made(wrong == nil))
		}
	}
}

// await works until the agreement under way has ended.
func (r *regroup) await(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond) // no event comes of the death of a peer
	defer tick.Stop()
	late, newcomers := time.NewTimer(lateSpan), time.NewTimer(newcomerSpan)
	defer late.Stop()
	defer newcomers.Stop()
	for {
		for _, l := range r.letters() {
			r.open(l)
		}
		r.loseGatherers()
		lost, broken := r.failures()
		if broken != nil {
			return broken
		}
		for peer, failed := range lost {
			if failed && !r.known[peer] {
				r.known[peer] = true
				r.send(r.change.Gone(peer))
			}
		}
		if r.change.Phase() != agree.Agreeing {
			return nil
		}
		select {
		case <-r.wake:
		case <-tick.C:
		case <-newcomers.C:
			r.loseNewcomers(r.change.Awaited())
		case <-late.C:
			if !r.warned {
				r.warned = true
				r.e.log("WARN", "%s has waited for %v: %s", r.what, lateSpan, r.missing(r.change.Awaited()))
			}
		case <-ctx.Done():
			missing := r.change.Awaited()
			return &fault.Error{Code: fault.Timeout, Peer: missing[0], Ranks: missing, Cause: context.Cause(ctx),
				Text: r.missing(missing)}
		}
		r.poll()
	}
}

// loseGatherers counts as lost who has given up before it knew who comes.
func (r *regroup) loseGatherers() {
	if r.before == nil {
		return
	}
	r.before.failures()
	for rank := range r.former {
		if why := r.before.why(rank); why != nil {
			r.mu.Lock()
			r.lose(rank, why)
			r.mu.Unlock()
		}
	}
}

// loseNewcomers gives up those of some ranks that are newcomers: nobody else has to wait for them.
func (r *regroup) loseNewcomers(ranks []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rank := range ranks {
		if rank >= r.former {
			r.lose(rank, fault.Peer(fault.PeerLost, rank, "it has said nothing for %v", newcomerSpan))
		}
	}
}

// send tells all what the change says.
func (r *regroup) send(letters []agree.Letter) {
	for _, l := range letters {
		text, _ := json.Marshal(envelope{Number: l.Number, Quorum: r.quorum, What: l.What.Encode()})
		r.tellAll(text)
	}
}

// open takes a letter, which is not trusted.
func (r *regroup) open(l letter) {
	var e envelope
	if json.Unmarshal(l.text, &e) != nil {
		return
	}
	if e.Confirmed && r.confirmed != nil {
		r.confirmed[l.from] = true
		return
	}
	what, err := agree.Parse(e.What, len(r.links))
	if err != nil {
		return
	}
	r.mu.Lock()
	if e.Quorum != r.quorum && r.broken == nil && !r.without[l.from] && l.from < r.former {
		r.broken = fault.Peer(fault.Mismatch, l.from, "quorum: %v here, %v at rank %d; all ranks need the same",
			r.quorum, e.Quorum, l.from)
	}
	r.mu.Unlock()
	r.send(r.change.Hear(l.from, agree.Letter{Number: e.Number, What: what}))
}

// join makes the group of some of those that take part.
func (r *regroup) join(ctx context.Context, members []int) (next *Communicator, err error) {
	addresses, err := numbered(r.peers, members, fmt.Sprint(r.change.Number()))
	if err != nil {
		return nil, err
	}
	e := *r.e
	e.cfg.Rank, e.cfg.Size = slices.Index(members, r.self()), len(members)
	e.cfg.Share, e.cfg.Note = nil, nil // the descriptors may be closed by now
	e.address = addresses[e.cfg.Rank]
	limited := ctx
	if r.grows() {
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
				if lost := r.lostOf(members); lost != nil {
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
	return next, r.forNewcomer(err, members)
}

// forNewcomer returns why a group was not made. Where that is a newcomer's matter, the others go on
// without it.
func (r *regroup) forNewcomer(err error, members []int) error {
	f := &fault.Error{}
	if !errors.As(err, &f) || f.Peer < 0 || f.Peer >= len(members) || members[f.Peer] < r.former {
		return err
	}
	newcomer := members[f.Peer]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose(newcomer, f)
	return fault.Wrap(fault.PeerLost, f, "the newcomer with rank %d does not join", newcomer)
}

// lostOf returns why one of the ranks that join is lost by now, or has given up, or nil.
func (r *regroup) lostOf(members []int) *fault.Error {
	_, broken := r.failures()
	for _, rank := range members {
		if broken == nil {
			broken = r.why(rank)
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
func (r *regroup) end() {
	lost, _ := r.change.Lost()
	var why, toLost []byte
	switch f := (&fault.Error{}); {
	case r.failure == nil:
		toLost = farewell(len(r.links), lost)
	case errors.As(r.failure, &f):
		why = f.Report(r.self())
		toLost = why
	}
	if r.agreed { // the others know, by messages that may arrive later than this would
		why = nil
	}
	r.cancel(&transport.GivenUp{Why: toLost}) // before sendFarewells, which uses the session of listenTo
	if r.failure == nil && !r.grows() {
		r.sendFarewells(toLost)
	}
	r.parley.end(toLost, func(peer int) []byte {
		if slices.Contains(lost, peer) {
			return toLost
		}
		return why
	})
}

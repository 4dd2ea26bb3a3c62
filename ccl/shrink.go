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

	"github.com/goccl/goccl/ccl/agree"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// origin is what a Communicator was made of. Shrink makes another one of it: nobody else has to be
// asked for addresses, in particular no store, which may have died with its rank.
type origin struct {
	endpoint  *Endpoint
	addresses [][]byte
	fabrics   []transport.Fabric // by peer

	// Guarded by the node's mu.
	shrinks   int       // calls of Shrink, but for those that went on with an earlier one
	unended   *settling // a call that ctx ended while ranks were missing; the next one goes on with it
	shrinking bool
	silent    []int // lost when a quorum was missed: they may have gone on, so that a later death proves nothing
	leftOut   *fault.Error
}

// Shrink makes a group of the ranks that are left of this one, without those that are listed, and
// those that have died. All that are left call it, whether or not the group has failed; they settle
// which ranks are lost (package agree), also if more die meanwhile, and the new group has the
// others in their order. It returns the new group, and its members' ranks in this one. This group
// stays as it is. The new one shares nothing (Config.Share). If ctx ends first, the error names the
// ranks that have not called Shrink; it can be called again, also with more ranks to leave out.
//
// Ranks that are lost but not known to be dead may live and do the same, for example where the
// network is cut. So only a majority of the ranks that may live goes on (Majority); the others get
// an error that names those that may have gone on. A rank that was left out and calls Shrink later
// gets an error that says by whom.
//
// Where the path between two living ranks is broken, each counts the other as lost, and the new
// group has neither; both get an error that says so.
func (c *Communicator) Shrink(ctx context.Context, without ...int) (*Communicator, []int, error) {
	return c.ShrinkWith(ctx, Majority, without...)
}

// ShrinkWith is Shrink with another rule for which ranks may go on, the same on all ranks.
func (c *Communicator) ShrinkWith(ctx context.Context, quorum Quorum, without ...int) (*Communicator, []int, error) {
	e := c.origin.endpoint
	if quorum < 0 {
		return nil, nil, e.in("shrink", fault.New(fault.Invalid, "a quorum of %d ranks", int(quorum)))
	}
	for _, rank := range without {
		if rank < 0 || rank >= e.cfg.Size || rank == e.cfg.Rank {
			return nil, nil, e.in("shrink", fault.New(fault.Invalid,
				"rank %d cannot be left out by rank %d of %d", rank, e.cfg.Rank, e.cfg.Size))
		}
	}
	s, err := c.settling(quorum, without)
	if err != nil {
		return nil, nil, e.in("shrink", err)
	}
	next, members, err := s.run(ctx)
	s.gave = err
	c.settled(s, err != nil && s.number == 1 && ctx.Err() != nil)
	if err != nil {
		return nil, nil, e.in("shrink", err)
	}
	return next, members, nil
}

// settling begins a call of Shrink, or goes on with one.
func (c *Communicator) settling(quorum Quorum, without []int) (*settling, error) {
	o := c.origin
	var other *settling
	defer func() {
		if other != nil {
			other.end()
		}
	}()
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if !c.node.comms[c] {
		return nil, fault.New(fault.Closed, "the group is closed")
	}
	if o.shrinking {
		return nil, fault.New(fault.Invalid, "another thread is in shrink of this group")
	}
	if o.leftOut != nil {
		return nil, o.leftOut
	}
	s := o.unended
	if s != nil && s.quorum != quorum { // its messages say another one
		other, s = s, nil
	}
	if s == nil {
		peers, err := o.endpoint.parse(o.addresses)
		if err != nil {
			return nil, err
		}
		o.shrinks++
		s = c.newSettling(peers, quorum, without, o.shrinks)
		s.connect()
	}
	s.leaveOut(without)
	o.shrinking, o.unended = true, nil
	return s, nil
}

// settled ends a call of Shrink, unless it is to be kept for the next one.
func (c *Communicator) settled(s *settling, keep bool) {
	o := c.origin
	c.node.mu.Lock()
	o.shrinking = false
	o.silent, o.leftOut = s.silent, s.leftOut()
	if keep = keep && c.node.comms[c]; keep {
		o.unended = s
	}
	c.node.mu.Unlock()
	if !keep {
		s.end()
	}
}

// settling is a call of Shrink. Its links are a session of its own: those of the group may have
// ended.
type settling struct {
	c       *Communicator
	peers   []address
	session [16]byte
	key     [32]byte
	quorum  Quorum
	without map[int]bool
	gave    error // why this rank gives up

	machine *agree.Machine // of the agreement under way
	gone    []bool         // by peer: the machine knows
	number  int            // of the agreement, from 1
	lost    []int          // as the last one has settled
	dead    []int          // of the lost, likewise
	veto    bool           // one of the others has not joined the new group
	silent  []int          // see origin
	agreed  bool           // all of this part give up
	warned  bool           // of ranks that do not take part
	said    [][]byte
	heard   [][]letter // by peer: what belongs to later agreements

	mu     sync.Mutex
	links  []transport.Link
	echoes []transport.Link // by which those that may have gone on say that they have
	inbox  []letter
	failed []*fault.Error // by peer: it is lost
	proven []bool         // by peer: it is dead
	broken *fault.Error   // this rank cannot go on
	saidTo []int          // by peer: how much of said
	over   bool
	parts  [2][]byte     // once it is over: what is said to those that are not lost, and to those that are
	wake   chan struct{} // holds one token after a change
	making sync.WaitGroup
	cancel context.CancelCauseFunc
}

// letter is a message of a peer.
type letter struct {
	from, number int // number is that of the agreement
	what         *agree.Message
}

// envelope is a message as it is sent.
type envelope struct {
	Number int             `json:"number"`
	Quorum Quorum          `json:"quorum,omitempty"`
	What   json.RawMessage `json:"what"`
}

func (c *Communicator) newSettling(peers []address, quorum Quorum, without []int, call int) *settling {
	o, n := c.origin, len(c.origin.addresses)
	id, key := sessionOf(o.addresses)
	s := &settling{c: c, peers: peers, key: key, quorum: quorum, without: map[int]bool{}, heard: make([][]letter, n),
		links: make([]transport.Link, n), failed: make([]*fault.Error, n), proven: make([]bool, n),
		saidTo: make([]int, n), silent: o.silent, wake: make(chan struct{}, 1)}
	sum := sha256.Sum256(fmt.Appendf(id[:], "shrink %d", call))
	copy(s.session[:], sum[:])
	for _, rank := range without {
		s.without[rank] = true
		s.lost = append(s.lost, rank)
	}
	return s
}

// leaveOut counts ranks as lost.
func (s *settling) leaveOut(ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rank := range ranks {
		if !s.without[rank] && s.failed[rank] == nil {
			s.failed[rank] = fault.Peer(fault.PeerLost, rank, "it is left out")
		}
	}
}

// run settles which ranks are lost, and joins the others. That has to be settled too: where a rank
// dies, some may have joined it. So all settle it again, and are done if nobody was lost meanwhile.
func (s *settling) run(ctx context.Context) (*Communicator, []int, error) {
	if err := s.settle(ctx, false); err != nil {
		return nil, nil, err
	}
	for {
		if err := s.mayGoOn(ctx); err != nil {
			return nil, nil, err
		}
		settled := s.lost
		members, next, wrong := s.join(ctx)
		err := s.settle(ctx, wrong != nil)
		if err == nil && !s.veto && slices.Equal(settled, s.lost) {
			return next, members, nil
		}
		if next != nil {
			next.Close()
		}
		switch passing := errors.Is(wrong, fault.PeerLost) || errors.Is(wrong, fault.PeerLeft); {
		case err != nil:
			return nil, nil, err
		case wrong != nil && !passing, ctx.Err() != nil:
			return nil, nil, wrong
		}
	}
}

// connect makes the links to all ranks. To those that are left out nothing is said but that, in the
// end.
func (s *settling) connect() {
	o := s.c.origin
	self := o.endpoint.cfg.Rank
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	for peer, fabric := range o.fabrics {
		if fabric == nil {
			continue
		}
		s.making.Go(func() {
			link, err := fabric.Connect(ctx, s.peers[peer].Fabrics[fabric.Name()], transport.Session{
				ID: s.session, Rank: self, Peer: peer, Channels: 1, Key: s.key,
				OnUse:   true, // both sides dial, and so learn that nobody listens
				Control: func(message []byte) { s.hear(peer, message) }})
			s.mu.Lock()
			defer s.mu.Unlock()
			switch f := (&fault.Error{}); {
			case err == nil && s.over:
				s.leave(peer, link)
			case err == nil:
				s.links[peer] = link
			case ctx.Err() != nil: // it is over
			case errors.As(err, &f) && (f.Code == fault.PeerLost || f.Code == fault.PeerLeft):
				s.lose(peer, f)
			case s.without[peer]:
			case errors.As(err, &f):
				s.broken = f
			default:
				s.broken = fault.Wrap(fault.System, err, "connecting with rank %d", peer)
			}
			s.stir()
		})
	}
	s.listenTo(ctx, s.silent)
}

// hear takes a message. A goroutine of a transport calls it.
func (s *settling) hear(peer int, message []byte) {
	var e envelope
	if json.Unmarshal(message, &e) != nil {
		return
	}
	what, err := agree.Parse(e.What, len(s.links))
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Quorum != s.quorum && s.broken == nil && !s.without[peer] {
		s.broken = fault.Peer(fault.Mismatch, peer, "quorum: %v here, %v at rank %d; all ranks need the same",
			s.quorum, e.Quorum, peer)
	}
	if len(s.inbox) < 64*len(s.links) { // more than any agreement has
		s.inbox = append(s.inbox, letter{peer, e.Number, what})
	}
	s.stir()
}

// stir is called with the lock held after a change.
func (s *settling) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// settle runs one agreement.
func (s *settling) settle(ctx context.Context, veto bool) error {
	self := s.c.origin.endpoint.cfg.Rank
	if s.machine == nil {
		s.number++
		s.machine, s.gone = agree.New(self, len(s.links), s.lost, s.deadOf(s.lost), veto), make([]bool, len(s.links))
		s.say(s.machine.Begin())
	}
	m := s.machine
	tick := time.NewTicker(2 * time.Millisecond) // no event comes of the death of a peer
	defer tick.Stop()
	late := time.NewTimer(lateSpan)
	defer late.Stop()
	for {
		for peer, letters := range s.letters() {
			for len(letters) > 0 && letters[0].number <= s.number {
				if letters[0].number == s.number {
					s.say(m.Hear(peer, letters[0].what))
				}
				letters = letters[1:]
			}
			s.heard[peer] = letters
		}
		lost, broken := s.failures()
		if broken != nil {
			return broken
		}
		for peer, failed := range lost {
			if failed && !s.gone[peer] && len(s.heard[peer]) == 0 {
				s.gone[peer] = true
				s.say(m.Gone(peer, s.isDead(peer)))
			}
		}
		if settled := m.Decided(); settled != nil {
			s.lost, s.dead, s.veto, s.machine = settled.Lost, settled.Dead, settled.Veto, nil
			if slices.Contains(s.lost, self) {
				return fault.New(fault.PeerLost,
					"the others count this rank (%d) among the lost: the path to one of them is broken", self)
			}
			return nil
		}
		select {
		case <-s.wake:
		case <-tick.C:
		case <-late.C:
			if !s.warned {
				s.warned = true
				s.c.origin.endpoint.log("WARN", "shrink has waited for %v: %s", lateSpan, s.missing(m.Awaited()))
			}
		case <-ctx.Done():
			missing := m.Awaited()
			return &fault.Error{Code: fault.Timeout, Peer: missing[0], Ranks: missing, Cause: context.Cause(ctx),
				Text: s.missing(missing)}
		}
		for _, fabric := range s.c.origin.endpoint.fabrics {
			if p, ok := fabric.(transport.Poller); ok {
				p.Poll()
			}
		}
		s.flush()
	}
}

// letters sorts what has come by peer, and returns all that has not been handled.
func (s *settling) letters() [][]letter {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.inbox {
		s.heard[l.from] = append(s.heard[l.from], l)
	}
	s.inbox = nil
	return s.heard
}

// failures returns which peers are lost, and why this rank cannot go on, if so. A link that reports
// it brings no more messages; one that the peer has left in order, after it was done, does.
func (s *settling) failures() (lost []bool, broken *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost = make([]bool, len(s.links))
	for _, link := range s.echoes {
		s.take(link.Err())
	}
	for peer, link := range s.links {
		if link != nil && s.failed[peer] == nil {
			f := &fault.Error{}
			if err := link.Err(); errors.As(err, &f) && (f.Code != fault.PeerLeft || len(f.Left) > 0) {
				s.lose(peer, f)
			}
		}
		lost[peer] = s.failed[peer] != nil && len(s.inbox) == 0
	}
	return lost, s.broken
}

// say tells all peers.
func (s *settling) say(messages []*agree.Message) {
	for _, each := range messages {
		text, _ := json.Marshal(envelope{s.number, s.quorum, each.Encode()})
		s.said = append(s.said, text)
	}
	s.flush()
}

// flush tells the peers that take part what they have not been told yet. To others nothing is told:
// it would have to wait for them when the links are closed.
func (s *settling) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, link := range s.echoes {
		link.Open()
	}
	for peer, link := range s.links {
		if link == nil || !link.Open() {
			continue
		}
		for !s.without[peer] && s.saidTo[peer] < len(s.said) && link.Tell(s.said[s.saidTo[peer]]) {
			s.saidTo[peer]++
		}
	}
}

// join makes the group of all ranks that are not lost.
func (s *settling) join(ctx context.Context) (members []int, next *Communicator, err error) {
	o := s.c.origin
	for rank := range o.addresses {
		if !slices.Contains(s.lost, rank) {
			members = append(members, rank)
		}
	}
	addresses, err := s.remaining(members)
	if err != nil {
		return nil, nil, err
	}
	e := *o.endpoint
	e.cfg.Rank, e.cfg.Size = slices.Index(members, e.cfg.Rank), len(members)
	e.cfg.Share, e.cfg.Note = nil, nil // the descriptors may be closed by now
	e.address = addresses[e.cfg.Rank]
	ctx, cancel := context.WithCancelCause(ctx)
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
	next, err = e.Join(ctx, addresses)
	close(joined)
	watching.Wait()
	if f := (*fault.Error)(nil); err != nil && errors.As(context.Cause(ctx), &f) {
		err = f
	}
	return members, next, err
}

// lostOf returns why one of the ranks that join is lost by now, or has given up, or nil.
func (s *settling) lostOf(members []int) *fault.Error {
	_, broken := s.failures()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rank := range members {
		if broken == nil {
			broken = s.failed[rank]
		}
	}
	return broken
}

// remaining returns the addresses of the members of a smaller group, for one attempt to join it.
// All of them find the same.
func (s *settling) remaining(members []int) (addresses [][]byte, err error) {
	for rank, member := range members {
		a := s.peers[member]
		a.Number, a.Size, a.Shares = rank, len(members), false
		nonce := sha256.Sum256(fmt.Append(nil, a.Nonce, members, s.number))
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
	self := s.c.origin.endpoint.cfg.Rank
	var why, toLost []byte
	switch f := (&fault.Error{}); {
	case s.gave == nil:
		toLost = farewell(len(s.links), s.lost)
	case errors.As(s.gave, &f):
		why = f.Report(self)
		toLost = why
	}
	if s.agreed { // the others know, by messages that may arrive later than this would
		why = nil
	}
	s.cancel(&transport.GivenUp{Why: toLost}) // ends the attempts to connect with ranks that have not come
	if s.gave == nil {
		s.part(toLost)
	}
	s.mu.Lock()
	s.over, s.parts = true, [2][]byte{why, toLost}
	closeLinks(s.echoes)
	for peer, link := range s.links {
		if link != nil {
			s.leave(peer, link)
		}
	}
	s.mu.Unlock()
	s.making.Wait()
}

// leave ends a link, also one that is made only once this is over: its peer waits for a word, too.
func (s *settling) leave(peer int, link transport.Link) {
	if slices.Contains(s.lost, peer) {
		link.Leave(s.parts[1])
	} else {
		link.Leave(s.parts[0])
	}
}

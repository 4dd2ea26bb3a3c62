package ccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
	"github.com/goccl/goccl/internal/agree"
	"github.com/goccl/goccl/transport"
)

// Grow makes a group of this one and of newcomers, which call Node.Join. All ranks call it, with
// the same number of newcomers. When all have, it waits until that many have come to any of
// them, or for a while; those that have come by then are taken, and others wait for the next call.
// The ranks keep their numbers, and newcomers get the next ones. It returns the new group, or c if
// nobody has come. This group stays as it is. The new one shares nothing (Config.Share).
//
// A newcomer that dies, or cannot join, is left out. If a rank of this group is lost, there is no
// new group: the error names it, on all ranks. They can go on with Shrink, and then grow.
func (c *Communicator) Grow(ctx context.Context, newcomers int, wait time.Duration) (*Communicator, error) {
	e := c.origin.endpoint
	switch {
	case newcomers < 1 || newcomers > MaxRanks-e.cfg.Size:
		return nil, e.in("grow", fault.New(fault.Invalid, "%d newcomers, allowed are 1 to %d", newcomers,
			MaxRanks-e.cfg.Size))
	case e.cfg.Device:
		return nil, e.in("grow", fault.New(fault.NotSupported, "groups on devices do not grow"))
	}
	c.node.mu.Lock()
	err := c.change()
	if err == nil {
		c.origin.grows++
		c.origin.changing = true
	}
	call := c.origin.grows
	c.node.mu.Unlock()
	if err != nil {
		return nil, e.in("grow", err)
	}
	next, err := c.grow(ctx, newcomers, wait, call)
	c.node.mu.Lock()
	c.origin.changing = false
	c.node.mu.Unlock()
	if err != nil {
		return nil, e.in("grow", err)
	}
	return next, nil
}

func (c *Communicator) grow(ctx context.Context, newcomers int, wait time.Duration, call int) (*Communicator, error) {
	o := c.origin
	peers, err := o.endpoint.parse(o.addresses)
	if err != nil {
		return nil, err
	}
	_, key := sessionOf(o.addresses)
	g := &growing{parley: newParley(o.endpoint, peers, o.fabrics, o.session("gather", call), key), wait: wait,
		gathering: member.NewGathering(o.endpoint.cfg.Rank, len(peers), newcomers), call: call}
	g.guests = c.node.door.receive(o.endpoint.cfg.Name, g.nudge)
	defer g.guests.close()
	g.connect()
	next, err := g.run(ctx, o.session("grow", call))
	why := []byte(nil)
	if f := (&fault.Error{}); errors.As(err, &f) {
		why = f.Report(g.self())
	}
	g.end(why, func(int) []byte { return why })
	if err == nil && next == nil {
		return c, nil
	}
	return next, err
}

// growing is a call of Grow, until it is known who comes.
type growing struct {
	*parley
	gathering *member.Gathering
	guests    *reception
	wait      time.Duration
	call      int
}

// run returns the new group, or none if nobody has come.
func (g *growing) run(ctx context.Context, session [16]byte) (*Communicator, error) {
	list, err := g.gather(ctx)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	s, err := g.regroup(list, session)
	if err != nil {
		return nil, err
	}
	next, _, err := s.run(ctx)
	s.failure = err
	s.end()
	return next, err
}

func (p *parley) nudge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notify()
}

// gather returns the offers of those that come.
func (g *growing) gather(ctx context.Context) ([][]byte, error) {
	tick := time.NewTicker(2 * time.Millisecond) // no event comes of the death of a peer
	defer tick.Stop()
	late := time.NewTimer(time.Hour)
	late.Stop()
	defer late.Stop()
	complete := false
	g.send(g.gathering.Begin())
	for {
		for _, l := range g.letters() {
			if note, err := member.ParseNote(l.text); err == nil {
				g.send(g.gathering.Hear(l.from, note))
			}
		}
		for _, a := range g.guests.all() {
			g.welcome(a)
		}
		list, decided, err := g.gathering.Outcome()
		if err != nil {
			return nil, err
		}
		if decided && g.sent() {
			return list, nil
		}
		if err := g.lost(); err != nil && !decided {
			return nil, err
		}
		if !complete && g.gathering.Complete() {
			complete = true
			late.Reset(g.wait)
		}
		select {
		case <-g.wake:
		case <-tick.C:
		case <-late.C:
			g.send(g.gathering.Late())
		case <-ctx.Done():
			missing := g.gathering.Awaited()
			if len(missing) == 0 {
				return nil, fault.Wrap(fault.Timeout, context.Cause(ctx), "while newcomers were waited for")
			}
			return nil, &fault.Error{Code: fault.Timeout, Peer: missing[0], Ranks: missing, Cause: context.Cause(ctx),
				Text: fmt.Sprintf("%s not in grow, nor known to be dead", are(missing))}
		}
		g.poll()
	}
}

// are says "rank 2 is" or "ranks 2, 3 are".
func are(ranks []int) string {
	if len(ranks) == 1 {
		return listed(ranks) + " is"
	}
	return listed(ranks) + " are"
}

// send tells what the gathering says.
func (g *growing) send(all []member.Told) {
	for _, each := range all {
		if each.To == member.All {
			g.tellAll(each.Note.Encode())
		} else {
			g.tell(each.To, each.Note.Encode())
		}
	}
}

// welcome takes a newcomer that has come to this process, if it can join, or has left again.
func (g *growing) welcome(a arrival) {
	offer := a.request.Address
	if a.left {
		g.send(g.gathering.Left(offer))
		return
	}
	if _, err := g.with([][]byte{offer}); err != nil {
		why := err.Error()
		if f := (&fault.Error{}); errors.As(err, &f) {
			why = f.Text
		}
		g.guests.answer(a.visitor, invitation{Refused: why})
		return
	}
	g.guests.take(a.visitor)
	g.send(g.gathering.Came(offer))
}

// lost returns the error of a rank that has died, or given up, or nil.
func (g *growing) lost() error {
	lost, broken := g.failures()
	if broken != nil {
		return broken
	}
	for peer := range lost {
		f := g.why(peer)
		if f == nil {
			continue
		}
		if told, err := fault.ParseReport(f.Left, g.self(), len(g.links)); err == nil && len(f.Left) > 0 {
			return told
		}
		return f
	}
	return nil
}

// grown is what a group with newcomers is to be.
type grown struct {
	endpoint  Endpoint // this rank's
	addresses [][]byte
	peers     []address
	joining   *joining // has the routes
}

// with returns the group with newcomers, who have made these offers.
func (g *growing) with(offers [][]byte) (*grown, error) {
	all := slices.Clone(g.peers)
	for i, offer := range offers {
		a, err := parseOffer(offer)
		if err != nil {
			return nil, fault.Peer(fault.Invalid, len(g.peers)+i, "its address cannot be read: %v", err)
		}
		all = append(all, *a)
	}
	members := make([]int, len(all))
	for rank := range members {
		members[rank] = rank
	}
	addresses, err := numbered(all, members, fmt.Sprintf("grow %d", g.call))
	if err != nil {
		return nil, err
	}
	return g.e.among(addresses, g.self())
}

// among returns what a group of all these is to be, of which this process is one.
func (e *Endpoint) among(addresses [][]byte, self int) (*grown, error) {
	all := &grown{endpoint: *e, addresses: addresses}
	at := &all.endpoint
	at.cfg.Rank, at.cfg.Size, at.cfg.Share, at.cfg.Note = self, len(addresses), nil, nil
	at.address = addresses[self]
	var err error
	if all.peers, _, err = at.agree(addresses); err != nil {
		return nil, err
	}
	// The ranks agree without shared memory, which the system may refuse to newcomers: a group does
	// without it then (Endpoint.Join).
	apart := at.inSecond()
	peers, group, err := apart.agree(addresses)
	if err != nil {
		return nil, err
	}
	all.joining = apart.routed(peers, group)
	return all, nil
}

// regroup begins the second half of the call, and invites the newcomers that have come to this
// process.
func (g *growing) regroup(list [][]byte, session [16]byte) (*regroup, error) {
	all, err := g.with(list)
	if err != nil {
		return nil, err
	}
	former := len(g.peers)
	s := all.regroup(former, session)
	s.before = g
	for i, offer := range list {
		g.guests.invite(offer, invitation{Name: g.e.cfg.Name, Former: former, Rank: former + i, Session: session,
			Addresses: all.addresses})
	}
	return s, nil
}

// regroup begins the agreement on who is in the group. Who cannot be reached is lost.
func (a *grown) regroup(former int, session [16]byte) *regroup {
	e := a.endpoint
	_, key := sessionOf(a.addresses)
	s := &regroup{parley: newParley(&e, a.peers, a.joining.fabrics, session, key), what: "grow",
		known: make([]bool, len(a.peers)), confirmed: make([]bool, len(a.peers))}
	s.former = former
	s.change = agree.NewChange(agree.Terms{Self: s.self(), Ranks: len(a.peers), Dead: s.isDead, Needed: former,
		Allows: func(_, _ []int, _ bool) bool { return true }})
	for peer, err := range a.joining.errs {
		if f := (&fault.Error{}); errors.As(err, &f) {
			s.failed[peer] = f
		}
	}
	s.connect()
	return s
}

// confirm tells the others that this rank has the new group, and reports whether all ranks of the
// former one have it: then none of them goes on as the former one. A rank that does not hear from
// all knows only of itself; others may know more.
func (r *regroup) confirm(ctx context.Context) bool {
	text, _ := json.Marshal(envelope{Confirmed: true})
	r.tellAll(text)
	r.confirmed[r.self()] = true
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(lateSpan)
	defer late.Stop()
	for {
		lost, _ := r.failures()
		for _, l := range r.letters() { // what a lost rank has said has come by now
			r.open(l)
		}
		all, missing := true, false
		for rank := range r.former {
			all = all && r.confirmed[rank]
			missing = missing || !r.confirmed[rank] && lost[rank]
		}
		if all && r.sent() || missing {
			return all
		}
		select {
		case <-r.wake:
		case <-tick.C:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
		r.poll()
	}
}

// lostFormer returns the error of a group that does not grow because it has lost some of its own
// ranks.
func (r *regroup) lostFormer() error {
	lost := r.change.Needs()
	err := &fault.Error{Code: fault.PeerLost, Peer: lost[0], Ranks: lost, Text: listed(lost) +
		" of the group that was to grow died, gave up, or could not be reached; the group is as it was, and goes on " +
		"with shrink"}
	if f := r.why(lost[0]); f != nil {
		err.Cause = f
		if told, wrong := fault.ParseReport(f.Left, r.self(), len(r.links)); wrong == nil {
			err.Cause = told
		}
	}
	return err
}

// doorOf returns the door of a process, or why it has none.
func (n *Node) doorOf(e *Endpoint) (transport.Door, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d, ok := n.fabrics["tcp"].(transport.Door); ok && e.cfg.Options.allows("tcp") {
		return d, nil
	}
	return nil, fault.New(fault.NotSupported, "newcomers come by TCP, which GOCCL_TRANSPORT=%s leaves out",
		e.cfg.Options.Transport)
}

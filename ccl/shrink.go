package ccl

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/agree"
	"github.com/goccl/goccl/transport"
)

// origin is what a Communicator was made of. Shrink and Grow make another one of it: nobody else
// has to be asked for addresses, in particular no store, which may have died with its rank.
type origin struct {
	endpoint  *Endpoint
	addresses [][]byte
	fabrics   []transport.Fabric // by peer

	// Guarded by the node's mu.
	former   int      // of a group that has grown: how many of its ranks, the first ones, were one before; else 0
	whole    bool     // it is certain that all of these have become ranks of this group
	shrinks  int      // calls of Shrink, but for those that went on with an earlier one
	grows    int      // calls of Grow
	unended  *regroup // a call of Shrink that ctx ended while ranks were missing; the next one goes on with it
	changing bool     // a call of Shrink or Grow is under way
	silent   []int    // lost when a quorum was missed: they may have gone on, so that a later death proves nothing
	leftOut  *fault.Error
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
	s, err := c.beginShrink(quorum, without)
	if err != nil {
		return nil, nil, e.in("shrink", err)
	}
	next, members, err := s.run(ctx)
	s.failure = err
	c.endShrink(s, err != nil && s.change.Number() == 1 && ctx.Err() != nil)
	if err != nil {
		return nil, nil, e.in("shrink", err)
	}
	return next, members, nil
}

// change begins a call of Shrink or Grow. The caller holds the node's mu.
func (c *Communicator) change() error {
	switch o := c.origin; {
	case !c.node.comms[c]:
		return fault.New(fault.Closed, "the group is closed")
	case o.changing:
		return fault.New(fault.Invalid, "another thread is in shrink or grow of this group")
	case o.leftOut != nil:
		return o.leftOut
	}
	return nil
}

// beginShrink begins a call of Shrink, or goes on with one.
func (c *Communicator) beginShrink(quorum Quorum, without []int) (*regroup, error) {
	o := c.origin
	var other *regroup
	defer func() {
		if other != nil {
			other.end()
		}
	}()
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if err := c.change(); err != nil {
		return nil, err
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
		s = c.newShrink(peers, quorum, without, o.shrinks)
		over := s.connect()
		if quorum != AnyQuorum { // then every part goes on
			s.listenTo(over, s.silent)
		}
	}
	s.leaveOut(without)
	o.changing, o.unended = true, nil
	return s, nil
}

// endShrink ends a call of Shrink, unless it is to be kept for the next one.
func (c *Communicator) endShrink(s *regroup, keep bool) {
	o := c.origin
	c.node.mu.Lock()
	o.changing = false
	o.silent, o.leftOut = s.silent, s.leftOut()
	if keep = keep && c.node.comms[c]; keep {
		o.unended = s
	}
	c.node.mu.Unlock()
	if !keep {
		s.end()
	}
}

func (c *Communicator) newShrink(peers []address, quorum Quorum, without []int, call int) *regroup {
	o := c.origin
	_, key := sessionOf(o.addresses)
	s := &regroup{parley: newParley(o.endpoint, peers, o.fabrics, o.session("shrink", call), key), what: "shrink",
		quorum: quorum, silent: o.silent, farewells: o.session("left out of shrink", 0),
		known: make([]bool, len(peers))}
	for _, rank := range without {
		s.without[rank] = true
	}
	s.grown = o.former
	s.change = agree.NewChange(agree.Terms{Self: s.self(), Ranks: len(peers), Lost: without, Dead: s.isDead,
		Known: o.whole, Looks: moreLooks, Allows: func(lost, dead []int, known bool) bool {
			return quorum.AllowsGrown(o.former, len(peers), lost, dead, known)
		}})
	return s
}

// session returns the identity of the links of a call.
func (o *origin) session(what string, call int) (id [16]byte) {
	group, _ := sessionOf(o.addresses)
	sum := sha256.Sum256(fmt.Appendf(group[:], "%s %d", what, call))
	copy(id[:], sum[:])
	return id
}

// leaveOut counts ranks as lost.
func (r *regroup) leaveOut(ranks []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rank := range ranks {
		if !r.without[rank] && r.failed[rank] == nil {
			r.failed[rank] = fault.Peer(fault.PeerLost, rank, "it is left out")
		}
	}
}

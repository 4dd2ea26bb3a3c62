package sim

import (
	"math"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// slots is the maximum number of mailboxes of a pair of ranks.
const slots = plan.MaxChans + plan.MaxFlags

// joint is the mailbox and the path of a port of a simulated rank; -1 if there is none or it is not
// yet known.
type joint struct{ box, path int32 }

// joint returns the mailbox and the path that a step uses to communicate with its peer.
func (e *engine) joint(c *cursor, peer int32, o *op) joint {
	if o.port < 0 { // the peer advances
		return e.join(c.rank, peer, wayOf(o.kind), o.slot)
	}
	at := &e.joints[c.port+o.port]
	if at.box < 0 && at.path < 0 {
		*at = e.join(c.rank, peer, wayOf(o.kind), o.slot)
	}
	return *at
}

func (e *engine) join(rank, peer int32, w way, slot uint8) joint {
	switch w {
	case receives:
		return joint{e.box(rank, peer, slot), -1}
	case fetches:
		return joint{-1, e.path(peer, rank)}
	case writes:
		return joint{-1, e.path(rank, peer)}
	}
	// The receiver may not be simulated itself but be represented by another rank: then the message
	// stands for the one that reaches the representative from the same distance.
	n, s := int32(e.p.Spec.Ranks), int32(e.shift)
	receiver := peer % s
	sender := (rank - (peer - receiver) + n) % n
	return joint{e.box(receiver, sender, slot), e.path(rank, peer)}
}

// box returns the mailbox of a simulated rank for messages from another rank.
func (e *engine) box(receiver, sender int32, slot uint8) int32 {
	key := (uint64(receiver)*uint64(e.p.Spec.Ranks)+uint64(sender))*slots + uint64(slot)
	box, ok := e.boxOf[key]
	if !ok {
		box = int32(len(e.boxes))
		e.boxes = append(e.boxes, mailbox{})
		e.boxOf[key] = box
	}
	return box
}

// path returns the path from one rank to another; after an error it returns an arbitrary path.
func (e *engine) path(from, to int32) int32 {
	key := uint64(from)<<32 | uint64(to)
	id, ok := e.pathOf[key]
	if !ok {
		var err error
		if id, err = e.newPath(int(from), int(to)); err != nil {
			e.failed = err
			return 0
		}
		e.pathOf[key] = id
	}
	return id
}

func (e *engine) newPath(from, to int) (int32, error) {
	if e.o.Costs != nil && e.o.On.HostOf(from) == e.o.On.HostOf(to) {
		e.costs = append(e.costs, costOf(&e.o.Costs.Memory, e.o.Costs.Memory.Latency, true, from%e.shift, to%e.shift))
		e.net.paths = append(e.net.paths, path{})
		return int32(len(e.net.paths) - 1), nil
	}
	if len(e.net.paths) == maxPaths {
		return 0, fault.New(fault.NotSupported,
			"simulating plan %q (%v): more than %d pairs of ranks talk; take fewer ranks", e.p.Name, e.p.Spec, maxPaths)
	}
	links, err := e.route(e.scratch[:0], from, to)
	if err != nil {
		return 0, err
	}
	e.scratch = links
	t := e.router.Topology()
	way := path{alpha: t.Startup, hops: make([]hop, 0, len(links)), limit: math.Inf(1)}
	for _, l := range links {
		way.alpha += t.Classes[t.Links[l].Class].Alpha
		way.hops = e.cross(way.hops, l)
	}
	for _, h := range way.hops {
		if limit := e.net.pipes[h.link].bandwidth / float64(h.times); limit < way.limit {
			way.limit, way.bound = limit, h.link
		}
	}
	e.net.paths = append(e.net.paths, way)
	if e.o.Costs != nil {
		of := &e.o.Costs.Network
		if e.o.On.SiteOf(from) != e.o.On.SiteOf(to) {
			of = &e.o.Costs.Far
		}
		e.costs = append(e.costs, costOf(of, way.alpha, false, from%e.shift, to%e.shift))
	}
	return int32(len(e.net.paths) - 1), nil
}

// cross adds a link to a path. A link that stands for several links is crossed by all flows that
// this flow stands for: they cross each link of the orbit equally often.
func (e *engine) cross(hops []hop, link int32) []hop {
	times := int32(1)
	if e.orbit != nil {
		link = e.orbit[link]
		times = int32(e.p.Spec.Ranks/e.shift) / e.size[link]
	}
	for i := range hops {
		if hops[i].link == link {
			hops[i].times += times
			return hops
		}
	}
	return append(hops, hop{link, times})
}

// route appends the links from one rank of the plan to another.
func (e *engine) route(links []int32, from, to int) ([]int32, error) {
	if e.o.Placement != nil {
		from, to = e.o.Placement[from], e.o.Placement[to]
	}
	return e.router.Route(links, from, to)
}

// result returns the results for all ranks and links.
func (e *engine) result() *Result {
	e.net.settle()
	n := e.p.Spec.Ranks
	each := int64(n / e.shift)
	links := len(e.router.Topology().Links)
	r := &Result{Finish: make([]float64, n), Sent: make([]int64, n), Received: make([]int64, n), Simulated: e.shift,
		LinkBytes: make([]int64, links), LinkBusy: make([]float64, links),
		Messages: e.messages * each, Timeline: e.timeline}
	for rank, prog := range e.programs {
		r.Peers = max(r.Peers, prog.peers(rank))
	}
	for rank := range n {
		k := rank % e.shift
		r.Finish[rank], r.Sent[rank], r.Received[rank] = e.finish[k], e.sent[k], e.taken[k]
		r.Makespan = max(r.Makespan, r.Finish[rank])
		r.Bytes += r.Received[rank]
	}
	for l := range links {
		k := int32(l)
		if e.orbit != nil {
			if k = e.orbit[l]; k < 0 {
				continue
			}
		}
		r.LinkBytes[l], r.LinkBusy[l] = e.net.pipes[k].bytes, e.net.pipes[k].busy
	}
	return r
}

package sim

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// slots is how many mailboxes a pair of ranks may have.
const slots = plan.MaxChans + plan.MaxFlags

// outgoing is the mailbox that a message of a simulated rank goes to. Its receiver may be one that is not simulated, but stood for by another:
// then the message is the one that reaches that rank from as far away.
func (e *engine) outgoing(rank, peer int32, o *op, fixed bool) int32 {
	if fixed && o.box >= 0 {
		return o.box
	}
	n, s := int32(e.p.Spec.Ranks), int32(e.shift)
	receiver := peer % s
	sender := (rank - (peer - receiver) + n) % n
	box := e.box(receiver, sender, o.slot)
	if fixed {
		o.box = box
	}
	return box
}

// incoming is the mailbox that a simulated rank receives in.
func (e *engine) incoming(rank, peer int32, o *op, fixed bool) int32 {
	if fixed && o.box >= 0 {
		return o.box
	}
	box := e.box(rank, peer, o.slot)
	if fixed {
		o.box = box
	}
	return box
}

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

// path is the way from a rank to a peer, or from the peer to it.
func (e *engine) path(rank, peer int32, o *op, fixed, fetch bool) int32 {
	if fixed && o.path >= 0 {
		return o.path
	}
	from, to := int(rank), int(peer)
	if fetch {
		from, to = to, from
	}
	key := uint64(from)<<32 | uint64(to)
	id, ok := e.pathOf[key]
	if !ok {
		var err error
		if id, err = e.newPath(from, to); err != nil {
			e.failed = err
			return 0
		}
		e.pathOf[key] = id
	}
	if fixed {
		o.path = id
	}
	return id
}

func (e *engine) newPath(from, to int) (int32, error) {
	if len(e.net.paths) == maxPaths {
		return 0, fault.New(fault.NotSupported, "simulating plan %q (%v): more than %d pairs of ranks talk; take fewer ranks", e.p.Name, e.p.Spec, maxPaths)
	}
	links, err := e.route(e.scratch[:0], from, to)
	if err != nil {
		return 0, err
	}
	e.scratch = links
	t := e.router.Topology()
	way := path{alpha: t.Startup, hops: make([]hop, 0, len(links))}
	for _, l := range links {
		way.alpha += t.Classes[t.Links[l].Class].Alpha
		way.hops = e.cross(way.hops, l)
	}
	e.net.paths = append(e.net.paths, way)
	return int32(len(e.net.paths) - 1), nil
}

// cross adds a link to a path. One that stands for others is crossed by all flows that this one stands for: they cross
// each link of the orbit equally often.
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

// route is the links from one rank of the plan to another.
func (e *engine) route(links []int32, from, to int) ([]int32, error) {
	if e.o.Placement != nil {
		from, to = e.o.Placement[from], e.o.Placement[to]
	}
	return e.router.Route(links, from, to)
}

// result is what the engine has found, for all ranks and links.
func (e *engine) result() *Result {
	n := e.p.Spec.Ranks
	each := int64(n / e.shift)
	links := len(e.router.Topology().Links)
	r := &Result{Finish: make([]float64, n), Sent: make([]int64, n), Received: make([]int64, n), Simulated: e.shift,
		LinkBytes: make([]int64, links), LinkBusy: make([]float64, links), Messages: e.messages * each, Timeline: e.timeline}
	for rank := range n {
		k := rank % e.shift
		r.Finish[rank], r.Sent[rank], r.Received[rank] = e.finish[k], e.sent[k], e.received[k]
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

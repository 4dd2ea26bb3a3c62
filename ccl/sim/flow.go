package sim

// flow is bytes under way.
type flow struct {
	remaining float64 // bytes, when rate was last set
	rate      float64 // bytes a second; 0 until it has got one
	next      float64 // while rates are computed: the new one
	since     float64
	left      int64 // all its bytes
	path      int32
	version   int32 // counts up when what is foreseen changes
	visited   int32
	bound     int32 // the full link that holds it back: no flow there is faster; -1 without a rate
	nextBound int32 // while rates are computed: the new one
	box       int32 // where it arrives, or -1
	number    int32 // which message of the box
	lane      int32 // whose step sent it
}

// hop is a link of a path, and how many flows of the kind cross it. That is more than one only
// where the link stands for many.
type hop struct{ link, times int32 }

type path struct {
	hops    []hop
	alpha   float64
	limit   float64 // the rate of a flow that has the path for itself
	bound   int32   // the link that sets it
	private bool    // no flow ever has to share it
	bytes   int64   // carried, if it is private
	busy    float64 // likewise
}

// pipe is a link, or all links that a shift maps it to.
type pipe struct {
	bandwidth float64
	used      float64 // the rates of all crossings
	flows     []int32
	bytes     int64 // carried, on each
	busy      float64
	since     float64
	bound     int32 // how many of flows it holds back
	stale     int32 // changes of used since it was computed from the flows
	loose     bool  // a flow has left, so those that it holds back may go faster
}

// share is what is known of a pipe while rates are computed.
type share struct {
	rest      float64 // bandwidth that the flows leave that take no part
	spare     float64 // bandwidth that no flow has
	level     float64 // the rate of the flows that it holds back, or infinite
	fastest   float64 // the rate of the fastest flow that takes part
	heap      float64 // what it offered a flow when it was put into the heap
	mine      int32   // flows that take part
	crossings int32   // their crossings
	open      int32   // crossings by flows without a rate
	visited   int32
}

// links is the flows and the links that they share.
type links struct {
	pipes []pipe
	parts []share // of the pipes
	paths []path
	flows []flow
	free  []int32
	loose []int32 // pipes
	fresh []int32 // flows without a rate
	stamp int32
	comp  []int32 // pipes that are computed anew
	mates []int32 // flows that are computed anew
	heap  []int32
	queue *queue
}

// tight is how far apart, relatively, two rates may be to be the same one: the rounding of some
// additions.
const tight = 1e-12

// same is how far apart, relatively, an old and a new rate may be to be left alone.
const same = 1e-13

// maxStale is how often a sum is changed before it is computed anew.
const maxStale = 64

func (n *links) newFlow() int32 {
	if k := len(n.free); k > 0 {
		id := n.free[k-1]
		n.free = n.free[:k-1]
		f := &n.flows[id]
		*f = flow{version: f.version + 1, bound: -1}
		return id
	}
	n.flows = append(n.flows, flow{bound: -1})
	return int32(len(n.flows) - 1)
}

// begin puts a flow on its links.
func (n *links) begin(id int32, now float64) {
	f := &n.flows[id]
	f.remaining, f.since = float64(f.left), now
	for _, h := range n.paths[f.path].hops {
		p := &n.pipes[h.link]
		if len(p.flows) == 0 {
			p.since = now
		}
		p.flows = append(p.flows, id)
		p.bytes += int64(h.times) * f.left
	}
	n.fresh = append(n.fresh, id)
}

// end takes it off.
func (n *links) end(id int32, now float64) {
	f := &n.flows[id]
	n.pipes[f.bound].bound--
	for _, h := range n.paths[f.path].hops {
		p := &n.pipes[h.link]
		for i, other := range p.flows {
			if other == id {
				p.flows[i] = p.flows[len(p.flows)-1]
				p.flows = p.flows[:len(p.flows)-1]
				break
			}
		}
		p.used -= float64(h.times) * f.rate
		p.stale++
		if len(p.flows) == 0 {
			p.busy += now - p.since
			p.used, p.stale = 0, 0
		}
		if p.bound > 0 && !p.loose {
			p.loose = true
			n.loose = append(n.loose, h.link)
		}
	}
	f.bound = -1
}

// share computes rates anew wherever flows began or ended.
func (n *links) share(now float64) {
	for _, id := range n.fresh {
		if n.flows[id].rate == 0 && !n.unhindered(id, now) {
			n.solve(id, -1, now)
		}
	}
	n.fresh = n.fresh[:0]
	for _, link := range n.loose {
		if p := &n.pipes[link]; p.loose && p.bound > 0 {
			n.solve(-1, link, now)
		}
		n.pipes[link].loose = false
	}
	n.loose = n.loose[:0]
}

// unhindered gives a flow all it could ever get, if that is there and nobody waits for it, and
// reports whether.
func (n *links) unhindered(id int32, now float64) bool {
	f := &n.flows[id]
	way := &n.paths[f.path]
	for _, h := range way.hops {
		p := &n.pipes[h.link]
		if p.loose && p.bound > 0 || p.used+float64(h.times)*way.limit > p.bandwidth*(1+tight) {
			return false
		}
	}
	for _, h := range way.hops {
		p := &n.pipes[h.link]
		p.used += float64(h.times) * way.limit
		p.stale++
	}
	n.hold(f, way.bound)
	n.set(id, way.limit, now)
	return true
}

// hold notes which link holds a flow back.
func (n *links) hold(f *flow, link int32) {
	if f.bound >= 0 {
		n.pipes[f.bound].bound--
	}
	f.bound = link
	n.pipes[link].bound++
}

// set gives a flow a rate and foresees its end.
func (n *links) set(id int32, rate, now float64) {
	f := &n.flows[id]
	if rate == f.rate {
		return
	}
	f.remaining = max(0, f.remaining-f.rate*(now-f.since))
	f.rate, f.since = rate, now
	f.version++
	n.queue.push(now+f.remaining/rate, event{kind: ends, version: f.version, id: id})
}

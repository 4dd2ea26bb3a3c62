package sim

// flow is a number of bytes in flight.
type flow struct {
	remaining float64 // bytes, when rate was last set
	rate      float64 // bytes per second; 0 until it has one
	next      float64 // the new rate, while rates are computed
	since     float64
	left      int64 // its total number of bytes
	path      int32
	version   int32 // incremented when its predicted end changes
	visited   int32
	bound     int32 // the full link that holds it back: no flow there is faster; -1 without a rate
	nextBound int32 // the new value of bound, while rates are computed
	box       int32 // mailbox where it arrives, or -1
	number    int32 // index of the message in its mailbox
	lane      int32 // the lane whose step sent it
	frame     bool  // with Options.Costs: the receiver applies it to its window
	last      bool  // … of a message
}

// hop is a link of a path, and how many flows like this one cross it. There is more than one only
// if the link stands for several links.
type hop struct{ link, times int32 }

type path struct {
	hops    []hop
	alpha   float64
	limit   float64 // the rate of a flow that is alone on the path
	bound   int32   // the link that determines limit
	private bool    // no flow ever has to share it
	bytes   int64   // carried so far, if it is private
	busy    float64 // seconds in use, if it is private

	// With Options.Costs, fragments pass one after the other:
	waiting []int32
	active  bool
}

// pipe is a link, or all links that a shift maps it to.
type pipe struct {
	bandwidth float64
	used      float64 // sum of the rates of all crossings
	flows     []int32
	bytes     int64 // carried, on each link
	busy      float64
	since     float64
	bound     int32 // number of flows that it holds back
	stale     int32 // number of changes of used since it was computed from the flows
	loose     bool  // a flow has left, so the flows that it holds back may get faster

	burst  float64 // bytes that it lets through at once after a pause
	tokens float64 // of burst, what was left at a time
	filled float64 // that time
}

// share is the state of a pipe while rates are computed.
type share struct {
	rest      float64 // bandwidth that the flows that are not recomputed leave
	spare     float64 // bandwidth that no flow has
	level     float64 // the rate of the flows that it holds back, or infinity
	fastest   float64 // the rate of the fastest recomputed flow
	heap      float64 // its offer to a flow when it was put into the heap
	mine      int32   // recomputed flows
	crossings int32   // crossings of the recomputed flows
	open      int32   // crossings of flows without a new rate
	visited   int32
}

// links holds the flows and the links that they share.
type links struct {
	pipes []pipe
	parts []share // one for each pipe
	paths []path
	flows []flow
	free  []int32
	loose []int32 // pipes
	fresh []int32 // flows without a rate
	stamp int32
	comp  []int32 // pipes that are recomputed
	mates []int32 // flows that are recomputed
	heap  []int32
	queue *queue
}

// tight is the largest relative difference of two rates that count as equal: the rounding error of
// some additions.
const tight = 1e-12

// same is the relative difference of an old and a new rate up to which the old one is kept.
const same = 1e-13

// maxStale is how often a sum is updated before it is recomputed.
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

// begin adds a flow to its links, some bytes of which they have let through at once.
func (n *links) begin(id int32, free, now float64) {
	f := &n.flows[id]
	f.remaining, f.since = float64(f.left)-free, now
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

// spend takes what the links of a path let through at once from their buckets, at most so many
// bytes, and returns how many.
func (n *links) spend(way *path, bytes, now float64) float64 {
	for _, h := range way.hops {
		p := &n.pipes[h.link]
		p.fill(now)
		bytes = min(bytes, p.tokens/float64(h.times))
	}
	if bytes > 0 { // never for links without a burst
		for _, h := range way.hops {
			n.pipes[h.link].tokens -= bytes * float64(h.times)
		}
	}
	return bytes
}

// fill adds to the bucket of a link what it could have carried meanwhile. It must be called before
// used changes.
func (p *pipe) fill(now float64) {
	if p.burst == 0 {
		return
	}
	p.tokens = min(p.burst, p.tokens+max(0, p.bandwidth-p.used)*(now-p.filled))
	p.filled = now
}

// end removes a flow from its links.
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
		p.fill(now)
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

// share recomputes rates wherever flows have begun or ended.
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

// unhindered gives a flow the highest rate that its path allows, if its links have that much
// bandwidth left and no other flow may claim it. It reports whether it did.
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
		p.fill(now)
		p.used += float64(h.times) * way.limit
		p.stale++
	}
	n.hold(f, way.bound)
	n.set(id, way.limit, now)
	return true
}

// hold records the link that holds a flow back.
func (n *links) hold(f *flow, link int32) {
	if f.bound >= 0 {
		n.pipes[f.bound].bound--
	}
	f.bound = link
	n.pipes[link].bound++
}

// set gives a flow a rate and schedules its end.
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

package sim

import "math"

// maxGrowth is how often the set of flows to recompute may grow before all flows connected to it
// are added.
const maxGrowth = 16

// solve makes the rates max-min fair again around a flow without a rate, or around a link that a
// flow has left.
//
// Rates are max-min fair if and only if every flow has a bottleneck: a link that is full and on
// which no flow is faster (Bertsekas, Gallager, "Data Networks", §6.5.2). So it is enough to
// recompute a few flows, with the bandwidth that all others leave, and to look for flows that then
// have no bottleneck; these are recomputed as well, until there are none.
func (n *links) solve(id, link int32, now float64) {
	n.stamp++
	n.comp, n.mates = n.comp[:0], n.mates[:0]
	if id >= 0 {
		n.take(id)
	} else {
		n.touch(link)
	}
	for growth, seen := 0, 0; ; growth++ {
		for ; seen < len(n.comp); seen++ {
			n.spread(n.comp[seen], growth > maxGrowth)
		}
		n.fill()
		before := len(n.mates)
		if growth <= maxGrowth {
			n.check()
		}
		if len(n.mates) == before {
			break
		}
		if growth == maxGrowth {
			seen = 0
		}
	}
	n.commit(now)
}

// touch adds a link to those that are recomputed.
func (n *links) touch(link int32) *share {
	s := &n.parts[link]
	if s.visited == n.stamp {
		return s
	}
	s.visited = n.stamp
	n.comp = append(n.comp, link)
	p := &n.pipes[link]
	if p.stale > maxStale {
		p.used, p.stale = 0, 0
		for _, id := range p.flows {
			p.used += float64(n.times(id, link)) * n.flows[id].rate
		}
	}
	s.mine, s.crossings, s.rest = 0, 0, p.bandwidth-p.used
	return s
}

func (n *links) times(id, link int32) int32 {
	for _, h := range n.paths[n.flows[id].path].hops {
		if h.link == link {
			return h.times
		}
	}
	return 0
}

// take adds a flow to those that are recomputed.
func (n *links) take(id int32) {
	f := &n.flows[id]
	if f.visited == n.stamp {
		return
	}
	f.visited = n.stamp
	n.mates = append(n.mates, id)
	for _, h := range n.paths[f.path].hops {
		s := n.touch(h.link)
		s.mine++
		s.crossings += h.times
		s.rest += float64(h.times) * f.rate
	}
}

// spread takes the flows of a link that are certain, or likely, to change; or all of them.
func (n *links) spread(link int32, all bool) {
	p := &n.pipes[link]
	changed := p.loose
	p.loose = false
	for _, id := range p.flows {
		if all || n.flows[id].rate == 0 {
			changed = true
			n.take(id)
		}
	}
	if changed && p.bound > 0 {
		for _, id := range p.flows {
			if n.flows[id].bound == link {
				n.take(id)
			}
		}
	}
}

// fill shares out the bandwidth that other flows leave: all rates rise together; when a link is
// full, its flows keep their rates, and the others rise on. The offer of a link to each of its open
// flows never shrinks, so a heap of old offers, corrected when they are popped, finds the next full
// link.
func (n *links) fill() {
	n.heap = n.heap[:0]
	for _, link := range n.comp {
		p, s := &n.pipes[link], &n.parts[link]
		s.open, s.spare, s.level, s.fastest = s.crossings, s.rest, math.Inf(1), 0
		if int(s.mine) == len(p.flows) {
			s.spare = p.bandwidth
		}
		if s.open > 0 {
			s.heap = max(0, s.spare/float64(s.open))
			n.heapPush(link)
		}
	}
	for _, id := range n.mates {
		n.flows[id].nextBound = -1
	}
	level := 0.0
	for len(n.heap) > 0 {
		link := n.heapPop()
		s := &n.parts[link]
		if s.open == 0 {
			continue
		}
		if rate := s.spare / float64(s.open); rate > s.heap {
			s.heap = rate
			n.heapPush(link)
			continue
		}
		level = max(level, s.heap) // rounding must not let it fall
		s.level = level
		for _, id := range n.pipes[link].flows {
			f := &n.flows[id]
			if f.visited != n.stamp || f.nextBound >= 0 {
				continue
			}
			f.next, f.nextBound = level, link
			for _, h := range n.paths[f.path].hops {
				q := &n.parts[h.link]
				q.open -= h.times
				q.spare -= level * float64(h.times)
				q.fastest = level // level only rises
			}
		}
	}
}

// check takes the flows that have lost their bottleneck, and those that are faster than the flows
// that a recomputed link now holds back.
func (n *links) check() {
	for i, links := 0, len(n.comp); i < links; i++ {
		link := n.comp[i]
		p, s := &n.pipes[link], &n.parts[link]
		if int(s.mine) == len(p.flows) {
			continue
		}
		slack := s.spare > tight*p.bandwidth
		for _, id := range p.flows {
			f := &n.flows[id]
			if f.visited == n.stamp {
				continue
			}
			if f.bound == link && (slack || s.fastest > f.rate*(1+tight)) || f.rate > s.level*(1+tight) {
				n.take(id)
			}
		}
	}
}

// commit sets the new rates.
func (n *links) commit(now float64) {
	for _, link := range n.comp {
		p, s := &n.pipes[link], &n.parts[link]
		p.fill(now)
		p.used = p.bandwidth - s.rest
		if int(s.mine) == len(p.flows) {
			p.used = 0
		}
		p.stale++
	}
	for _, id := range n.mates {
		f := &n.flows[id]
		if math.Abs(f.next-f.rate) <= same*f.rate {
			f.next = f.rate
		}
		for _, h := range n.paths[f.path].hops {
			n.pipes[h.link].used += float64(h.times) * f.next
		}
		n.hold(f, f.nextBound)
		n.set(id, f.next, now)
	}
}

func (n *links) heapPush(link int32) {
	h := append(n.heap, link)
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if n.parts[h[parent]].heap <= n.parts[h[i]].heap {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
	n.heap = h
}

func (n *links) heapPop() int32 {
	h := n.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && n.parts[h[child+1]].heap < n.parts[h[child]].heap {
			child++
		}
		if n.parts[h[i]].heap <= n.parts[h[child]].heap {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	n.heap = h
	return top
}

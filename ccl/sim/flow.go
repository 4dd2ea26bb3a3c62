package sim

import "math"

// flow is bytes under way.
type flow struct {
	remaining float64 // bytes, when rate was last set
	rate      float64 // bytes a second
	since     float64
	left      int64 // all its bytes
	path      int32
	version   int32 // counts up when what is foreseen changes
	visited   int32
	box       int32 // where it arrives, or -1
	number    int32 // which message of the box
	lane      int32 // whose step sent it
	slot      int32 // the arithmetic of a getreduce waits for all its flows
}

// hop is a link of a path, and how many flows of the kind cross it. That is more than one only where the link stands for many.
type hop struct{ link, times int32 }

type path struct {
	hops  []hop
	alpha float64
}

// pipe is a link, or all links that a shift maps it to.
type pipe struct {
	bandwidth float64
	flows     []int32
	bytes     int64 // carried, on each
	busy      float64
	since     float64
	visited   int32
	dirty     bool
	open      int32   // while rates are computed: crossings by flows without a rate
	spare     float64 // likewise: bandwidth that no flow has
	heap      float64 // likewise: the share with which it stands in the heap
}

// links is the flows and the links that they share.
type links struct {
	pipes []pipe
	paths []path
	flows []flow
	free  []int32
	dirty []int32 // pipes whose flows changed
	stamp int32
	comp  []int32 // pipes of the component at hand
	mates []int32 // its flows
	heap  []int32
	queue *queue
}

func (n *links) newFlow() int32 {
	if k := len(n.free); k > 0 {
		id := n.free[k-1]
		n.free = n.free[:k-1]
		version := n.flows[id].version
		n.flows[id] = flow{version: version + 1}
		return id
	}
	n.flows = append(n.flows, flow{})
	return int32(len(n.flows) - 1)
}

func (n *links) touch(link int32) {
	if p := &n.pipes[link]; !p.dirty {
		p.dirty = true
		n.dirty = append(n.dirty, link)
	}
}

// begin puts a flow on its links.
func (n *links) begin(id int32, now float64) {
	f := &n.flows[id]
	f.remaining, f.since, f.rate = float64(f.left), now, 0
	for _, h := range n.paths[f.path].hops {
		p := &n.pipes[h.link]
		if len(p.flows) == 0 {
			p.since = now
		}
		p.flows = append(p.flows, id)
		p.bytes += int64(h.times) * f.left
		n.touch(h.link)
	}
}

// end takes it off.
func (n *links) end(id int32, now float64) {
	for _, h := range n.paths[n.flows[id].path].hops {
		p := &n.pipes[h.link]
		for i, other := range p.flows {
			if other == id {
				p.flows[i] = p.flows[len(p.flows)-1]
				p.flows = p.flows[:len(p.flows)-1]
				break
			}
		}
		if len(p.flows) == 0 {
			p.busy += now - p.since
		}
		n.touch(h.link)
	}
}

// share computes rates anew wherever flows began or ended.
func (n *links) share(now float64) {
	n.stamp++
	for _, link := range n.dirty {
		p := &n.pipes[link]
		p.dirty = false
		if p.visited == n.stamp || len(p.flows) == 0 {
			continue
		}
		if len(p.flows) == 1 && n.alone(p.flows[0], now) {
			continue
		}
		n.component(link)
		n.fill(now)
	}
	n.dirty = n.dirty[:0]
}

// alone gives a flow that shares no link all it can get, and reports whether it is one.
func (n *links) alone(id int32, now float64) bool {
	f := &n.flows[id]
	hops := n.paths[f.path].hops
	rate := math.Inf(1)
	for _, h := range hops {
		p := &n.pipes[h.link]
		if len(p.flows) != 1 {
			return false
		}
		rate = min(rate, p.bandwidth/float64(h.times))
	}
	for _, h := range hops {
		n.pipes[h.link].visited = n.stamp
	}
	n.set(id, rate, now)
	return true
}

// component collects the links and flows that are tied to a link.
func (n *links) component(link int32) {
	n.comp, n.mates = append(n.comp[:0], link), n.mates[:0]
	n.pipes[link].visited = n.stamp
	for i := 0; i < len(n.comp); i++ {
		for _, id := range n.pipes[n.comp[i]].flows {
			f := &n.flows[id]
			if f.visited == n.stamp {
				continue
			}
			f.visited = n.stamp
			n.mates = append(n.mates, id)
			for _, h := range n.paths[f.path].hops {
				if p := &n.pipes[h.link]; p.visited != n.stamp {
					p.visited = n.stamp
					n.comp = append(n.comp, h.link)
				}
			}
		}
	}
}

// fill shares out the bandwidth of the component, max-min fair: all rates rise together; when a link is full, its flows
// keep what they have, and the others rise on (Bertsekas, Gallager, "Data Networks", §6.5.2). The share that a link offers to
// each of its open flows never shrinks, so a heap of old shares, put right when popped, finds the next full link.
func (n *links) fill(now float64) {
	for _, link := range n.comp {
		p := &n.pipes[link]
		p.open, p.spare = 0, p.bandwidth
	}
	for _, id := range n.mates {
		n.flows[id].visited = -n.stamp // no rate yet
		for _, h := range n.paths[n.flows[id].path].hops {
			n.pipes[h.link].open += h.times
		}
	}
	n.heap = n.heap[:0]
	for _, link := range n.comp {
		p := &n.pipes[link]
		p.heap = p.spare / float64(p.open)
		n.heapPush(link)
	}
	level := 0.0
	for len(n.heap) > 0 {
		link := n.heapPop()
		p := &n.pipes[link]
		if p.open == 0 {
			continue
		}
		if rate := p.spare / float64(p.open); rate > p.heap {
			p.heap = rate
			n.heapPush(link)
			continue
		}
		level = max(level, p.heap) // rounding must not let it fall
		rate := level
		for _, id := range p.flows {
			f := &n.flows[id]
			if f.visited != -n.stamp {
				continue
			}
			f.visited = n.stamp
			for _, h := range n.paths[f.path].hops {
				q := &n.pipes[h.link]
				q.open -= h.times
				q.spare -= rate * float64(h.times)
			}
			n.set(id, rate, now)
		}
	}
}

// set gives a flow a rate and foresees its end.
func (n *links) set(id int32, rate, now float64) {
	f := &n.flows[id]
	if f.rate > 0 && math.Abs(rate-f.rate) <= 1e-13*f.rate {
		return
	}
	f.remaining = max(0, f.remaining-f.rate*(now-f.since))
	f.rate, f.since = rate, now
	f.version++
	n.queue.push(now+f.remaining/rate, event{kind: ends, version: f.version, id: id})
}

func (n *links) heapPush(link int32) {
	h := append(n.heap, link)
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if n.pipes[h[parent]].heap <= n.pipes[h[i]].heap {
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
		if child+1 < len(h) && n.pipes[h[child+1]].heap < n.pipes[h[child]].heap {
			child++
		}
		if n.pipes[h[i]].heap <= n.pipes[h[child]].heap {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	n.heap = h
	return top
}

package sim

import (
	"strconv"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/network"
)

// What follows is of simulations with Options.Costs.

// perform starts the current step of a lane. pipelined means that the step that writes its source
// is not done yet.
func (e *engine) perform(id int32, o *op, m *more, bytes int64) {
	c := &e.lanes[id]
	costs := e.o.Costs
	c.total, c.moved, c.tasked = bytes, 0, false
	switch does := o.kind.Traits(); {
	case does.Gets:
		seconds := 0.0
		read := func(source int32) {
			e.account(source, c.rank, bytes)
			seconds += costs.Windows.Read.Of(bytes, e.far(source, c.rank), e.miss)
		}
		if m != nil && m.from != nil {
			for i, from := range m.from {
				if m.fromBy != nil {
					from = m.fromBy[i].At(from, int(c.iter))
				}
				if source := e.shifted(c, int32(from)); source != c.rank {
					read(source)
				}
			}
			seconds += costs.Reduce.Of(bytes*int64(len(m.from)-1), false, e.miss)
		} else {
			read(e.peer(c, o, m))
			seconds += costs.Copy.Of(bytes, false, e.miss)
		}
		e.step(id, seconds)
	case does.Outward():
		if !does.Reads {
			bytes = 0
		}
		c.total = bytes
		peer := e.peer(c, o, m)
		c.joint = e.joint(c, peer, o)
		e.account(c.rank, peer, bytes)
		e.sendMore(id)
	case does.Waits:
		c.joint = e.joint(c, e.peer(c, o, m), o)
		b := &e.boxes[c.joint.box]
		b.waiters = append(b.waiters, id)
		e.noticed(b)
	case does.Receives:
		c.joint = e.joint(c, e.peer(c, o, m), o)
		b := &e.boxes[c.joint.box]
		b.waiters = append(b.waiters, id)
		if len(b.waiters) == 1 {
			e.takeMore(id)
		}
	case does.Reduces:
		e.step(id, costs.Reduce.Of(bytes*int64(o.operands-1), o.window && e.spread(), e.miss))
	case o.nothing:
		e.step(id, 0)
	default:
		e.step(id, costs.Copy.Of(bytes, o.window && e.spread(), e.miss))
	}
}

// step has the whole current step of a lane done in some time.
func (e *engine) step(id int32, seconds float64) {
	e.lanes[id].tasked = true
	e.do(e.lanes[id].rank, task{lane: id, what: wholeStep, seconds: seconds})
}

// costOf returns what messages on a path cost.
func (e *engine) costOf(path int32) *pathCost { return &e.costs[path] }

// received returns how many bytes have come of what a lane passes on; whole means all.
func (e *engine) received(c *cursor, o *op) (bytes int64, whole bool) {
	writer := &e.lanes[e.first[c.rank]+int32(o.lane)]
	step := o.after
	if o.more >= 0 {
		if m := &c.prog.more[o.more]; m.afterBy != nil {
			step += c.iter * int32(m.afterBy[0])
		}
	}
	switch {
	case writer.done > step:
		return 0, true
	case writer.done == step && writer.state == underway:
		return writer.moved, false
	}
	return 0, false
}

// sendMore has a lane send the next fragment of its message, if it may.
func (e *engine) sendMore(id int32) {
	c := &e.lanes[id]
	if c.tasked || c.starved {
		return
	}
	cost := e.costOf(c.joint.path)
	n := min(c.total-c.moved, cost.fragment)
	if o := c.op(); o.pipelined {
		if bytes, whole := e.received(c, o); !whole && bytes-c.moved < n {
			if n = bytes - c.moved; n < cost.fragment/4 {
				return
			}
		}
	}
	if box := c.joint.box; box >= 0 {
		b := &e.boxes[box]
		credit := cost.credit
		if n <= shortFragment {
			credit *= 2
		}
		if b.flying >= credit {
			b.starved, c.starved = append(b.starved, id), true
			return
		}
		b.flying++
	}
	seconds := cost.send.Of(n, cost.memory && e.far(c.rank, cost.to), e.miss)
	if does := c.op().kind.Traits(); cost.memory && does.Signals && !does.Puts {
		seconds = e.o.Costs.Windows.Signal
	}
	c.tasked = true
	e.do(c.rank, task{lane: id, what: sendsPart, bytes: n, seconds: seconds})
}

// published handles a fragment that a lane has published.
func (e *engine) published(id int32, bytes int64) {
	c := &e.lanes[id]
	k := e.net.newFlow()
	f := &e.net.flows[k]
	f.path, f.left, f.lane, f.box = c.joint.path, bytes, id, c.joint.box
	f.frame, f.last = !c.op().kind.Traits().Sends, c.moved+bytes == c.total
	e.leave(k)
	if c.moved += bytes; c.moved == c.total {
		e.stepDone(id)
		return
	}
	e.sendMore(id)
}

// leave puts a flow behind the others of its path.
func (e *engine) leave(k int32) {
	f := &e.net.flows[k]
	way := &e.net.paths[f.path]
	if cost := e.costOf(f.path); len(way.hops) == 0 {
		latency := cost.latency
		if cost.isWord(f) {
			latency = e.o.Costs.Windows.Latency
		}
		e.queue.push(e.now+latency, event{kind: lands, id: k})
		return
	}
	way.waiting = append(way.waiting, k)
	if !way.active {
		e.transmit(way)
	}
}

// transmit begins with the fragments that wait for a path, up to the first one that takes time.
func (e *engine) transmit(way *path) {
	for len(way.waiting) > 0 {
		k := way.waiting[0]
		way.waiting = append(way.waiting[:0], way.waiting[1:]...)
		f := &e.net.flows[k]
		free := e.net.spend(way, float64(f.left), e.now)
		if free < float64(f.left) {
			way.active = true
			e.net.begin(k, free, e.now)
			return
		}
		for _, h := range way.hops {
			e.net.pipes[h.link].bytes += int64(h.times) * f.left
		}
		e.queue.push(e.now+e.costOf(f.path).latency, event{kind: lands, id: k})
	}
}

// transmitted handles the end of a fragment's flow.
func (e *engine) transmitted(k int32) {
	f := &e.net.flows[k]
	way := &e.net.paths[f.path]
	way.active = false
	e.queue.push(e.now+e.costOf(f.path).latency, event{kind: lands, id: k})
	e.transmit(way)
}

// landed handles a fragment that the receiver can find.
func (e *engine) landed(k int32) {
	f := &e.net.flows[k]
	cost := e.costOf(f.path)
	switch {
	case cost.isWord(f):
		e.applied(k)
	case f.frame:
		e.do(cost.to, task{lane: -1, what: takesFrame, flow: k, seconds: cost.receive.Of(f.left, false, e.miss)})
	default:
		b := &e.boxes[f.box]
		b.fragments = append(b.fragments, landedPart{f.left, f.path})
		e.net.free = append(e.net.free, k)
		if len(b.waiters) > 0 {
			e.takeMore(b.waiters[0])
		}
	}
}

// applied handles a frame that the receiver's thread has applied to its window.
func (e *engine) applied(k int32) {
	f := &e.net.flows[k]
	box, last := f.box, f.last
	latency := e.costOf(f.path).latency
	e.net.free = append(e.net.free, k)
	if box < 0 {
		return
	}
	e.queue.push(e.now+latency, event{kind: credits, id: box})
	if last {
		b := &e.boxes[box]
		b.arrived++
		e.noticed(b)
	}
}

// noticed has the first lane that waits for a signal go on, if it has come.
func (e *engine) noticed(b *mailbox) {
	if len(b.waiters) > 0 && b.taken < b.arrived {
		b.taken++
		id := b.waiters[0]
		b.waiters = append(b.waiters[:0], b.waiters[1:]...)
		e.step(id, e.o.Costs.Windows.Wait)
	}
}

// takeMore has a lane take the next fragment of its message, if it has come.
func (e *engine) takeMore(id int32) {
	c := &e.lanes[id]
	b := &e.boxes[c.joint.box]
	if c.tasked || len(b.fragments) == 0 {
		return
	}
	part := b.fragments[0]
	b.fragments = append(b.fragments[:0], b.fragments[1:]...)
	c.tasked, c.from = true, part.path
	cost := e.costOf(part.path)
	seconds := cost.receive.Of(part.bytes, cost.memory && e.far(cost.from, c.rank), e.miss)
	if c.op().kind.Traits().Reduces {
		seconds += e.o.Costs.Reduce.Of(part.bytes, false, e.miss)
	}
	e.do(c.rank, task{lane: id, what: takesPart, bytes: part.bytes, seconds: seconds})
}

// took handles a fragment that a lane has taken.
func (e *engine) took(id int32, bytes int64) {
	c := &e.lanes[id]
	e.queue.push(e.now+e.costOf(c.from).latency, event{kind: credits, id: c.joint.box})
	c.moved += bytes
	if c.moved < c.total {
		e.passOn(c.rank)
		e.takeMore(id)
		return
	}
	b := &e.boxes[c.joint.box]
	b.waiters = append(b.waiters[:0], b.waiters[1:]...)
	e.stepDone(id)
	if len(b.waiters) > 0 {
		e.takeMore(b.waiters[0])
	}
}

// credited handles the credit for a fragment.
func (e *engine) credited(box int32) {
	b := &e.boxes[box]
	b.flying--
	if len(b.starved) > 0 {
		id := b.starved[0]
		b.starved = append(b.starved[:0], b.starved[1:]...)
		e.lanes[id].starved = false
		e.sendMore(id)
	}
}

// passOn has the lanes of a rank send what other lanes have received of their messages so far.
func (e *engine) passOn(rank int32) {
	for id := e.first[rank]; id < e.first[rank+1]; id++ {
		switch c := &e.lanes[id]; {
		case c.state == finished || !c.op().pipelined:
		case c.state == waiting:
			e.ready = append(e.ready, id)
		case c.moved < c.total:
			e.sendMore(id)
		}
	}
}

// stepDone ends a step, and the call of the rank with its last step.
func (e *engine) stepDone(id int32) {
	e.done(id)
	rank := e.lanes[id].rank
	e.passOn(rank)
	for id := e.first[rank]; id < e.first[rank+1]; id++ {
		if e.lanes[id].state != finished {
			return
		}
	}
	e.callDone(rank)
}

// callDone has a rank begin its next call, if it may.
func (e *engine) callDone(rank int32) {
	th := &e.threads[rank]
	th.calls++
	if th.calls < e.o.Calls {
		th.waiting = true
	}
	e.nextCalls()
}

// nextCalls begins the calls that ranks may begin.
func (e *engine) nextCalls() {
	least := e.o.Calls
	for i := range e.threads {
		least = min(least, e.threads[i].calls)
	}
	for rank := range e.threads {
		th := &e.threads[rank]
		if !th.waiting || e.o.Ahead > 0 && th.calls >= least+e.o.Ahead {
			continue
		}
		th.waiting = false
		e.enter(int32(rank))
		for id := e.first[rank]; id < e.first[rank+1]; id++ {
			c := &e.lanes[id]
			if len(c.ops.segments) == 0 {
				continue
			}
			c.segment, c.pos, c.iter, c.done, c.state = 0, 0, 0, 0, waiting
			e.ready = append(e.ready, id)
		}
	}
}

// shortFragment is the longest fragment of which a channel has twice the credit.
const shortFragment = 8 << 10

// enter has a rank pay for a call, and for a copy of In that it needs.
func (e *engine) enter(rank int32) {
	seconds := e.o.Costs.Call
	if spec := e.p.Spec; e.o.InPlace && e.p.Alias&plan.InPlace == 0 {
		in := spec.Coll.InBlocks(spec.Ranks, int(rank), spec.Root) * e.o.Elements * e.o.ElementBytes
		seconds += e.o.Costs.Copy.Of(int64(in), false, e.miss)
	}
	if seconds > 0 {
		e.do(rank, task{lane: -1, what: enters, seconds: seconds})
	}
}

// pathCost is what messages on a path cost.
type pathCost struct {
	send, receive cost.Work
	latency       float64
	fragment      int64
	credit        int
	memory        bool
	from, to      int32 // the ranks, or those that are simulated for them
}

// isWord reports whether a flow is a word in a window, and no frame.
func (c *pathCost) isWord(f *flow) bool { return c.memory && f.frame && f.left == 0 }

func costOf(p *cost.Path, latency float64, memory bool, from, to int) pathCost {
	return pathCost{p.Send, p.Receive, latency, p.Fragment, p.Credit, memory, int32(from), int32(to)}
}

// far reports whether two ranks are on different cores, so that the one finds what the other has
// touched in another core's cache. Ranks that stand for others have a core each, and so have those.
func (e *engine) far(a, b int32) bool {
	n := int32(e.shift)
	return e.symmetric() || e.threads[a%n].core != e.threads[b%n].core
}

// spread reports whether ranks are on several cores: some of those that have read a window are.
func (e *engine) spread() bool { return e.symmetric() || len(e.cores) > 1 }

// symmetric reports whether ranks stand for others.
func (e *engine) symmetric() bool { return e.shift < e.p.Spec.Ranks }

// missing returns which part of what the ranks of a core touch in a call is not in its cache: the
// blocks, intermediate results and both slots of the window.
func (e *engine) missing() float64 {
	cache := e.o.Costs.Cache
	if cache <= 0 {
		return 0
	}
	spec, prog := e.p.Spec, e.p.Program(0)
	in, out := spec.Coll.InBlocks(spec.Ranks, 0, spec.Root), spec.Coll.OutBlocks(spec.Ranks, 0, spec.Root)
	blocks := in + out
	if in == 1 && out == 1 {
		blocks = 1 // both in one place
	}
	touched := float64(blocks) * float64(e.o.Elements*e.o.ElementBytes)
	for _, extent := range prog.Tmp {
		touched += float64(e.sizes.extent(extent))
	}
	for _, extent := range prog.Win {
		touched += plan.WindowSlots * float64(e.sizes.extent(extent))
	}
	ranks := 1
	for i := range e.cores {
		ranks = max(ranks, len(e.cores[i].ranks))
	}
	return max(0, 1-cache/(touched*float64(ranks)))
}

// Network makes the network of a group with the costs of a table: each host has a port. Between
// sites, messages cross a link more of each host, and take longer.
func Network(on *topo.Group, costs *cost.Table) *network.Topology {
	t := &network.Topology{Name: "hosts", Startup: 0}
	port := t.AddClass("port", costs.Network.Latency/2, costs.Network.Bandwidth)
	t.Classes[port].Burst = int64(costs.Network.Burst)
	inside := t.AddClass("inside", 0, insideBandwidth)
	t.Classes[inside].Burst = network.MaxBytes
	hub := t.AddSwitch("network")
	var far int
	var places []int // by site: its switch, for what stays there
	if sites := len(on.Sites()); sites > 1 {
		far = t.AddClass("far", max(0, costs.Far.Latency-costs.Network.Latency)/2, costs.Far.Bandwidth)
		t.Classes[far].Burst = int64(costs.Far.Burst)
		for i := range sites {
			places = append(places, t.AddSwitch("site"+strconv.Itoa(i)))
		}
	}
	ports := make([]int, len(on.Hosts()))
	for i, ranks := range on.Hosts() {
		ports[i] = t.AddSwitch("host" + strconv.Itoa(i))
		if places == nil {
			t.AddDuplex(ports[i], hub, port)
			continue
		}
		edge := t.AddSwitch("edge" + strconv.Itoa(i))
		t.AddDuplex(ports[i], edge, port)
		// The first of two ways within a site, so the one that is taken.
		t.AddDuplex(edge, places[on.SiteOf(ranks[0])], inside)
		t.AddDuplex(edge, hub, far)
	}
	for rank := range on.Size() {
		t.AddDuplex(t.AddRank("r"+strconv.Itoa(rank), false), ports[on.HostOf(rank)], inside)
	}
	return t
}

// insideBandwidth never holds back what leaves a host.
const insideBandwidth = 1e15

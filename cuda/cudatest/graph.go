package cudatest

import (
	"fmt"
	"slices"

	"github.com/goccl/goccl/cuda"
)

// Graph is what a capture has recorded. It can be launched any number of times.
type Graph struct {
	d         *Driver
	c         *context // of the stream in which the capture began
	index     int      // among all of the machine, from 1
	lanes     []*stream
	steps     []step
	recorded  []string
	retained  []retained
	destroyed bool
	made      site
}

// newGraph makes a graph of a capture. Each of its streams becomes a lane, which takes a hardware
// queue as streams do.
func (d *Driver) newGraph(c *context, from *capture) *Graph {
	d.numGraphs++
	g := &Graph{d: d, c: c, index: d.numGraphs, steps: from.steps, recorded: from.recorded,
		retained: from.retained, made: here()}
	for i, l := range from.lanes {
		s := &stream{c: l.stream.c, device: l.stream.device, made: g.made}
		s.queue = d.nextQueue(l.stream.c)
		s.agent = d.newAgent(fmt.Sprintf("graph %d, lane %d", g.index, i+1), false)
		g.lanes = append(g.lanes, s)
	}
	d.graphs = append(d.graphs, g)
	return g
}

// Recorded describes what was enqueued, in this order.
func (g *Graph) Recorded() []string { return slices.Clone(g.recorded) }

// end is one of the ends of a launch.
type end struct {
	g    *Graph
	what string
}

func (e end) String() string { return fmt.Sprintf("the %s of graph %d", e.what, e.g.index) }

// Launch enqueues the graph. It begins when what is in the stream has ended, and so has the launch
// before it. What is enqueued in the stream later comes after all of it. Hold of the stream holds
// what has not begun.
func (g *Graph) Launch(s cuda.Stream) error {
	const call = "cuGraphLaunch"
	d := g.d
	d.mu.Lock()
	defer d.mu.Unlock()
	h := s.(*handle)
	if err := h.begin(call, false); err != nil {
		return err
	}
	if err := g.legal(call, h); err != nil {
		return err
	}
	d.makeRoom(h.s, 2)
	known, at, first := h.c.agent.publish(), here(), g.lanes[0]
	begin := &place{stream: h.s, n: h.s.enqueued + 1}
	d.push(h.s, recordWork{begin, end{g, "begin"}}, known, at)
	d.push(first, waitWork{begin, end{g, "begin"}}, known, at)
	marked := map[fmt.Stringer]*place{}
	for _, step := range g.steps {
		lane := g.lanes[step.lane]
		if w := g.again(lane, step.work, marked); w != nil {
			d.push(lane, w, known, step.site)
		}
	}
	ended := &place{stream: first, n: first.enqueued + 1}
	d.push(first, recordWork{ended, end{g, "end"}}, known, at)
	d.push(h.s, waitWork{ended, end{g, "end"}}, known, at)
	d.noteProgress()
	return nil
}

func (g *Graph) legal(call string, h *handle) error {
	switch {
	case g.destroyed:
		g.d.misuse("%s of graph %d after its Destroy", call, g.index)
		return gone(call)
	case h.s.capture != nil:
		return failure(call, notSupported)
	case h.c.d != g.d || h.c.device != g.c.device:
		g.d.misuse("%s of graph %d in a stream of another device", call, g.index)
		return failure(call, invalidHandle)
	}
	for _, step := range g.steps {
		if m := moduleOf(step.work); m != nil && m.unloaded {
			g.d.misuse("%s of graph %d after Unload of module %d, which it uses", call, g.index, m.index)
			return gone(call)
		}
	}
	return nil
}

// again returns the work of a step for one launch, nil if it is left out. marked has the places
// that the launch has recorded so far, by event.
func (g *Graph) again(lane *stream, w work, marked map[fmt.Stringer]*place) work {
	d := g.d
	switch w := w.(type) {
	case *wordWork:
		if d.leavesOutWord(lane, w.op) {
			return nil
		}
		again := &wordWork{op: w.op, behind: w.behind}
		again.noteWrite(d)
		return again
	case *tickWork:
		if d.leavesOutTick(lane, w) {
			return nil
		}
		again := &tickWork{launchWork: w.launchWork}
		again.noteWrite(d)
		return again
	case recordWork:
		if d.leaveOut(RecordEvent, "the record of %v in %s", w.what, lane.agent.name) {
			return nil
		}
		p := &place{stream: lane, n: lane.enqueued + 1}
		marked[w.what] = p
		return recordWork{p, w.what}
	case waitWork:
		p := marked[w.what]
		if p == nil { // its record was left out
			p = &place{stream: lane, done: true}
		}
		if d.leaveOut(WaitEvent, "the wait of %s for %v (%v)", lane.agent.name, w.what, p) {
			return nil
		}
		return waitWork{p, w.what}
	}
	return w
}

// Destroy gives the graph back. What was launched still ends.
func (g *Graph) Destroy() error {
	const call = "cuGraphExecDestroy"
	d := g.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.destroyed {
		return nil
	}
	err := g.c.begin(call, false)
	if err != nil && !cuda.Lost(err) {
		return err
	}
	g.destroyed = true
	d.noteProgress()
	return err
}

// ended reports whether the graph is gone and all of its work has ended.
func (g *Graph) ended() bool {
	return g.destroyed && (g.d.closed || !slices.ContainsFunc(g.lanes, func(s *stream) bool { return s.pending > 0 }))
}

// leaving reports whether functions are to be called that graphs have retained.
func (d *Driver) leaving() bool {
	return d.releasing || len(d.due) > 0 || slices.ContainsFunc(d.graphs, (*Graph).ended)
}

// forgetGraphs forgets graphs that have ended. What they have done comes before what their hosts do
// from now on: these are told.
func (d *Driver) forgetGraphs() {
	d.graphs = slices.DeleteFunc(d.graphs, func(g *Graph) bool {
		if !g.ended() {
			return false
		}
		for _, s := range g.lanes {
			d.forget(s)
			for _, r := range g.retained {
				r.c.agent.clock.join(s.agent.clock)
			}
		}
		d.due = append(d.due, g.retained...)
		return true
	})
}

// releaseDue calls the functions whose graphs are gone, without the lock.
func (d *Driver) releaseDue() {
	for d.leaving() {
		d.forgetGraphs()
		due := d.due
		d.due, d.releasing = nil, true
		d.mu.Unlock()
		for _, r := range due {
			r.release()
		}
		d.mu.Lock()
		d.releasing = false
		d.noteProgress()
	}
}

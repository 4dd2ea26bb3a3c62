package cudatest

import (
	"fmt"
	"slices"
	"strings"
)

// Blocked says what each stream that has work waits for: the wait graph, one line a stream.
func (d *Driver) Blocked() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked()
}

func (d *Driver) blocked() string {
	first := map[*stream]*operation{}
	for op := range d.pending() {
		if first[op.stream] == nil {
			first[op.stream] = op
		}
	}
	var lines []string
	streams := slices.Clone(d.streams)
	for _, g := range d.graphs {
		streams = append(streams, g.lanes...)
	}
	for _, s := range streams {
		op := first[s]
		if op == nil {
			continue
		}
		why := ""
		switch {
		case s.held:
			why = "is held by the test"
		case !op.begun && op != s.queue.pending[0]:
			why = fmt.Sprintf("is behind %s in %s", s.queue.pending[0], s.queue)
		case op.work.ready(d):
			why = "can go on"
		default:
			why = op.work.waits(d)
		}
		lines = append(lines, fmt.Sprintf("\t%s (%s), enqueued at %s, %s", op, op.work.text(d), op.site, why))
	}
	return strings.Join(lines, "\n")
}

func (q *queue) String() string {
	text := fmt.Sprintf("queue %d of device %d", q.index, q.device.index)
	if q.of != nil {
		text += fmt.Sprintf(" for context %d", q.of.index)
	}
	return text
}

// Leaks lists what was not given back.
func (d *Driver) Leaks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, c := range d.contexts {
		all = append(all, d.leaksOf(c)...)
		if !c.released {
			all = append(all, fmt.Sprintf("context %d, retained at %s", c.index, c.made))
		}
	}
	for of, b := range d.dmaBufs {
		if b.open() {
			all = append(all, fmt.Sprintf("a descriptor of a dma-buf of %v, made at %s", b.of, b.made))
		} else {
			d.dropDMABuf(of)
		}
	}
	for _, t := range d.threads {
		for _, e := range t.entered {
			all = append(all, fmt.Sprintf("an Enter of context %d", e.c.index))
		}
	}
	return all
}

func (d *Driver) leaksOf(c *context) []string {
	var all []string
	for _, a := range d.allocations {
		if a.c == c {
			all = append(all, fmt.Sprintf("%v, made at %s", a, a.made))
		}
	}
	for _, s := range d.streams {
		if s.c == c && !s.destroyed && s.native != 0 {
			all = append(all, fmt.Sprintf("%s, made at %s", s.agent.name, s.made))
		}
	}
	for _, g := range d.graphs {
		if g.c == c && !g.destroyed {
			all = append(all, fmt.Sprintf("graph %d, captured at %s", g.index, g.made))
		}
	}
	var others []string
	for e := range c.events {
		others = append(others, fmt.Sprintf("event %d, made at %s", e.index, e.made))
	}
	for m := range c.modules {
		others = append(others, fmt.Sprintf("module %d, loaded at %s", m.index, m.made))
	}
	slices.Sort(others)
	return append(all, others...)
}

package cudatest

import "slices"

// clock is a vector clock: of each agent, by its index, the last time that is known.
type clock []uint64

func (c clock) of(agent int) uint64 {
	if agent < len(c) {
		return c[agent]
	}
	return 0
}

func (c *clock) set(agent int, time uint64) {
	if agent >= len(*c) {
		*c = append(*c, make(clock, agent+1-len(*c))...)
	}
	(*c)[agent] = time
}

// join reports whether it was news.
func (c *clock) join(other clock) (news bool) {
	for agent, time := range other {
		if time > c.of(agent) {
			c.set(agent, time)
			news = true
		}
	}
	return news
}

// agent is somebody whose actions are in order: a stream, or the host of a context.
type agent struct {
	index int
	name  string
	host  bool
	clock clock
}

// newAgent makes an agent. The first access of each has time 1. A stream comes to it with its first
// operation, and a host is there from the beginning.
func (d *Driver) newAgent(name string, host bool) *agent {
	a := &agent{index: d.agents, name: name, host: host}
	if host {
		a.clock.set(a.index, 1)
	}
	d.agents++
	return a
}

func (a *agent) now() uint64 { return a.clock.of(a.index) }

// publish returns what the agent knows now. What it does later has a later time.
func (a *agent) publish() clock {
	known := slices.Clone(a.clock)
	a.clock.set(a.index, a.now()+1)
	return known
}

package sim

// claim finds the paths whose links no other lane ever uses. A lane has one message in flight at a
// time, so such a path has the whole bandwidth of its links and need not share it. With
// Options.Full no path is treated this way.
func (e *engine) claim() {
	if e.o.Full || e.o.Timeline {
		return
	}
	used := make(map[*lane][]int32) // ports
	for _, prog := range e.programs {
		for l := range prog.lanes {
			ports, ok := prog.lanes[l].ports(len(prog.ports))
			if !ok {
				return
			}
			used[&prog.lanes[l]] = ports
		}
	}
	const free, shared = -1, -2
	owner := make([]int32, len(e.net.pipes))
	for i := range owner {
		owner[i] = free
	}
	for id := range e.lanes {
		c := &e.lanes[id]
		for _, k := range used[c.ops] {
			at := &c.prog.ports[k]
			if at.way == receives {
				continue
			}
			j := &e.joints[c.port+k]
			*j = e.join(c.rank, e.shifted(c, at.peer), at.way, at.slot)
			if e.failed != nil {
				return
			}
			for _, h := range e.net.paths[j.path].hops {
				switch owner[h.link] {
				case free:
					owner[h.link] = int32(id)
				case int32(id):
				default:
					owner[h.link] = shared
				}
			}
		}
	}
	for i := range e.net.paths {
		way := &e.net.paths[i]
		way.private = true
		for _, h := range way.hops {
			way.private = way.private && owner[h.link] != shared
		}
	}
}

// ports returns the ports that the steps of a lane use, if they are known in advance.
func (ln *lane) ports(all int) ([]int32, bool) {
	var ports []int32
	seen := make([]bool, all)
	for i := range ln.ops {
		o := &ln.ops[i]
		switch {
		case o.kind.Traits().From || o.port < 0 && o.peer >= 0:
			return nil, false
		case o.port >= 0 && !seen[o.port]:
			seen[o.port] = true
			ports = append(ports, o.port)
		}
	}
	return ports, true
}

// pass sends a flow along a private path.
func (e *engine) pass(k int32, way *path) {
	f := &e.net.flows[k]
	f.since = e.now + way.alpha
	e.queue.push(f.since+float64(f.left)/way.limit, event{kind: ends, version: f.version, id: k})
}

// passed handles the end of a flow along a private path.
func (e *engine) passed(k int32, way *path) {
	f := &e.net.flows[k]
	if f.left > 0 {
		way.bytes += f.left
		way.busy += max(0, e.now-f.since)
	}
	e.arrived(k)
}

// settle adds the traffic of private paths to the links.
func (n *links) settle() {
	for i := range n.paths {
		way := &n.paths[i]
		for _, h := range way.hops {
			p := &n.pipes[h.link]
			p.bytes += int64(h.times) * way.bytes
			p.busy += way.busy
		}
	}
}

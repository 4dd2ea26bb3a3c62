package rdma

// offer tells the peer where it may write fragments of a link: for each channel, into its slots by
// the best path, once nothing is on the way by another one, and everything was taken that has come.
func (p *pair) offer(l *link) {
	if l.ending != open_ || l.theirs.Load() == 0 || l.left || !p.works() {
		return
	}
	ways := p.ways(l)
	var offers, vacates [MostPorts]message
	for i := range l.channels {
		c := &l.channels[i]
		way, last := p.best(&ways, l, i), c.in.Load()
		if way == nil {
			continue
		}
		if last != nil && !last.closed {
			if last.way != way && !last.asked {
				last.ask()
				m := &vacates[last.way.path.number]
				m.Epoch, m.Channels = last.way.path.epoch, append(m.Channels, i)
			}
			continue
		}
		if last != nil && !last.drained() {
			p.retrySoon = true
			continue
		}
		q := c.queues[way.path.number].Load()
		if q == nil || q.way != way {
			at := i * shortSlots * l.short
			q = &inQueue{channel: c, way: way, slots: l.slots.bytes[at : at+shortSlots*l.short], bytes: l.short}
			c.queues[way.path.number].Store(q)
		} else {
			q.again()
		}
		m := &offers[way.path.number]
		m.Epoch, m.Key = way.path.epoch, l.slots.regions[way.a.number].Remote()
		if len(m.Long) == len(m.Channels) {
			if slot, ok := way.a.in.spare(); ok {
				q.granted = append(q.granted, slot)
				m.Long = append(m.Long, int(slot))
			}
		}
		m.Channels = append(m.Channels, i)
		c.in.Store(q)
		way.a.bound.Add(1)
		way.a.provide()
		if last != nil {
			last.way.a.bound.Add(-1)
		}
	}
	for number, m := range vacates {
		if m.Channels != nil {
			m.Kind, m.Path, m.To = sayVacate, number, l.theirs.Load()
			p.say(m)
		}
	}
	for number, m := range offers {
		if m.Channels != nil {
			m.Kind, m.Path, m.To, m.At, m.Bytes = sayOffer, number, l.theirs.Load(), l.slots.at, l.short
			p.say(m)
		}
	}
	p.check(l)
}

// ways returns the connections by which the peer may write to a link, in the order of the paths;
// nil for one that does not work.
func (p *pair) ways(l *link) (ways [MostPorts]*connection) {
	works := false
	for k, t := range p.paths() {
		if way := t.up.Load(); way != nil && way.works() && p.fits(l, way) {
			ways[k], works = way, true
		}
	}
	if !works {
		p.markReady(l)
	}
	return ways
}

// best returns the one of them that a channel prefers, or else the next one. A path of which it is
// not known yet whether it works is waited for. Both sides prefer the same.
func (p *pair) best(ways *[MostPorts]*connection, l *link, channel int) *connection {
	number := l.base
	if !p.first {
		number = l.theirs.Load()
	}
	preferred := int(number)/len(l.channels) + channel
	paths := p.paths()
	for k := range paths {
		i := (preferred + k) % len(paths)
		if ways[i] != nil || !paths[i].tried {
			return ways[i]
		}
	}
	return nil
}

// fits reports whether the adapter of a connection reaches the memory of a link. Where it does not,
// here or at the peer, the link does without, until there is another connection.
func (p *pair) fits(l *link, way *connection) bool {
	if l.unfit[way.a.number] {
		return false
	}
	err := l.register(way.a)
	if err != nil {
		l.unfit[way.a.number] = true
		p.f.opts.Warn("rdma: %s does not carry fragments of a link to %s: %v", way.a.place, p.who(), err)
	}
	return err == nil
}

// register gives an adapter access to the memory of a link.
func (l *link) register(a *adapter) (err error) {
	if l.slots == nil {
		if l.slots, err = newRegistered(len(l.channels)*shortSlots*l.short, true); err != nil {
			return err
		}
	}
	if l.stage == nil {
		each := shortSlots*l.short + mostFlight*headBytes
		if l.stage, err = newRegistered(len(l.channels)*each, false); err != nil {
			return err
		}
		for i := range l.channels {
			b := l.stage.bytes[i*each : (i+1)*each]
			l.channels[i].out.stage, l.channels[i].out.heads = b[:shortSlots*l.short], b[shortSlots*l.short:]
		}
	}
	if _, err = l.slots.with(a); err == nil {
		_, err = l.stage.with(a)
	}
	return err
}

// accept has fragments go where the peer offers.
func (p *pair) accept(l *link, way *connection, m *message) {
	if !p.fits(l, way) {
		p.say(message{Kind: sayVacated, Path: m.Path, Epoch: m.Epoch, To: l.theirs.Load(), Channels: m.Channels})
		return
	}
	way.a.poll(true) // what the peer has told by it before, for a channel that has been there, does not count any more
	for n, i := range m.Channels {
		if i < 0 || i >= len(l.channels) {
			p.fail(protocolErrorf("offers channel %d of %d", i, len(l.channels)))
			return
		}
		t := target{way: way, at: m.At + uint64(i*shortSlots*m.Bytes), key: m.Key, bytes: m.Bytes, long: -1,
			stage: l.stage.regions[way.a.number].Local()}
		if n < len(m.Long) {
			if t.long = m.Long[n]; t.long < 0 || t.long >= way.pool.Slots {
				p.fail(protocolErrorf("offers long slot %d of %d", t.long, way.pool.Slots))
				return
			}
		}
		l.channels[i].out.arrange(t)
		l.offered[i] = way
	}
	p.check(l)
}

// vacate has channels leave a connection, since the peer asks for it.
func (p *pair) vacate(l *link, way *connection, channels []int) {
	for _, i := range channels {
		if i < 0 || i >= len(l.channels) {
			p.fail(protocolErrorf("wants channel %d of %d back", i, len(l.channels)))
			return
		}
		l.channels[i].out.vacate(way)
		l.vacates[i] = way
	}
	p.fenceOf(way, p.advance) // what is in flight completes, which it need not by itself
}

// announceVacated tells the peer which channels have left a connection that it has asked for.
func (p *pair) announceVacated(l *link) {
	for _, t := range p.paths() {
		m := message{Kind: sayVacated, Path: t.number, Epoch: t.epoch, To: l.theirs.Load()}
		for i, way := range l.vacates {
			if way != nil && way.path == t && l.channels[i].out.vacated(way) {
				l.vacates[i] = nil
				m.Channels = append(m.Channels, i)
			}
		}
		if m.Channels != nil {
			p.say(m)
		}
	}
}

// vacated takes slots back that the peer has left. What this side has told of them by then is no
// more on the way when they are offered again, perhaps by the same connection.
func (p *pair) vacated(l *link, way *connection, channels []int) {
	var left []*inQueue
	for _, i := range channels {
		if i < 0 || i >= len(l.channels) {
			p.fail(protocolErrorf("gives channel %d of %d back", i, len(l.channels)))
			return
		}
		if q := l.channels[i].in.Load(); q != nil && q.way == way {
			l.unfit[way.a.number] = l.unfit[way.a.number] || !q.asked // it cannot use them
			q.stopSending()
			left = append(left, q)
		}
	}
	p.fenceOf(way, func() {
		for _, q := range left {
			q.end()
			q.closed = true
		}
		p.advance()
	})
}

// check lets Connect return if all channels go over a connection.
func (p *pair) check(l *link) {
	for i := range l.channels {
		q, way := l.channels[i].in.Load(), l.offered[i]
		if q == nil || q.closed || !q.way.up() || way == nil || !way.up() {
			return
		}
	}
	p.markReady(l)
}

// leave begins the end of a link that was closed on this side.
func (p *pair) leave(l *link, why []byte) {
	l.why, l.ending = why, flushing
	p.links[l.base] = l
	p.markReady(l)
	p.flush(l)
}

// flush says goodbye once what was published has reached the peer, or is with tcp.
func (p *pair) flush(l *link) {
	gone := p.closed.Load() || l.tcp.Err() != nil // nobody takes it
	for i := range l.channels {
		reached, way := l.channels[i].out.close()
		switch {
		case reached || gone:
		case way == nil: // it goes by tcp, as soon as that has room
			p.retrySoon = true
			return
		default:
			if !l.fenced {
				l.fenced = true
				p.fenceOf(way, func() {
					l.fenced = false
					p.advance()
				})
			}
			return
		}
	}
	l.tcp.Leave(l.why)
	delete(p.unbound, keyOf(&l.spec))
	l.ending = leaving
	if !l.entered || p.control == nil || p.closed.Load() { // the peer does not know of it
		p.finish(l)
		return
	}
	p.say(message{Kind: sayClose, Link: l.base})
}

// peerClosed handles that the peer has closed its end of a link.
func (p *pair) peerClosed(theirs uint32) {
	done := func() { p.say(message{Kind: sayClosed, Link: theirs}) }
	for key, number := range p.opened {
		if number == theirs {
			delete(p.opened, key)
		}
	}
	l := p.bound[theirs]
	if l == nil {
		done()
		return
	}
	delete(p.bound, theirs)
	l.left = true
	p.markReady(l)
	l.stopSending()
	p.fence(done)
}

// stopSending has nothing more posted for a link.
func (l *link) stopSending() {
	for i := range l.channels {
		l.channels[i].out.stopSending()
		if q := l.channels[i].in.Load(); q != nil {
			q.stopSending()
		}
	}
}

// finish frees what a link has had, once the adapter does not read it any more; the peer does not
// write to it. Until then peerClosed finds it: its answer has to follow all that was posted.
func (p *pair) finish(l *link) {
	l.ending = ended
	delete(p.links, l.base)
	l.stopSending()
	p.fence(func() {
		if theirs := l.theirs.Load(); p.bound[theirs] == l { // the peer may have given the number to another one
			delete(p.bound, theirs)
		}
		p.f.hide(l)
		p.f.drain() // what has arrived for it is not the next link's, and nobody looks into its slots
		for i := range l.channels {
			l.channels[i].out.drop()
			if q := l.channels[i].in.Load(); q != nil {
				q.forget()
				q.way.a.bound.Add(-1)
			}
		}
		for _, r := range []*registered{l.slots, l.stage} {
			if err := r.close(); err != nil {
				p.f.opts.Warn("rdma: memory of a link could not be given back: %v", err)
			}
		}
		p.f.remove(l)
	})
}

// fence has the manager do something once all that was posted is complete, or never will be. It may
// do it at once.
func (p *pair) fence(do func()) {
	waits := 1
	done := func() {
		if waits--; waits == 0 {
			do()
		}
	}
	for _, t := range p.paths() {
		if way := t.way(); way != nil {
			waits++
			p.fenceOf(way, done)
		}
	}
	done()
}

// fenceOf has the manager do something later.
func (p *pair) fenceOf(way *connection, do func()) {
	p.f.manager.pending.Add(1)
	way.fence(func(bool) {
		p.f.manager.pending.Add(-1)
		p.f.manager.do(do)
	})
}

// advanceLinks goes on with links that end, and offers what was not offered.
func (p *pair) advanceLinks() {
	for _, l := range p.links {
		switch l.ending {
		case open_:
			p.announceVacated(l)
			p.offer(l)
			for i := range l.channels {
				if !l.channels[i].out.leave() && !p.closed.Load() && l.tcp.Err() == nil {
					p.retrySoon = true
				}
			}
		case flushing:
			p.flush(l)
		case leaving:
			if p.closed.Load() {
				p.finish(l)
			}
		}
	}
}

// close closes the links that are open, and reports whether all have said goodbye.
func (p *pair) close() bool {
	if !p.bye && p.told && !p.closed.Load() {
		p.bye = true
		p.say(message{Kind: sayBye})
	}
	done := true
	for _, l := range p.links {
		if !l.closing.Swap(true) {
			p.leave(l, nil)
		}
		if l.ending == flushing {
			p.flush(l)
		}
		done = done && l.ending != flushing
	}
	return done
}

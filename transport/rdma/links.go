package rdma

import "github.com/goccl/goccl/transport/rdma/verbs"

// offer tells the peer where it may write fragments of a link: into the slots of those channels
// from which everything was taken that has arrived before.
func (p *pair) offer(l *link) {
	way := p.up.Load()
	if way == nil || l.ending != open_ || l.theirs.Load() == 0 || l.left {
		return
	}
	if err := l.allocate(way.a.context); err != nil {
		if !l.isReady {
			p.f.opts.Warn("rdma: fragments of a link to %s go by tcp: %v", p.who(), err)
		}
		p.stay(l)
		return
	}
	var channels, long []int
	for i := range l.channels {
		c := &l.channels[i]
		last := c.in.Load()
		if last != nil && last.way == way {
			continue
		}
		if last != nil && !last.drained() {
			p.hurries = true
			continue
		}
		at := i * shortSlots * l.short
		q := &inQueue{channel: c, way: way, slots: l.slots.bytes[at : at+shortSlots*l.short], bytes: l.short}
		if len(long) == len(channels) {
			if slot, ok := way.a.in.spare(); ok {
				q.granted = append(q.granted, slot)
				long = append(long, int(slot))
			}
		}
		c.in.Store(q)
		way.a.bound.Add(1)
		if last != nil {
			way.a.bound.Add(-1)
		}
		channels = append(channels, i)
	}
	if len(channels) > 0 {
		p.say(message{Kind: sayOffer, Epoch: p.epoch, To: l.theirs.Load(), At: l.slots.at,
			Key: l.slots.region.Remote(), Bytes: l.short, Channels: channels, Long: long})
	}
	p.check(l)
}

// allocate registers the memory of a link, if it has none.
func (l *link) allocate(c verbs.Context) error {
	if l.slots == nil {
		slots, err := register(c, len(l.channels)*shortSlots*l.short, true)
		if err != nil {
			return err
		}
		l.slots = slots
	}
	if l.stage == nil {
		each := shortSlots*l.short + mostFlight*headBytes
		stage, err := register(c, len(l.channels)*each, false)
		if err != nil {
			return err
		}
		l.stage = stage
		for i := range l.channels {
			b := stage.bytes[i*each : (i+1)*each]
			l.channels[i].out.stage, l.channels[i].out.heads = b[:shortSlots*l.short], b[shortSlots*l.short:]
		}
	}
	return nil
}

// accept has fragments go where the peer offers.
func (p *pair) accept(l *link, m *message) {
	way := p.way()
	if way == nil {
		return
	}
	if err := l.allocate(way.a.context); err != nil {
		p.f.opts.Warn("rdma: fragments of a link to %s go by tcp: %v", p.who(), err)
		p.stay(l)
		return
	}
	for n, i := range m.Channels {
		if i < 0 || i >= len(l.channels) {
			p.breach(violation("offers channel %d of %d", i, len(l.channels)))
			return
		}
		t := target{way: way, at: m.At + uint64(i*shortSlots*m.Bytes), key: m.Key, bytes: m.Bytes, long: -1}
		if n < len(m.Long) {
			if t.long = m.Long[n]; t.long < 0 || t.long >= way.pool.Slots {
				p.breach(violation("offers long slot %d of %d", t.long, way.pool.Slots))
				return
			}
		}
		l.channels[i].out.arrange(t)
		l.offered[i] = way
	}
	p.check(l)
}

// check lets Connect return if all channels go over the connection.
func (p *pair) check(l *link) {
	way := p.up.Load()
	for i := range l.channels {
		if q := l.channels[i].in.Load(); way == nil || l.offered[i] != way || q == nil || q.way != way {
			return
		}
	}
	p.stay(l)
}

// leave begins the end of a link that was closed on this side.
func (p *pair) leave(l *link, why []byte) {
	l.why, l.ending = why, flushing
	p.links[l.base] = l
	p.stay(l)
	p.flush(l)
}

// flush says goodbye once what was published has reached the peer, or is with tcp.
func (p *pair) flush(l *link) {
	gone := p.over.Load() || l.tcp.Err() != nil // nobody takes it
	for i := range l.channels {
		reached, way := l.channels[i].out.close()
		switch {
		case reached || gone:
		case way == nil: // it goes by tcp, as soon as that has room
			p.hurries = true
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
	if !l.entered || p.control == nil || p.over.Load() { // the peer does not know of it
		p.finish(l)
		return
	}
	p.say(message{Kind: sayClose, Link: l.base})
}

// closed handles that the peer has closed its end of a link.
func (p *pair) closed(theirs uint32) {
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
	p.stay(l)
	l.silence()
	p.fence(done)
}

// silence has nothing posted for a link any more.
func (l *link) silence() {
	for i := range l.channels {
		l.channels[i].out.leftBy()
		if q := l.channels[i].in.Load(); q != nil {
			q.silence()
		}
	}
}

// finish gives back what a link has had, once the adapter does not read it any more; the peer does
// not write to it. Until then closed finds it, whose answer has to follow all that was posted.
func (p *pair) finish(l *link) {
	l.ending = ended
	delete(p.links, l.base)
	l.silence()
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

// way returns the connection that fragments take, or the one that is being tried: the peer may know
// that it works, and this side will soon. It is nil if there is neither.
func (p *pair) way() *connection {
	if way := p.up.Load(); way != nil || p.trial == nil {
		return way
	}
	return p.trial.way
}

// fence has the manager do something once all that was posted is complete, or never will be. It may
// do it at once.
func (p *pair) fence(do func()) {
	way := p.way()
	if way == nil {
		do()
		return
	}
	p.fenceOf(way, do)
}

// fenceOf has the manager do something later.
func (p *pair) fenceOf(way *connection, do func()) {
	p.f.manager.attends.Add(1)
	way.fence(func(bool) {
		p.f.manager.attends.Add(-1)
		p.f.manager.do(do)
	})
}

// tidy goes on with links that end, and offers what was not offered.
func (p *pair) tidy() {
	for _, l := range p.links {
		switch l.ending {
		case open_:
			p.offer(l)
			for i := range l.channels {
				if !l.channels[i].out.leave() && !p.over.Load() && l.tcp.Err() == nil {
					p.hurries = true
				}
			}
		case flushing:
			p.flush(l)
		case leaving:
			if p.over.Load() {
				p.finish(l)
			}
		}
	}
}

// close closes the links that are open, and reports whether all have said goodbye.
func (p *pair) close() bool {
	if !p.bye && p.epoch > 0 && !p.over.Load() {
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

package group

// Each pipeline has two words in registered memory, each in a cache line of its own: "there" and
// "done", which hold the number of the last piece that has reached that state.
const wordBytes = 64

// out is added to a word to let go whatever waits for it: no pipeline ever has so many pieces.
const out = 1 << 62

// finish stores into "done" that a piece has ended. After the group has failed it does nothing: the
// values of a word must not go back.
func (p *pipeline) finish(piece uint64) {
	p.g.storing.Lock()
	defer p.g.storing.Unlock()
	if !p.g.released {
		p.g.memory.Store(p.done, piece)
	}
}

// release lets the streams of all pipelines go. failed says that this rank has not done its part of
// what it called, and perhaps never will.
func (g *Group) release(failed bool) {
	g.storing.Lock()
	defer g.storing.Unlock()
	if g.released {
		return
	}
	g.released = true
	if failed && g.windows != nil && g.windows.rails != nil { // whose stream waits for these
		g.windows.warn()
	}
	for _, p := range g.pipelines {
		g.memory.Store(p.done, g.memory.Load(p.done)+out)
	}
}

// releaseWindows lets the streams of the windows go, after the group has failed, as far as they may
// wait for something. It reports whether they are known to have ended.
func (g *Group) releaseWindows() bool {
	w, waits := g.windows, false
	switch {
	case w == nil:
		return true
	case w.graphs.waiting():
		waits = true
	case w.over.Load():
		return true
	}
	w.stopped = w.stopped || w.head() != nil
	if waits || w.stopped {
		g.storing.Lock()
		w.release()
		g.storing.Unlock()
	}
	if !waits {
		g.queries.ask(&g.queries.streams)
	}
	return false
}

// reached reports whether "there" has come to a piece.
func (p *pipeline) reached(piece uint64) bool { return p.g.memory.Reached(p.there, piece) }

package group

// Each road has two words in registered memory, each in a cache line of its own: "there" and
// "done", which hold the number of the last piece that has reached that state.
const wordBytes = 64

// out is added to a word to let go whatever waits for it: no road ever has so many pieces.
const out = 1 << 62

// finish stores into "done" that a piece has ended. After the group has failed it does nothing: the
// values of a word must not go back.
func (r *road) finish(piece uint64) {
	r.g.storing.Lock()
	defer r.g.storing.Unlock()
	if !r.g.released {
		r.g.memory.Store(r.done, piece)
	}
}

// release lets the streams of all roads go.
func (g *Group) release() {
	g.storing.Lock()
	defer g.storing.Unlock()
	if g.released {
		return
	}
	g.released = true
	for _, r := range g.roads {
		g.memory.Store(r.done, g.memory.Load(r.done)+out)
	}
}

// reached reports whether "there" has come to a piece.
func (r *road) reached(piece uint64) bool { return r.g.memory.Reached(r.there, piece) }

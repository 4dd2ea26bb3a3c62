package exec

// WindowChannel is the channel of puts and signals.
const WindowChannel = windowChannel

// Forget makes c forget the calls that came before, after its planner has changed its mind: planners outside of tests never do.
func Forget(c *Comm) { c.cache = cache{} }

// Programs counts the programs that c keeps.
func Programs(c *Comm) int {
	n := 0
	for i := range c.cache.each {
		if c.cache.each[i].low != nil {
			n++
		}
	}
	return n
}

// Foretell makes all peers of c say what c itself will say when its last program runs again, so that this waits for nobody.
func Foretell(c *Comm) {
	w := &c.windows
	p := &c.cache.each[c.cache.recent]
	for r := range w.ranks {
		if r != c.rank {
			n := w.notice(r)
			n.meta[0] = p.said[0] | uint64(uint32(c.Seq()+1))
			n.meta[1] = p.said[1]
			n.meta[2] = p.said[2] ^ uint64(c.history.hash())<<48
			n.word.Store(w.word(mostSignals))
			w.ranks[r].left.Store(w.begun)
		}
	}
}

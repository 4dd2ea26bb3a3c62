package exec

// WindowChannel is the channel of puts and signals.
const WindowChannel = windowChannel

// Forget makes c forget the calls that came before, after its planner has changed its mind: planners outside of tests never do.
func Forget(c *Comm) { c.shortcuts = shortcuts{} }

// Shortcuts counts the calls of c that are remembered.
func Shortcuts(c *Comm) int {
	n := 0
	for i := range c.shortcuts.each {
		if c.shortcuts.each[i].low != nil {
			n++
		}
	}
	return n
}

// Foretell makes all peers of c say what c itself will say when its last shortcut runs again, so that this waits for nobody.
func Foretell(c *Comm) {
	w := &c.windows
	x := &c.shortcuts.each[c.shortcuts.recent]
	for r := range w.ranks {
		if r != c.rank {
			n := w.notice(r)
			n.meta = x.said
			n.meta[0] = n.meta[0]&^(1<<32-1) | uint64(uint32(c.Seq()+1))
			n.meta[2] = x.hash ^ uint64(c.history.hash())<<48
			n.word.Store(w.word(mostSignals))
			w.ranks[r].left.Store(w.begun)
		}
	}
}

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

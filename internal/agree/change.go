package agree

import "slices"

// Change is one rank's part in a change of who is in a group, by losses (Shrink) or by ranks that
// come (Grow; they are counted behind the former ones). All that take part settle who is lost, make
// the group of all others, and settle again: where a rank dies, some may have made a group with it.
// They are done when nobody was lost meanwhile and all have made the group.
//
// Like Machine it sends nothing and reads no clock. Its user brings messages of one rank in order,
// and does what Phase says.
type Change struct {
	terms  Terms
	phase  Phase
	number int // of the agreement under way, or the last one, from 1

	machine *Machine
	gone    []bool     // by rank: no message will come any more
	told    []bool     // of those: the machine knows
	early   [][]Letter // by rank: of agreements that have not begun here
	makes   bool       // the agreement is about a group that was made
	made    bool       // this rank has made a group, which others may know
	looks   int        // since a group was made

	lost, dead []int // as the last agreement has settled
	known      bool
	without    []int // the lost ones of the group that was made
}

// Terms say what is to change.
type Terms struct {
	Self, Ranks int // Ranks are all that may take part
	Lost        []int
	// Dead reports whether this rank knows that a lost one is dead.
	Dead func(rank int) bool
	// Needed is how many ranks, the first ones, the group cannot do without: the ranks of a group
	// that grows. Who loses one before it has made the group gives up at once: nobody has a group
	// without it.
	Needed int
	// Allows reports whether the ranks that are left may go on, if all are there that are needed:
	// the same on all ranks. known is set if Known is for one of them.
	Allows func(lost, dead []int, known bool) bool
	Known  bool
	// Looks is how often the ranks settle again where they may not go on: a death may be known
	// later than the loss.
	Looks int
}

// Phase is where a Change is.
type Phase int

const (
	Agreeing Phase = iota // ranks are awaited
	Making                // the group of Members is to be made; then Made is called
	Looking               // after a while Look is called
	Done                  // over: all members have made the group
	TooFew                // over: those that are left may not go on, as all of them know
	LeftOut               // over: the others count this rank among the lost
	Broken                // over: this rank has lost one that is needed, and the others have to be told
)

// Letter is a message of one of several agreements.
type Letter struct {
	Number int // of the agreement, from 1
	What   *Message
}

// NewChange returns a rank's part, which Begin begins.
func NewChange(t Terms) *Change {
	return &Change{terms: t, lost: t.Lost, known: t.Known, gone: make([]bool, t.Ranks),
		early: make([][]Letter, t.Ranks)}
}

// Phase returns where the change is.
func (c *Change) Phase() Phase { return c.phase }

// Number returns how many agreements there have been, with the one under way.
func (c *Change) Number() int { return c.number }

// Lost returns the ranks that are settled to be lost, and those of them that are known to be dead.
func (c *Change) Lost() (lost, dead []int) { return c.lost, c.dead }

// Members returns the ranks that are not lost.
func (c *Change) Members() (ranks []int) {
	for rank := range c.terms.Ranks {
		if !slices.Contains(c.lost, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Awaited returns the ranks that this one waits for.
func (c *Change) Awaited() []int {
	if c.phase != Agreeing || c.machine == nil {
		return nil
	}
	return c.machine.Awaited()
}

// Begin returns what this rank has to tell all others that are not lost, as all methods that return
// letters do.
func (c *Change) Begin() []Letter { return c.settle(false) }

// Hear takes a letter.
func (c *Change) Hear(from int, l Letter) []Letter {
	c.early[from] = append(c.early[from], l)
	return c.advance()
}

// Gone takes the loss of a rank, all of whose letters have been heard.
func (c *Change) Gone(rank int) []Letter {
	c.gone[rank] = true
	if rank < c.terms.Needed && !c.made && c.phase < Done {
		c.phase = Broken
	}
	return c.advance()
}

// Needs returns those of the needed ranks that are lost.
func (c *Change) Needs() (ranks []int) {
	for rank := range c.terms.Needed {
		if c.gone[rank] || slices.Contains(c.lost, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Made says whether this rank has made the group of Members.
func (c *Change) Made(made bool) []Letter {
	c.makes, c.made, c.looks, c.without = true, c.made || made, 0, c.lost
	return c.settle(!made)
}

// Look settles again, since more deaths may be known.
func (c *Change) Look() []Letter {
	c.looks++
	return c.settle(false)
}

// settle begins an agreement.
func (c *Change) settle(veto bool) []Letter {
	c.number++
	c.phase, c.told = Agreeing, make([]bool, c.terms.Ranks)
	c.machine = New(c.terms.Self, c.terms.Ranks, c.lost, c.deadOf(c.lost), veto, c.known)
	return append(c.numbered(c.machine.Begin()), c.advance()...)
}

// advance hands the machine what is there for it.
func (c *Change) advance() (tell []Letter) {
	if c.phase != Agreeing || c.machine == nil {
		return nil
	}
	for rank := range c.early {
		for len(c.early[rank]) > 0 && c.early[rank][0].Number <= c.number {
			if l := c.early[rank][0]; l.Number == c.number {
				tell = append(tell, c.numbered(c.machine.Hear(rank, l.What))...)
			}
			c.early[rank] = c.early[rank][1:]
		}
		if c.gone[rank] && !c.told[rank] && len(c.early[rank]) == 0 {
			c.told[rank] = true
			tell = append(tell, c.numbered(c.machine.Gone(rank, c.isDead(rank)))...)
		}
	}
	if settled := c.machine.Decided(); settled != nil {
		c.lost, c.dead, c.known = settled.Lost, settled.Dead, settled.Known
		c.phase = c.after(settled.Veto)
	}
	return tell
}

// after returns what follows when an agreement has settled.
func (c *Change) after(veto bool) Phase {
	done := c.makes && !veto && slices.Equal(c.without, c.lost)
	c.makes = false
	switch {
	case slices.Contains(c.lost, c.terms.Self):
		return LeftOut
	case done:
		return Done
	case slices.ContainsFunc(c.lost, func(rank int) bool { return rank < c.terms.Needed }):
		return TooFew
	case c.terms.Allows(c.lost, c.dead, c.known):
		return Making
	case c.looks < c.terms.Looks:
		return Looking
	}
	return TooFew
}

func (c *Change) numbered(messages []*Message) (letters []Letter) {
	for _, each := range messages {
		letters = append(letters, Letter{c.number, each})
	}
	return letters
}

// isDead reports whether a rank is known to be dead, by this rank or by what was settled.
func (c *Change) isDead(rank int) bool { return slices.Contains(c.dead, rank) || c.terms.Dead(rank) }

func (c *Change) deadOf(lost []int) (dead []int) {
	for _, rank := range lost {
		if c.isDead(rank) {
			dead = append(dead, rank)
		}
	}
	return dead
}

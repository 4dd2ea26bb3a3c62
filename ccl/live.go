package ccl

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/internal/live"
)

// What goccl top and the records are told of this process.

const (
	paceSpan  = time.Second            // over which a snapshot counts operations
	standSpan = 300 * time.Millisecond // in which the drivers of all groups tell whom they wait for
)

// alive has the Nodes of this process that have opened groups.
var alive = struct {
	sync.Mutex
	nodes  map[*Node]bool
	server *live.Server // of goccl top; nil for none
}{nodes: map[*Node]bool{}}

// show has goccl top told of the Node's groups, unless the options forbid it. Where that is
// impossible, for example since another process has the name, goccl top is told nothing, and
// nothing else differs.
func (n *Node) show() {
	alive.Lock()
	defer alive.Unlock()
	alive.nodes[n] = true
	if alive.server == nil && !n.hidden {
		alive.server, _ = live.Serve(snapshot, n.track)
	}
}

func (n *Node) hide() {
	alive.Lock()
	delete(alive.nodes, n)
	var last *live.Server
	shown := false
	for other := range alive.nodes {
		shown = shown || !other.hidden
	}
	if !shown {
		last, alive.server = alive.server, nil
	}
	alive.Unlock()
	if last != nil { // a snapshot that is being made wants the lock
		last.Close()
	}
}

// snapshot tells what the groups of this process are doing. It reads what is there, and asks the
// drivers: no operation does anything for it before.
func snapshot() *live.Process {
	p := &live.Process{Version: Version, Pid: os.Getpid()}
	end := time.Now().Add(standSpan)
	for _, c := range joined() {
		if !c.node.hidden {
			p.Groups = append(p.Groups, c.live(time.Until(end)))
		}
	}
	return p
}

// joined returns the Communicators of this process that are not closed, in the order in which they
// were made.
func joined() []*Communicator {
	var comms []*Communicator
	alive.Lock()
	for n := range alive.nodes {
		n.mu.Lock()
		comms = slices.AppendSeq(comms, maps.Keys(n.comms))
		n.mu.Unlock()
	}
	alive.Unlock()
	slices.SortFunc(comms, func(a, b *Communicator) int { return cmp.Compare(a.number, b.number) })
	return comms
}

// about is what only the caller knows of a group.
type about struct {
	description string
	ranks       []uint64
}

// Describe sets what goccl top and records say of the group: a description, and the numbers of its
// ranks in the whole job, by rank of the group; none where they are the same.
func (c *Communicator) Describe(description string, ranks []uint64) {
	c.about.Store(&about{description, slices.Clone(ranks)})
}

func (c *Communicator) live(patience time.Duration) live.Group {
	of := live.Group{Name: c.origin.endpoint.cfg.Name, Rank: c.Rank(), Size: c.Size(), JobRank: c.Rank(),
		Routes: c.Routes()}
	if a := c.about.Load(); a != nil {
		of.Description = a.description
		if of.Rank < len(a.ranks) {
			of.JobRank = int(a.ranks[of.Rank])
		}
	}
	if pace, recorded := c.Pace(paceSpan); recorded {
		of.Pace = &live.Pace{Operations: float64(pace.Operations) / pace.Span.Seconds(),
			Bytes: float64(pace.Bytes) / pace.Span.Seconds()}
		open := pace.Collective
		if open.ID == 0 {
			open = pace.Message
		}
		if open.ID != 0 {
			of.For = time.Since(open.Begun).Seconds()
		}
	}
	s := c.Standing(patience)
	of.Seq, of.Messages, of.Op, of.Busy, of.Waits = s.Seq, c.Messages(), s.Op, s.Busy || s.Op != "", s.Waits
	if c.Device() != nil { // s is about pieces of calls
		of.Seq = c.Seq()
	}
	if !of.Busy { // receives that were posted may be open, but nobody waits for them
		of.For = s.Idle.Seconds()
	}
	for _, lost := range c.Lost() {
		of.Lost = append(of.Lost, lost.Peer)
	}
	if err := c.Failure(); err != nil {
		of.Failure = err.Error()
	}
	return of
}

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

// What goccl top is told of this process.

const (
	paceSpan  = time.Second            // over which a snapshot counts operations
	standSpan = 300 * time.Millisecond // in which the drivers of all groups tell whom they wait for
)

// alive has the Nodes of this process of which goccl top is told, as long as there are any.
var alive = struct {
	sync.Mutex
	nodes  map[*Node]bool
	server *live.Server // nil for none
}{nodes: map[*Node]bool{}}

// show has goccl top told of the Node's groups, unless the options forbid it. Where that is
// impossible, for example since another process has the name, goccl top is told nothing, and
// nothing else differs.
func (n *Node) show() {
	if n.opts.NoTop {
		return
	}
	alive.Lock()
	defer alive.Unlock()
	if alive.server == nil {
		alive.server, _ = live.Serve(snapshot, n.track)
	}
	alive.nodes[n] = true
}

func (n *Node) hide() {
	alive.Lock()
	delete(alive.nodes, n)
	var last *live.Server
	if len(alive.nodes) == 0 {
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
	var comms []*Communicator
	alive.Lock()
	for n := range alive.nodes {
		n.mu.Lock()
		comms = slices.AppendSeq(comms, maps.Keys(n.comms))
		n.mu.Unlock()
	}
	alive.Unlock()
	slices.SortFunc(comms, func(a, b *Communicator) int { return cmp.Compare(a.number, b.number) })
	p := &live.Process{Version: Version, Pid: os.Getpid()}
	end := time.Now().Add(standSpan)
	for _, c := range comms {
		p.Groups = append(p.Groups, c.live(time.Until(end)))
	}
	return p
}

// about is what only the caller knows of a group.
type about struct {
	description string
	ranks       []uint64
}

// Describe sets what goccl top says of the group: a description, and the numbers of its ranks in
// the whole job, by rank of the group; none where they are the same.
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

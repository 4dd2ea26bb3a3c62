package pgbackend

import (
	"os"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/internal/live"
)

const (
	paceSpan  = time.Second            // over which a snapshot counts operations
	standSpan = 300 * time.Millisecond // in which the drivers of all groups tell whom they wait for
)

// serve lets goccl top ask this process. Where that is impossible, for example since another
// process has the name, goccl top cannot, and nothing else differs.
func serve(track func(fd int, open bool)) { live.Serve(snapshot, track) }

// snapshot tells what the groups of this process are doing. It reads what is there, and asks the
// drivers: no operation does anything for it before.
func snapshot() *live.Process {
	joinedGroups.Lock()
	groups := slices.Clone(joinedGroups.list)
	joinedGroups.Unlock()
	p := &live.Process{Version: ccl.Version, Pid: os.Getpid()}
	end := time.Now().Add(standSpan)
	for _, g := range groups {
		if comm := g.comm.Load(); comm != nil { // otherwise closed just now
			p.Groups = append(p.Groups, g.live(comm, time.Until(end)))
		}
	}
	return p
}

func (g *Group) live(comm *ccl.Communicator, patience time.Duration) live.Group {
	of := live.Group{Name: g.name, Rank: comm.Rank(), Size: comm.Size(), JobRank: comm.Rank(), Routes: comm.Routes()}
	if a := g.about.Load(); a != nil {
		of.Description = a.description
		if of.Rank < len(a.ranks) {
			of.JobRank = int(a.ranks[of.Rank])
		}
	}
	if pace, recorded := comm.Pace(paceSpan); recorded {
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
	s := comm.Standing(patience)
	of.Seq, of.Messages, of.Op, of.Busy, of.Waits = s.Seq, comm.Messages(), s.Op, s.Busy || s.Op != "", s.Waits
	if g.place != nil { // s is about pieces of calls
		of.Seq = comm.Seq()
	}
	if !of.Busy { // receives that were posted may be open, but nobody waits for them
		of.For = s.Idle.Seconds()
	}
	for _, lost := range comm.Lost() {
		of.Lost = append(of.Lost, lost.Peer)
	}
	if err := comm.Failure(); err != nil {
		of.Failure = err.Error()
	}
	return of
}

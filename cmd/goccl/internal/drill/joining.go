package drill

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// partAgain is the part of a rank that joins once more, for one round, when it could not join the
// others, or has lost one; partSecond that of a process that takes the place of a rank then.
const (
	partAgain  = "again"
	partSecond = "second"
)

// joinSpan is how long a join takes at most, mostly: a rank is killed at some moment of it.
const joinSpan = 20 * time.Millisecond

// joiningFaults returns the faults that happen while ranks join. The collective does not matter.
func joiningFaults() []*drillFault {
	once := func(coll dtype.Collective) bool { return coll == dtype.AllReduce }
	return []*drillFault{
		{
			name: "kill-joining", doc: "one rank is killed while all of them join", applies: once,
			cast:    func(*stage, int, *drillSpec, *ccl.Options) {},
			joining: func(s *stage) error { return s.killJoining(wordEnded) },
			expects: func(s *stage, rank int) *expectation {
				if rank == s.culprit {
					return nil
				}
				e := &expectation{codes: codes(fault.PeerLost), culprits: s.culprits, within: s.joinLimit()}
				if s.cell.Road == roadHosts {
					e.codes = codes(fault.PeerLost, fault.Timeout)
				}
				return e
			},
		},
		{
			name: "restart-joining", applies: once,
			doc:     "the same; another process takes its place, and all of them join again",
			cast:    func(_ *stage, _ int, spec *drillSpec, _ *ccl.Options) { spec.Part = partAgain },
			joining: restartJoining,
			expects: endsWell(0),
		},
	}
}

// killJoining kills a rank that joins, and returns when the others have said that they have
// noticed. If they had joined all the same, they notice in their calls.
func (s *stage) killJoining(word string) error {
	time.Sleep(time.Duration(rand.IntN(int(joinSpan))))
	s.event = time.Now()
	if err := s.signal(s.culprit, syscall.SIGKILL); err != nil {
		return err
	}
	s.tell("go", s.others...)
	return s.await(word, s.others...)
}

// joinLimit is how long ranks may take to learn that one has died before it was connected. Another
// host cannot know: that it refuses connections may be a firewall's doing.
func (s *stage) joinLimit() time.Duration {
	if s.cell.Road == roadHosts {
		return joinTimeout + deathLimit
	}
	return deathLimit
}

func restartJoining(s *stage) error {
	if err := s.killJoining(wordAgain); err != nil {
		return err
	}
	for _, rank := range s.others {
		took, limit := time.Duration(s.actors[rank].said[wordAgain].At-s.event.UnixNano()), s.joinLimit()
		if took > limit {
			return fmt.Errorf("rank %d learns of the death after %s, more than %s", rank, seconds(took), seconds(limit))
		}
	}
	s.actors[s.culprit].end()
	spec := s.spec(s.culprit)
	spec.Part = partSecond
	a, err := s.launch(spec)
	if err != nil {
		return err
	}
	s.actors[s.culprit] = a
	if err := s.await(wordAddress, s.culprit); err != nil {
		return err
	}
	addresses := make([]json.RawMessage, s.cell.Ranks)
	for rank, a := range s.actors {
		addresses[rank] = a.said[wordAgain].Address
	}
	addresses[s.culprit] = a.said[wordAddress].Address
	if err := s.tellAddresses(addresses); err != nil {
		return err
	}
	return s.await(wordEnded, s.everyone()...)
}

// again joins, after a failure or in the place of another process, and does one round.
func (r *player) again(word string) *rankEnd {
	if r.comm != nil {
		r.comm.Close()
		r.comm = nil
	}
	end := &rankEnd{}
	if err := r.join(word); err != nil {
		return &rankEnd{Error: failureOf(err), During: "join"}
	}
	end.Error = failureOf(r.play(end))
	return end
}

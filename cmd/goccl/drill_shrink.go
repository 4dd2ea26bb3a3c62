package main

import (
	"context"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// partShrink is the part of a rank that does rounds until one fails, and then goes on with the
// ranks that are left, for one more round.
const partShrink = "shrink"

// shrinkFaults returns the faults after which only some ranks may go on. The collective before does
// not matter.
func shrinkFaults() []*drillFault {
	once := func(coll dtype.Collective) bool { return coll == dtype.AllReduce }
	return []*drillFault{
		{
			name: "partition", doc: "the wire between two hosts drops everything, and all ranks shrink the group",
			roads: []string{roadHosts}, applies: once, wire: true,
			cast: func(_ *stage, _ int, spec *drillSpec, opts *ccl.Options) {
				spec.Part, opts.PeerTimeout = partShrink, peerTimeout
			},
			act: silence, undo: func(s *stage) { command("ip", "link", "set", s.port(), "up") },
			expects: func(s *stage, rank int) *expectation {
				var first []int // the ranks of the first host: more than half of them, or half with rank 0
				for other := range s.cell.Ranks {
					if s.cell.host(other) == 0 {
						first = append(first, other)
					}
				}
				if slices.Contains(first, rank) {
					return &expectation{}
				}
				// The round may fail later than the wire, and shrink waits for those that are
				// silent.
				return &expectation{codes: codes(fault.PeerLost), culprits: first, within: peerTimeout + 2*moreLimit,
					evidence: regexp.MustCompile(`may have gone on`)}
			},
		},
		{
			name: "wake-after-shrink", doc: "one rank is stopped; the others go on without it, and then it wakes",
			applies: once,
			cast: func(s *stage, rank int, spec *drillSpec, _ *ccl.Options) {
				spec.Part, spec.Timeout = partShrink, s.timeout
				if rank != s.culprit {
					spec.Without = []int{s.culprit}
				}
			},
			act: func(s *stage) error {
				if err := s.somewhere(); err != nil {
					return err
				}
				s.event = time.Now()
				if err := s.signal(s.culprit, syscall.SIGSTOP); err != nil {
					return err
				}
				if err := s.await(wordEnded, s.others...); err != nil {
					return err
				}
				s.later[s.culprit] = time.Now()
				if err := s.signal(s.culprit, syscall.SIGCONT); err != nil {
					return err
				}
				return s.await(wordEnded, s.culprit)
			},
			expects: func(s *stage, rank int) *expectation {
				if rank != s.culprit {
					return &expectation{}
				}
				return &expectation{codes: codes(fault.PeerLeft), culprits: s.others, within: deathLimit,
					evidence: regexp.MustCompile(`left out by ranks`), former: true}
			},
		},
	}
}

// shrink goes on with the ranks that are left, after err has ended the group.
func (r *player) shrink(err error, end *rankEnd) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), longTimeout)
	defer cancel()
	*end = rankEnd{Wrong: end.Wrong, Called: time.Now().UnixNano()}
	next, members, err := r.comm.Shrink(ctx, r.spec.Without...)
	if err != nil {
		end.Failed = time.Now().UnixNano()
		return err
	}
	if err := r.comm.Close(); err != nil {
		return err
	}
	r.comm = next
	r.spec.Rank, r.spec.Ranks, r.spec.Root = next.Rank(), len(members), 0
	if r.drill, err = newExercise(next, r.spec); err != nil {
		return err
	}
	return r.drill.round(ctx, end)
}

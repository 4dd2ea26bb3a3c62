package drill

import (
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/netlab"
)

// partShrink is the part of a rank that does rounds until one fails, and then goes on with the
// ranks that are left, for one more round.
const partShrink = "shrink"

// shrinkFaults returns the faults after which only some ranks may go on. The collective before does
// not matter.
func shrinkFaults() []*drillFault {
	once := func(coll dtype.Collective) bool { return coll == dtype.AllReduce }
	return []*drillFault{
		partition("partition", "the wire between two hosts drops everything, and all ranks shrink the group", false,
			silence, func(s *stage) { command("ip", "link", "set", s.port(), "up") }),
		{
			name: "wake-after-shrink", doc: "one rank is stopped; the others go on without it, and then it wakes",
			applies: once,
			cast: func(s *stage, rank int, spec *drillSpec, _ *ccl.Options) {
				spec.Part, spec.Timeout = partShrink, s.timeout
				if rank != s.culprit {
					spec.Without = []int{s.culprit}
				}
			},
			act: stopLong,
			expects: func(s *stage, rank int) *expectation {
				if rank != s.culprit {
					return &expectation{}
				}
				return &expectation{codes: codes(fault.PeerLeft), culprits: s.others, within: deathLimit,
					evidence: regexp.MustCompile(`left out by ranks`), former: true}
			},
		},
		partition("partition-lone", "the same, and one host has rank 0 only", true,
			silence, func(s *stage) { command("ip", "link", "set", s.port(), "up") }),
		partition("partition-one-way", "the wire drops what goes to one of the hosts", false,
			func(s *stage) error {
				if err := s.somewhere(); err != nil {
					return err
				}
				s.event = time.Now()
				if err := s.leadAstray("02:00:00:00:ff:ff"); err != nil {
					return err
				}
				return s.await(wordEnded, s.everyone()...)
			},
			func(s *stage) { s.leadAstray(netlab.MAC(s.lane, 1)) }),
	}
}

// leadAstray has host 0 send what is for host 1 to a hardware address. Host 1 sends as before.
func (s *stage) leadAstray(to string) error {
	network := netlab.Network{Wires: make([]netlab.Wire, s.lane+1)}
	return command("ip", "-n", netlab.Host(0), "neigh", "replace", network.Address(s.lane, 1), "lladdr", to,
		"dev", netlab.Interface(s.lane), "nud", "permanent")
}

// partition returns a fault of the wire between two hosts whose ranks shrink the group then. The
// larger part goes on, or half of the ranks with the lowest one.
func partition(name, doc string, lone bool, act func(*stage) error, undo func(*stage)) *drillFault {
	return &drillFault{
		name: name, doc: doc, roads: []string{roadHosts}, wire: true, lone: lone,
		applies: func(coll dtype.Collective) bool { return coll == dtype.AllReduce },
		cast: func(_ *stage, _ int, spec *drillSpec, opts *ccl.Options) {
			spec.Part, opts.PeerTimeout = partShrink, peerTimeout
		},
		act: act, undo: undo,
		expects: func(s *stage, rank int) *expectation {
			var parts [2][]int
			for other := range s.cell.Ranks {
				host := s.cell.host(other)
				parts[host] = append(parts[host], other)
			}
			most := parts[0]
			if len(parts[1]) > len(parts[0]) {
				most = parts[1]
			}
			if slices.Contains(most, rank) {
				return &expectation{}
			}
			// The round may fail later than the wire, and shrink waits for those that are silent.
			return &expectation{codes: codes(fault.PeerLost), culprits: most, within: peerTimeout + 2*moreLimit,
				evidence: regexp.MustCompile(`may have gone on`)}
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
